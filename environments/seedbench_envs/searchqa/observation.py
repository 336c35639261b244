"""What the agent sees of found passages: the two published shapes, and their bound in tokens.

`search-r1`: a line `Doc 1(Title: "T") text` for each passage. `verl-agent`: `Doc 1: "T"`, a line break and the text
for each, all of it as the value of `result` in a JSON object, non-ASCII characters escaped. Both stand between
`<information>` tags.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from seedbench_envs.searchqa.records import Passage

DocFormat = Literal["search-r1", "verl-agent"]
FORMATS: tuple[DocFormat, ...] = ("search-r1", "verl-agent")
INFORMATION = re.compile(r"<information>(.*?)</information>", re.S)
NOTHING_FOUND = "No passage was found."
CORRECTION = (
    "That was not a valid action. Write a query between <search> and </search> to look something up, or the final"
    " answer between <answer> and </answer>. I will do it again.\n"
)
"""The observation after an invalid action where a protocol asks for one; it stands in the agent's own words."""

_PIECE = re.compile(r"\d|[^\W\d_]+|[^\w\s]|_")
_LINE = {
    "search-r1": re.compile(r'^Doc \d+\(Title: "(.*?)"\) ?(.*?)(?=^Doc \d+\(Title: "|\Z)', re.M | re.S),
    "verl-agent": re.compile(r'^Doc \d+: "(.*?)"\n(.*?)(?=^Doc \d+: "|\Z)', re.M | re.S),
}


@dataclass(frozen=True, slots=True)
class Shown:
    """An observation and what the bound took from it."""

    text: str
    left_out: int
    """Passages that were found and are not shown."""
    shortened: bool
    """The first passage alone was over the bound and lost its end."""


def count_tokens(text: str) -> int:
    """About how many tokens `text` has: runs of letters, digits and other marks one each, non-ASCII ones two.

    Against the recorded prompt lengths of 4,709 real transcripts (Qwen2.5's tokenizer) the mean error is under 3 %,
    the standard deviation 5 %. A bound that needs no tokenizer is the same for every model.
    """
    pieces = _PIECE.findall(text)
    return len(pieces) + sum(not piece.isascii() for piece in pieces)


def show(passages: Sequence[Passage], doc_format: DocFormat, budget: int = 0) -> Shown:
    """Passages, best first, as an observation of at most `budget` tokens (`count_tokens`); 0: no bound.

    What does not fit is left out from the first passage on that is too long; if that is the best one, it is cut
    between two words. Upstream cuts through words, and through the closing tag.
    """
    kept = list(passages)
    while budget and len(kept) > 1 and count_tokens(_wrap(kept, doc_format)) > budget:
        kept.pop()
    text = _wrap(kept, doc_format)
    shortened = bool(budget and kept and count_tokens(text) > budget)
    if shortened:
        text = _longest(kept[0], doc_format, budget)
    return Shown(text, len(passages) - len(kept), shortened)


def _longest(passage: Passage, doc_format: DocFormat, budget: int) -> str:
    """As many words of the passage as fit, found by halving; its title always stays."""
    words = passage.text.split(" ")
    low, high = 0, len(words)
    while low < high:
        middle = (low + high + 1) // 2
        part = Passage(passage.id, passage.title, " ".join(words[:middle]))
        low, high = (middle, high) if count_tokens(_wrap([part], doc_format)) <= budget else (low, middle - 1)
    return _wrap([Passage(passage.id, passage.title, " ".join(words[:low]))], doc_format)


def _wrap(passages: Sequence[Passage], doc_format: DocFormat) -> str:
    if doc_format == "search-r1":
        lines = [f'Doc {n}(Title: "{p.title}") {p.text}' for n, p in enumerate(passages, start=1)]
        return f"<information>{chr(10).join(lines).strip() or NOTHING_FOUND}</information>"
    text = "".join(f"Doc {n}: {p.contents.strip()}\n" for n, p in enumerate(passages, start=1))
    return f"<information>{json.dumps({'result': text or NOTHING_FOUND})}</information>"


def read_passages(observation: str) -> list[tuple[str, str]]:
    """Titles and texts in an observation of either shape, in order; none where it shows no passages."""
    found = INFORMATION.search(observation)
    if found is None:
        return []
    text = found[1]
    if text.startswith('{"result": '):
        try:
            return _LINE["verl-agent"].findall(json.loads(text)["result"])
        except (ValueError, KeyError, TypeError):
            return []
    return _LINE["search-r1"].findall(text)
