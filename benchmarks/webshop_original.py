"""The original WebShop's share of webshop_engine.py: runs in the original's interpreter and repository.

Reads `[[goal, [action, ...]], ...]` from standard input and prints `{"step": CPU ms, "memory": MB}` to standard output.
"""

import json
import os
import resource
import sys
import time
from pathlib import Path


def main() -> None:
    """Play the episodes; the step is the median over episodes of their mean."""
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the original prints is no answer
    sys.path.insert(0, str(Path.cwd()))
    from web_agent_site.envs.web_agent_text_env import WebAgentTextEnv  # type: ignore[import-not-found]

    env = WebAgentTextEnv(observation_mode="text", num_products=1000, human_goals=0)
    steps = []
    for goal, actions in json.load(sys.stdin):
        env.reset(session=goal)
        start = time.process_time()
        for action in actions:
            env.step(action)
            env.get_available_actions()
        steps.append((time.process_time() - start) / len(actions))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    answer.write(json.dumps({"step": 1000 * sorted(steps)[len(steps) // 2], "memory": memory}))
    answer.flush()


if __name__ == "__main__":
    main()
