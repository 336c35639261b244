"""Which columns a table has, in which order and under which titles. Add a layout by adding an entry."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["family", "micro", "macro", "score", "metric", "amount"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of numbers, each with its interval and n; of plain numbers where the kind is amount."""

    kind: Kind
    """A family's success rate, the micro or macro rate, the mean score, the mean of a metric, or what was spent."""
    key: str
    """The summary's key of the family or metric; of an amount SPENT_per_episode or SPENT_per_solved, with SPENT one of
    `build.SPENT`; otherwise the kind. Unlike all others of the layout."""
    title: str


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a table; the mean number of steps follows them unless `steps` is False."""

    title: str
    columns: tuple[Column, ...]
    caption: str
    """What each number is, for a reader who sees the table alone."""
    steps: bool = True

    @property
    def families(self) -> tuple[tuple[str, str], ...]:
        """(family key, column title)."""
        return self._of("family")

    @property
    def metrics(self) -> tuple[tuple[str, str], ...]:
        """(metric name, column title)."""
        return self._of("metric")

    def _of(self, kind: Kind) -> tuple[tuple[str, str], ...]:
        return tuple((column.key, column.title) for column in self.columns if column.kind == kind)


def _columns(kind: Kind, keys: Iterable[str]) -> tuple[Column, ...]:
    return tuple(Column(kind, key, key.capitalize()) for key in keys)


_MICRO, _MACRO = Column("micro", "micro", "Micro"), Column("macro", "macro", "Macro")

_SUCCESS = (
    "with the 95 % interval (Wilson for one attempt a task, "
    "task-clustered otherwise; Price-Bonett for macro) and n, the episodes counted. Micro: over all "
    "episodes. Macro: unweighted mean of the {families}, none while one of them has no episode. "
    "Steps: mean turns an episode."
)

_ANSWERS = (_MICRO, Column("metric", "f1", "F1"), Column("metric", "sub_em", "Sub-EM"))
_ANSWER = (
    "Micro: over all questions. F1 and Sub-EM: means x 100 of the token overlap with the best gold answer and of its "
    "occurrence in the given one. Each with the 95 % interval and n, the questions counted: Wilson for rates, "
    "Price-Bonett for Avg, Student's t for means, clustered by question where there were several attempts. "
    "Steps: mean turns an episode."
)

LAYOUTS: dict[str, Layout] = {
    "alfworld": Layout(
        title="ALFWorld success",
        columns=(*_columns("family", ("pick", "look", "clean", "heat", "cool", "pick2")), _MICRO, _MACRO),
        caption=f"Success: won episodes in percent, {_SUCCESS.format(families='families')}",
    ),
    "webshop": Layout(
        title="WebShop score and success",
        columns=(
            Column("score", "score", "Score"),
            Column("micro", "micro", "Succ"),
            Column("metric", "attribute", "Attr"),
            Column("metric", "option", "Opt"),
            Column("metric", "type", "Type"),
            Column("metric", "price", "Price"),
        ),
        caption=(
            "Score: mean of the environment's score x 100, 0 where nothing was bought. Succ: episodes with the full "
            "score in percent. Attr, Opt, Type, Price: means x 100 of the parts of the score (attributes that match, "
            "options that match or 1 where none is asked for, kind of product, price) over all episodes, 0 where "
            "nothing was bought. Each with the 95 % "
            "interval and n, the episodes counted: Student's t over tasks for means, Wilson for success and where a "
            "mean's values are all 0 or 1 or do not differ between tasks, clustered by task where tasks were tried "
            "more than once. Steps: mean turns an episode."
        ),
    ),
    "webshop-categories": Layout(
        title="WebShop success by category",
        columns=(
            *_columns("family", ("beauty", "electronics", "garden", "fashion", "grocery")),
            _MICRO,
            _MACRO,
        ),
        caption=f"Success: episodes with the full score in percent, {_SUCCESS.format(families='categories')}",
    ),
    "searchqa": Layout(
        title="Search-QA exact match",
        columns=(
            Column("family", "nq", "NQ°"),
            Column("family", "triviaqa", "TriviaQA"),
            Column("family", "popqa", "PopQA"),
            Column("family", "hotpotqa", "HotpotQA°"),
            Column("family", "2wikimultihopqa", "2Wiki"),
            Column("family", "musique", "MuSiQue"),
            Column("family", "bamboogle", "Bamboogle"),
            Column("macro", "macro", "Avg"),
            *_ANSWERS,
        ),
        caption=(
            "Exact match in percent, averaged per question. ° in-domain: its training questions are in the usual "
            "training set; the others are out-of-domain. Avg: plain mean over the panel's sets, none while one has no "
            f"question. {_ANSWER}"
        ),
    ),
    "mini-searchqa": Layout(
        title="Search-QA exact match, generated world",
        columns=(
            Column("family", "one_hop", "One hop"),
            Column("family", "two_hop", "Two hops"),
            Column("macro", "macro", "Avg"),
            *_ANSWERS,
        ),
        caption=f"Exact match in percent, averaged per question. Avg: plain mean over the families. {_ANSWER}",
    ),
    "cost": Layout(
        title="Success and what it cost",
        columns=(
            Column("micro", "micro", "Success"),
            Column("amount", "steps_per_episode", "Steps"),
            Column("amount", "prompt_tokens_per_episode", "Prompt"),
            Column("amount", "generated_tokens_per_episode", "Generated"),
            Column("amount", "wall_seconds_per_episode", "Wall s"),
            Column("amount", "gpu_seconds_per_episode", "GPU s"),
            Column("amount", "steps_per_solved", "Steps/solved"),
            Column("amount", "generated_tokens_per_solved", "Generated/solved"),
        ),
        caption=(
            "Success: solved episodes in percent with the 95 % interval (Wilson for one attempt a task, "
            "task-clustered otherwise) and n, the episodes counted. Steps: environment steps. Prompt, Generated: "
            "tokens. Wall s, GPU s: seconds by the clock, and the same times the GPUs computed on. Each is the sum "
            "over all finished episodes, infrastructure errors included, divided by their number; under /solved, by "
            "the number of solved ones. Seconds depend on the machine and on how many episodes ran at once. "
            "-: not known, or nothing solved."
        ),
        steps=False,
    ),
}
