"""Roll-outs: what becomes a sample, which tasks are drawn, what is drawn again, what is counted."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from seedbench.errors import SeedBenchError
from seedbench.panels import load_panel
from seedbench.policies.base import Policy, Request, Response
from seedbench.types import Episode, Outcome, Task, Turn, Usage
from seedbench_trainers.checks import agent_protocol, make_method
from seedbench_trainers.collect import Attempt, Played
from seedbench_trainers.config import Reward, TrainConfig
from seedbench_trainers.records import Batch
from seedbench_trainers.rollouts import RolloutPlan, _flat_groups, describe, drawn
from seedbench_trainers.setup import rollout_protocol, training_panel
from seedbench_trainers.toolbox import Toolbox
from seedbench_trainers.trainee import load_trainee
from seedbench_trainers.view import TrainView
from tests.train.helpers import SIZES, EchoSuite, config, metric, panel, run


def _tools(settings: TrainConfig, model: Path, out: Path) -> Toolbox:
    trainee = load_trainee(settings, str(model), reference=False)
    protocol = agent_protocol(settings)
    return Toolbox(settings, training_panel(settings), protocol, out, trainee, make_method(settings), TrainView())


def _rollouts(model: Path, out: Path, protocol: str, **changes: Any) -> tuple[Batch, Toolbox]:
    tools = _tools(config(model, protocol=protocol, rollout={"tasks": 3, "group": 4}, **changes), model, out)
    return tools.rollouts(0), tools


@pytest.mark.parametrize("protocol", ["choose-3", "free-3", "chat", "chat-free"])
def test_a_window_gives_a_sample_a_turn_and_a_conversation_one_an_episode(
    model: Path, tmp_path: Path, protocol: str
) -> None:
    batch, tools = _rollouts(model, tmp_path, protocol)
    assert len(batch.trajectories) == 12
    chat = protocol.startswith("chat")
    expected = [(t, (0, 1, 2)) for t in range(12)] if chat else [(t, (n,)) for t in range(12) for n in range(3)]
    assert [(sample.trajectory, sample.turns) for sample in batch.samples] == expected
    decode = tools.loaded.tokenizer.decode
    retold = 0
    for sample in batch.samples:
        episode = batch.trajectories[sample.trajectory].episode
        said = [sample.ids[start:end] for start, end in sample.spans]
        for ids, turn in zip(said, (episode.turns[n] for n in sample.turns), strict=True):
            assert decode(ids, skip_special_tokens=True) == turn.response
            assert len(ids) == turn.usage.generated_tokens
            retold += tools.loaded.tokenizer(turn.response)["input_ids"] != [i for i in ids if i != tools.loaded.pad]
        assert len(sample.logprobs) == sample.length
        # Everything behind the prompt that is no response is what the chat template says of the observations.
        start = len(sample.ids) if not chat else sample.spans[0][0]
        assert tuple(sample.ids[:start])[: sample.spans[0][0]] == tools.encode(
            batch.trajectories[sample.trajectory].prompts[sample.turns[0]]
        )
    if "free" in protocol:
        assert retold > 0  # tokenising the texts again would have given other tokens


def test_a_chosen_response_is_scored_among_its_choices(model: Path, tmp_path: Path) -> None:
    batch, tools = _rollouts(model, tmp_path, "choose")
    words = {tools.loaded.tokenizer(word)["input_ids"][0] for word in ("left", "right")}
    for sample in batch.samples:
        assert len(sample.allowed) == sample.length
        assert set(sample.allowed[0]) == words
        assert sample.ids[sample.spans[0][0]] in words
        assert -20 < sample.logprobs[0] < 0
        assert sample.logprobs[1:].tolist() == [0.0] * (sample.length - 1)  # what follows was the only choice


def test_the_end_token_is_a_response_token_though_it_is_the_padding(model: Path, tmp_path: Path) -> None:
    batch, tools = _rollouts(model, tmp_path, "chat")
    assert tools.loaded.pad in tools.loaded.eos
    for sample in batch.samples:
        assert all(sample.ids[end - 1] == tools.loaded.pad for _, end in sample.spans)


def test_draws_are_passes_over_the_panel_in_orders_of_their_own(suite: EchoSuite) -> None:
    tasks = load_panel("echo/train")
    size = SIZES["train"]
    sequence = [task.id for task in drawn(tasks, 7, 0, 3 * size)]
    for at in range(0, 3 * size, size):
        assert Counter(sequence[at : at + size]) == Counter(task.id for task in tasks.tasks)
    assert sequence[:size] != sequence[size : 2 * size]
    assert [task.id for task in drawn(tasks, 7, 5, 2 * size)] == sequence[5 : 5 + 2 * size]
    assert [task.id for task in drawn(tasks, 8, 0, size)] != sequence[:size]


class Half(Policy):
    """Always right on tasks for `left`; on the others right in every second attempt."""

    name = "half"

    def identity(self) -> dict[str, Any]:
        return {}

    async def act(self, request: Request) -> Response:
        return Response(text="right" if "right" in request.task.id and request.repeat % 2 else "left")


def _plan(told: list[Episode], **rollout: Any) -> RolloutPlan:
    settings = config("none", rollout={"tasks": 4, "group": 2, **rollout})
    protocol = rollout_protocol(settings, agent_protocol(settings))
    return RolloutPlan(settings, training_panel(settings), protocol, Half, None, told.append)


def test_groups_without_variance_are_drawn_again_and_counted(suite: EchoSuite) -> None:
    told: list[Episode] = []
    plain = _plan(told).collect(0)
    flat = sum("left" in t.episode.task for t in plain.trajectories)
    assert 0 < flat < 8
    assert (len(told), plain.discarded) == (8, [])
    told.clear()
    batch = _plan(told, resample=30).collect(0)
    assert [t.episode.success for t in batch.trajectories] == [False, True] * 4
    assert all("right" in t.episode.task for t in batch.trajectories)
    assert len(told) == 8 + len(batch.discarded)
    assert all("left" in episode.task for episode in batch.discarded)
    assert describe(batch)["rollout/discarded"] == len(batch.discarded) >= flat
    kept = [t.episode.task for t in plain.trajectories if "right" in t.episode.task]
    assert [t.episode.task for t in batch.trajectories][: len(kept)] == kept
    groups = [t.group for t in batch.trajectories]
    assert len(set(groups)) == 4


def test_resampling_ends_after_its_rounds(suite: EchoSuite) -> None:
    told: list[Episode] = []
    batch = _plan(told, resample=1, tasks=8).collect(0)
    assert len(batch.trajectories) == 16
    assert len(told) == 16 + len(batch.discarded)


def test_equal_sums_of_penalties_are_no_equal_scores() -> None:
    """Attempts that lose as much, but in other turns, have something to tell apart."""
    same = [_played(0, (True, False)), _played(0, (True, False)), _played(1, (True, False)), _played(1, (False, True))]
    assert _flat_groups([*same, _played(2, (True, True))], Reward()) == {2}  # one attempt alone
    assert _flat_groups(same[:1] + same[2:], Reward()) == {0}
    assert _flat_groups(same, Reward(invalid_penalty=0.0)) == {0, 1}


def _played(group: int, valid: tuple[bool, ...]) -> Played:
    turns = tuple(Turn("x", "x", ok, None, "") for ok in valid)
    episode = Episode("t", "0" * 64, "left", 0, 0, Outcome.FAILED, False, 0.0, "", "", turns, Usage(), 0.0)
    return Played(Attempt(Task("t", "left", "", "0" * 64), 0, group, 0), episode, (), ())


def test_discarded_episodes_are_paid_for(model: Path, tmp_path: Path) -> None:
    run(config(model, updates=2, rollout={"tasks": 4, "group": 2, "resample": 2}), tmp_path)
    discarded = metric(tmp_path, "rollout/discarded")
    assert sum(discarded) > 0
    assert metric(tmp_path, "episodes") == [8 + discarded[0], 16 + sum(discarded)]


# Responses and prompts that are out of the ordinary


def _only_end(model: Path, folder: Path) -> Path:
    """The model with weights that make the end token certain, whatever the prompt."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    network: Any = AutoModelForCausalLM.from_pretrained(model)
    words: Any = AutoTokenizer.from_pretrained(model)
    with torch.no_grad():
        for layer in network.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        network.model.embed_tokens.weight.fill_(0.01)  # tied to the output layer: of logits all alike
        network.model.embed_tokens.weight[words.eos_token_id] = 10.0
    network.save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("protocol", ["free", "chat-free"])
