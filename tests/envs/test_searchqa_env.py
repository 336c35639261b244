"""The Search-QA environment: actions, observations in both shapes, the bound, scores, and hostile actions."""

import json
import warnings
from collections.abc import Sequence
from typing import Any

import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

from seedbench.errors import UsageError
from seedbench.protocol import load_protocol
from seedbench_envs.searchqa.actions import MAX_QUERY, Action, parse
from seedbench_envs.searchqa.env import SearchQAEnv
from seedbench_envs.searchqa.observation import CORRECTION, DocFormat, count_tokens, read_passages, show
from seedbench_envs.searchqa.oracle import queries, solve
from seedbench_envs.searchqa.records import Hit, Passage, Question, RetrieverFault
from seedbench_envs.searchqa.rule import rule

OSLO = Passage("1", "Oslo", "Oslo is the capital of Norway.")
ETE = Passage("2", 'The "Été" (film)', "Doc 9: a film\nof 1950.")
LONG = Passage("3", "Long", " ".join(f"word{chr(97 + n % 26)}" for n in range(300)))
QUESTIONS = {
    "nq/test/0": Question("nq/test/0", "What is the capital of Norway?", ("Oslo", "Kristiania"), "nq", "test"),
    "popqa/test/5": Question("popqa/test/5", "Which letter?", ("A",), "popqa", "test"),
}


class Fixed:
    """Finds the same passages for every query, and remembers what was asked."""

    slow = False

    def __init__(self, *passages: Passage) -> None:
        self.passages = passages
        self.asked: list[tuple[tuple[str, ...], int]] = []

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        self.asked.append((tuple(queries), k))
        return [[Hit(passage, 1.0) for passage in self.passages[:k]] for _ in queries]

    def identity(self) -> dict[str, object]:
        return {"engine": "fixed"}

    def close(self) -> None:
        pass


def started(*passages: Passage, **options: Any) -> tuple[SearchQAEnv, Fixed]:
    retriever = Fixed(*passages)
    env = SearchQAEnv(QUESTIONS, retriever, **options)
    env.reset(options={"task": "nq/test/0"})
    return env, retriever


# ---- actions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("<search> who wrote X </search>", Action("search", "who wrote X")),
        ("\n<ANSWER>Oslo</answer>\n", Action("answer", "Oslo")),
        ("<answer></answer>", Action("answer", "")),
        # Another tag inside is text, as in Search-R1.
        ("<search>a <answer>b</answer></search>", Action("search", "a <answer>b</answer>")),
        ("<search>a\x00b\x1b[2J\ud800c</search>", Action("search", "a b [2J c")),
        ("<search>a\n\tb</search>", Action("search", "a\n\tb")),
        ("", Action("invalid", "it does not begin with <search> or <answer>")),
        ("Oslo", Action("invalid", "it does not begin with <search> or <answer>")),
        ("I think <answer>Oslo</answer>", Action("invalid", "it does not begin with <search> or <answer>")),
        ("<search>a", Action("invalid", "</search> is missing")),
        ("<search>a</answer>", Action("invalid", "</search> is missing")),
        ("<search>a</search><answer>b</answer>", Action("invalid", "something follows </search>")),
        ("<search>a</search> <search>b</search>", Action("invalid", "something follows </search>")),
        ("<search><search>a</search></search>", Action("invalid", "something follows </search>")),
        ("<search> \x07 </search>", Action("invalid", "the query is empty")),
        (f"<search>{'x' * MAX_QUERY}</search>", Action("search", "x" * MAX_QUERY)),
        (f"<search>{'x' * 100_000}</search>", Action("invalid", "the query has 100,000 characters; 4,000 are allowed")),
        ("<\u017fearch>a</search>", Action("invalid", "it does not begin with <search> or <answer>")),
    ],
)
def test_reading_actions(text: str, action: Action) -> None:
    assert parse(text) == action


@given(st.text() | st.lists(st.sampled_from(["<search>", "</search>", "<answer>", "</answer>", "x", " "])).map("".join))
def test_no_action_breaks_the_environment(action: str) -> None:
    env, retriever = started(OSLO)
    observation, reward, terminated, truncated, info = env.step(action)
    assert isinstance(observation, str)
    assert reward in (0.0, 1.0)
    assert not truncated
    assert terminated == (parse(action).kind == "answer")
    assert info["action_valid"] == (parse(action).kind != "invalid")
    assert len(retriever.asked) == (parse(action).kind == "search")


def test_many_tags_take_linear_time() -> None:
    env, _ = started(OSLO)
    for action in ("<search>" * 100_000, "<search>" + "</answer>" * 100_000, "<" * 100_000):
        assert env.step(action)[4]["action_valid"] is False


