"""Runs that are what they claim, and runs that are not: every kind of tampering is found and named."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seedbench.errors import SeedBenchError
from seedbench.evaluate import Evaluation, evaluate
from seedbench.logs import seal
from seedbench.panels import load_panel, write_panel
from seedbench.policies import ModelOptions, make_policy
from seedbench.policies.base import ContextOverflow, PolicyFault, Response
from seedbench.protocol import load_protocol
from seedbench.registry import get_suite
from seedbench.runs import LOG, MANIFEST, SUMMARY
from seedbench.types import Usage
from seedbench.ui.live import Progress
from seedbench.verify import Report, run_folders, verify
from tests import tiny_model
from tests.eval.helpers import Babbler, Command, CountingSuite, Script, command_line, installed, job, panel, said

Record = dict[str, Any]
RIGHT = "<think>so</think><action>right</action>"
PANEL = "panel.jsonl"
"""Beside the runs: no suite ships it."""


@pytest.fixture(autouse=True)
def suite() -> Iterator[CountingSuite]:
    counting = CountingSuite()
    with installed("counting", counting):
        yield counting


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `run`, 24 episodes of a stand-in for a model, and the file of its panel."""
    folder = tmp_path_factory.mktemp("honest")
    write_panel(panel(), folder / PANEL)
    with installed("counting", CountingSuite()):
        evaluate(job(folder / "run", Babbler(jitter=False), repeats=2, keep_prompts=True), Progress())
    return folder


@pytest.fixture
def run(honest: Path, tmp_path: Path) -> Path:
    """A copy of the honest run that a test may change."""
    shutil.copytree(honest, tmp_path, dirs_exist_ok=True)
    return tmp_path / "run"


def checked(folder: Path) -> Report:
    return verify(folder, panel=str(folder.parent / PANEL))


def lines(folder: Path) -> list[bytes]:
    return (folder / LOG).read_bytes().splitlines(keepends=True)


def edit(folder: Path, change: Callable[[Record], object], number: int = 0) -> Record:
    """Change one record of the log, and the log's hash with it; returns the record as it was."""
    log = lines(folder)
    before, record = json.loads(log[number]), json.loads(log[number])
    change(record)
    log[number] = json.dumps(record).encode() + b"\n"
    rewrite(folder, b"".join(log))
    return dict(before)


def rewrite(folder: Path, log: bytes) -> None:
    """Put another log in the place of the run's, sealed as if a session had left it."""
    (folder / LOG).write_bytes(log)
    edit_json(folder / MANIFEST, lambda manifest: manifest["sessions"][-1].update(log=seal(folder / LOG)))


def edit_json(path: Path, change: Callable[[Record], object]) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")


def evaluated(out: Path, policy: str, where: str, limit: int, **settings: Any) -> Path:
    """An honest run on a shipped panel."""
    tasks = load_panel(where).subset(limit=limit)
    protocol = load_protocol(settings.pop("protocol", get_suite(tasks.suite).default_protocol))
    protocol = protocol.with_settings(steps=settings.pop("steps", 4))
    asked = make_policy(policy, tasks, ModelOptions())
    evaluate(Evaluation(tasks, protocol, asked, out, **settings), Progress())
    return out


# Honest runs


def test_honest_run(run: Path) -> None:
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    report = checked(run)
    assert (report.findings, report.first, report.notes) == (0, (), ())
    assert report.episodes == 24
    assert report.turns == sum(len(json.loads(line)["turns"]) for line in lines(run))
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


@pytest.mark.parametrize(
    ("policy", "where", "steps"),
    [
        ("oracle", "mini-alfworld/valid_unseen", 30),
        ("random", "mini-alfworld/valid_unseen", 3),
        ("oracle", "mini-webshop/test", 15),
        ("random", "mini-webshop/test", 15),
        ("rule", "mini-webshop/test", 15),
        ("oracle", "mini-searchqa/test", 4),
        ("rule", "mini-searchqa/test", 4),
    ],
)
def test_honest_runs_of_the_suites(mini_store: Path, tmp_path: Path, policy: str, where: str, steps: int) -> None:
    report = verify(evaluated(tmp_path / "run", policy, where, 6, steps=steps, repeats=2))
    assert (report.first, report.notes) == ((), ())
    assert report.episodes == 12
    assert report.turns >= 12


