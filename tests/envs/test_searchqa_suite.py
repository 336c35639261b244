"""The Search-QA suite: panels, engines, protocols, the oracle's ceiling, and what the store holds."""

import asyncio
import fcntl
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from seedbench.errors import SeedBenchError, UsageError
from seedbench.panels import Panel, data_problems, must_not_overlap, overlaps, read_panel
from seedbench.policies.base import Policy
from seedbench.policies.oracle import OraclePolicy
from seedbench.policies.rule import RulePolicy
from seedbench.protocol import Past, Protocol, read_protocol
from seedbench.rollout import run_episode
from seedbench.types import Episode, Outcome, Task
from seedbench_envs.searchqa import library
from seedbench_envs.searchqa.actions import parse
from seedbench_envs.searchqa.datasets import SETS, content_hash, question_group
from seedbench_envs.searchqa.library import index_folder, open_engine, questions, stored_passages
from seedbench_envs.searchqa.observation import CORRECTION
from seedbench_envs.searchqa.retrievers.manifest import read_manifest
from seedbench_envs.searchqa.rule import rule
from seedbench_envs.searchqa.splits import MIX, SHIPPED, answer_group, mini_panels, official_panels
from seedbench_envs.searchqa.suite import MINI, SUITE, SearchQASuite

FILES = Path(__file__).resolve().parents[3] / "shared" / "data" / "searchqa"
PANELS = Path(str(SUITE.resources)) / "panels"
PROTOCOLS = ("seed", "search-r1", "quick")


