"""The teacher: where skills come from, their place in a prompt, masks, and figures."""

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from seedbench.errors import SeedBenchError, UsageError
from seedbench.policies.base import Response
from seedbench.policies.checkpoint import locate
from seedbench.policies.loading import Loaded, load
from seedbench.policies.prompts import PromptTokens
from seedbench.protocol import Protocol, load_protocol
from seedbench.types import Message
from seedbench_trainers.distillation import GatedSettings, TeacherSettings
from seedbench_trainers.records import Batch, Sample, Trajectory, in_context
from seedbench_trainers.skills.insertion import insert_skill
from seedbench_trainers.skills.sources import own_prompts, skills_of
from seedbench_trainers.teacher import action_mask, describe_teacher, fill_masks, place_skills
from tests.eval.fake_server import FakeServer, Reply, completion
from tests.train.episodes import episode
from tests.train.helpers import config, metric, run
from tests.train.teaching import static_file, watched


@pytest.fixture(scope="session")
def loaded(built: Path) -> Loaded:
    return load(locate(str(built)), device="cpu", dtype="float32")


def _protocol(**parser: Any) -> Protocol:
    base = load_protocol("alfworld/quick")
    return Protocol(base.settings.model_copy(update={"parser": base.settings.parser.model_copy(update=parser)}),
                    base.templates)  # fmt: skip


def _tools(loaded: Loaded, answers: Sequence[str | None] = (), context: int | None = 4096, **more: Any) -> Any:
    """Tools with a policy that writes `answers` about its trajectories."""
    prompts = PromptTokens(loaded.tokenizer, loaded.template, name="tiny", eos=loaded.eos)
    asked: list[Any] = []
    noted: list[str] = []

    def ask(questions: Any, sampling: Any) -> list[Response | None]:
        asked.extend((question, sampling) for question in questions)
        return [None if text is None else Response(text) for text in answers]

    return SimpleNamespace(
        config=SimpleNamespace(suite="alfworld"),
        protocol=_protocol(),
        loaded=SimpleNamespace(context=context, tokenizer=loaded.tokenizer),
        encode=lambda messages: tuple(prompts.encode(messages)),
        ask=ask, asked=asked, note=noted.append, noted=noted, once=lambda work: work(), **more,
    )  # fmt: skip


PLAIN = (Message("user", "Your task is to: put a mug on a shelf\nYou see a shelf 1.\nWhat do you do?"),)


def _batch(tools: Any, solved: Sequence[bool], said: str = "go to shelf 1") -> Batch:
    """One turn a trajectory."""
    batch = Batch([], [])
    for number, success in enumerate(solved):
        prompt = tools.encode(PLAIN)
        ids = tools.loaded.tokenizer(said, add_special_tokens=False)["input_ids"]
        batch.trajectories.append(
            Trajectory(episode([("go to shelf 1", "You arrive.")], solved=success), 0, (PLAIN,), 0.0, (0.0,))
        )
        batch.samples.append(
            Sample(np.asarray([*prompt, *ids], dtype=np.int32), ((len(prompt), len(prompt) + len(ids)),),
                   np.zeros(len(ids), dtype=np.float32), trajectory=number, turns=(0,))
        )  # fmt: skip
    return batch


def _text(tools: Any, sample: Sample) -> str:
    return str(tools.loaded.tokenizer.decode(sample.ids))


# Sources


def _analysis(skill: str) -> str:
    return json.dumps({"episode_summary": "s", "episode_skill": skill})


