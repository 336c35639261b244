"""The seven question sets in their published file forms.

Read are the forms of FlashRAG and Search-R1 (JSON lines; parquet, verl-agent's too), NQ-open, HotpotQA, 2Wiki, MuSiQue,
PopQA, TriviaQA and Bamboogle. What a file is follows from its rows, and from its name only where they do not say.
Questions and answers keep their words; white space around them goes, and so do empty and repeated answers.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seedbench.errors import SeedBenchError
from seedbench_envs.searchqa.records import Question
from seedbench_envs.searchqa.rows import Row, read_rows
from seedbench_envs.searchqa.scoring import normalize


@dataclass(frozen=True, slots=True)
class SetInfo:
    """A question set as papers use it: its title, the split they report, and how many questions that has."""

    title: str
    split: str
    count: int
    in_domain: bool = False
    """Whether its train split is what the published agents learn from."""
    train: int = 0
    """Questions of its train split, where that is used."""


SETS: Mapping[str, SetInfo] = {
    "nq": SetInfo("NQ", "test", 3610, in_domain=True, train=79_168),
    "triviaqa": SetInfo("TriviaQA", "test", 11_313),
    "popqa": SetInfo("PopQA", "test", 14_267),
    "hotpotqa": SetInfo("HotpotQA", "dev", 7405, in_domain=True, train=90_447),
    "2wikimultihopqa": SetInfo("2Wiki", "dev", 12_576),
    "musique": SetInfo("MuSiQue", "dev", 2417),
    "bamboogle": SetInfo("Bamboogle", "test", 125),
}
CONTEXT = "context"
"""The split of questions that name the passages which answer them."""

_HINTS = {
    "nq": r"\bnq\b|natural", "triviaqa": "trivia", "popqa": "popqa", "hotpotqa": "hotpot",
    "2wikimultihopqa": "2wiki", "musique": "musique", "bamboogle": "bamboogle",
}  # fmt: skip
_POSITION = re.compile(r"(?:.*_)?(train|dev|test)_(\d{1,9})")
_SPLITS = {"train": "train", "dev": "dev", "valid": "dev", "validation": "dev", "test": "test"}


def official_count(source: str, split: str) -> int:
    """How many questions the split has in full; 0 where that is not known."""
    info = SETS[source]
    return {info.split: info.count, "train": info.train}.get(split, 0)


def load_questions(
    path: Path, aliases: Mapping[str, Sequence[str]] | None = None, *, published: bool = False
) -> list[Question]:
    """The questions of a file, in its order; rows of several sets may be mixed. Empty: no questions are in it.

    Args:
        path: a file in one of the forms.
        aliases: of 2Wiki, Wikidata id -> other names (`read_aliases`). Published evaluations go without, and so do
            the shipped panels.
        published: leave out the aliases of MuSiQue's own files too.

    Raises:
        SeedBenchError: a damaged file, or a set that cannot be told from rows or name.
    """
    found: list[tuple[Question, int | None]] = []
    counts_rows = True
    for place, row in enumerate(read_rows(path)):
        try:
            read = _read(row, path, aliases or {}, published=published)
        except (TypeError, ValueError, AttributeError) as error:  # a field of another kind
            raise SeedBenchError(f"'{path}', row {place + 1:,}: it cannot be read as a question ({error}).") from error
        if read is not None:
            found.append(read)
            counts_rows = counts_rows and read[1] == place and not _POSITION.fullmatch(str(row.get("id", "")))
        elif not found and not _text(row):
            return []  # a corpus, a manifest or something else: told by the first row
    return _numbered(found, counts_rows=counts_rows)


def _read(
    row: Row, path: Path, aliases: Mapping[str, Sequence[str]], *, published: bool
) -> tuple[Question, int | None] | None:
    """A question without its id, and the number that its row says; None where the row asks nothing."""
    text, answers = _text(row), _answers(row, aliases=not published)
    if not text or row.get("answerable") is False:
        return None
    if row.get("answer_id"):
        answers += aliases.get(str(row["answer_id"]), ())
    kept = tuple(dict.fromkeys(answer.strip() for answer in answers if answer.strip()))
    source = _source(row, path)
    split, number = _place(row, path, source)
    supporting = tuple(map(str, row.get("supporting") or ()))
    return Question("", text, kept, source, split, supporting), number


def _numbered(found: Iterable[tuple[Question, int | None]], *, counts_rows: bool) -> list[Question]:
    """The questions that have answers, with their ids: the number that a row says, or its place in its set.

    `counts_rows`: verl-agent's files number the rows of all sets together, which says nothing of the place in a set.
    """
    numbers: Counter[tuple[str, str]] = Counter()
    questions: list[Question] = []
    for question, number in found:
        key = (question.source, question.split)
        position = numbers[key] if number is None or counts_rows else number
        numbers[key] += 1
        if question.answers:
            questions.append(replace(question, id=f"{question.source}/{question.split}/{position}"))
    return questions


def read_aliases(path: Path) -> dict[str, tuple[str, ...]]:
    """2Wiki's `id_aliases.json`: Wikidata id -> other names and demonyms. Raises SeedBenchError."""
    return {
        str(row["Q_id"]): tuple(map(str, (*row.get("aliases", ()), *row.get("demonyms", ()))))
        for row in read_rows(path)
        if "Q_id" in row
    }