@pytest.mark.parametrize("protocol", ["alfworld/quick", "alfworld/choose"])
def test_honest_run_of_a_model(mini_store: Path, tmp_path: Path, protocol: str) -> None:
    model = str(tiny_model.build(tmp_path / "model"))
    out = evaluated(tmp_path / "run", model, "mini-alfworld/valid_unseen-small", 3, protocol=protocol, steps=3)
    report = verify(out)
    assert (report.first, report.notes, report.turns) == ((), (), 9)
    if protocol == "alfworld/choose":
        edit(out, lambda record: record["turns"][0].update(response="look around", action="look around"))
        assert "turn 1: response: 'look around' is none of the " in verify(out).first[0]


def test_episodes_that_broke_off(tmp_path: Path, suite: CountingSuite) -> None:
    """What the record shows of them is checked, and a later attempt takes the place of a failed one."""
    write_panel(panel(1), tmp_path / PANEL)
    suite.faults["train/one-0"] = 1
    policy = Script("<think>so</think><action>left</action>", ContextOverflow("too long"))
    settings = {"panel": panel(1), "max_infra": 1.0}
    evaluate(job(tmp_path / "run", policy, **settings), Progress())
    assert {json.loads(line)["outcome"] for line in lines(tmp_path / "run")} == {"context_overflow", "infra_error"}
    assert checked(tmp_path / "run").first == ()
    evaluate(job(tmp_path / "run", policy, **settings), Progress())
    assert len(lines(tmp_path / "run")) == 4
    assert checked(tmp_path / "run").first == ()
    edit(tmp_path / "run", lambda record: record.update(outcome="failed", error=""), 3)
    assert "outcome: failed is stored after 1 of 4 steps, and nothing is decided" in checked(tmp_path / "run").first[0]


def test_policy_fault_before_the_first_turn(tmp_path: Path) -> None:
    write_panel(panel(1), tmp_path / PANEL)
    evaluate(job(tmp_path / "run", Script(PolicyFault("down")), panel=panel(1), max_infra=1.0), Progress())
    assert checked(tmp_path / "run").first == ()


# The log


def of_turn(number: int = 0, **values: Any) -> Callable[[Record], object]:
    return lambda record: record["turns"][number].update(values)


