"""Runs the upstream engine in a process of its own; speaks JSON lines. Started by reference.py, never imported.

Needs only the standard library and the `alfworld` and `textworld` packages, so that they may live in another
virtual environment. The engine replaces sys.argv and sys.stdout while it loads and prints to both streams:
the protocol therefore keeps the original standard output to itself and sends everything else to stderr.
"""

import json
import os
import sys


def main() -> None:
    """Serve `load` and `step` requests from standard input until it closes."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.argv = sys.argv[:1]  # upstream parses the command line on import
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
    from textworld import EnvInfos
    from textworld.envs import PddlEnv

    def send(**answer: object) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    env = AlfredDemangler(PddlEnv(EnvInfos(admissible_commands=True, won=True)), shuffle=False)
    send(ready=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "game" in request:
                env.load(request["game"])
                state = env.reset()
            else:
                state, _, _ = env.step(request["command"])
            send(
                observation=state["feedback"],
                admissible=list(state["admissible_commands"]),
                won=bool(state["won"]),
            )
        except Exception as error:
            send(error=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
