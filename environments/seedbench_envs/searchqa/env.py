"""Search-QA as a Gymnasium environment."""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any, Literal, get_args

from gymnasium import spaces

from seedbench.errors import UsageError, unknown
from seedbench_envs.base import TextEnv
from seedbench_envs.searchqa.actions import parse
from seedbench_envs.searchqa.observation import CORRECTION, FORMATS, DocFormat, show
from seedbench_envs.searchqa.records import Question, Retriever
from seedbench_envs.searchqa.scoring import NO_ANSWER, Scores, score

Invalid = Literal["correct", "empty"]
DEFAULT_TOPK = 3


class AnyText(spaces.Text):
    """Texts of up to `max_length` characters, of whatever script; samples are printable ASCII."""

    def __init__(self, max_length: int) -> None:
        super().__init__(max_length, min_length=0, charset=string.printable)

    def contains(self, x: Any) -> bool:
        """Whether `x` is a text of a length that fits."""
        return isinstance(x, str) and len(x) <= self.max_length


class SearchQAEnv(TextEnv):
    """A question, answered by searching: `reset(options={"task": "nq/test/0"})`, then searches and an answer.

    The first observation is the question. `<search>query</search>` shows the best passages between `<information>`
    tags (observation.py); `<answer>text</answer>` ends the episode, with exact match as the reward and an empty
    observation. Anything else is invalid: nothing happens but what `invalid` says. After the answer nothing changes
    any more. `step` never raises for what an action says.

    `info` has the keys of `TextEnv` and:
        admissible_actions: None; every text between tags can be searched for or answered.
        score: exact match of the answer, 0.0 before. success: whether it is 1.
        metrics: `em`, `f1` and `sub_em` of the answer (scoring.py), 0.0 before; `cut`, the share of searches so far
            whose observation the bound cut.
        reason: why the action was invalid; empty if it was not.
        found: ids of the passages that were found, best first; empty but after a search.
        left_out, shortened: what the bound took from the observation (observation.Shown).

    A protocol chooses the options after `retriever` in its `[environment]` table.

    Args:
        questions: task id -> question; None takes those of `edition`.
        retriever: what searches; None takes the stored corpus of `edition` in Lucene's order. It stays the caller's.
        edition: "official" or "mini" (generated, not official).
        doc_format: "verl-agent" or "search-r1", the shape of found passages.
        topk: passages shown for a search, 1 to 100.
        budget: longest observation in tokens (observation.count_tokens); 0: no bound.
        invalid: "empty" shows nothing after an invalid action, "correct" a sentence about what is valid.
        search_steps: searches are answered in so many first steps of an episode only, invalid actions counted; 0:
            always. A later search is invalid and asks no retriever (Search-R1 switches search off for the last turn).
        render_mode: "ansi" makes `render` return the current observation.

    Raises:
        SeedBenchError: the data is not there (the message says how to fetch it).
        UsageError: an unknown option or task.
        RetrieverFault: from `step`, where the search cannot be answered; that is not the agent's doing.
    """

    def __init__(
        self,
        questions: Mapping[str, Question] | None = None,
        retriever: Retriever | None = None,
        *,
        edition: str = "official",
        doc_format: DocFormat = "verl-agent",
        topk: int = DEFAULT_TOPK,
        budget: int = 0,
        invalid: Invalid = "empty",
        search_steps: int = 0,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        _check(doc_format, topk, budget, invalid, search_steps)
        if questions is None or retriever is None:
            from seedbench_envs.searchqa import library

            questions = library.questions(edition) if questions is None else questions
            retriever = library.open_engine("native", edition) if retriever is None else retriever
        self.observation_space = AnyText(10_000_000)
        self.action_space = AnyText(200_000)
        self.slow = retriever.slow
        self._questions = questions
        self._retriever = retriever
        self._doc_format: DocFormat = doc_format
        self._topk = topk
        self._budget = budget
        self._invalid = CORRECTION if invalid == "correct" else ""
        self._search_steps = search_steps
        self._question: Question | None = None
        self._scores: Scores | None = None
        self._steps = self._searches = self._cuts = 0

    def identity(self) -> dict[str, object]:
        """What observations depend on: the retriever's identity and the options. Plain JSON values, no paths."""
        options = {"doc_format": self._doc_format, "topk": self._topk, "budget": self._budget}
        return {"retriever": self._retriever.identity(), **options}

    def task_ids(self) -> list[str]:
        """Ids of all questions, sorted."""
        return sorted(self._questions)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start a question; see the class. Raises UsageError for one that is not there; then nothing has changed."""
        task = self._chosen_task(seed, options)
        question = self._questions.get(task)
        if question is None:
            raise UsageError(
                f"unknown task '{task[:60]}': no such question is in the store; ids look like nq/test/0, and"
                " `seedbench panels show` lists those of a panel."
            )
        self._question, self._scores = question, None
        self._steps = self._searches = self._cuts = 0
        self._observation = question.question
        return self._observation, self._info(question)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Do one action. Raises UsageError before the first reset or for an action that is no text."""
        if self._question is None:
            raise UsageError("no question was started: call reset(options={'task': ID}) first.")
        if not isinstance(action, str):
            raise UsageError(f"an action is a string, not {type(action).__name__}.")
        question, read = self._question, parse(action)
        if self._scores is not None:
            info = self._info(question, reason="the question is answered already")
            return self._observation, 0.0, True, False, info
        self._steps += 1
        if read.kind == "search" and (not self._search_steps or self._steps <= self._search_steps):
            return self._search(question, read.text)
        if read.kind == "search":
            self._observation = ""
            return "", 0.0, False, False, self._info(question, reason="search is off from this step on")
        if read.kind == "answer":
            self._scores = score(read.text, question.answers)
            self._observation = ""
            return "", self._scores.em, True, False, self._info(question)
        self._observation = self._invalid
        return self._observation, 0.0, False, False, self._info(question, reason=read.text)

    def _search(self, question: Question, query: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        passages = [hit.passage for hit in self._retriever.search([query], self._topk)[0]]
        shown = show(passages, self._doc_format, self._budget)
        self._observation = shown.text
        self._searches += 1
        self._cuts += bool(shown.left_out or shown.shortened)
        found = tuple(passage.id for passage in passages)
        info = self._info(question, found=found, left_out=shown.left_out, shortened=shown.shortened)
        return shown.text, 0.0, False, False, info

    def _info(
        self,
        question: Question,
        *,
        reason: str = "",
        found: tuple[str, ...] = (),
        left_out: int = 0,
        shortened: bool = False,
    ) -> dict[str, Any]:
        scores = self._scores or NO_ANSWER
        return {
            "task_id": question.id,
            "family": question.source,
            "instruction": question.question,
            "admissible_actions": None,
            "success": scores.em == 1,
            "score": scores.em,
            "action_valid": not reason,
            "reason": reason,
            "metrics": {
                "em": scores.em,
                "f1": scores.f1,
                "sub_em": scores.sub_em,
                "cut": self._cuts / self._searches if self._searches else 0.0,
            },
            "found": found,
            "left_out": left_out,
            "shortened": shortened,
        }


def _check(doc_format: str, topk: int, budget: int, invalid: str, search_steps: int) -> None:
    if doc_format not in FORMATS:
        raise unknown("doc_format", str(doc_format), FORMATS)
    if invalid not in get_args(Invalid):
        raise unknown("value of 'invalid'", str(invalid), get_args(Invalid))
    if not _whole(topk) or not 1 <= topk <= 100:
        raise UsageError(f"topk must be a whole number from 1 to 100, not {topk!r}.")
    if not _whole(budget) or budget < 0:
        raise UsageError(f"the budget must be a number of tokens, 0 for no bound, not {budget!r}.")
    if not _whole(search_steps) or search_steps < 0:
        raise UsageError(f"search_steps must be a number of steps, 0 for no bound, not {search_steps!r}.")


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
