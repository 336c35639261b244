"""One episode: every way in which it can end, and what its record holds."""

import asyncio
import hashlib
import json
from collections import Counter
from typing import Any

import pytest

from seedbench.errors import SeedBenchError
from seedbench.policies.base import ContextOverflow, Policy, PolicyFault, Request, Response
from seedbench.policies.oracle import OraclePolicy
from seedbench.policies.random_ import RandomPolicy
from seedbench.protocol import Protocol, load_protocol
from seedbench.rollout import derive_seed, prompt_hash, run_episode
from seedbench.suite import Environment
from seedbench.types import Episode, Message, Outcome, Usage
from tests.eval.helpers import ACTIONS, CountingEnv, Script, Step, protocol, task

RIGHT = "<think>so</think><action>right</action>"
LOSE = "<think>so</think><action>lose</action>"
FLY = "<think>so</think><action>fly</action>"


def play(
    policy: Policy,
    env: Environment | None = None,
    family: str = "three",
    asked: Protocol | None = None,
    **settings: Any,
) -> Episode:
    """Play a task of the counting suite (`three`: say right three times) under its protocol (4 steps)."""
    arguments = {"repeat": 0, "seed": 7, **settings}
    return asyncio.run(
        run_episode(env or CountingEnv(Counter()), task(family, 0), asked or protocol(), policy, **arguments)
    )


# Outcomes


def test_solved() -> None:
    episode = play(Script(RIGHT))
    assert (episode.outcome, episode.success, episode.score) == (Outcome.SOLVED, True, 1.0)
    assert [turn.action for turn in episode.turns] == ["right"] * 3
    assert episode.turns[-1].observation == "train/three-0 said right right right"
    assert episode.first_observation == "train/three-0 said nothing"
    assert episode.instruction == "say right 3 times"
    assert episode.error == ""
    assert episode.task_sha256 == task("three", 0).sha256


def test_failed_by_the_environment() -> None:
    episode = play(Script(RIGHT, LOSE))
    assert (episode.outcome, episode.success) == (Outcome.FAILED, False)
    assert episode.score == pytest.approx(1 / 3)
    assert episode.turns[-1].observation == "train/three-0 said right lose"


def test_truncated_by_the_environment() -> None:
    class Impatient(CountingEnv):
        def step(self, action: str) -> Step:
            observation, reward, _, _, info = super().step(action)
            return observation, reward, False, len(self.said) == 2, info

    episode = play(Script(RIGHT), Impatient(Counter()))
    assert (episode.outcome, len(episode.turns)) == (Outcome.FAILED, 2)


def test_step_limit() -> None:
    episode = play(Script(FLY))
    assert (episode.outcome, episode.success, len(episode.turns)) == (Outcome.STEP_LIMIT, False, 4)
    assert play(Script(FLY), asked=protocol(steps=2)).turns == episode.turns[:2]


def test_solved_at_the_very_last_step() -> None:
    assert play(Script(RIGHT), asked=protocol(steps=3)).outcome is Outcome.SOLVED
    assert play(Script(RIGHT), asked=protocol(steps=2)).outcome is Outcome.STEP_LIMIT


def test_context_overflow_keeps_what_was_played() -> None:
    episode = play(Script(RIGHT, ContextOverflow("the prompt has 9 tokens, 8 are allowed")))
    assert (episode.outcome, episode.success, len(episode.turns)) == (Outcome.CONTEXT_OVERFLOW, False, 1)
    assert episode.error == "the prompt has 9 tokens, 8 are allowed"
    assert episode.score == pytest.approx(1 / 3)


def test_policy_fault_is_an_infra_error() -> None:
    episode = play(Script(RIGHT, PolicyFault("no answer after 6 retries")))
    assert (episode.outcome, episode.success, len(episode.turns)) == (Outcome.INFRA_ERROR, False, 1)
    assert episode.error == "policy: no answer after 6 retries"


