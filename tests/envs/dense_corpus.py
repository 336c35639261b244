"""Dense indexes of the generated corpus: the whole, and three parts of it of different sizes."""

from pathlib import Path

from seedbench_envs.searchqa import library
from seedbench_envs.searchqa.corpus import read_corpus
from seedbench_envs.searchqa.indexing import build_index
from seedbench_envs.searchqa.retrievers.engine import BuildOptions
from tests.envs.tiny_corpus import tiny_encoder, write

SIZES = {"whole": 3280, "a": 2000, "b": 1000, "c": 280}
CUTS = {"whole": slice(0, 3280), "a": slice(0, 2000), "b": slice(2000, 3000), "c": slice(3000, 3280)}


def indexes(folder: Path) -> Path:
    """Build them with a tiny encoder, each in the sub-folder of its name in `SIZES`."""
    options = BuildOptions(encoder=str(tiny_encoder(folder / "encoder")), max_tokens=24, batch=256)
    library.index_folder("mini")
    passages = list(read_corpus(library.edition_folder("mini") / "corpus.jsonl.gz"))
    assert len(passages) == SIZES["whole"]
    for name, cut in CUTS.items():
        corpus = write(folder / f"{name}.jsonl.gz", passages[cut])
        build_index(corpus, "dense", folder / name, options, lambda line: None)
    return folder