TAMPERED: dict[str, tuple[Callable[[Record], object], str]] = {
    "observation": (of_turn(observation="all is well"), ", turn 1: observation: stored 'all is well', found '"),
    "action": (of_turn(action="cheat"), ", turn 1: action: stored 'cheat', found '"),
    "response": (of_turn(response="<think></think><action>cheat</action>"), "', found 'cheat'."),
    "valid": (lambda r: r["turns"][0].update(valid=not r["turns"][0]["valid"]), ", turn 1: valid: stored "),
    "admissible": (lambda r: r["turns"][0].update(admissible=None), ", turn 1: admissible: stored None, found "),
    "prompt hash": (of_turn(prompt_sha256="0" * 64), ", turn 1: prompt hash: stored '000"),
    "no prompt hash": (
        of_turn(-1, prompt_sha256=""),
        ": prompt hash: none is stored, though others are.",
    ),
    "prompt": (lambda r: r["turns"][0]["prompt"][0].update(content="x"), ", turn 1: prompt: the stored text is not"),
    "turn dropped": (lambda r: r["turns"].pop(), ": outcome: solved is stored after 0 of 4 steps, and nothing is"),
    "tokens of a turn": (of_turn(usage={"prompt_tokens": 9, "generated_tokens": 10**6}), ": prompt tokens: stored "),
    "success": (lambda r: r.update(success=not r["success"]), ": success: stored "),
    "score": (lambda r: r.update(score=0.123), ": score: stored 0.123, found "),
    "metric": (lambda r: r.update(metrics={"em": 1.0}), ": metric em: stored 1.0, found None"),
    "seed": (lambda r: r.update(seed=7), ": seed: stored 7, found "),
    "task": (lambda r: r.update(task="train/one-9"), ": task: stored 'train/one-9', found 'train/"),
    "family": (lambda r: r.update(family="four"), ": family: stored 'four', found '"),
    "instruction": (lambda r: r.update(instruction="rest"), ": instruction: stored 'rest', found 'say right "),
    "first observation": (lambda r: r.update(first_observation="x"), ": first observation: stored 'x', found 'train/"),
    "outcome": (lambda r: r.update(outcome="context_overflow"), ": outcome: stored 'context_overflow', found '"),
    "error": (lambda r: r.update(error="oh"), ": an error is stored ('oh'), but the outcome is "),
    "content": (lambda r: r.update(task_sha256="0" * 64), ": an episode that the run cannot have: its content"),
    "repeat": (lambda r: r.update(repeat=2), ": an episode that the run cannot have: repeats are 2."),
    "type": (lambda r: r.update(success="yes"), f"{LOG} line 1 is damaged (ValueError: success cannot be 'yes')."),
    "NaN": (lambda r: r.update(score=float("nan")), f"{LOG} line 1 is damaged (ValueError: score cannot be nan)."),
    "huge": (lambda r: r.update(score=10**400), f"{LOG} line 1 is damaged (ValueError: score cannot be 1000"),
    "list": (lambda r: r.update(task_sha256=[]), f"{LOG} line 1 is damaged (ValueError: task_sha256 cannot be [])."),
    "surrogate": (of_turn(response="\ud800"), ", turn 1: action: stored '"),
    "shape": (lambda r: r.pop("turns"), f"{LOG} line 1 is damaged (KeyError: 'turns')."),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_tampered_episode(run: Path, what: str) -> None:
    change, sentence = TAMPERED[what]
    before = edit(run, change)
    report = checked(run)
    assert sentence in report.first[0], report.first
    if "damaged" not in sentence and what != "task":
        assert report.first[0].startswith(f"{before['task']}, repeat ")
    (run / SUMMARY).unlink()  # whoever makes a summary that fits is found all the same
    assert sentence in checked(run).first[0]


def test_difference_is_shown_where_it_begins(run: Path) -> None:
    edit(run, lambda record: record["turns"][0].update(observation=record["turns"][0]["observation"] + "!" * 500))
    (found,) = checked(run).first
    told = found.partition(", turn 1: observation: ")[2]
    assert told.startswith("stored …'")
    assert "!!!!" in told.partition("found")[0]
    assert "!" not in told.partition("found")[2]
    assert len(told) < 160


def test_dropped_episode(run: Path) -> None:
    log = lines(run)
    gone = json.loads(log[5])
    rewrite(run, b"".join(log[:5] + log[6:]))
    assert checked(run).first[0] == f"{gone['task']}, repeat {gone['repeat']}: the log has no episode of it."
    assert f"{SUMMARY}: episodes: stored 24, found 23." in checked(run).first


def test_duplicated_episode(run: Path) -> None:
    log = lines(run)
    twice = json.loads(log[3])
    rewrite(run, b"".join([*log, log[3]]))
    (found,) = checked(run).first
    assert found.startswith(f"{twice['task']}, repeat {twice['repeat']}: the log has a second episode of it")


def test_truncated_log(run: Path) -> None:
    content = (run / LOG).read_bytes()
    rewrite(run, content[:-40])
    report = checked(run)
    assert report.first[0] == f"{LOG} line 24 is cut off."
    assert report.episodes == 23
    rewrite(run, content[: len(content) // 2])
    report = checked(run)
    assert report.findings > 10 == len(report.first)
    (run / LOG).unlink()
    assert checked(run).first[0] == f"{LOG} is missing."


def test_log_that_its_sessions_did_not_leave(run: Path) -> None:
    """Found where every count fits: a time changed, an episode put to another place, a line added or cut off."""
    log = lines(run)
    changed = [log[0].replace(b'"seconds": ', b'"seconds": 1'), *log[1:]]
    again = json.loads(log[0]) | {"outcome": "infra_error", "success": False, "score": 0.0, "turns": []}
    again["usage"] = {"prompt_tokens": 0, "generated_tokens": 0}
    before = json.dumps({**again, "instruction": "", "first_observation": ""}).encode() + b"\n"
    sentence = f"{LOG} is not the log whose lengths and hashes {MANIFEST} records."
    for other in (changed, [*log[1:], log[0]], [before, *log]):
        (run / LOG).write_bytes(b"".join(other))
        assert checked(run).first == (sentence,)
    (run / LOG).write_bytes(b"".join(log[:-1]))
    assert checked(run).first[0] == sentence


def test_log_of_several_sessions(tmp_path: Path, suite: CountingSuite) -> None:
    """Every session's end is a length at which the log must have its hash; what lies behind the last is nobody's."""
    write_panel(panel(1), tmp_path / PANEL)
    suite.faults["train/one-0"] = suite.faults["train/two-0"] = 1
    for _ in range(2):
        evaluate(job(tmp_path / "run", Script(RIGHT), panel=panel(1), max_infra=1.0), Progress())
    manifest = json.loads((tmp_path / "run" / MANIFEST).read_text())
    first, second = (session["log"]["bytes"] for session in manifest["sessions"])
    assert [first, second] == [sum(map(len, lines(tmp_path / "run")[:end])) for end in (3, 5)]
    assert checked(tmp_path / "run").first == ()
    edit_json(tmp_path / "run" / MANIFEST, lambda m: m["sessions"][0]["log"].update(bytes=first - 1))
    assert "is not the log whose lengths" in checked(tmp_path / "run").first[0]
    edit_json(tmp_path / "run" / MANIFEST, lambda m: m["sessions"].pop())
    edit_json(tmp_path / "run" / MANIFEST, lambda m: m["sessions"][0]["log"].update(bytes=first))
    assert "is not the log whose lengths" in checked(tmp_path / "run").first[0]


def test_run_of_an_earlier_version(run: Path) -> None:
    edit_json(run / MANIFEST, lambda manifest: manifest["sessions"][0].pop("log"))
    report = checked(run)
    assert report.first == ()
    assert report.notes == (f"{MANIFEST} does not record the log's hash: an earlier version made the run.",)


def test_log_without_end_is_not_read_to_its_end(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seedbench.verify_log._ENOUGH", 20)
    rewrite(run, b"[]\n" * 100)
    report = checked(run)
    assert 20 < report.findings < 100
    monkeypatch.setattr("seedbench.logs.LONGEST_LINE", 1000)
    rewrite(run, b" " * 5000 + b"\n")
    assert "line 1 is longer than" in checked(run).first[0]


@pytest.mark.parametrize("line", [b"\x00\xff\n", b"[]\n", b"{\n", b"[" * 100_000 + b"\n", b"7\n"])
def test_damaged_line_hides_no_other(run: Path, line: bytes) -> None:
    edit(run, lambda record: record.update(score=0.123), 7)
    rewrite(run, line + b"".join(lines(run)))
    damaged, score, *_ = checked(run).first
    assert damaged.startswith(f"{LOG} line 1 is damaged (")
    assert ": score: stored 0.123, found " in score


# Summary and manifest


SUMMARIES: dict[str, Callable[[Record], object]] = {
    "success.micro.rate: stored 0.99, found ": lambda s: s["success"]["micro"].update(rate=0.99),
    "success.families.two.ci[1]: stored 1, found ": lambda s: s["success"]["families"]["two"]["ci"].__setitem__(1, 1),
    "outcomes.failed: stored 0, found ": lambda s: s["outcomes"].update(failed=0),
    "tokens.generated: stored 1, found ": lambda s: s["tokens"].update(generated=1),
    "policy.name: stored 'mine', found 'babbler'": lambda s: s["policy"].update(name="mine"),
    "panel.official: stored True, found False": lambda s: s["panel"].update(official=True),
    "note: stored 'best', found None": lambda s: s.update(note="best"),
}


@pytest.mark.parametrize("sentence", SUMMARIES)
def test_edited_summary(run: Path, sentence: str) -> None:
    edit_json(run / SUMMARY, SUMMARIES[sentence])
    (found,) = checked(run).first
    assert found.startswith(f"{SUMMARY}: {sentence}")


def test_seconds_are_not_compared(run: Path) -> None:
    edit_json(run / SUMMARY, lambda summary: summary["seconds"].update(episodes=0.0, wall=None))
    assert checked(run).findings == 0
    edit_json(run / SUMMARY, lambda summary: summary["seconds"].update(wall="long"))
    (found,) = checked(run).first
    assert "is not a run's summary, at seconds.wall: Input should be a valid number" in found


@pytest.mark.parametrize(("content", "sentence"), [("{", "is damaged"), ("[]", "is damaged"), (None, "is missing")])
def test_lost_summary(run: Path, content: str | None, sentence: str) -> None:
    (run / SUMMARY).unlink()
    if content:
        (run / SUMMARY).write_text(content)
    (found,) = checked(run).first
    assert found.startswith(f"{SUMMARY} {sentence}")


MANIFESTS: dict[str, tuple[Callable[[Record], object], str]] = {
    "template": (
        lambda m: m["protocol"]["prompts"].update(first="Say right."),
        f"protocol: the settings and templates in {MANIFEST} have the hash ",
    ),
    "limit": (
        lambda m: m["protocol"]["limits"].update(steps=50),
        f"protocol: the settings and templates in {MANIFEST} have the hash ",
    ),
    "protocol hash": (
        lambda m: m["settings"]["protocol"].update(hash="0" * 64),
        f"protocol: the settings and templates in {MANIFEST} have the hash ",
    ),
    "protocol name": (
        lambda m: m["settings"]["protocol"].update(name="other@1"),
        f"protocol: {MANIFEST} calls it 'other@1', and its settings are those of 'counting/small@1'.",
    ),
    "panel hash": (lambda m: m["settings"]["panel"].update(hash="0" * 64), "panel: 'counting/train@1' has the hash "),
    "panel size": (lambda m: m["panel"].update(n=3), "panel: n: stored 3, found 12."),
    "official": (lambda m: m["panel"].update(official=True), "panel: official: stored True, found False."),
    "seed": (lambda m: m["settings"].update(seed=3), ": seed: stored "),
    "repeats": (lambda m: m["settings"].update(repeats=3), ", repeat 2: the log has no episode of it."),
    "no protocol": (lambda m: m.update(protocol={}), f"{MANIFEST} holds no protocol that could be used ('prompts')."),
    "unknown setting": (
        lambda m: m["protocol"]["limits"].update(lives=3),
        f"{MANIFEST} holds no protocol that could be used (1 validation error for ProtocolFile)",
    ),
    "broken template": (lambda m: m["protocol"]["prompts"].update(first="{% if"), "a template does not compile"),
    "no settings": (lambda m: m["settings"].pop("panel"), f"{MANIFEST} is damaged at settings.panel: Field required."),
    "more settings": (
        lambda m: m["settings"].update(x=1),
        f"{MANIFEST} is damaged at settings.x: Extra inputs",
    ),
    "engine": (
        lambda m: m["settings"].update(engine="native:http://127.0.0.1:9/"),
        f"engine: {MANIFEST} names a place ('native:http://127.0.0.1:9/'), which no run records.",
    ),
    "subset": (
        lambda m: m["settings"]["panel"].update(name="counting/train@1[mine]"),
        f"the panel 'counting/train@1[mine]' in {MANIFEST} is no name of a panel or its subset.",
    ),
}


@pytest.mark.parametrize("what", MANIFESTS)
def test_edited_manifest(run: Path, what: str) -> None:
    change, sentence = MANIFESTS[what]
    edit_json(run / MANIFEST, change)
    assert sentence in checked(run).first[0]


def test_a_model_is_prompted(tmp_path: Path, suite: CountingSuite) -> None:
    """Actions of a script that is shown the solutions, as those of a model."""
    write_panel(panel(1), tmp_path / PANEL)
    policy = Script("<think>so</think><action>right</action>", needs_prompt=False)
    evaluate(job(tmp_path / "run", policy, panel=panel(1)), Progress())
    assert checked(tmp_path / "run").first == ()
    identity = {"kind": "transformers", "weights_sha256": "0" * 64}
    edit_json(tmp_path / "run" / MANIFEST, lambda manifest: manifest["settings"].update(policy=identity))
    edit_json(tmp_path / "run" / SUMMARY, lambda summary: summary["policy"].update(identity=identity))
    assert checked(tmp_path / "run").first == (
        f"policy: {MANIFEST} calls it a model, and no turn of {LOG} has the hash of a prompt.",
    )


def test_lost_manifest(run: Path) -> None:
    (run / MANIFEST).write_text("{")
    assert "manifest.json' is damaged" in checked(run).first[0]
    (run / MANIFEST).unlink()
    (found,) = checked(run).first
    assert f"(no {MANIFEST})" in found


def test_swapped_panel(run: Path) -> None:
    """Other tasks under the same name; the run's own panel is asked for where nothing ships it."""
    (found,) = verify(run).first
    assert found.startswith("unknown panel 'counting/train@1'")
    assert found.endswith("Give the file of the run's panel with --panel. Nothing else can be checked.")
    write_panel(panel(3), run.parent / PANEL)
    report = checked(run)
    assert report.first[0].startswith("panel: 'counting/train@1' has the hash ")
    assert report.first[1] == "panel: n: stored 12, found 9."
    assert sum("its content is not in the panel" in text for text in report.first) == 6


def test_other_data_in_the_store(run: Path, suite: CountingSuite) -> None:
    suite.damaged.add("train/one-0")
    (found,) = checked(run).first
    assert found == "data: counting/train@1: the content of 1 tasks differs from the panel: train/one-0."


def test_environment_that_breaks_in_the_replay(run: Path, suite: CountingSuite) -> None:
    suite.faults["train/one-0"] = 1
    (found,) = checked(run).first
    assert found.startswith("train/one-0, repeat ")
    assert found.endswith(": it cannot be replayed: OSError: the engine fell over.")
    assert len(suite.made) == 2


def test_shipped_protocol_with_another_limit(mini_store: Path, tmp_path: Path) -> None:
    """Under a shipped name, changed settings must be named."""
    protocol = load_protocol("alfworld/seed").with_settings(steps=3)
    tasks = load_panel("mini-alfworld/valid_unseen").subset(limit=2)
    work = Evaluation(tasks, protocol, make_policy("random", tasks, ModelOptions()), tmp_path / "run")
    evaluate(work, Progress())
    edit_json(tmp_path / "run" / MANIFEST, lambda m: m["settings"]["protocol"].update(name="alfworld/seed@1"))
    found = verify(tmp_path / "run").first[0]
    assert "calls it 'alfworld/seed@1', and its settings are those of 'alfworld/seed@1[steps=3]'" in found


# Engines that search something else


def other_corpus(manifest: Record) -> None:
    manifest["settings"]["environment"]["retriever"]["corpus"] = "another"


def test_observations_of_another_engine_are_taken_as_stored(mini_store: Path, tmp_path: Path) -> None:
    out = evaluated(tmp_path / "run", "oracle", "mini-searchqa/test", 4)
    for name in (MANIFEST, SUMMARY):
        edit_json(out / name, other_corpus if name == MANIFEST else lambda s: other_corpus({"settings": s}))
    edit(out, lambda record: record["turns"][0].update(observation="<information>Doc 1</information>"))
    report = verify(out)
    assert (report.findings, report.episodes) == (0, 4)
    (note,) = report.notes
    assert note.startswith("observations not replayed: ")
    edit(out, lambda record: record["metrics"].update(f1=0.5), 1)
    edit(out, lambda record: record["turns"][-1].update(action="<answer>me</answer>"), 2)
    edit(out, lambda record: record.update(success=False, score=0.0), 3)
    found = [text for text in verify(out).first if SUMMARY not in text]
    assert len(found) == 3
    assert ": action: stored '<answer>me</answer>', found '<answer>" in found[0]
    assert ": success: stored False, found True" in found[1]
    assert ": metric f1: stored 0.5, found 1.0" in found[2]


def test_engine_that_is_not_here(mini_store: Path, tmp_path: Path) -> None:
    out = evaluated(tmp_path / "run", "rule", "mini-searchqa/test", 4)
    edit_json(out / MANIFEST, lambda manifest: manifest["settings"].update(engine="bm25"))
    assert verify(out).notes == ()  # what the manifest says was searched is here, behind another name
    edit_json(out / MANIFEST, other_corpus)
    edit_json(out / SUMMARY, lambda summary: other_corpus({"settings": summary}))
    report = verify(out)  # nothing is searched; answers are scored
    assert (report.findings, report.turns) == (0, 8)
    assert "the engine 'bm25' needs the folder of an index" in report.notes[0]
    edit(out, lambda record: record.update(success=not record["success"]))
    assert ": success: stored " in verify(out).first[0]
    assert verify(out, engine="native").notes[0] == "replayed with the engine 'native', the run had 'bm25'."


def test_answers_are_scored_without_any_engine(
    mini_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = evaluated(tmp_path / "run", "oracle", "mini-searchqa/test", 4)

    def absent(*_: object, **__: object) -> None:
        raise SeedBenchError("no corpus.")

    monkeypatch.setattr("seedbench_envs.searchqa.library.open_engine", absent)
    report = verify(out)
    assert (report.findings, report.episodes) == (0, 4)
    assert "the run searched (no corpus);" in report.notes[0]
    edit(out, lambda record: record.update(score=0.5), 2)
    assert ": score: stored 0.5, found 1.0" in verify(out).first[0]


def test_engine_without_a_substitute(mini_store: Path, tmp_path: Path) -> None:
    out = evaluated(tmp_path / "run", "rule", "mini-webshop/test", 2, steps=15)
    edit_json(out / MANIFEST, lambda manifest: manifest["settings"].update(engine="gone"))
    edit(out, lambda record: record["turns"][0].update(action="click[x]"))
    first, second = verify(out).first
    assert first.startswith("nothing was replayed (unknown engine 'gone'")
    assert "turn 1: action: stored 'click[x]'" in second


# The command


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return command_line(monkeypatch, capsys)


def test_command(cli: Command, run: Path) -> None:
    words = ("verify", run, "--panel", run.parent / PANEL)
    told = cli(*words)
    assert (told.code, told.err) == (0, "")
    assert told.out.startswith(f"{run}: verified (24 episodes, ")
    for number in range(12):
        edit(run, lambda record: record.update(instruction="\x1b[31mred\nline"), number)
    told = cli(*words)
    assert told.code == 1
    shown = told.out.splitlines()
    assert shown[0].startswith(f"{run}: 12 differences (24 episodes, ")
    assert len(shown) == 12
    assert shown[-1] == "  and 2 more"
    assert "\x1b" not in told.out


def test_command_refuses_what_is_no_run(cli: Command, run: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "is not a run folder" in said(cli("verify", tmp_path / "empty"), 2)
    assert "is not a run folder" in said(cli("verify", tmp_path / "absent"), 2)
    assert "unknown panel 'mine'" in said(cli("verify", run, "-p", "mine"), 2)
    assert "unknown engine 'fast'" in said(cli("verify", run, "-p", run.parent / PANEL, "--engine", "fast"), 2)


def test_training_run_stands_for_its_validations(cli: Command, run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "training"
    folder.mkdir()
    (folder / "training.json").write_text("{}")
    assert "has no validation" in said(cli("verify", folder), 2)
    for update in (10, 0):
        shutil.copytree(run, folder / "validation" / f"update-{update:06d}")
    names = ["update-000000", "update-000010"]
    assert [path.name for path in run_folders(folder)] == names
    edit(folder / "validation" / names[1], lambda record: record.update(seed=1))
    told = cli("verify", folder, "-p", run.parent / PANEL)
    assert told.code == 1
    first, second, third = told.out.splitlines()
    assert first.startswith(f"{folder / 'validation' / names[0]}: verified (24 ")
    assert second.startswith(f"{folder / 'validation' / names[1]}: 1 differences (24 ")
    assert ": seed: stored 1, found " in third


def test_progress_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Path) -> None:
    monkeypatch.setattr("seedbench.verify_log._EVERY", 10)
    told: list[str] = []
    verify(run, panel=str(run.parent / PANEL), told=told.append)
    assert told == ["10 episodes replayed", "20 episodes replayed"]


def test_usage_is_a_sum(tmp_path: Path) -> None:
    write_panel(panel(1), tmp_path / PANEL)
    answer = Response(text=RIGHT, usage=Usage(5, 2))
    evaluate(job(tmp_path / "run", Script(answer), panel=replace(panel(1))), Progress())
    before = edit(tmp_path / "run", lambda record: record["usage"].update(generated_tokens=1))
    found = checked(tmp_path / "run").first[0]
    right = 2 * len(before["turns"])
    assert found == f"{before['task']}, repeat 0: generated tokens: stored 1, found {right}."