def test_broken_environment_is_an_infra_error() -> None:
    env = CountingEnv(Counter({"train/three-0": 1}))
    episode = play(Script(RIGHT), env)
    assert (episode.outcome, len(episode.turns)) == (Outcome.INFRA_ERROR, 0)
    assert episode.error == "environment: OSError: the engine fell over"
    assert episode.first_observation == "train/three-0 said nothing"


def test_environment_that_does_not_even_start() -> None:
    class Dead(CountingEnv):
        def reset(self, **_: Any) -> tuple[str, dict[str, Any]]:
            raise SeedBenchError("the game is damaged")

    episode = play(Script(RIGHT), Dead(Counter()))
    assert (episode.outcome, episode.turns, episode.first_observation) == (Outcome.INFRA_ERROR, (), "")
    assert episode.error == "environment: SeedBenchError: the game is damaged"


def test_a_policy_that_can_never_answer_stops_the_run() -> None:
    with pytest.raises(SeedBenchError, match="the key is refused"):
        play(Script(SeedBenchError("the key is refused")))


def test_a_bug_of_a_policy_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        play(Script(ZeroDivisionError()))


def test_a_template_that_does_not_render_stops_the_run() -> None:
    broken = protocol()
    broken = Protocol(broken.settings, {**broken.templates, "later.jinja": "{{ obsrvation }}"})
    with pytest.raises(SeedBenchError, match="'obsrvation' is undefined"):
        play(Script(RIGHT), asked=broken)


# Metrics


class Measured(CountingEnv):
    """Reports, at every step, the next of the values given; at the reset, a zero."""

    def __init__(self, *values: Any) -> None:
        super().__init__(Counter())
        self.values = values

    def _info(self, valid: bool) -> dict[str, Any]:
        metrics = self.values[len(self.said) - 1] if self.said else {"part": 0.0}
        return {**super()._info(valid), "metrics": metrics}


def test_metrics_are_those_of_the_last_step() -> None:
    episode = play(Script(RIGHT), Measured({"part": 0.2}, {"other": 0.3}, {"part": 1, "whole": 0.75}))
    assert (episode.outcome, episode.metrics) == (Outcome.SOLVED, {"part": 1.0, "whole": 0.75})
    cut = play(Script(RIGHT), Measured({"part": 0.2}, {"part": 0.5}), asked=protocol(steps=2))
    assert (cut.outcome, cut.metrics) == (Outcome.STEP_LIMIT, {"part": 0.5})
    assert play(Script(RIGHT)).metrics == {}


def test_metrics_before_the_first_step_are_those_of_the_reset() -> None:
    """An episode that counts has its metrics even if nothing was done in it."""
    episode = play(Script(ContextOverflow("too long")), Measured())
    assert (episode.outcome, episode.turns, episode.metrics) == (Outcome.CONTEXT_OVERFLOW, (), {"part": 0.0})


@pytest.mark.parametrize(
    ("metrics", "reason"),
    [
        ({"part": 1.5}, "the metric 'part' must be a number in [0, 1], not 1.5"),
        ({"part": float("nan")}, "the metric 'part' must be a number in [0, 1], not nan"),
        ({"no name": 1.0}, "the name of a metric must be an ASCII identifier, not 'no name'"),
        ([1.0], "metrics must map names to numbers, not be a list"),
        (None, "metrics must map names to numbers, not be a NoneType"),
    ],
)
def test_metrics_that_are_not_allowed_are_an_infra_error(metrics: object, reason: str) -> None:
    episode = play(Script(RIGHT), Measured({"part": 0.2}, {"part": 0.3}, metrics))
    assert (episode.outcome, episode.success, len(episode.turns)) == (Outcome.INFRA_ERROR, False, 3)
    assert episode.error == f"environment: {reason}"
    assert episode.metrics == {"part": 0.3}
    assert Episode.from_json(json.loads(json.dumps(episode.to_json(), allow_nan=False))) == episode