def test_a_model_that_only_ends(model: Path, tmp_path: Path, protocol: str) -> None:
    ends = _only_end(model, tmp_path / "model")
    batch, tools = _rollouts(ends, tmp_path, protocol)
    turns = 3 if protocol == "chat-free" else 1
    for sample in batch.samples:
        assert [sample.ids[start:end].tolist() for start, end in sample.spans] == [[tools.loaded.pad]] * turns
        assert sample.logprobs == pytest.approx([0.0] * turns, abs=1e-3)
    run(config(ends, protocol=protocol, updates=2, rollout={"tasks": 2, "group": 2}), tmp_path / "run")
    for name, value in (("rollout/response_tokens", 1), ("rollout/success", 0), ("rollout/invalid", 1)):
        assert metric(tmp_path / "run", name) == [value, value]
    assert metric(tmp_path / "run", "groups/zero_variance") == [1, 1]


def test_prompts_over_the_limit_are_counted(suite: EchoSuite, model: Path, tmp_path: Path) -> None:
    from seedbench.panels import write_panel

    tasks = (*panel("train", 2).tasks, *panel("long", 2).tasks)
    mixed = panel("mixed", 2)
    write_panel(type(mixed)("echo/mixed@1", "echo", "mixed", False, "", tasks), tmp_path / "mixed.jsonl")
    settings = config(model, updates=1, data={"panel": str(tmp_path / "mixed.jsonl")}, rollout={"tasks": 4, "group": 3})
    run(settings, tmp_path / "run")
    assert metric(tmp_path / "run", "rollout/overflow") == [0.5]
    assert metric(tmp_path / "run", "rollout/turns") == [0.5]
    assert metric(tmp_path / "run", "episodes") == [12]


def test_nothing_but_prompts_over_the_limit(model: Path, tmp_path: Path) -> None:
    with pytest.raises(SeedBenchError, match=r"^update 1 has nothing to learn from: no episode has a single response"):
        run(config(model, data={"panel": "echo/long"}), tmp_path)


def test_an_environment_that_breaks_now_and_then(suite: EchoSuite, model: Path, tmp_path: Path) -> None:
    """Broken attempts are left out of every mean, and counted."""
    suite.faults["train-left-0"] = 2
    rollout = {"tasks": SIZES["train"], "group": 2}
    run(config(model, updates=2, rollout=rollout), tmp_path)
    assert metric(tmp_path, "rollout/broken") == [2, 0]
    assert metric(tmp_path, "episodes") == [22, 46]
    lines = (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[1])["metrics"]["rollout/turns"] == 1.0