@pytest.fixture(scope="module", autouse=True)
def mini(store: Path) -> None:
    with (store / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        index_folder("mini")


@pytest.fixture(scope="module")
def official(store: Path) -> None:
    if not (FILES / "MANIFEST.csv").is_file():
        pytest.skip("the question sets (../shared/data/searchqa) are not here")
    with (store / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (store / "searchqa" / "index" / "manifest.json").is_file():
            SUITE.fetch(FILES, lambda line: None)


def shipped(name: str) -> Panel:
    return read_panel(PANELS / f"{name.replace('/', '--')}@1.jsonl.gz")


def families(panel: Panel) -> Counter[str]:
    return Counter(task.family for task in panel.tasks)


def protocol(name: str) -> Protocol:
    return read_protocol(Path(str(SUITE.resources)) / "protocols" / f"{name}@1.toml")


def play(suite: SearchQASuite, panel: Panel, rules: Protocol, policy: Policy) -> list[Episode]:
    env = suite.make(panel, "native", **rules.settings.environment)

    async def all_tasks() -> list[Episode]:
        return [await run_episode(env, task, rules, policy, repeat=0, seed=1) for task in panel.tasks]

    return asyncio.run(all_tasks())


def oracle(suite: SearchQASuite, panel: Panel) -> Policy:
    return OraclePolicy(lambda task: suite.oracle(panel, task))


# ---- panels --------------------------------------------------------------------------------------------------


def test_shipped_panels_are_those_of_the_generated_world() -> None:
    for panel in mini_panels(questions("mini")):
        assert shipped(panel.name.removesuffix("@1")).hash == panel.hash
    assert MINI.check().problems == ()
    assert MINI.check().summary == "mini-searchqa/test 300, mini-searchqa/train 800"


def test_the_generated_splits_share_no_answer() -> None:
    train, test = shipped("mini-searchqa/train"), shipped("mini-searchqa/test")
    assert must_not_overlap(train, test)
    assert overlaps(train, test) == []
    assert families(test) == {"one_hop": 150, "two_hop": 150}
    stored = questions("mini")
    assert test.groups[test.tasks[0].id] == answer_group(stored[test.tasks[0].id])
    # Two questions with one answer are in one group, whatever their words.
    moved = replace(train, groups={**train.groups, train.tasks[0].id: test.groups[test.tasks[5].id]})
    assert test.tasks[5].id in overlaps(moved, test)


@pytest.mark.parametrize("source", SHIPPED)
def test_panels_of_whole_sets_have_the_official_counts(source: str) -> None:
    info = SETS[source]
    panel = shipped(f"searchqa/{source}-{info.split}")
    assert len(panel.tasks) == info.count
    assert families(panel) == {source: info.count}
    assert (panel.suite, panel.split, panel.official, panel.partition) == ("searchqa", info.split, True, "")
    assert [task.id for task in panel.tasks] == [f"{source}/{info.split}/{n}" for n in range(info.count)]


def test_panels_of_our_own_choice_are_not_official() -> None:
    context, mix = shipped("searchqa/context"), shipped("searchqa/mix")
    assert not context.official
    assert not mix.official
    assert families(context) == {"popqa": 1000, "hotpotqa": 782, "2wikimultihopqa": 664, "musique": 300}
    assert families(mix) == dict.fromkeys(SETS, MIX)
    assert len(mix.tasks) == 875


def test_no_question_stands_in_a_panel_file() -> None:
    for file in sorted(PANELS.glob("*.jsonl.gz")):
        panel = read_panel(file)
        assert set(map(len, panel.groups.values())) == {16}
        assert all(task.id.count("/") == 2 for task in panel.tasks)


def test_panels_match_the_real_questions(official: None) -> None:
    for panel in official_panels(questions()):
        assert shipped(panel.name.removesuffix("@1")).hash == panel.hash
        assert data_problems(panel, dict(SUITE.content_hashes(panel))) == []
    status = SUITE.check()
    assert status.problems == ()
    assert "searchqa/nq-test 3610" in status.summary
    assert "TriviaQA test: PARTIAL, 1,000 of 11,313 questions" in status.summary


def test_no_set_asks_what_another_asks(official: None) -> None:
    panels = [shipped(f"searchqa/{source}-{SETS[source].split}") for source in SHIPPED]
    for one in panels:
        for other in panels:
            if one is not other and must_not_overlap(one, other):
                assert overlaps(one, other) == []
    task = panels[0].tasks[0]
    assert panels[0].groups[task.id] == question_group(questions()[task.id])


# ---- environments and engines --------------------------------------------------------------------------------


def test_engines_that_are_refused(tmp_path: Path) -> None:
    panel = shipped("mini-searchqa/test")
    with pytest.raises(UsageError, match="unknown engine 'lucene': did you mean"):
        MINI.make(panel, "lucene")
    with pytest.raises(UsageError, match="needs the folder of an index: write `bm25:DIR`"):
        MINI.make(panel, "bm25")
    with pytest.raises(UsageError, match="needs the address of a server"):
        MINI.make(panel, "http")
    with pytest.raises(UsageError, match="no retrieval index"):
        MINI.make(panel, f"lucene-order:{tmp_path}")
    with pytest.raises(UsageError, match="unknown environment option 'top_k': did you mean 'topk'"):
        MINI.make(panel, top_k=3)
    with pytest.raises(UsageError, match="unknown doc_format"):
        MINI.make(panel, doc_format="plain")


def test_an_index_of_another_corpus_is_refused_where_tasks_name_passages(tmp_path: Path) -> None:
    from seedbench_envs.searchqa.indexing import build_index

    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(json.dumps({"id": "1", "contents": '"Oslo"\nA city.'}) + "\n")
    build_index(corpus, "lucene-order", tmp_path / "index", report=lambda line: None)
    with pytest.raises(UsageError, match="corpus"):
        MINI.make(shipped("mini-searchqa/test"), f"lucene-order:{tmp_path / 'index'}")


def test_the_stored_index_can_be_named_by_its_folder() -> None:
    panel = shipped("mini-searchqa/test")
    env = MINI.make(panel, f"lucene-order:{index_folder('mini')}")
    env.reset(options={"task": panel.tasks[0].id})
    first = env.step("<search>Alderbury</search>")
    native = MINI.make(panel)
    native.reset(options={"task": panel.tasks[0].id})
    assert native.step("<search>Alderbury</search>") == first


def test_native_takes_no_folder() -> None:
    with pytest.raises(UsageError, match="write `native` alone, or `ENGINE:somewhere`"):
        open_engine("native:somewhere", "mini")


def test_a_server_of_another_corpus_is_refused_where_tasks_name_passages(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = read_manifest(index_folder("mini")).corpus

    def serving(server: object) -> None:
        retriever = SimpleNamespace(identity=lambda: {"engine": "http", "server": server})
        monkeypatch.setattr(library, "_opened", lambda *_: retriever)

    serving({"engine": "bm25", "corpus": "c0ffee" * 10})
    open_engine("http:http://127.0.0.1:9", "mini")
    with pytest.raises(UsageError, match=r"the server has another corpus \(c0ffeec0ffee\)"):
        open_engine("http:http://127.0.0.1:9", "mini", same_corpus=True)
    for told in ({"engine": "bm25", "corpus": ours}, None):
        serving(told)
        open_engine("http:http://127.0.0.1:9", "mini", same_corpus=True)


def test_engines_are_opened_once() -> None:
    assert open_engine("native", "mini") is open_engine("lucene-order", "mini")


def test_a_store_without_data_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEDBENCH_DATA", str(tmp_path))
    panel = shipped("searchqa/nq-test")
    assert SUITE.check().summary == ""
    assert "seedbench data fetch searchqa --from FOLDER" in SUITE.check().problems[0]
    with pytest.raises(SeedBenchError, match="no corpus of passages"):
        SUITE.make(panel)
    with pytest.raises(SeedBenchError, match="does not download"):
        SUITE.fetch(None, print)
    with pytest.raises(SeedBenchError, match="there is no file or folder"):
        SUITE.fetch(tmp_path / "nothing", print)
    assert list(tmp_path.iterdir()) == []


def test_check_says_which_sets_a_panel_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEDBENCH_DATA", str(tmp_path / "store"))
    rows = [{"id": f"test_{n}", "question": f"q {n}", "golden_answers": ["a"]} for n in range(125)]
    (tmp_path / "bamboogle_test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    SUITE.fetch(tmp_path / "bamboogle_test.jsonl", lambda line: None)
    status = SUITE.check()
    assert "searchqa/nq-test lacks nq/test" in status.summary
    assert [problem.partition(";")[0] for problem in status.problems] == [
        "searchqa/bamboogle-test@1: the content of 125 tasks differs from the panel: "
        "bamboogle/test/0, bamboogle/test/1, bamboogle/test/2 and 122 more"
    ]


def test_an_unwritable_store_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SEEDBENCH_DATA", str(tmp_path / "file"))
    with pytest.raises(SeedBenchError, match="cannot write Search-QA's data"):
        index_folder("mini")


# ---- oracle and rule -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["seed", "search-r1"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_the_oracle_wins_every_generated_question_and_sees_every_passage(name: str, split: str) -> None:
    panel = shipped(f"mini-searchqa/{split}")
    episodes = play(MINI, panel, protocol(name), oracle(MINI, panel))
    assert {episode.outcome for episode in episodes} == {Outcome.SOLVED}
    assert {(episode.score, episode.metrics["f1"]) for episode in episodes} == {(1.0, 1.0)}
    stored, passages = questions("mini"), stored_passages("mini")
    for episode in episodes:
        seen = "\n".join(turn.observation for turn in episode.turns)
        for identifier in stored[episode.task].supporting:
            passage = passages[passages.find(identifier)]
            start = json.dumps(passage.text[:40])[1:-1] if name == "seed" else passage.text[:40]
            assert start in seen, episode.task


def test_the_rule_wins_some_one_hop_questions() -> None:
    panel = shipped("mini-searchqa/test")
    episodes = play(MINI, panel, protocol("seed"), RulePolicy("mini-searchqa", "rule", rule))
    won = Counter(episode.family for episode in episodes if episode.success)
    assert won == {"one_hop": 70, "two_hop": 7}


def test_the_oracle_wins_every_real_question_with_known_passages(official: None) -> None:
    panel = shipped("searchqa/context")
    episodes = play(SUITE, panel, protocol("seed"), oracle(SUITE, panel))
    assert len(episodes) == 2_746
    assert {episode.outcome for episode in episodes} == {Outcome.SOLVED}
    stored = questions()
    env = SUITE.make(panel)
    complete = 0
    for task in panel.tasks[::10]:
        env.reset(options={"task": task.id})
        *searches, _ = SUITE.oracle(panel, task)
        seen = {identifier for action in searches for identifier in env.step(action)[4]["found"]}
        complete += set(stored[task.id].supporting) <= seen
    assert complete / len(panel.tasks[::10]) > 0.97


def test_the_oracle_answers_where_no_passages_are_known(official: None) -> None:
    panel = shipped("searchqa/mix")
    for task in panel.tasks[::25]:
        (action,) = SUITE.oracle(panel, task)
        assert parse(action).kind == "answer"


def test_the_oracle_of_an_unknown_question() -> None:
    with pytest.raises(SeedBenchError, match="no question 'one_hop/test/999'"):
        MINI.oracle(shipped("mini-searchqa/test"), Task("one_hop/test/999", "one_hop", "test", "0" * 64))


# ---- protocols -----------------------------------------------------------------------------------------------


def test_published_settings() -> None:
    seed, search_r1, quick = (protocol(name).settings for name in PROTOCOLS)
    assert (seed.limits.steps, seed.limits.prompt_tokens, seed.limits.response_tokens) == (4, 4096, 512)
    assert (seed.context.kind, seed.context.history, seed.sampling.temperature) == ("window", 4, 0.4)
    assert (seed.parser.choose, seed.parser.once) == ("priority", True)
    assert seed.environment == {
        "doc_format": "verl-agent",
        "topk": 3,
        "budget": 0,
        "invalid": "empty",
        "search_steps": 3,
    }
    assert (search_r1.limits.steps, search_r1.context.kind) == (5, "completion")
    assert search_r1.environment == {
        "doc_format": "search-r1",
        "topk": 3,
        "budget": 500,
        "invalid": "correct",
        "search_steps": 4,
    }
    assert search_r1.sampling.stop == quick.sampling.stop == ("</search>", "</answer>")
    for settings in (seed, search_r1, quick):
        assert settings.suites == ("searchqa", "mini-searchqa")
        assert settings.parser.action_tags == ("search", "answer")
        assert not settings.parser.lowercase  # a query is sent, and an answer recorded, as it was written


@pytest.mark.parametrize(
    ("response", "seed", "search_r1"),
    [
        ("<think>x</think><search> a </search>", ("<search>a</search>", True), ("<search>a</search>", True)),
        ("<answer>b</answer><search>a</search>", ("<search>a</search>", False), ("<answer>b</answer>", True)),
        ("<search>a</search><search>b</search>", ("<search>a</search>", False), ("<search>a</search>", True)),
        ("<search>a", ("", False), ("", False)),
        ("just words", ("", False), ("", False)),
    ],
)
def test_which_action_counts(response: str, seed: tuple[str, bool], search_r1: tuple[str, bool]) -> None:
    for name, expected in (("seed", seed), ("search-r1", search_r1)):
        found = protocol(name).parse(response)
        assert (found.action, found.valid) == expected


QUESTION = "Who wrote X?"
PAST = [
    Past(QUESTION, None, "I look. <search>X</search>", "<search>X</search>"),
    Past("<information>one</information>", None, "hm", ""),
]
NOW = Past(CORRECTION.strip(), None)


def test_seed_prompts_show_what_each_step_found() -> None:
    (first,) = protocol("seed").messages(QUESTION, [], Past(QUESTION, None))
    assert first.content.count(QUESTION) == 1
    assert "You can do this 3 times." in first.content
    (later,) = protocol("seed").messages(QUESTION, PAST, NOW)
    assert later.content.count(QUESTION) == 1
    lines = later.content.splitlines()
    assert "Step 1: <search>X</search> <information>one</information>" in lines
    assert f"Step 2: (no valid action) {CORRECTION.strip()}" in lines
    assert "the last step" not in later.content
    (last,) = protocol("seed").messages(QUESTION, [*PAST, PAST[1]], NOW)
    assert last.content.endswith("This is the last step: answer now.")


def test_search_r1_prompts_grow() -> None:
    rules = protocol("search-r1")
    (user,) = rules.messages(QUESTION, [], Past(QUESTION, None))
    assert user.role == "user"
    assert user.content.endswith(f"Question: {QUESTION}")
    again, grown = rules.messages(QUESTION, PAST, NOW)
    assert again == user
    assert grown.role == "assistant"
    assert grown.content == (
        f"I look. <search>X</search>\n\n<information>one</information>\n\nhm\n\n{CORRECTION.strip()}\n\n"
    )


def test_quick_prompts_are_short() -> None:
    messages = protocol("quick").messages(QUESTION, PAST[:1], PAST[1])
    assert [message.role for message in messages] == ["system", *["user", "assistant"] * 2, "user"]
    assert messages[-1].content.splitlines() == [
        f"Question: {QUESTION}", "You did: <search>X</search>", "<information>one</information>", "Next:",
    ]  # fmt: skip
    last = protocol("quick").messages(QUESTION, PAST, NOW)[-1].content
    assert last.endswith("Next: (answer now)")


@pytest.mark.parametrize("name", PROTOCOLS)
def test_scripted_answers_pass_through_every_protocol(name: str) -> None:
    rules = protocol(name)
    for action in ("<search>a b</search>", "<answer>The Été</answer>"):
        found = rules.parse(rules.format_action(action))
        assert (found.action, found.valid) == (action, True)


def test_content_hashes_are_of_the_stored_questions() -> None:
    panel = shipped("mini-searchqa/test")
    held = MINI.content_hashes(panel)
    stored = questions("mini")
    assert held == {task.id: content_hash(stored[task.id]) for task in panel.tasks}
    unknown = replace(panel, tasks=(Task("one_hop/test/999", "one_hop", "test", "0" * 64), panel.tasks[0]))
    assert set(MINI.content_hashes(unknown)) == {panel.tasks[0].id}