# ---- observations --------------------------------------------------------------------------------------------


def test_search_r1_shape() -> None:
    env, retriever = started(OSLO, ETE, doc_format="search-r1")
    observation, reward, terminated, _, info = env.step("<search>capital</search>")
    assert observation == (
        '<information>Doc 1(Title: "Oslo") Oslo is the capital of Norway.\n'
        'Doc 2(Title: "The "Été" (film)") Doc 9: a film\nof 1950.</information>'
    )
    assert (reward, terminated, info["found"], info["action_valid"]) == (0.0, False, ("1", "2"), True)
    assert retriever.asked == [(("capital",), 3)]


def test_verl_agent_shape_is_escaped_json() -> None:
    env, _ = started(OSLO, ETE)
    observation = env.step("<search>capital</search>")[0]
    assert observation.isascii()
    inside = observation.removeprefix("<information>").removesuffix("</information>")
    assert json.loads(inside) == {
        "result": 'Doc 1: "Oslo"\nOslo is the capital of Norway.\nDoc 2: "The "Été" (film)"\nDoc 9: a film\nof 1950.\n'
    }


@pytest.mark.parametrize("doc_format", ["search-r1", "verl-agent"])
def test_a_search_that_finds_nothing(doc_format: DocFormat) -> None:
    env, _ = started(doc_format=doc_format)
    observation, _, _, _, info = env.step("<search>x</search>")
    assert "No passage was found." in observation
    assert info["found"] == ()
    assert read_passages(observation) == []


@pytest.mark.parametrize("doc_format", ["search-r1", "verl-agent"])
def test_passages_can_be_read_back(doc_format: DocFormat) -> None:
    shown = show([OSLO, LONG], doc_format).text
    found = [(title, text.strip()) for title, text in read_passages(shown)]
    assert found == [("Oslo", OSLO.text), ("Long", LONG.text)]


@pytest.mark.parametrize("text", ["", "Oslo", '<information>{"result": 3}</information>', '<information>{"result": x'])
def test_what_holds_no_passages(text: str) -> None:
    assert read_passages(text) == []


def test_counting_tokens() -> None:
    # 3 words, 4 digits, a full stop; then a non-ASCII word of two.
    assert count_tokens("born in Oslo 1950.") == 8
    assert count_tokens("Été") == 2


@pytest.mark.parametrize("doc_format", ["search-r1", "verl-agent"])
def test_the_bound_cuts_between_passages(doc_format: DocFormat) -> None:
    full = show([OSLO, OSLO, LONG], doc_format)
    assert (full.left_out, full.shortened) == (0, False)
    cut = show([OSLO, OSLO, LONG], doc_format, budget=200)
    assert cut.text == show([OSLO, OSLO], doc_format).text
    assert (cut.left_out, cut.shortened) == (1, False)
    assert count_tokens(cut.text) <= 200 < count_tokens(full.text)


def test_a_first_passage_over_the_bound_is_cut_between_words() -> None:
    cut = show([LONG, OSLO], "search-r1", budget=100)
    ((title, text),) = read_passages(cut.text)
    assert title == "Long"
    assert LONG.text.startswith(text + " word")
    assert count_tokens(cut.text) == 100
    assert (cut.left_out, cut.shortened) == (1, True)
    assert cut.text.endswith("</information>")


def test_a_title_over_the_bound_stays() -> None:
    text = show([LONG], "search-r1", budget=1).text
    assert text == '<information>Doc 1(Title: "Long")</information>'
    assert read_passages(text) == [("Long", "")]


def test_search_r1_strips_what_was_found() -> None:
    shown = show([Passage("1", "T", "one "), Passage("2", "U", "two \n")], "search-r1")
    assert shown.text == '<information>Doc 1(Title: "T") one \nDoc 2(Title: "U") two</information>'


def test_what_was_cut_is_reported() -> None:
    env, _ = started(OSLO, LONG, doc_format="search-r1", budget=100)
    info = env.step("<search>x</search>")[4]
    assert (info["left_out"], info["shortened"], info["metrics"]["cut"]) == (1, False, 1.0)
    env._retriever.passages = (OSLO,)  # type: ignore[attr-defined]
    info = env.step("<search>y</search>")[4]
    assert (info["left_out"], info["metrics"]["cut"]) == (0, 0.5)
    env.reset(options={"task": "nq/test/0"})
    assert env.step("<answer>x</answer>")[4]["metrics"]["cut"] == 0.0


# ---- episodes ------------------------------------------------------------------------------------------------


