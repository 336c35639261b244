"""The shops of an edition: imported into the store, or generated there on first use; opened once in a process."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from seedbench.errors import SeedBenchError, UsageError, unknown
from seedbench.store import Report, store_root
from seedbench_envs.bm25 import Bm25Index
from seedbench_envs.webshop.catalogue import FILE, StoredCatalogue, open_catalogue
from seedbench_envs.webshop.find_nouns import folder_spans
from seedbench_envs.webshop.loading import EDITIONS, Sources, find_sources
from seedbench_envs.webshop.nouns import NounLookup, shipped_spans
from seedbench_envs.webshop.records import Product
from seedbench_envs.webshop.session import Shop

SIZES = tuple(EDITIONS)
"""Sizes of the official edition: the first 1,000 products, the first 100,000, and all. Panels are of the first."""
_INDEX = "index"


def open_shop(edition: str = "official", size: str | None = None) -> Shop:
    """The shop of an edition, shared by everything in this process. The generated one is made on first use.

    Args:
        edition: "official" or "mini".
        size: of the official edition, one of `SIZES`; None is the first.

    Raises:
        SeedBenchError: the official files were not imported, or the store is damaged or cannot be written.
        UsageError: an unknown edition or size.
    """
    return open_folder(_present(edition, size))


def open_stored(edition: str = "official", size: str | None = None) -> StoredCatalogue:
    """The catalogue of an edition alone, without its search index; as `open_shop`."""
    return open_catalogue(_present(edition, size))


def _present(edition: str, size: str | None) -> Path:
    """The folder of a shop that is there."""
    folder = shop_folder(edition, size)
    if edition == "mini":
        _ensure_mini(folder)
    elif not (folder / FILE).is_file():
        raise SeedBenchError(
            f"the WebShop products ({size or SIZES[0]}) are not in the store ({folder}). Import the official files with"
            " `seedbench data fetch webshop --from FOLDER`; without `--from` it says which files they are."
        )
    return folder


def open_folder(folder: Path) -> Shop:
    """The shop that `import_shop` wrote to `folder`, opened once for each state of its catalogue.

    Raises:
        SeedBenchError: there is none, or it is damaged.
    """
    # A shop that is imported again gets new files, and with them a new catalogue object.
    return _opened(open_catalogue(folder), folder)


@lru_cache(maxsize=4)
def _opened(catalogue: StoredCatalogue, folder: Path) -> Shop:
    return Shop(catalogue, _open_index(folder), catalogue)


def _open_index(folder: Path, *, verify: bool = False) -> Bm25Index:
    try:
        return Bm25Index.open(folder / _INDEX, verify)
    except SeedBenchError as error:
        raise SeedBenchError(f"{error} `seedbench data fetch` does both for a shop.") from error


def shop_folder(edition: str, size: str | None = None) -> Path:
    """Where the store keeps a shop; it may not exist yet. Raises UsageError as `open_shop`."""
    if edition not in ("official", "mini"):
        raise unknown("edition", edition, ("official", "mini"))
    if edition == "mini":
        from seedbench_envs.mini.shop import GENERATOR_VERSION

        if size is not None:
            raise UsageError(f"the generated shop has one size, not '{size}'.")
        return store_root() / "mini-webshop" / f"generator-{GENERATOR_VERSION}"
    if size is not None and size not in SIZES:
        raise unknown("size", size, SIZES)
    return store_root() / "webshop" / (size or SIZES[0])


def import_official(source: Path, report: Report) -> None:
    """Import every size whose files lie in the folder `source`; each is in the store when it is reported.

    Raises:
        SeedBenchError: no size is complete, or a file is damaged. Sizes reported before stay imported.
    """
    if not source.is_dir():
        raise SeedBenchError(f"'{source}' is no folder; name the one that holds the official WebShop files.")
    found = {size: sources for size in SIZES if (sources := _sources(source, size)) is not None}
    if not found:
        find_sources(source, SIZES[0])  # raises, naming the file that is missing
    nouns, nouns_from = _nouns(source)
    for size, sources in found.items():
        folder = shop_folder("official", size)
        with _draft(folder) as draft:
            import_shop(sources, draft, report, nouns=nouns, nouns_from=nouns_from)
        if open_catalogue(folder).info.fallback_nouns:
            report(f"`python -m seedbench_envs.webshop.find_nouns {source}` finds them for the next import")
        report(f"imported the {size} shop into {folder}")


def _nouns(source: Path) -> tuple[NounLookup, str]:
    """The shipped nouns of titles, then those that the build step left in `source`; and where they come from."""
    # Shipped ones first: the frozen goals of the small shop must not depend on another version of the model.
    held = [shipped_spans(), *filter(None, [folder_spans(source)])]

    def nouns(title: str) -> tuple[str, ...] | None:
        return next((found for spans in held if (found := spans.nouns(title)) is not None), None)

    return nouns, "; ".join(dict.fromkeys(spans.made_with for spans in held))


def _sources(source: Path, size: str) -> Sources | None:
    try:
        return find_sources(source, size)
    except SeedBenchError:
        return None


def import_shop(sources: Sources, folder: Path, report: Report, **nouns: Any) -> None:
    """Write catalogue and search index of the official files to `folder`.

    `nouns` are the arguments `nouns` and `nouns_from` of `build.import_files`. Raises SeedBenchError as it does.
    """
    from seedbench_envs.webshop.build import import_files

    catalogue, found = import_files(sources, folder, **nouns)
    for line in found.lines():
        report(line)
    documents = ((product.asin, document(product)) for product in catalogue.products())
    Bm25Index.build(documents, scratch=folder).save(folder / _INDEX)


def document(product: Product) -> str:
    """The text that a search looks through: title, description, first bullet and options, lower case, as upstream."""
    options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in product.options.items())
    bullet = product.bullets[0] if product.bullets else ""
    return " ".join((product.title, product.description, bullet, options)).lower()


def verify_shop(edition: str) -> None:
    """Read the stored shop from end to end, products, goals and search index.

    Raises:
        SeedBenchError: it is not there or damaged.
    """
    folder = _present(edition, None)
    open_catalogue(folder).verify()
    _open_index(folder, verify=True)


def fetch_mini() -> None:
    """Make sure that the generated shop is there and whole; a damaged one is generated again.

    Raises:
        SeedBenchError: the store cannot be written.
    """
    folder = shop_folder("mini")
    _ensure_mini(folder)
    try:
        verify_shop("mini")
    except SeedBenchError:
        _generate_mini(folder, keep=False)


def _ensure_mini(folder: Path) -> None:
    """Generate the small shop where this version of it is missing (a few seconds, once)."""
    if not (folder / FILE).is_file():
        _generate_mini(folder, keep=True)


def _generate_mini(folder: Path, *, keep: bool) -> None:
    from seedbench_envs.mini.shop import generate_shop
    from seedbench_envs.mini.shop_text import title_nouns

    with _draft(folder, keep=keep) as draft:
        sources = write_files(draft, *generate_shop())
        import_shop(
            sources, draft, lambda line: None,
            nouns=lambda title: tuple(title_nouns(title)), nouns_from="known to the generator",
        )  # fmt: skip


def write_files(folder: Path, products: Any, attributes: Any, human: Any) -> Sources:
    """Write the three official files, gzipped without a time stamp. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = {"items_shuffle": products, "items_ins_v2": attributes, "items_human_ins": human}
    paths = [folder / f"{stem}.json.gz" for stem in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        path.write_bytes(gzip.compress(json.dumps(content).encode(), compresslevel=6, mtime=0))
    return Sources(paths[0], paths[1], paths[2])


@contextmanager
def _draft(folder: Path, *, keep: bool = False) -> Iterator[Path]:
    """A folder to write to, moved to `folder` when all is well: several processes and threads may come here at once.

    `keep`: what another one put there in the meantime is as good, and stays.

    Raises:
        SeedBenchError: the store cannot be written.
    """
    name = f"{folder.name}.{uuid4().hex}"
    draft, old = folder.with_name(f"{name}.tmp"), folder.with_name(f"{name}.old")
    try:
        draft.mkdir(parents=True)
        yield draft
        if folder.exists() and not keep:
            folder.replace(old)  # who has it open keeps it: what is mapped stays mapped
        try:
            draft.replace(folder)
        except OSError:
            if not keep or not (folder / FILE).is_file():
                raise
    except OSError as error:
        raise SeedBenchError(
            f"cannot write the shop to '{folder}': {error.strerror}. Free space, or let SEEDBENCH_DATA name another"
            " folder, and try again."
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