def test_the_policys_own_analyses(suite: Any, loaded: Loaded) -> None:
    """Two can be used; garbage, nothing, an empty skill, another script and a skill without end cannot."""
    answers = [_analysis("Open it."), "I think that", None, _analysis(" "), f"```json\n{_analysis('Look.')}\n```",
               _analysis("打开冰箱然后拿走杯子"), _analysis("word " * 10_000)]  # fmt: skip
    tools = _tools(loaded, answers)
    batch = _batch(tools, [True, True, False, False, False, True, True])
    skills, figures = skills_of(batch, tools, TeacherSettings(skill="own", analysis_tokens=64))
    assert skills == ["Open it.", None, None, None, "Look.", None, None]
    assert figures["skill/asked"] == 7
    assert figures["skill/parsed"] == pytest.approx(2 / 7)
    assert figures["skill/parsed/solved"] == pytest.approx(1 / 4)
    assert figures["skill/parsed/unsolved"] == pytest.approx(1 / 3)
    assert figures["skill/parsed/pick"] == pytest.approx(2 / 7)
    assert figures["skill/words"] == 1.5
    assert tools.noted == ["1 of 7 analyses cannot be had: the prompt does not fit into the model's context"]
    assert [t.notes["analysis"] for t in batch.trajectories] == ["" if a is None else a for a in answers]
    assert [t.notes.get("refused", "") != "" for t in batch.trajectories] == [s is None for s in skills]
    (_, sampling), *_ = tools.asked
    assert (sampling.temperature, sampling.max_new_tokens, sampling.decode) == (0.0, 64, "free")


@pytest.mark.parametrize(("analyze", "skilled"), [("all", [True] * 4), ("failed", [False, True, False, True]),
                                                  ("solved", [True, False, True, False])])  # fmt: skip
def test_which_trajectories_are_analysed(suite: Any, loaded: Loaded, analyze: Any, skilled: list[bool]) -> None:
    tools = _tools(loaded)
    batch = _batch(tools, [True, False, True, False])
    skills, figures = skills_of(batch, tools, TeacherSettings(skill="static", analyze=analyze))
    assert [skill is not None for skill in skills] == skilled
    assert figures["skill/asked"] == sum(skilled)


def test_own_prompts_fit_the_models_context(suite: Any, loaded: Loaded) -> None:
    """Long episodes are shortened in the middle, in tokens; the outcome stays."""
    tools = _tools(loaded, context=700)
    long = episode([(f"go to shelf {n}", f"You arrive at shelf {n}. " * 4) for n in range(1, 40)])
    settings = TeacherSettings(analysis_tokens=100, analysis_style="brief")
    (messages,) = own_prompts([long], tools, settings)
    assert len(tools.encode(messages)) + 100 <= 700
    assert "steps left out]" in messages[0].content
    assert messages[0].content.endswith("failed: step limit\nJSON:")
    (whole,) = own_prompts([long], _tools(loaded, context=None), settings)
    assert "left out" not in whole[0].content
    (cut,) = own_prompts([long], _tools(loaded, context=None), TeacherSettings(analysis_prompt_tokens=1200))
    assert 1000 < len(tools.encode(cut)) <= 1200
    assert "steps left out]" in cut[0].content
    with pytest.raises(UsageError, match=r"leaves no room .* context of 700: .* method.analysis_tokens=87"):
        own_prompts([long], tools, TeacherSettings())


def test_an_analyzer_behind_a_server(suite: Any, loaded: Loaded) -> None:
    """Its answers come in the order of the trajectories."""

    def answer(body: dict[str, Any], _: int) -> Reply:
        solved = "was solved" in body["messages"][-1]["content"]
        return completion(_analysis("Do it again." if solved else "Do something else."))

    with FakeServer(answer) as server:
        tools = _tools(loaded, panel=_panel())
        batch = _batch(tools, [True, False, True])
        skills, _ = skills_of(batch, tools, TeacherSettings(skill=f"openai:{server.url}"))
    assert skills == ["Do it again.", "Do something else.", "Do it again."]


def _panel() -> Any:
    from seedbench.panels import load_panel

    return load_panel("mini-alfworld/train-small")


def test_a_family_without_a_static_skill_is_an_error(suite: Any, loaded: Loaded, tmp_path: Path) -> None:
    file = tmp_path / "few.toml"
    file.write_text('[families]\nheat = "Heat."\n')
    tools = _tools(loaded)
    with pytest.raises(SeedBenchError, match="lack the family 'pick'"):
        skills_of(_batch(tools, [True]), tools, TeacherSettings(skill=str(file)))


def test_a_file_that_is_not_there_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match=r"unknown source of skills 'my\.toml'"):
        config("m", method="sdar", options={"skill": "my.toml"})


# Places


