"""Scores of an answer: exact match, token F1 and sub-EM, with SQuAD's normalisation; and answers out of transcripts.

All three are the best over the accepted answers. Upstream's scorers count an answer whose normalised form is empty
("A", "The", "&") as equal to every other such text; here those are compared as written, case aside.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_OPEN, _CLOSE = "<answer>", "</answer>"


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of one answer, each in [0, 1]; `em` and `sub_em` are 0.0 or 1.0."""

    em: float
    f1: float
    sub_em: float


NO_ANSWER = Scores(0.0, 0.0, 0.0)


def normalize(text: str) -> str:
    """SQuAD's normal form: lower case, without ASCII punctuation, the words a, an and the, and extra white space.

    >>> normalize("The  Cat's-eye!")
    'catseye'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def score(prediction: str, answers: Sequence[str]) -> Scores:
    """The scores of `prediction`; a blank one has none.

    Raises:
        ValueError: there are no accepted answers.
    """
    if not answers:
        raise ValueError("a question needs at least one accepted answer")
    if not prediction.strip():
        return NO_ANSWER
    return Scores(
        em=float(any(exact_match(prediction, answer) for answer in answers)),
        f1=max(f1(prediction, answer) for answer in answers),
        sub_em=float(any(sub_exact_match(prediction, answer) for answer in answers)),
    )


def exact_match(prediction: str, answer: str) -> bool:
    """Whether the two have one normal form; where it is empty, are one text but for case and white space."""
    left, right = _comparable(prediction, answer)
    return left == right


def sub_exact_match(prediction: str, answer: str) -> bool:
    """Whether the answer's normal form is a part of the prediction's; as `exact_match` where it is empty."""
    left, right = _comparable(prediction, answer)
    return right in left if normalize(answer) else left == right


def f1(prediction: str, answer: str) -> float:
    """Harmonic mean of the precision and recall of normalised words, with multiplicity, in [0, 1].

    As HotpotQA's scorer does, "yes", "no" and "noanswer" match only themselves.
    """
    left, right = _comparable(prediction, answer)
    if left == right:
        return 1.0
    if {left, right} & {"yes", "no", "noanswer"}:
        return 0.0
    ours, theirs = left.split(), right.split()
    shared = (Counter(ours) & Counter(theirs)).total()
    return 2 * shared / (len(ours) + len(theirs)) if shared else 0.0


def _comparable(prediction: str, answer: str) -> tuple[str, str]:
    """Normal forms; the texts in lower case and single spaces where the answer has an empty normal form."""
    if right := normalize(answer):
        return normalize(prediction), right
    return " ".join(prediction.lower().split()), " ".join(answer.lower().split())


def extract_answer(text: str, least: int = 1) -> str | None:
    """What stands between the last pair of answer tags, stripped; None where there are fewer than `least` pairs.

    Args:
        text: a response, or a whole transcript.
        least: 1 for a response. Search-R1 judges prompt and response together, and its prompt shows an example answer:
            there it takes 2.
    """
    last, found, place = None, 0, 0
    # Two plain searches a pair: a pattern with `.*?` would be quadratic in unclosed tags.
    while (opening := text.find(_OPEN, place)) >= 0:
        closing = text.find(_CLOSE, opening + len(_OPEN))
        if closing < 0:
            break
        last, found, place = text[opening + len(_OPEN) : closing].strip(), found + 1, closing + len(_CLOSE)
    return last if found >= least else None
