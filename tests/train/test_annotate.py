"""Annotating runs: every analyzer, bad answers, servers that die, and the two verbs."""

import asyncio
import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from seedbench.cli import app
from seedbench.errors import SeedBenchError, UsageError
from seedbench.policies.openai import OpenAIPolicy
from seedbench.runs import Run
from seedbench.types import Outcome
from seedbench_trainers.skills.analysis import Analysis, format_analysis
from seedbench_trainers.skills.analyzers import Answer, ModelAnalyzer, RulesAnalyzer, make_analyzer, panel_of
from seedbench_trainers.skills.annotate import FILE, annotate, annotated, counts, read_annotations
from tests import tiny_model
from tests.eval.fake_server import FakeServer, Reply, completion
from tests.train.episodes import episode

GOOD = format_analysis(Analysis("It worked.", "Go to desk 1 first."))
PANEL = "mini-alfworld/train@1"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of six episodes, of which one ended in an infrastructure error that was mended later."""
    settings = {"policy": {"kind": "test"}, "panel": {"name": f"{PANEL}[limit=6]", "hash": ""}}
    folder = tmp_path / "run"
    with Run(folder, settings, {"policy": {"name": "test"}}) as log:
        log.append(episode([], task="train/0", outcome=Outcome.INFRA_ERROR))
        for number in range(6):
            step = (f"go to desk {number}", f"You arrive at desk {number}.")
            log.append(episode([step], task=f"train/{number}", solved=number % 2 == 0))
        log.append(episode([], task="train/9", outcome=Outcome.INFRA_ERROR))
    return folder


def model(server: FakeServer, style: str = "brief") -> ModelAnalyzer:
    return ModelAnalyzer(OpenAIPolicy(server.url, retries=0), style=style, prompt_tokens=16_384, new_tokens=4_096)  # type: ignore[arg-type]


def answering(text: str) -> Callable[[dict[str, Any], int], Reply]:
    return lambda body, number: completion(text)


def test_rules_annotate_every_finished_episode_once(run: Path) -> None:
    lines: list[str] = []
    plans = RulesAnalyzer(lambda episode: ["go to shelf 7"] if episode.task == "train/1" else None)
    notes = annotate(run, plans, note=lines.append)
    assert [note.task for note in notes] == [f"train/{n}" for n in range(6)]
    assert notes[1].skill == "Do in this order: go to shelf 7."
    assert notes[0].skill == "Do in this order: go to desk 0."
    assert (notes[0].success, notes[0].outcome, notes[0].family, notes[0].repeat) == (True, "solved", "pick", 0)
    assert lines == [
        "kept 6 of 6 annotations (3 of solved episodes, 3 of failed)",
        "2 failed episodes have no known solution; their skills are made without one",
    ]
    before = (run / FILE).read_bytes()
    assert annotate(run, RulesAnalyzer(lambda _: None)) == notes
    assert (run / FILE).read_bytes() == before
    assert read_annotations(run) == read_annotations(run / FILE) == notes


def test_a_model_is_asked_greedily_once_with_the_style_and_limits(run: Path) -> None:
    with FakeServer(answering(f"Sure:\n```json\n{GOOD}\n```")) as server:
        notes = annotate(run, model(server))
    assert len(server.bodies) == len(notes) == 6
    assert {(note.kept, note.summary, note.skill, note.raw) for note in notes} == {
        (True, "It worked.", "Go to desk 1 first.", "")
    }
    asked = {body["messages"][0]["content"]: body for body in server.bodies}
    body = asked[
        "Your task is to: put a mug on a shelf\n> go to desk 3\nYou arrive at desk 3.\nfailed: step limit\nJSON:"
    ]
    assert (body["temperature"], body["max_tokens"]) == (0.0, 4_096)
    assert notes[0].analyzer == {
        "kind": "openai", "name": "tiny", "model": "tiny", "server": "someone", "context": None,
        "style": "brief", "prompt_tokens": 16_384, "new_tokens": 4_096,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty answer"),
        ("xq zz {{{ ]] \\", "no JSON object with a skill"),
        ("open the fridge 1 and " * 2_500, "cut off at the limit of tokens"),
        ('{"episode_skill": "' + "open the fridge 1 " * 3_000 + '"}', "skill of over 2,000 characters"),
        ("Lo siento, no puedo.", "no JSON object with a skill"),
        ('{"episode_summary": "失败", "episode_skill": "先打开冰箱，再拿鸡蛋。"}', "skill not in Latin letters"),
    ],
)
def test_bad_answers_are_refused_and_counted(run: Path, text: str, reason: str) -> None:
    def script(body: dict[str, Any], number: int) -> Reply:
        solved = "\nsolved\n" in body["messages"][0]["content"]
        return completion(GOOD if solved else text, "length" if len(text) > 9_999 else "stop")

    with FakeServer(script) as server:
        notes = annotate(run, model(server))
    assert counts(notes) == ["kept 3 of 6 annotations (3 of solved episodes, 0 of failed)", f"refused 3: {reason}"]
    refused = [note for note in notes if not note.kept]
    assert {note.raw for note in refused} == {text[:2_000]}
    assert all(len(note.raw_sha256) == 64 and note.skill == "" for note in refused)
    assert [episode.task for episode, _ in annotated(run)] == ["train/0", "train/2", "train/4"]
    assert annotated(run)[0][1] == Analysis("It worked.", "Go to desk 1 first.")


def test_a_server_that_dies_loses_nothing_and_nothing_is_asked_twice(run: Path) -> None:
    def dying(body: dict[str, Any], number: int) -> Reply:
        return completion(GOOD) if number < 2 else Reply(503, {"error": "gone"})

    with FakeServer(dying) as server, pytest.raises(SeedBenchError, match="2 new annotations are kept") as error:
        annotate(run, model(server), concurrency=1)
    assert error.value.exit_code == 1
    assert "run the same `seedbench annotate` command again" in str(error.value)
    held = read_annotations(run)
    assert [note.task for note in held] == ["train/0", "train/1"]
    with FakeServer(answering(GOOD)) as server:
        notes = annotate(run, model(server))
    assert len(server.bodies) == 4
    assert notes[:2] == held
    assert sorted(note.task for note in notes) == [f"train/{n}" for n in range(6)]


def test_a_server_that_is_gone_does_no_harm_where_nothing_is_left_to_ask(run: Path) -> None:
    with FakeServer(answering(GOOD)) as server:
        notes = annotate(run, model(server))
    lines: list[str] = []
    assert annotate(run, model(server), note=lines.append) == notes
    assert lines[0].startswith("nothing is left to ask the analyzer, which is away: ")
    assert lines[1] == "kept 6 of 6 annotations (3 of solved episodes, 3 of failed)"
    file = run / FILE
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(SeedBenchError, match="does not answer"):
        annotate(run, model(server))
    file.unlink()
    annotate(run, RulesAnalyzer(lambda _: None))
    with pytest.raises(SeedBenchError, match="does not answer"):  # the rules' annotations are not the server's
        annotate(run, model(server))


def test_a_refused_key_ends_the_work_at_once(run: Path) -> None:
    with (
        FakeServer(lambda body, number: Reply(401, {"error": "no"})) as server,
        pytest.raises(SeedBenchError, match="401"),
    ):
        annotate(run, model(server), concurrency=1)
    assert len(server.bodies) == 1
    assert read_annotations(run) == []


def test_one_answer_that_fails_does_not_stop_the_others(run: Path) -> None:
    def script(body: dict[str, Any], number: int) -> Reply:
        return Reply(400, {"error": "odd"}) if "desk 3" in body["messages"][0]["content"] else completion(GOOD)

    with (
        FakeServer(script) as server,
        pytest.raises(SeedBenchError, match=r"no answer for 1 episodes \(the last: train/3"),
    ):
        annotate(run, model(server))
    assert len(read_annotations(run)) == 5


def test_a_prompt_that_does_not_fit_is_refused_and_counted(run: Path) -> None:
    words = {"error": {"message": "This model's maximum context length is 4 tokens."}}
    with FakeServer(lambda body, number: Reply(400, words)) as server:
        notes = annotate(run, model(server))
    assert counts(notes)[1:] == ["refused 6: prompt too long for the model"]


def test_a_torn_line_is_cut_off_and_a_damaged_one_named(run: Path) -> None:
    notes = annotate(run, RulesAnalyzer(lambda _: None))
    file = run / FILE
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    assert [note.task for note in read_annotations(run)] == [f"train/{n}" for n in range(5)]
    assert annotate(run, RulesAnalyzer(lambda _: None)) == notes
    assert file.read_bytes() == whole
    lines = whole.splitlines(keepends=True)
    file.write_bytes(lines[0] + b'{"task": 1}\n' + lines[2])
    with pytest.raises(SeedBenchError, match="line 2 is damaged"):
        annotate(run, RulesAnalyzer(lambda _: None))


def test_another_analyzer_needs_another_file(run: Path) -> None:
    annotate(run, RulesAnalyzer(lambda _: None))
    with FakeServer(answering(GOOD)) as server:
        with pytest.raises(UsageError, match=r"by another analyzer \(differs in kind, model, .*choose another file"):
            annotate(run, model(server))
        other = run / "deeper" / "model.jsonl"
        assert len(annotate(run, model(server), other)) == 6
    assert len(annotated(run, other)) == 6
    assert json.loads(other.read_text().splitlines()[0])["analyzer"]["name"] == "tiny"


def test_a_full_disk_keeps_the_file_whole_and_the_work_goes_on_later(run: Path) -> None:
    whole = annotate(run, RulesAnalyzer(lambda _: None))
    lines = (run / FILE).read_bytes().splitlines(keepends=True)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    other = run / "other.jsonl"
    try:
        # The third line fits in part only.
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(lines[0] + lines[1]) + 100, limits[1]))
        with pytest.raises(SeedBenchError, match=r"cannot write the annotations: File too large\. Free"):
            annotate(run, RulesAnalyzer(lambda _: None), other)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert other.read_bytes() == lines[0] + lines[1]
    assert annotate(run, RulesAnalyzer(lambda _: None), other) == whole


def test_two_writers_do_not_share_a_file(run: Path) -> None:
    class Meets(RulesAnalyzer):
        async def answer(self, episode: Any) -> Answer:
            with pytest.raises(SeedBenchError, match="being written by another process"):
                await asyncio.to_thread(annotate, run, RulesAnalyzer(lambda _: None))
            return await super().answer(episode)

    assert len(annotate(run, Meets(lambda _: None))) == 6


def test_a_model_folder_that_writes_noise_is_refused_not_a_crash(run: Path, tmp_path: Path) -> None:
    folder = tiny_model.build(tmp_path / "noise")
    panel = panel_of(run)
    notes = annotate(run, make_analyzer(str(folder), panel, style="brief", prompt_tokens=2_048, new_tokens=24))
    assert len(notes) == 6
    assert not any(note.kept for note in notes)
    assert notes[0].analyzer["kind"] == "transformers"
    long = annotate(run, make_analyzer(str(folder), panel, new_tokens=4_096), run / "long.jsonl")
    assert {note.reason for note in long} == {"prompt too long for the model"}


@pytest.mark.parametrize("spec", ["oracle", "random"])
def test_what_plays_and_does_not_write_is_no_analyzer(run: Path, spec: str) -> None:
    with pytest.raises(UsageError, match=f"'{spec}' plays and does not write: an analyzer is rules, openai:URL"):
        make_analyzer(spec, panel_of(run))
    with pytest.raises(UsageError, match="The analyzer that needs no model is called 'rules'"):
        make_analyzer("rulez", panel_of(run))


def test_the_panel_of_a_run(run: Path, tmp_path: Path) -> None:
    assert panel_of(run).name == PANEL
    manifest = run / "manifest.json"
    manifest.write_text(manifest.read_text().replace("mini-alfworld/train@1", "mine/odd@1"))
    with pytest.raises(UsageError, match="panel 'mine/odd@1', which is not shipped: name its file with --panel"):
        panel_of(run)
    assert panel_of(run, PANEL).name == PANEL
    with pytest.raises(UsageError, match="is not a run folder"):
        panel_of(tmp_path / "nothing")
    with pytest.raises(UsageError, match="there are no annotations in"):
        read_annotations(run)


def seedbench(*arguments: object) -> str:
    result = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_collect_then_annotate(tmp_path: Path, mini_store: Path) -> None:
    run = tmp_path / "run"
    collect = ("collect", "oracle", "--panel", "mini-alfworld/train", "--tasks", 7, "--repeats", 2, "--out", run, "-q")
    said = seedbench(*collect)
    assert [line.split() for line in said.splitlines()[:6]] == [
        [family, n, "episodes,", n, "solved"]
        for family, n in {"pick": "2", "look": "2", "clean": "4", "heat": "2", "cool": "2", "pick2": "2"}.items()
    ]
    log = [json.loads(line) for line in (run / "episodes.jsonl").read_text().splitlines()]
    assert len(log) == 14
    assert json.loads((run / "manifest.json").read_text())["settings"]["protocol"]["name"] == "alfworld/seed@1"
    annotating = ("annotate", run, "-a", "rules", "-q")
    assert "kept 14 of 14 annotations (14 of solved episodes, 0 of failed)" in seedbench(*annotating)
    assert seedbench(*collect) == said
    assert all(note.skill.startswith("Do in this order:") for note in read_annotations(run))
    with pytest.raises(UsageError, match="unknown style 'brie': did you mean 'brief'"):
        seedbench("annotate", run, "-a", "rules", "--style", "brie")


def test_collecting_on_a_validation_split_is_noted(tmp_path: Path, mini_store: Path) -> None:
    said = seedbench(
        "collect",
        "oracle",
        "-p",
        "mini-alfworld/valid_seen",
        "--tasks",
        1,
        "--repeats",
        1,
        "--out",
        tmp_path / "r",
        "-q",
    )
    assert "is split 'valid_seen': do not report scores on what was trained on" in said