@pytest.mark.parametrize("position", ["after_task", "end"])
def test_the_same_response_stands_behind_the_skill(suite: Any, loaded: Loaded, position: Any) -> None:
    tools = _tools(loaded)
    batch = _batch(tools, [True, False])
    figures = place_skills(batch, ["Open it.", None], tools, position)
    assert figures == {"skill/lost": 0.0}
    sample, other = batch.samples
    skilled = sample.contexts["teacher"]
    start = skilled.spans[0][0]
    assert tuple(skilled.ids[:start]) == tools.encode(insert_skill(PLAIN, "Open it.", position))
    assert tools.loaded.tokenizer.decode(skilled.ids[start:]) == "go to shelf 1"
    assert skilled.ids[skilled.positions].tolist() == sample.ids[sample.positions].tolist()
    assert other.contexts == {}


def test_an_empty_change_of_context_is_the_sample_itself(suite: Any, loaded: Loaded) -> None:
    tools = _tools(loaded)
    (sample,) = _batch(tools, [True]).samples
    same = in_context(sample, tools.encode(PLAIN))
    assert same.ids.tolist() == sample.ids.tolist()
    assert same.spans == sample.spans


def test_a_skill_that_does_not_fit_is_counted_and_nothing_is_cut(suite: Any, loaded: Loaded) -> None:
    """The bound is the whole sample's: exactly full is placed, one token more is lost."""
    tools = _tools(loaded)
    skills = ["Open the drawer and look.", "Look."]
    batch = _batch(tools, [True, True])
    place_skills(batch, skills, tools, "after_task")
    longest = len(batch.samples[0].contexts["teacher"].ids)
    for context, lost in ((longest, 0.0), (longest - 1, 0.5)):
        tools = _tools(loaded, context=context)
        batch = _batch(tools, [True, True])
        assert place_skills(batch, skills, tools, "after_task") == {"skill/lost": lost}
        fill_masks(batch, tools, action_only=False)
        assert ["teacher" in sample.contexts for sample in batch.samples] == [lost == 0, True]
        assert batch.samples[0].signals["distil"].any() == (lost == 0)
        assert "Your task is to: put a mug on a shelf" in _text(tools, batch.samples[1].contexts["teacher"])


