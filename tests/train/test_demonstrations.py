"""Demonstrations: what the script plays, and that its tokens are those that a model policy would have sampled."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from seedbench.errors import SeedBenchError, UsageError
from seedbench.evaluate import Evaluation, evaluate
from seedbench.panels import Panel, load_panel
from seedbench.policies.checkpoint import locate
from seedbench.policies.loading import Loaded, load
from seedbench.policies.oracle import OraclePolicy
from seedbench.policies.prompts import PromptTokens
from seedbench.policies.random_ import RandomPolicy
from seedbench.policies.transformers_ import TransformersPolicy
from seedbench.protocol import Protocol, load_protocol
from seedbench.registry import get_suite
from seedbench.ui.live import Progress
from seedbench_trainers import tiny
from seedbench_trainers.collect import play
from seedbench_trainers.config import Reward
from seedbench_trainers.demonstrations import PLANNED, demonstrate, from_runs
from seedbench_trainers.records import Batch
from seedbench_trainers.rollouts import to_batch
from seedbench_trainers.script import _admits, _place, attempts


@pytest.fixture(scope="module")
def panel(mini_store: Path) -> Panel:
    return load_panel("mini-alfworld/train-small").subset(limit=12)


@pytest.fixture(scope="module")
def protocol() -> Protocol:
    return load_protocol("alfworld/choose")


@pytest.fixture(scope="module")
def loaded(panel: Panel, protocol: Protocol, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny, "_EPISODES", 40)
        folder = tiny.build_tiny("tiny:xs", panel, protocol, tmp_path_factory.mktemp("tiny"), 0)
    return load(locate(str(folder)), device="cpu", dtype="float32")


def _actions(batch: Batch) -> list[list[str]]:
    return [[turn.action for turn in trajectory.episode.turns] for trajectory in batch.trajectories]


def _record(policy: object, panel: Panel, protocol: Protocol, out: Path) -> Path:
    evaluate(Evaluation(panel=panel, protocol=protocol, policy=policy, out=out), Progress())  # type: ignore[arg-type]
    return out


PLAN = ("go to desk 1", "take mug 1 from desk 1", "go to bed 1", "move mug 1 to bed 1")


@pytest.mark.parametrize(
    ("following", "offered", "place"),
    [
        (1, PLAN, 1),  # the next one, although earlier and later ones are admissible too
        (1, ("go to desk 1", "go to bed 1"), 0),  # wandered off: back to where the plan goes on
        (3, ("go to bed 1", "take mug 1 from desk 1"), 2),
        (2, ("look",), None),
        (9, PLAN, 3),  # the plan was played and did not suffice: its last action again
        (2, None, 2),
    ],
)
def test_where_the_plan_goes_on(following: int, offered: tuple[str, ...] | None, place: int | None):
    assert _place(PLAN, following, offered) == place


def test_an_action_may_be_listed_with_a_blank():
    listed = ["search[<your query>]", "click[back]"]
    assert _admits(listed, "search[red shoes]")
    assert _admits(listed, "click[back]")
    assert not _admits(listed, "click[buy now]")


def test_attempts_pass_over_the_panel(panel: Panel):
    made = attempts(panel, 30, 5)
    assert [attempt.repeat for attempt in made] == [0] * 12 + [1] * 12 + [2] * 6
    assert {attempt.task.id for attempt in made[:12]} == {task.id for task in panel.tasks}
    assert [a.task.id for a in made[:12]] != [a.task.id for a in made[12:24]]
    assert [attempt.group for attempt in made] == list(range(30))
    assert len({attempt.seed for attempt in made}) == 30
    assert attempts(panel, 7, 5) == made[:7]


def test_without_noise_the_oracle_plays(panel: Panel, protocol: Protocol, loaded: Loaded):
    batch = demonstrate(panel, protocol, loaded, episodes=12, noise=0.0, seed=0)
    plans = {task.id: list(get_suite(panel.suite).oracle(panel, task)) for task in panel.tasks}
    assert _actions(batch) == [plans[trajectory.episode.task] for trajectory in batch.trajectories]
    assert all(trajectory.episode.success for trajectory in batch.trajectories)
    assert all((sample.signals[PLANNED] == 1).all() for sample in batch.samples)


def test_tokens_are_what_a_model_policy_would_have_sampled(panel: Panel, protocol: Protocol, loaded: Loaded):
    batch = demonstrate(panel, protocol, loaded, episodes=12, noise=0.4, seed=1, only_solved=False)
    end = loaded.eos[0]
    assert len(batch.samples) == len(batch.trajectories) == 12  # a conversation is one sample
    for sample in batch.samples:
        trajectory = batch.trajectories[sample.trajectory]
        assert sample.turns == tuple(range(len(trajectory.episode.turns)))
        for (start, stop), turn in zip(sample.spans, trajectory.episode.turns, strict=True):
            assert sample.ids[stop - 1] == end
            assert loaded.tokenizer.decode(sample.ids[start : stop - 1]) == turn.response
        tokens = PromptTokens(loaded.tokenizer, loaded.template, name="t", eos=loaded.eos)
        assert tokens.encode(trajectory.prompts[-1]) == sample.ids[: sample.spans[-1][0]].tolist()
        assert len(sample.allowed) == sample.length
        assert all(token in ids for token, ids in zip(sample.ids[sample.positions], sample.allowed, strict=True))
        assert not sample.logprobs.any()


def test_a_model_policy_sees_the_same_prompts_and_choices(panel: Panel, protocol: Protocol, loaded: Loaded):
    """A real policy that happens to say the same has the same tokens in every field but the log-probabilities."""
    policy = TransformersPolicy.serving(loaded, name="t", identity={}, batch_size=16, record=True)
    theirs = to_batch(play(attempts(panel, 12, 2), panel, protocol, policy), Reward())
    ours = demonstrate(panel, protocol, loaded, episodes=12, noise=1.0, seed=2, only_solved=False)
    for mine, other in zip(ours.samples, theirs.samples, strict=True):
        first = mine.spans[0][0]
        assert mine.spans[0][0] == other.spans[0][0]
        assert (mine.ids[:first] == other.ids[:first]).all()
        assert mine.allowed[0] == other.allowed[0]


def test_random_turns_are_marked_and_never_hidden(panel: Panel, protocol: Protocol, loaded: Loaded):
    free = load_protocol("alfworld/quick")
    for kind in (protocol, free):
        batch = demonstrate(panel, kind, loaded, episodes=48, noise=0.5, seed=3, only_solved=False)
        said = {action for actions in _actions(batch) for action in actions}
        assert said.isdisjoint(kind.settings.prompts.hide)
        planned = np.concatenate([sample.signals[PLANNED] for sample in batch.samples])
        # Half of the turns are random, and some of those happen to be the plan's.
        assert 0.4 < planned.mean() < 0.75


def test_detours_are_mended(panel: Panel, protocol: Protocol, loaded: Loaded):
    roomy = protocol.with_settings(steps=40)
    noisy = demonstrate(panel, roomy, loaded, episodes=96, noise=0.3, seed=4, only_solved=False)
    solved = [trajectory.episode.success for trajectory in noisy.trajectories]
    assert np.mean(solved) > 0.75
    assert len(demonstrate(panel, roomy, loaded, episodes=96, noise=0.3, seed=4).trajectories) == sum(solved)


def test_the_seed_decides(panel: Panel, protocol: Protocol, loaded: Loaded):
    def ids(seed: int) -> list[list[int]]:
        batch = demonstrate(panel, protocol, loaded, episodes=12, noise=0.5, seed=seed, only_solved=False)
        return [sample.ids.tolist() for sample in batch.samples]

    assert ids(6) == ids(6)
    assert ids(6) != ids(7)


def test_blanks_are_filled_by_the_plan_alone(loaded: Loaded):
    shop = load_panel("mini-webshop/train").subset(limit=10)
    protocol = load_protocol("webshop/quick").with_settings(response_tokens=200, prompt_tokens=0)
    roomy = replace(loaded, context=None)
    batch = demonstrate(shop, protocol, roomy, episodes=20, noise=1.0, seed=0, only_solved=False)
    plans = {task.id: get_suite(shop.suite).oracle(shop, task) for task in shop.tasks}
    strayed = False
    for trajectory, actions in zip(batch.trajectories, _actions(batch), strict=True):
        searches = {action for action in actions if action.startswith("search[")}
        assert searches == {plans[trajectory.episode.task][0]}
        strayed |= not set(actions) <= set(plans[trajectory.episode.task])
    assert strayed


def test_free_decoding_in_a_window_is_a_sample_a_turn(panel: Panel, loaded: Loaded):
    batch = demonstrate(panel, load_protocol("alfworld/quick"), loaded, episodes=6, noise=0.0, seed=0)
    assert len(batch.samples) == sum(len(actions) for actions in _actions(batch))
    for sample in batch.samples:
        said = batch.trajectories[sample.trajectory].episode.turns[sample.turns[0]].response
        assert sample.allowed == ()
        ((start, stop),) = sample.spans
        assert sample.ids[start:stop].tolist() == [*loaded.tokenizer(said)["input_ids"], loaded.eos[0]]


def test_what_cannot_be_demonstrated(panel: Panel, protocol: Protocol, loaded: Loaded):
    with pytest.raises(SeedBenchError, match=r"has \d tokens, the protocol allows 1: raise it"):
        demonstrate(panel, protocol.with_settings(response_tokens=1), loaded, episodes=2, noise=0, seed=0)
    with pytest.raises(
        SeedBenchError, match=r"could be played: a prompt of \d+ tokens exceeds .*; raise prompt_tokens"
    ):
        demonstrate(panel, protocol.with_settings(prompt_tokens=5), loaded, episodes=2, noise=0, seed=0)
    with pytest.raises(SeedBenchError, match=r"none of 4 demonstrations .* was solved within 1 steps"):
        demonstrate(panel, protocol.with_settings(steps=1), loaded, episodes=4, noise=0, seed=0)


def test_a_prompt_over_the_limit_ends_the_episode(panel: Panel, protocol: Protocol, loaded: Loaded):
    short = replace(loaded, context=100)
    whole = demonstrate(panel, protocol, loaded, episodes=12, noise=0.9, seed=8, only_solved=False)
    batch = demonstrate(panel, protocol, short, episodes=12, noise=0.9, seed=8, only_solved=False)
    overflown = [t.episode.outcome.value == "context_overflow" for t in batch.trajectories]
    assert overflown == [
        sample.spans[-1][0] + 32 > 100
        for sample in whole.samples  # the protocol's response_tokens
    ]
    assert any(overflown)


def test_recorded_runs_are_the_same_as_playing_them(panel: Panel, protocol: Protocol, loaded: Loaded, tmp_path: Path):
    oracle = OraclePolicy(lambda task: get_suite(panel.suite).oracle(panel, task))
    run = _record(oracle, panel, protocol, tmp_path / "run")
    played = demonstrate(panel, protocol, loaded, episodes=12, noise=0.0, seed=0)
    by_task = {played.trajectories[sample.trajectory].episode.task: sample for sample in played.samples}
    batch = from_runs([run], panel, protocol, loaded)
    assert len(batch.samples) == 12
    for sample in batch.samples:
        other = by_task[batch.trajectories[sample.trajectory].episode.task]
        assert (sample.ids == other.ids).all()
        assert sample.allowed == other.allowed
        assert sample.spans == other.spans
    # Of another protocol with the same actions, the prompts are rendered anew.
    window = from_runs([run], panel, load_protocol("alfworld/choose-window"), loaded)
    assert len(window.samples) == sum(len(actions) for actions in _actions(batch))
    few = from_runs([run], panel.subset(limit=6), protocol, loaded)
    assert len(few.trajectories) == 6


def test_unsolved_recorded_episodes_are_left_out_unless_asked_for(
    panel: Panel, protocol: Protocol, loaded: Loaded, tmp_path: Path
):
    run = _record(RandomPolicy(), panel, protocol.with_settings(steps=3), tmp_path / "run")
    with pytest.raises(UsageError, match="no solved episodes of tasks of mini-alfworld/train-small@1"):
        from_runs([run], panel, protocol, loaded)
    batch = from_runs([run], panel, protocol, loaded, only_solved=False)
    assert [len(actions) for actions in _actions(batch)] == [3] * 12  # no further than their records


def test_a_run_that_the_protocol_reads_otherwise_is_refused(
    panel: Panel, protocol: Protocol, loaded: Loaded, tmp_path: Path
):
    oracle = OraclePolicy(lambda task: get_suite(panel.suite).oracle(panel, task))
    run = _record(oracle, panel, load_protocol("alfworld/seed"), tmp_path / "run")
    with pytest.raises(UsageError, match="restricted decoding does not allow"):
        from_runs([run], panel, protocol, loaded)
    with pytest.raises(UsageError, match=r"reads '<think></think><action>go to .* was played: record the run"):
        from_runs(
            [run], panel, load_protocol("alfworld/quick").with_settings(response_tokens=200), loaded, only_solved=False
        )
    with pytest.raises(UsageError, match=r"is not a run folder|holds no episode log"):
        from_runs([tmp_path], panel, protocol, loaded)