def test_the_first_observation_is_the_question() -> None:
    env = SearchQAEnv(QUESTIONS, Fixed(OSLO))
    observation, info = env.reset(options={"task": "nq/test/0"})
    assert observation == info["instruction"] == "What is the capital of Norway?"
    assert info == {
        "task_id": "nq/test/0", "family": "nq", "instruction": observation, "admissible_actions": None,
        "success": False, "score": 0.0, "action_valid": True, "reason": "",
        "metrics": {"em": 0.0, "f1": 0.0, "sub_em": 0.0, "cut": 0.0},
        "found": (), "left_out": 0, "shortened": False,
    }  # fmt: skip


def test_a_right_answer_ends_the_episode_with_one() -> None:
    env, _ = started(OSLO)
    observation, reward, terminated, truncated, info = env.step("<answer>the kristiania!</answer>")
    assert (observation, reward, terminated, truncated) == ("", 1.0, True, False)
    assert (info["success"], info["score"]) == (True, 1.0)
    assert info["metrics"] == {"em": 1.0, "f1": 1.0, "sub_em": 1.0, "cut": 0.0}


def test_a_nearly_right_answer_scores_nothing_but_has_metrics() -> None:
    env, _ = started(OSLO)
    _, reward, terminated, _, info = env.step("<answer>Oslo city</answer>")
    assert (reward, terminated, info["success"]) == (0.0, True, False)
    assert info["metrics"] == {"em": 0.0, "f1": pytest.approx(2 / 3), "sub_em": 1.0, "cut": 0.0}


def test_nothing_changes_after_the_answer() -> None:
    env, retriever = started(OSLO)
    env.step("<answer>Bergen</answer>")
    for action in ("<answer>Oslo</answer>", "<search>x</search>", "x"):
        observation, reward, terminated, _, info = env.step(action)
        assert (observation, reward, terminated, info["score"]) == ("", 0.0, True, 0.0)
        assert info["reason"] == "the question is answered already"
    assert retriever.asked == []
    env.reset(options={"task": "popqa/test/5"})
    assert env.step("<answer>a</answer>")[1] == 1.0


@pytest.mark.parametrize(("invalid", "observation"), [("empty", ""), ("correct", CORRECTION)])
def test_invalid_actions_show_what_the_protocol_says(invalid: str, observation: str) -> None:
    env, retriever = started(OSLO, invalid=invalid)
    shown, reward, terminated, _, info = env.step("<search>a</search><search>b</search>")
    assert (shown, reward, terminated) == (observation, 0.0, False)
    assert (info["action_valid"], info["reason"]) == (False, "something follows </search>")
    assert retriever.asked == []
    assert "<search> and </search>" in CORRECTION


def test_search_is_off_after_the_search_steps() -> None:
    env, retriever = started(OSLO, search_steps=2)
    env.step("nothing")  # counts, as a turn does
    assert env.step("<search>Oslo</search>")[4]["action_valid"]
    observation, _, terminated, _, info = env.step("<search>Oslo</search>")
    assert (observation, terminated, info["action_valid"]) == ("", False, False)
    assert info["reason"] == "search is off from this step on"
    assert len(retriever.asked) == 1
    assert env.step("<answer>x</answer>")[2]
    for name, steps in (("searchqa/seed", 3), ("searchqa/search-r1", 4)):
        settings = load_protocol(name).settings
        assert (settings.environment["search_steps"], settings.limits.steps) == (steps, steps + 1)


def test_a_fault_of_the_retriever_is_raised() -> None:
    class Down(Fixed):
        def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
            raise RetrieverFault("the server does not answer")

    env = SearchQAEnv(QUESTIONS, Down())
    env.reset(options={"task": "nq/test/0"})
    with pytest.raises(RetrieverFault, match="does not answer"):
        env.step("<search>x</search>")


def test_an_environment_is_as_slow_as_its_retriever() -> None:
    retriever = Fixed()
    retriever.slow = True
    assert SearchQAEnv(QUESTIONS, retriever).slow
    assert not SearchQAEnv(QUESTIONS, Fixed()).slow


def test_environments_share_nothing() -> None:
    retriever = Fixed(OSLO)
    one, other = SearchQAEnv(QUESTIONS, retriever), SearchQAEnv(QUESTIONS, retriever)
    one.reset(options={"task": "nq/test/0"})
    other.reset(options={"task": "popqa/test/5"})
    assert one.step("<answer>Oslo</answer>")[1] == 1.0
    assert other.step("<answer>a</answer>")[4]["task_id"] == "popqa/test/5"


def test_a_draw_follows_the_seed() -> None:
    env = SearchQAEnv(QUESTIONS, Fixed(OSLO))
    assert env.task_ids() == ["nq/test/0", "popqa/test/5"]
    drawn = [env.reset(seed=seed)[1]["task_id"] for seed in range(20)]
    assert set(drawn) == set(QUESTIONS)
    assert drawn == [env.reset(seed=seed)[1]["task_id"] for seed in range(20)]