def test_metrics_of_the_reset_are_checked_too() -> None:
    class Wrong(Measured):
        def reset(self, **settings: Any) -> tuple[str, dict[str, Any]]:
            observation, info = super().reset(**settings)
            return observation, {**info, "metrics": {"part": 2}}

    episode = play(Script(RIGHT), Wrong())
    assert (episode.outcome, episode.turns) == (Outcome.INFRA_ERROR, ())
    assert episode.error == "environment: the metric 'part' must be a number in [0, 1], not 2"


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_a_score_that_is_no_number_is_an_infra_error(score: float) -> None:
    class Lost(CountingEnv):
        def _info(self, valid: bool) -> dict[str, Any]:
            return {**super()._info(valid), "score": score}

    episode = play(Script(RIGHT), Lost(Counter()))
    assert (episode.outcome, episode.score) == (Outcome.INFRA_ERROR, 0.0)
    assert episode.error == f"environment: the score must be a finite number, not {score}"


# Records


def test_validity_is_the_parsers_word_and_admissibility_the_environments() -> None:
    episode = play(Script("<action>right</action>", FLY, "no tags at all", RIGHT), family="two")
    assert [(turn.action, turn.valid, turn.admissible) for turn in episode.turns] == [
        ("right", False, True),
        ("fly", True, False),
        ("no tags at all", False, False),
        ("right", True, True),
    ]
    assert episode.outcome is Outcome.SOLVED  # an invalid answer is still played


def test_suite_that_does_not_judge_actions() -> None:
    class Silent(CountingEnv):
        def _info(self, valid: bool) -> dict[str, Any]:
            info = super()._info(valid)
            del info["action_valid"]
            return {**info, "admissible_actions": None}

    episode = play(Script(RIGHT), Silent(Counter()))
    assert [turn.admissible for turn in episode.turns] == [None] * 3


def test_prompts_and_their_hashes() -> None:
    policy = Script(RIGHT)
    plain, kept = play(policy), play(Script(RIGHT), keep_prompts=True)
    assert [turn.prompt for turn in plain.turns] == [(), (), ()]
    assert [turn.prompt for turn in kept.turns] == [request.messages for request in policy.requests[:3]]
    for one, other in zip(plain.turns, kept.turns, strict=True):
        expected = hashlib.sha256(json.dumps([["user", other.prompt[0].content]]).encode()).hexdigest()
        assert one.prompt_sha256 == other.prompt_sha256 == prompt_hash(other.prompt) == expected
    assert len({turn.prompt_sha256 for turn in plain.turns}) == 3


def test_prompt_hash_tells_roles_and_boundaries_apart() -> None:
    prompts = [
        (Message("user", "ab"),),
        (Message("system", "ab"),),
        (Message("user", "a"), Message("user", "b")),
        (Message("user", "ab"), Message("user", "")),
        (Message("user", "\ud800"),),
    ]
    assert len({prompt_hash(prompt) for prompt in prompts}) == len(prompts)


def test_policies_that_read_no_prompt_cause_none() -> None:
    policy = Script(RIGHT, needs_prompt=False)
    episode = play(policy, keep_prompts=True)
    assert [request.messages for request in policy.requests] == [(), (), ()]
    assert {(turn.prompt, turn.prompt_sha256) for turn in episode.turns} == {((), "")}


def test_requests_tell_where_the_episode_is() -> None:
    policy = Script(RIGHT)
    play(policy, repeat=2, seed=11)
    assert [request.turn for request in policy.requests] == [0, 1, 2]
    assert {request.repeat for request in policy.requests} == {2}
    assert policy.requests[1].observation == "train/three-0 said right"
    assert policy.requests[1].admissible_actions == tuple(ACTIONS)
    assert policy.requests[1].sampling == protocol().sampling()
    assert [request.seed for request in policy.requests] == [derive_seed(11, turn) for turn in range(3)]


