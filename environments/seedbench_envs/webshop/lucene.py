"""The shop on the real Lucene, through pyserini: for whoever wants to see that the native search gives the same.

The index is the user's to build, because that takes a Java runtime and pyserini's own command; its input is written
here.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from seedbench.errors import SeedBenchError
from seedbench_envs.bm25 import PyseriniIndex
from seedbench_envs.webshop.library import document, open_shop, shop_folder
from seedbench_envs.webshop.session import Shop

_ROOMS = ("lucene-documents", "lucene-index")


def open_lucene_shop(edition: str = "official", size: str | None = None) -> Shop:
    """The shop of an edition with its search done by Lucene.

    Raises:
        SeedBenchError: the shop is not there, its Lucene index was not built yet (the message has the command, and
            the documents for it are then in place), or pyserini or Java is missing.
    """
    shop = open_shop(edition, size)
    documents, index = (shop_folder(edition, size) / name for name in _ROOMS)
    if not index.is_dir():
        write_documents(shop, documents)
        raise SeedBenchError(
            "the Lucene index of this shop is not built. With pyserini and a Java runtime installed, run `python -m"
            f" pyserini.index.lucene --collection JsonCollection --generator DefaultLuceneDocumentGenerator --threads 1"
            f" --input {documents} --index {index}`."
        )
    return replace(shop, search=PyseriniIndex.open(index))


def write_documents(shop: Shop, folder: Path) -> None:
    """Write the searchable texts of all products to `folder/documents.jsonl`, as pyserini's indexer reads them.

    Raises:
        SeedBenchError: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "documents.jsonl").open("w", encoding="utf-8") as file:
            for asin in shop.catalogue.asins:
                text = document(shop.catalogue.product(asin))
                file.write(json.dumps({"id": asin, "contents": text}) + "\n")
    except OSError as error:
        raise SeedBenchError(f"cannot write '{folder}': {error.strerror}.") from error
