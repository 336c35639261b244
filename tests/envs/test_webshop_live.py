"""WebShop against the original itself, where somebody has installed it.

`SEEDBENCH_WEBSHOP_HOME` names the original's repository with its 1,000 products and index, `SEEDBENCH_WEBSHOP_PYTHON`
an interpreter that has what it needs (docs/webshop.md). Elsewhere the recordings in tests/golden stand for it.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from seedbench_envs.webshop.env import WebShopEnv
from tests.golden.official_shop import official_shop

Page = list[Any]
"""Observation, available actions, reward, done."""

WORKER = Path(__file__).with_name("webshop_original.py")
EPISODES, STEPS = 40, 15


@contextmanager
def original(python: str, home: Path) -> Iterator[subprocess.Popen[str]]:
    worker = subprocess.Popen(
        [python, str(WORKER)], cwd=home, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )
    try:
        yield worker
    finally:
        worker.communicate(timeout=60)


def asked(worker: subprocess.Popen[str], goal: int, actions: list[str]) -> list[Page]:
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(json.dumps({"goal": goal, "actions": actions}) + "\n")
    worker.stdin.flush()
    answer: list[Page] = json.loads(worker.stdout.readline())
    return answer


def played(env: WebShopEnv, goal: int, seed: int) -> tuple[list[str], list[Page]]:
    """A seeded episode: searches with words of the instruction, clicks on what is there, now and then nonsense."""
    rng = random.Random(seed)
    observation, info = env.reset(options={"task": f"goal/{goal}"})
    actions, pages = [], [[observation, env.available_actions(), 0.0, False]]
    words = info["instruction"].split()
    for _ in range(STEPS):
        clickables = env.available_actions()["clickables"]
        forms = [f"search[{' '.join(rng.sample(words, min(5, len(words))))}]", "click[nothing of the kind]"]
        clicks = [f"click[{name}]" for name in clickables]
        actions.append(rng.choice([*clicks, *clicks, *forms]))
        observation, reward, terminated, _, _ = env.step(actions[-1])
        pages.append([observation, env.available_actions(), reward, terminated])
        if terminated:
            break
    return actions, pages


def compare(python: str, home: Path, env: WebShopEnv) -> int:
    """Play both; returns how many pages were compared."""
    compared = 0
    with original(python, home) as worker:
        for number in range(EPISODES):
            actions, pages = played(env, goal=number * 7, seed=number)
            for place, (ours, theirs) in enumerate(zip(pages, asked(worker, number * 7, actions), strict=True)):
                assert ours == theirs, (number, actions[:place])
            compared += len(pages)
    return compared


def test_every_page_equals_the_original() -> None:
    home = os.environ.get("SEEDBENCH_WEBSHOP_HOME")
    if not home:
        pytest.skip("the original is not installed (SEEDBENCH_WEBSHOP_HOME, docs/webshop.md)")
    python = os.environ.get("SEEDBENCH_WEBSHOP_PYTHON", sys.executable)
    assert compare(python, Path(home), WebShopEnv(official_shop())) > EPISODES * 3


STAND_IN = '''
"""A stand-in with the original's interface over SeedBench's own pages, to prove that the comparison compares."""
from seedbench_envs.webshop.env import WebShopEnv

class WebAgentTextEnv:
    def __init__(self, observation_mode, num_products, human_goals):
        assert (observation_mode, num_products, human_goals) == ("text", 1000, 0)
        self.env, self.steps = WebShopEnv(edition="mini"), 0

    def reset(self, session):
        return self.env.reset(options={"task": f"goal/{session}"})[0], None

    def get_available_actions(self):
        return self.env.available_actions()

    def step(self, action):
        self.steps += 1
        page, reward, done, _, _ = self.env.step(action)
        return page + " [SEP] odd" * (self.steps == LAST), reward, done, None
'''


@pytest.mark.parametrize(("last", "equal"), [(-1, True), (60, False)])
def test_the_comparison_itself(last: int, equal: bool, mini_store: Path, tmp_path: Path) -> None:
    package = tmp_path / "web_agent_site" / "envs"
    package.mkdir(parents=True)
    (package / "web_agent_text_env.py").write_text(f"LAST = {last}\n{STAND_IN}")
    env = WebShopEnv(edition="mini")
    if equal:
        assert compare(sys.executable, tmp_path, env) > EPISODES * 3
    else:
        # The odd page is the 60th step's, in the fourth episode.
        with pytest.raises(AssertionError, match=r"^\(3, "):
            compare(sys.executable, tmp_path, env)