def test_usage_adds_up_over_the_turns() -> None:
    answers = [Response(text=RIGHT, usage=Usage(10 + n, n), finish_reason="length") for n in (1, 2, 3)]
    episode = play(Script(*answers))
    assert [turn.usage for turn in episode.turns] == [Usage(11, 1), Usage(12, 2), Usage(13, 3)]
    assert episode.usage == Usage(36, 6)
    assert {turn.finish_reason for turn in episode.turns} == {"length"}


def test_usage_of_an_episode_that_broke_off() -> None:
    episode = play(Script(Response(text=RIGHT, usage=Usage(5, 1)), PolicyFault("gone")))
    assert episode.usage == Usage(5, 1)


def test_scripted_actions_pass_the_parser() -> None:
    episode = play(Script(Response(action="right"), needs_prompt=False))
    assert episode.outcome is Outcome.SOLVED
    assert {(turn.response, turn.action, turn.valid) for turn in episode.turns} == {
        ("<think></think><action>right</action>", "right", True)
    }


def test_environment_can_be_used_again() -> None:
    env = CountingEnv(Counter())
    assert play(Script(RIGHT), env).turns == play(Script(RIGHT), env).turns


# Seeds


def test_seeds_of_turns_follow_from_the_episode_and_the_turn_alone() -> None:
    """What an agent did before must not change how it is sampled next."""
    one, other = Script(RIGHT), Script(FLY, RIGHT)
    play(one, asked=protocol(steps=3))
    play(other, asked=protocol(steps=3))
    assert [request.seed for request in one.requests] == [request.seed for request in other.requests]
    third = Script(RIGHT)
    play(third, seed=8)
    assert not {request.seed for request in one.requests} & {request.seed for request in third.requests}


def test_derive_seed() -> None:
    expected = int.from_bytes(hashlib.sha256(b"0\x1fpanel@1\x1fabc\x1f2").digest()[:8], "big") >> 1
    assert derive_seed(0, "panel@1", "abc", 2) == expected
    seeds = [derive_seed(0, "p", task, repeat) for task in range(100) for repeat in range(10)]
    assert len(set(seeds)) == 1000
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert derive_seed("a", "b") != derive_seed("ab")


def test_environment_gets_a_seed_it_can_take() -> None:
    seeds = []

    class Noting(CountingEnv):
        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            seeds.append(seed)
            return super().reset(seed=seed, options=options)

    play(Script(RIGHT), Noting(Counter()), seed=2**63 - 1)
    assert seeds == [2**31 - 1]


# Scripted policies


def test_oracle_and_its_faults() -> None:
    assert play(OraclePolicy(lambda task: ["right"] * 3)).outcome is Outcome.SOLVED
    short = play(OraclePolicy(lambda task: ["left", "right"]))
    assert [turn.action for turn in short.turns] == ["left", "right", "right", "right"]
    assert play(OraclePolicy(lambda task: [])).outcome is Outcome.INFRA_ERROR

    def unknown(_: object) -> list[str]:
        raise SeedBenchError("no walkthrough is stored")

    assert play(OraclePolicy(unknown)).error == "policy: no walkthrough is stored"


def test_random_takes_admissible_actions_evenly() -> None:
    policy = RandomPolicy()

    sampling = protocol().sampling()

    def chosen(*seeds: int, actions: tuple[str, ...] | None = ("a", "b", "c", "d")) -> list[str | None]:
        async def ask() -> list[str | None]:
            requests = [Request(task("one", 0), 0, 0, seed, (), sampling, "", actions) for seed in seeds]
            return [(await policy.act(request)).action for request in requests]

        return asyncio.run(ask())

    counts = Counter(chosen(*(derive_seed(n) for n in range(2000))))
    assert set(counts) == {"a", "b", "c", "d"}
    assert sum((count - 500) ** 2 / 500 for count in counts.values()) < 16.3  # chi-squared, 3 degrees, 0.1 %
    # The first numbers of the streams 0 to 3: 0.844, 0.134, 0.956, 0.238.
    assert chosen(0, 1, 2, 3) == ["d", "a", "d", "a"]
    with pytest.raises(PolicyFault, match="lists no admissible actions"):
        chosen(0, actions=())
    with pytest.raises(SeedBenchError, match="this suite lists none: use another"):
        chosen(0, actions=None)


