"""A suite's own baselines, and the random policy where an action has a blank to fill in."""

import asyncio

import pytest

from seedbench.errors import UsageError
from seedbench.panels import Panel
from seedbench.policies import ModelOptions, make_policy
from seedbench.policies.base import Request, Sampling
from seedbench.policies.random_ import RandomPolicy
from seedbench.policies.rule import RulePolicy
from seedbench.types import Task
from tests.eval.helpers import CountingSuite, installed

TASK = Task("goal/1", "beauty", "test", "0" * 64)


def request(*admissible: str, instruction: str = "a red mug", turn: int = 0, seed: int = 0) -> Request:
    return Request(TASK, 0, turn, seed, (), Sampling(0.0, 1), "the page", admissible, instruction)


def test_a_rule_sees_what_an_agent_sees() -> None:
    seen = []

    def rule(instruction: str, admissible: object, observation: str, turn: int) -> str:
        seen.append((instruction, admissible, observation, turn))
        return "click[b]"

    policy = RulePolicy("shop", "greedy", rule)
    assert asyncio.run(policy.act(request("click[a]", "click[b]", turn=2))).action == "click[b]"
    assert seen == [("a red mug", ("click[a]", "click[b]"), "the page", 2)]
    assert policy.identity() == {"kind": "rule", "suite": "shop", "name": "greedy"}
    assert (policy.name, policy.needs_prompt) == ("greedy", False)


def test_a_suites_baseline_is_found_by_name_and_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    suite = CountingSuite()
    monkeypatch.setattr(CountingSuite, "policies", {"first": lambda *_: "look"}, raising=False)
    panel = Panel("counting/p@1", suite.name, "test", False, "", (TASK,))
    with installed(suite.name, suite):
        assert isinstance(make_policy("first", panel, ModelOptions()), RulePolicy)
        with pytest.raises(UsageError, match="unknown policy 'fist': did you mean 'first'"):
            make_policy("fist", panel, ModelOptions())


def test_random_writes_the_instruction_into_a_blank() -> None:
    act = RandomPolicy().act
    assert asyncio.run(act(request("search[<your query>]"))).action == "search[a red mug]"
    for kept in ("click[< prev]", "click[<b>]x", "go to <here>"):
        assert asyncio.run(act(request(kept))).action == kept
