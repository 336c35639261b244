"""Splits text into words as Lucene's StandardTokenizer does (Lucene 9.5, Unicode 12.1).

The rules are those of Unicode Standard Annex 29 with Lucene's choices: words, numbers, South East Asian runs,
single Han and hiragana characters and emoji are kept, everything else is dropped; a colon joins letters; a word of
more than 255 UTF-16 units is cut where the longest match within 255 units ends.

Every character is first replaced by the one-letter symbol of its class (characters.txt), so that the rules are
short patterns over symbols. One text is read otherwise: Lucene loses the words before an unpaired surrogate that
ends it, which no UTF-8 text holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

MAX_UNITS = 255
"""Longest word, in UTF-16 units."""

_OTHER = ord("-")
_LETTER_PICTOGRAPH = ord("P")

# A mark belongs to the character before it (WB4); `x` any mark, `y` any but the presentation selectors.
_x = "[xztekmgGs]*+"
_y = "[xzkmgGs]*+"
_connectors = f"(?:_{_x})"
# WB5-7, 9, 10: letters and digits stick together, and one joining character between two letters is kept.
_next = rf"[APH]{_x}"
_letters = rf"[AP]++{_x}(?:[:.']{_x}{_next})*+"
# WB7a-c: quotes after a Hebrew letter, but not after one that a joining character led to.
_hebrew = rf"""H{_x}(?:"{_x}H{_x}|'{_x}|[:.]{_x}{_next}(?:[:.']{_x}{_next})*+)?"""
_digits = rf"N++{_x}(?:[,.']{_x}(?=N))?"  # WB8, 11, 12
_part = rf"(?:(?:{_letters}|{_digits}|{_hebrew})++|(?:K{_x})++)"  # WB13: katakana sticks to katakana only
_word = rf"{_connectors}*+{_part}(?:{_connectors}++{_part})*+{_connectors}*+"  # WB13a, 13b

# Pictographs with marks, joined by zero-width joiners; a presentation selector may end each of them.
_joined = rf"[EP]{_y}(?:(?:(?<=z)|ez++)[EP]{_y}|ezm{_y}(?<=z)[EP]{_y})*+(?:e(?:zm{_y})?)?"
_emoji = rf"z*+[EP]{_y}eg++G|z*+{_joined}|m{_y}(?:(?<=z){_joined})?"
_keycap = rf"#(?:{_y}ek{_y}|[xzmgGs]*k{_y})"
_flag = rf"F{_x}F{_x}"
_other = rf"(?:[Ss]{_x})++|[CJ]{_x}"

# Nothing can start inside a run that failed, so it is passed over at once: a line of underscores stays linear.
_WORD = re.compile(rf"(?![-:,.'\"xtekgG])(?:({_word}|{_emoji}|{_keycap}|{_flag}|{_other})|_[_xkgGte]*+|z++)".encode())
_EMOJI = re.compile(_emoji.encode())


def split_words(text: str) -> list[str]:
    """The words of `text` in order, as they stand there."""
    symbols = _symbols(text)
    words: list[str] = []
    for match in _WORD.finditer(symbols):
        start, end = match.span(1)
        if start < 0:
            continue
        # At most two units a character; and a pictograph that is a letter may go on as a word or as an emoji.
        if end - start > MAX_UNITS // 2 or symbols[start] == _LETTER_PICTOGRAPH:
            words.extend(_split_slowly(text, symbols, start))
            break
        words.append(text[start:end])
    return words


def _split_slowly(text: str, symbols: bytes, position: int) -> Iterator[str]:
    """As `split_words`, from `position` on, with the rules that look at one word at a time."""
    while match := _WORD.search(symbols, position):
        start, end = match.span(1)
        if start < 0:
            position = match.end()
            continue
        end = _longest(symbols, start, end)
        limit = _limit(text, start, end)
        if limit < end:
            cut = _WORD.match(symbols, start, limit)
            if cut is None or cut.end(1) < 0:
                position = start + 1
                continue
            end = _longest(symbols, start, cut.end(1), limit)
        yield text[start:end]
        position = end


def _longest(symbols: bytes, start: int, end: int, limit: int | None = None) -> int:
    if symbols[start] != _LETTER_PICTOGRAPH:
        return end
    emoji = _EMOJI.match(symbols, start, len(symbols) if limit is None else limit)
    return max(end, emoji.end()) if emoji else end


def _limit(text: str, start: int, end: int) -> int:
    """Where a word from `start` must end: `end`, or before it where 255 UTF-16 units are used up."""
    units = 0
    for position in range(start, end):
        units += 1 + (text[position] > "\uffff")
        if units > MAX_UNITS:
            return position
    return end


def _symbols(text: str) -> bytes:
    """One symbol for each character of `text`."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    return bytes(_table()[codes])


@lru_cache(maxsize=1)
def _table() -> NDArray[np.uint8]:
    """Code point -> symbol."""
    table = np.full(0x110000, _OTHER, dtype=np.uint8)
    listing = files("seedbench_envs.bm25").joinpath("characters.txt").read_text("utf-8")
    for line in listing.splitlines():
        symbol, *ranges = line.split()
        if symbol == ";":
            continue
        for span in ranges:
            first, _, last = span.partition("-")
            table[int(first, 16) : int(last or first, 16) + 1] = ord(symbol)
    return table