def test_lost_skills_leave_a_run_as_grpo_and_are_logged(model: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """In a model whose context the plain prompts just fit, every skill is lost."""
    options = {"skill": static_file(tmp_path), "weight": 5.0}
    plain = run(config(model, updates=1, protocol="choose-3"), tmp_path / "grpo")
    from seedbench_trainers import teacher
    from tests.train.helpers import assert_same_weights

    original = teacher.place_skills
    monkeypatch.setattr(
        "seedbench_trainers.distillation.place_skills",
        lambda batch, skills, tools, position: original(
            batch, [s and s + " so" * 4096 for s in skills], tools, position
        ),
    )
    lost = run(config(model, updates=1, protocol="choose-3", method="sdar", options=options), tmp_path / "sdar")
    assert_same_weights(plain, lost)
    assert metric(lost.parent, "skill/lost") == [1.0]
    assert metric(lost.parent, "rollout/overflow") == [0.0]


# Masks


RESPONSE = "<think>a desk or <b>a shelf</b>?</think><action>go to shelf 1</action>"


def _masked(protocol: Protocol, loaded: Loaded, *responses: str) -> str:
    """The text of the tokens that an action mask keeps, a bar between responses."""
    ids, spans = list[int](), []
    for response in responses:
        said = loaded.tokenizer(response, add_special_tokens=False)["input_ids"]
        spans.append((len(ids) + 1, len(ids) + 1 + len(said)))
        ids += [0, *said]
    sample = Sample(np.asarray(ids, dtype=np.int32), tuple(spans), np.zeros(sum(e - s for s, e in spans), np.float32))
    mask, kept, at = action_mask(sample, protocol, loaded.tokenizer), [], 0
    assert mask.shape == (sample.length,)
    for start, end in spans:
        here = mask[at : at + end - start] > 0
        kept.append(loaded.tokenizer.decode(sample.ids[start:end][here]))
        at += end - start
    return "|".join(kept)


def test_the_action_mask_begins_at_the_tag(suite: Any, loaded: Loaded) -> None:
    protocol = _protocol(action_tag="action")
    assert _masked(protocol, loaded, RESPONSE) == "<action>go to shelf 1</action>"
    assert _masked(protocol, loaded, "<Action>look</Action> done") == "<Action>look</Action> done"
    two = _masked(protocol, loaded, "no action", "<action>a</action><action>b</action>")
    assert two == "|<action>a</action><action>b</action>"  # the parser reads the first


def test_the_action_mask_knows_several_tags(suite: Any, loaded: Loaded) -> None:
    protocol = _protocol(action_tags=("search", "answer"))
    assert (
        _masked(protocol, loaded, "so <search>x</search>", "<answer>y</answer>")
        == "<search>x</search>|<answer>y</answer>"
    )


def test_without_tags_the_whole_response_is_the_action(suite: Any, loaded: Loaded) -> None:
    assert _masked(_protocol(action_tag=""), loaded, "go to shelf 1", RESPONSE) == f"go to shelf 1|{RESPONSE}"


def test_masks_of_a_batch(suite: Any, loaded: Loaded) -> None:
    tools = _tools(loaded)
    tools.protocol = _protocol(action_tag="action")
    batch = _batch(tools, [True, False], said=RESPONSE)
    place_skills(batch, ["Look.", None], tools, "after_task")
    fill_masks(batch, tools, action_only=True)
    skilled, plain = batch.samples
    assert 0 < skilled.signals["distil"].sum() < skilled.length
    assert not plain.signals["distil"].any()
    fill_masks(batch, tools, action_only=False)
    assert skilled.signals["distil"].sum() == skilled.length
    assert not plain.signals["distil"].any()
    assert not skilled.signals["teacher"].any()


# Figures


def test_figures_on_the_teacher_by_hand(suite: Any, loaded: Loaded) -> None:
    """Deltas ln 3 and -ln 3 of a solved trajectory, 0 of a failed one; a sample without a mask does not count."""
    tools = _tools(loaded)
    batch = _batch(tools, [True, False, False], said="go")
    ln3 = float(np.log(3))
    for sample, deltas, mask in zip(batch.samples, ([ln3, -ln3], [0.0], [9.0]), ([1, 1], [1], [0]), strict=True):
        sample.logprobs = np.full(len(deltas), -1.0, dtype=np.float32)
        sample.signals = {"teacher": np.asarray(deltas, np.float32) - 1, "distil": np.asarray(mask, np.float32)}
    figures = describe_teacher(batch, beta=1.0)
    assert figures["teacher/delta"] == pytest.approx(0.0, abs=1e-7)
    assert figures["teacher/open"] == pytest.approx(1 / 3)
    assert figures["teacher/gate"] == pytest.approx((0.75 + 0.25 + 0.5) / 3)
    assert figures["teacher/open/solved"] == 0.5
    assert figures["teacher/open/unsolved"] == 0.0
    assert figures["teacher/open/pick"] == pytest.approx(1 / 3)
    assert "teacher/gate" not in describe_teacher(batch, None)


def test_a_batch_without_skills_has_no_figures(suite: Any, loaded: Loaded) -> None:
    tools = _tools(loaded)
    batch = _batch(tools, [True])
    fill_masks(batch, tools, action_only=False)
    assert describe_teacher(batch, 5.0) == {}


def test_settings_of_the_papers() -> None:
    settings = GatedSettings()
    assert (settings.weight, settings.beta, settings.teacher, settings.mask) == (0.01, 5.0, "current", "response")
    assert (settings.skill_position, settings.analyze) == ("after_task", "all")
    assert (settings.analysis_prompt_tokens, settings.analysis_tokens) == (16384, 4096)


def test_tag_and_bare_protocols_train_with_the_action_mask(model: Path, tmp_path: Path) -> None:
    options = {"skill": static_file(tmp_path), "weight": 1.0, "mask": "action"}
    with watched() as batches:
        run(config(model, method="sdar", protocol="choose-3", updates=1, options=options), tmp_path / "bare")
    assert all(sample.signals["distil"].all() for sample in batches[0].samples)
