"""What the paper layouts have for columns, and what the papers call methods and in which order they list them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["family", "micro", "macro", "score", "printed", "derived"]

SUITES = {"alfworld": "ALFWorld", "searchqa": "Search-QA", "webshop": "WebShop"}
"""Suite -> title, in the order of the main table."""


@dataclass(frozen=True, slots=True)
class PaperColumn:
    """One column of numbers; `printed` and `derived` ones hold reported rows alone."""

    suite: str
    kind: Kind
    key: str
    """The summary's family, the key in `seedbench.reported.derived`, or the kind."""
    title: str
    reported: str = ""
    """What reported rows call it; empty where they have no such column."""
    fraction: float | None = None
    reading: str = ""


@dataclass(frozen=True, slots=True)
class ColumnGroup:
    """Columns that stand together under one title."""

    title: str
    columns: tuple[PaperColumn, ...]

    @property
    def suite(self) -> str:
        """The one suite of its columns."""
        return self.columns[0].suite


@dataclass(frozen=True, slots=True)
class PaperLayout:
    """A table of the papers."""

    title: str
    suites: tuple[str, ...]
    methods: tuple[str, ...]
    """Rows in their order; unknown ones follow."""


METHODS = (
    "Vanilla",
    "ReAct",
    "Skill-Prompt*",
    "SFT",
    "OPSD",
    "Skill-GRPO",
    "Skill-GRPO*",
    "GRPO",
    "GiGPO",
    "GRPO+OPSD",
    "Skill-SD",
    "RLSD",
    "SDAR",
    "OPID",
    "SEED",
)
ABLATION = ("full", "w/o SFT", "w/o self-evolving OPD", "w/o on-policy skill")

PAPER_LAYOUTS = {
    "paper": PaperLayout("Main results", tuple(SUITES), METHODS),
    "paper-ablation": PaperLayout("Ablation", tuple(SUITES), ABLATION),
    "paper-efficiency": PaperLayout("Success by share of the training data", tuple(SUITES), METHODS),
    "paper-unseen": PaperLayout("Unseen split", ("alfworld",), METHODS),
}

_TITLES = {
    "grpo": "GRPO",
    "gigpo": "GiGPO",
    "grpo_opsd": "GRPO+OPSD",
    "opid": "OPID",
    "opsd": "OPSD",
    "rlsd": "RLSD",
    "sdar": "SDAR",
    "seed": "SEED",
    "sft": "SFT",
    "skill_grpo": "Skill-GRPO",
    "skill_sd": "Skill-SD",
}
_ABLATED = {
    "SEED": "full",
    "SEED w/o Hindsight Skill SFT": "w/o SFT",
    "SEED w/o Self-Evolving OPD": "w/o self-evolving OPD",
    "SEED w/o On-Policy Skill": "w/o on-policy skill",
}
_FAMILIES = {
    "alfworld": {key: key.capitalize() for key in ("pick", "look", "clean", "heat", "cool", "pick2")},
    "searchqa": {
        "nq": "NQ",
        "triviaqa": "TriviaQA",
        "popqa": "PopQA",
        "hotpotqa": "HotpotQA",
        "2wikimultihopqa": "2Wiki",
        "musique": "MuSiQue",
        "bamboogle": "Bamboogle",
    },
}


def official(suite: str) -> str:
    """The suite whose columns a suite's runs stand in: `alfworld` for `mini-alfworld`."""
    return suite.removeprefix("mini-")


def method_title(method: str, layout: str, *, skills: bool = False) -> str:
    """What the papers call a method; `skills`: static skills stood in the prompts of the evaluation."""
    plain = method.removesuffix("*")
    title = _TITLES.get(plain, plain)
    if skills or method.endswith("*"):
        title = "Skill-Prompt*" if title == "Vanilla" else f"{title}*"
    return _ABLATED.get(title, title) if layout == "paper-ablation" else title


def rank(label: str, layout: str) -> int:
    """Place of a row in the layout, whatever its name has in brackets; equal for all unknown ones, which follow."""
    known = [name.casefold() for name in PAPER_LAYOUTS[layout].methods]
    name = label.partition(" (")[0].casefold()
    return known.index(name) if name in known else len(known)


def families(suite: str) -> tuple[str, ...]:
    """The families that have a column in the paper layouts; none for WebShop."""
    return tuple(_FAMILIES.get(suite, ()))


def result_groups(suites: Iterable[str], *, measured: bool, reported: bool) -> tuple[ColumnGroup, ...]:
    """The columns of results, a group for each suite: those that only measured, only reported rows have on request."""
    wanted = set(suites)
    return tuple(
        ColumnGroup(SUITES[suite], tuple(_columns(suite, measured, reported))) for suite in SUITES if suite in wanted
    )


def _columns(suite: str, measured: bool, reported: bool) -> list[PaperColumn]:
    columns = [PaperColumn(suite, "family", key, title, title) for key, title in _FAMILIES.get(suite, {}).items()]
    match suite:
        case "alfworld":
            means = [PaperColumn(suite, "micro", "micro", "Micro"), PaperColumn(suite, "macro", "macro", "Macro")]
            columns += means if measured else []
            further = [
                PaperColumn(suite, "printed", "printed", "Avg†", "Avg"),
                PaperColumn(suite, "derived", "macro", "Macro‡"),
            ]
        case "searchqa":
            columns.append(PaperColumn(suite, "macro", "macro", "Avg", "Avg"))
            further = [
                PaperColumn(suite, "derived", "bamboogle_per_question", "Bamb.‡"),
                PaperColumn(suite, "derived", "search_average", "Avg‡"),
            ]
        case _:
            score = PaperColumn(suite, "score", "score", "Score", "Score")
            columns += [score, PaperColumn(suite, "micro", "micro", "Succ", "Succ")]
            further = []
    return columns + (further if reported else [])


def fraction_groups(parts: Sequence[tuple[str, float, str]]) -> tuple[ColumnGroup, ...]:
    """Success by data fraction: a group for each suite and reading in `(suite, fraction, reading)`."""
    groups: dict[tuple[str, str], set[float]] = {}
    for suite, fraction, reading in parts:
        groups.setdefault((suite, reading), set()).add(fraction)
    order = list(SUITES)
    return tuple(
        ColumnGroup(
            f"{SUITES[suite]}, share of the {reading}" if reading else f"{SUITES[suite]}, share of data not specified",
            tuple(
                PaperColumn(suite, "micro", "micro", f"{100 * share:g} %", f"{100 * share:g}%", share, reading)
                for share in sorted(groups[suite, reading])
            ),
        )
        for suite, reading in sorted(groups, key=lambda key: (order.index(key[0]), key[1]))
    )
