"""SeedBench: fair evaluation and training of language-model agents on ALFWorld, WebShop and Search-QA."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("seedbench")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0+unknown"
