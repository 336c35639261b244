"""Plays the original WebShop in an interpreter of its own; speaks JSON lines. Started by test_webshop_live.py.

Its directory must be the original's repository (princeton-nlp/WebShop) with the 1,000 products and the search index
of `setup.sh -d small`. Prices are drawn with seed 42, as those of SeedBench's frozen goals.
"""

import json
import os
import random
import sys
from pathlib import Path


def main() -> None:
    """Answer `{"goal", "actions"}` with the page, the available actions, the reward and `done` after each action."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the original prints is no answer
    sys.path.insert(0, str(Path.cwd()))
    random.seed(42)
    from web_agent_site.envs.web_agent_text_env import WebAgentTextEnv

    env = WebAgentTextEnv(observation_mode="text", num_products=1000, human_goals=0)

    def shown(observation: str, reward: float, done: bool) -> list[object]:
        return [observation, env.get_available_actions(), reward, done]

    for line in sys.stdin:
        request = json.loads(line)
        pages = [shown(env.reset(session=request["goal"])[0], 0.0, False)]
        for action in request["actions"]:
            observation, reward, done, _ = env.step(action)
            pages.append(shown(observation, reward, done))
        answers.write(json.dumps(pages) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
