"""Text to index terms: Anserini's DefaultEnglishAnalyzer on Lucene 9.5.

Words (words.py), possessive 's off, lower case, Lucene's English stop words out, Porter stems (porter.py).
"""

from __future__ import annotations

from functools import lru_cache

from seedbench_envs.bm25.porter import stem
from seedbench_envs.bm25.words import split_words

VERSION = "lucene-9.5-english"
"""Names these rules in stored indexes; a change of any term is a new version."""

STOP_WORDS = frozenset({
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no", "not",
    "of", "on", "or", "such", "that", "the", "their", "then", "there", "these", "they", "this", "to", "was",
    "will", "with",
})  # fmt: skip
"""EnglishAnalyzer.ENGLISH_STOP_WORDS_SET."""

_POSSESSIVES = tuple(quote + s for quote in "'\u2019\uff07" for s in "sS")


def analyze(text: str) -> list[str]:
    """The terms of `text`, in order, with repeats; empty where it holds no word.

    >>> analyze("The women's slippers: 9.5 cm, T-shirts")
    ['women', 'slipper', '9.5', 'cm', 't', 'shirt']
    """
    return [term for term in map(term_of, split_words(text)) if term]


@lru_cache(maxsize=1 << 17)
def term_of(word: str) -> str:
    """The term of one word; empty for a stop word."""
    if word.endswith(_POSSESSIVES):
        word = word[:-2]
    word = _lower(word)
    if word in STOP_WORDS:
        return ""
    return stem(word) if max(word, default="") <= "\uffff" else _stem_units(word)


def _lower(word: str) -> str:
    """Lower case, character by character (Java's rule): no final sigma, and the dotted capital I becomes i."""
    return word.lower() if word.isascii() else "".join(letter.lower()[0] for letter in word)


def _stem_units(word: str) -> str:
    """The stemmer counts UTF-16 units, two for a character outside the basic plane."""
    units = word.encode("utf-16-le", "surrogatepass")
    letters = "".join(map(chr, memoryview(units).cast("H")))
    return stem(letters).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