def content_hash(question: Question) -> str:
    """SHA-256 of id, question, answers and supporting passages (64 hex digits).

    The id belongs to it, because MuSiQue and PopQA ask some questions twice.
    """
    content = [question.id, question.question, question.answers, question.supporting]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def question_group(question: Question) -> str:
    """Equal for questions that differ in case, punctuation, articles or white space only (16 hex digits)."""
    return hashlib.sha256(normalize(question.question).encode()).hexdigest()[:16]


def shared_questions(train: Iterable[Question], test: Iterable[Question]) -> list[Question]:
    """The questions of `test` that `train` also asks, in the same words after normalisation."""
    seen = {question_group(question) for question in train}
    return [question for question in test if question_group(question) in seen]


def _nested(row: Row, *keys: str) -> Any:
    value: Any = row
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _text(row: Row) -> str:
    ways = (("question",), ("Question",), ("env_kwargs", "question"), ("extra_info", "question"))
    found = next((value for way in ways if isinstance(value := _nested(row, *way), str)), "")
    # What holds an output too is a recorded attempt.
    return found.strip() if "output" not in row and (_answers(row) or "answerable" in row) else ""


def _answers(row: Row, *, aliases: bool = True) -> list[str]:
    """The accepted answers in whichever field they stand; MuSiQue's aliases stand in one of their own."""
    ways = (
        ("golden_answers",),
        ("reward_model", "ground_truth", "target"),
        ("env_kwargs", "ground_truth", "target"),
        ("possible_answers",),
        ("answer",),
        ("Answer",),
    )
    found = next((value for way in ways if (value := _nested(row, *way)) is not None), None)
    if isinstance(found, dict):  # TriviaQA
        names = {name.lower(): value for name, value in found.items()}
        return list(_strings((names.get("value", ""), *(names.get("aliases") or ()))))
    if isinstance(found, str) and "possible_answers" in row:  # PopQA keeps a JSON list in a column
        with contextlib.suppress(ValueError):
            found = json.loads(found)
    if isinstance(found, (str, int, float)):
        found = [found]
    others = row.get("answer_aliases") if aliases else ()
    return list(_strings((*(found or ()), *(others or ()))))


def _strings(values: Iterable[Any]) -> Iterator[str]:
    yield from (value if isinstance(value, str) else str(value) for value in values if value is not None)


def _source(row: Row, path: Path) -> str:
    named = row.get("data_source") or _nested(row, "env_kwargs", "data_source")
    if isinstance(named, str) and (source := _hinted(named)):
        return source
    shapes = {
        "popqa": "possible_answers", "musique": "question_decomposition", "2wikimultihopqa": "evidences",
        "hotpotqa": "supporting_facts", "triviaqa": "QuestionId",
    }  # fmt: skip
    told = next((source for source, field in shapes.items() if field in row), None)
    source = told or _hinted(path.name) or _hinted(path.parent.name)
    if source is None:
        raise SeedBenchError(
            f"'{path}' holds questions, but not of which set: give it a name with one of {', '.join(SETS)} in it."
        )
    return source


def _hinted(name: str) -> str | None:
    return next((source for source, hint in _HINTS.items() if re.search(hint, name.replace("_", " "), re.I)), None)


def _place(row: Row, path: Path, source: str) -> tuple[str, int | None]:
    """Split and, where the row's id says it, position in the official file."""
    words = re.findall(r"[a-z]+", path.name.lower())
    if row.get("supporting") or {"ctx", CONTEXT} & set(words):
        return CONTEXT, None
    if "alias" in words:
        return "alias", None
    numbered = _POSITION.fullmatch(str(row.get("id", "")))
    if numbered:
        return numbered[1], int(numbered[2])
    index = _nested(row, "extra_info", "index")
    said = _nested(row, "extra_info", "split")
    split = _SPLITS.get(str(said)) or next((_SPLITS[word] for word in words if word in _SPLITS), SETS[source].split)
    # What papers call the test of these two sets is their published dev file.
    if split == "dev" and source in ("nq", "triviaqa") and "golden_answers" not in row:
        split = SETS[source].split
    # The tests of HotpotQA, 2Wiki and MuSiQue have no public answers: verl-agent calls their dev questions test.
    if split == "test":
        split = SETS[source].split
    return split, index if isinstance(index, int) else None