def test_gymnasium_finds_no_fault() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*not set to none.*|.*render_modes.*|.*unwrapped.*|.*spec.*")
        check_env(SearchQAEnv(QUESTIONS, Fixed(OSLO)), skip_render_check=True)


def test_render() -> None:
    env = SearchQAEnv(QUESTIONS, Fixed(OSLO), render_mode="ansi")
    env.reset(options={"task": "nq/test/0"})
    assert env.render() == "What is the capital of Norway?"
    env.step("<search>x</search>")
    assert "capital of Norway." in str(env.render())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"doc_format": "verl"}, "unknown doc_format 'verl': did you mean 'verl-agent'"),
        ({"invalid": "corect"}, "did you mean 'correct'"),
        ({"topk": 0}, "topk must be a whole number from 1 to 100, not 0"),
        ({"topk": 2.0}, "not 2.0"),
        ({"topk": True}, "not True"),
        ({"budget": -1}, "the budget must be a number of tokens"),
        ({"search_steps": -1}, "search_steps must be a number of steps"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        SearchQAEnv(QUESTIONS, Fixed(), **options)


def test_wrong_calls_are_refused() -> None:
    env = SearchQAEnv(QUESTIONS, Fixed())
    with pytest.raises(UsageError, match="call reset"):
        env.step("x")
    with pytest.raises(UsageError, match="unknown task 'nq/test/1'"):
        env.reset(options={"task": "nq/test/1"})
    env.reset(options={"task": "nq/test/0"})
    with pytest.raises(UsageError, match="an action is a string, not int"):
        env.step(3)  # type: ignore[arg-type]


def test_identity_names_what_observations_depend_on() -> None:
    env, _ = started(doc_format="search-r1", budget=500)
    assert env.identity() == {
        "retriever": {"engine": "fixed"}, "doc_format": "search-r1", "topk": 3, "budget": 500,
    }  # fmt: skip


# ---- oracle and rule -----------------------------------------------------------------------------------------


class ByTitle(Fixed):
    """Finds the passages all of whose title stands in the query, and nothing else."""

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        return [[Hit(p, 1.0) for p in self.passages if p.title in query][:k] for query in queries]


def test_the_oracle_searches_by_title_and_answers() -> None:
    assert queries([OSLO, LONG], ByTitle(OSLO, LONG)) == ["Oslo", "Long"]
    assert solve(QUESTIONS["nq/test/0"], ["Oslo"]) == ["<search>Oslo</search>", "<answer>Oslo</answer>"]


def test_a_passage_that_was_found_on_the_way_needs_no_search() -> None:
    assert queries([OSLO, LONG], Fixed(OSLO, LONG)) == ["Oslo"]


def test_a_title_that_is_not_enough_gets_words_of_the_text() -> None:
    class ByText(Fixed):
        def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
            return [[Hit(p, 1.0) for p in self.passages if "capital of Norway" in query] for query in queries]

    assert queries([OSLO], ByText(OSLO)) == ["Oslo Oslo is the capital of Norway."]
    assert queries([OSLO], ByText()) == ["Oslo"]


def test_four_passages_take_three_searches() -> None:
    four = [Passage(str(n), name, "x") for n, name in enumerate(("One", "Two", "Three", "Four"))]
    assert queries(four, ByTitle(*four)) == ["One", "Two", "Three Four"]


def test_the_oracle_answers_what_can_be_said() -> None:
    odd = Question("nq/test/9", "?", ("</answer>", "\x00", "b"), "nq", "test")
    assert solve(odd) == ["<answer>b</answer>"]


@pytest.mark.parametrize("doc_format", ["search-r1", "verl-agent"])
def test_the_rule_searches_and_answers_a_name_or_a_year(doc_format: DocFormat) -> None:
    town = Passage("7", "Alderbury", "Alderbury was founded in 1204 by Mora Tesk of Vale.")
    shown = show([town], doc_format).text
    assert rule("Who founded Alderbury?", (), "Who founded Alderbury?", 0) == "<search>Who founded Alderbury?</search>"
    assert rule("Who founded Alderbury?", (), shown, 1) == "<answer>Mora Tesk of Vale</answer>"
    assert rule("When was Alderbury founded?", (), shown, 1) == "<answer>1204</answer>"
    assert rule("Is Alderbury old?", (), shown, 1) == "<answer>yes</answer>"
    assert rule("Who is Mora Tesk of Vale?", (), shown, 1) == "<answer>Alderbury</answer>"
    assert rule("Who?", (), show([], doc_format).text, 1) == "<answer>unknown</answer>"