# Decoding among the admissible actions

CHOOSING = {"decode": "admissible"}


def test_requests_carry_the_choices() -> None:
    policy = Script("<think></think><action>right</action>")
    assert play(policy, asked=protocol(sampling=CHOOSING)).success
    shown = tuple(f"<think></think><action>{action}</action>" for action in ("left", "lose", "right"))
    assert [request.choices for request in policy.requests] == [shown] * 3
    assert {request.sampling.decode for request in policy.requests} == {"admissible"}
    free = Script(RIGHT)
    play(free)
    assert {(request.choices, request.sampling.decode) for request in free.requests} == {((), "free")}


def test_an_answer_that_is_no_choice_stops_the_run() -> None:
    with pytest.raises(SeedBenchError, match=r"'script' answered .*, which is not one of the 3 choices"):
        play(Script(RIGHT), asked=protocol(sampling=CHOOSING))  # thinks, which no choice does


def test_scripted_policies_may_say_what_is_hidden() -> None:
    episode = play(OraclePolicy(lambda task: ["help", "right", "right", "right"]), asked=protocol(sampling=CHOOSING))
    assert [turn.action for turn in episode.turns] == ["help", "right", "right", "right"]
    assert episode.success


def test_random_draws_among_the_choices() -> None:
    played = [play(RandomPolicy(), asked=protocol(sampling=CHOOSING), seed=seed) for seed in range(200)]
    counts = Counter(episode.turns[0].action for episode in played)
    assert set(counts) == {"left", "lose", "right"}
    assert sum((count - 200 / 3) ** 2 / (200 / 3) for count in counts.values()) < 13.8  # 2 degrees of freedom, 0.1 %
    assert all(turn.valid and turn.admissible for episode in played for turn in episode.turns)


def test_an_environment_without_actions_to_choose_from_stops_the_run() -> None:
    class Silent(CountingEnv):
        def _info(self, valid: bool) -> dict[str, Any]:
            return {**super()._info(valid), "admissible_actions": None}

    with pytest.raises(SeedBenchError, match=r"^train/three-0: the protocol 'counting/small@1' decodes among"):
        play(RandomPolicy(), Silent(Counter()), asked=protocol(sampling=CHOOSING))


# The dialect


@pytest.mark.parametrize(
    ("name", "commands", "reason"),
    [
        ("alfworld/seed", ["go to desk 1", "look"], "dialect 2.1.2, but 'help' is not admissible"),
        ("alfworld/seed-put", ["help", "look"], "dialect 2.1.1, but the commands hold 'help'"),
        (
            "alfworld/seed",
            ["help", "put mug 1 in/on desk 1"],
            "dialect 2.1.2, but the commands hold 'put mug 1 in/on '",
        ),
        ("alfworld/seed-put", ["move mug 1 to desk 1"], "dialect 2.1.1, but the commands hold 'move mug 1 to '"),
    ],
)
def test_wrong_dialect_stops_the_run_with_the_reason(name: str, commands: list[str], reason: str) -> None:
    class Worded(CountingEnv):
        def _info(self, valid: bool) -> dict[str, Any]:
            return {**super()._info(valid), "admissible_actions": commands}

    with pytest.raises(SeedBenchError) as caught:
        play(Script(RIGHT), Worded(Counter()), asked=load_protocol(name))
    begin = f"train/three-0: the protocol '{name}@1' is written for action {reason}"
    assert str(caught.value).startswith(begin)


def test_wrong_wording_that_only_shows_later() -> None:
    class Late(CountingEnv):
        def _info(self, valid: bool) -> dict[str, Any]:
            info = super()._info(valid)
            return {**info, "admissible_actions": [*ACTIONS, "go away"]} if self.said else info

    with pytest.raises(SeedBenchError, match="the commands hold 'go '"):
        play(Script(RIGHT), Late(Counter()))
