"""Episodes made by hand, for the tests of skills."""

from collections.abc import Sequence

from seedbench.types import Episode, Outcome, Turn, Usage

Step = tuple[str, str] | tuple[str, str, bool]
"""Action, observation after it, and whether it was accepted."""


def turn(step: Step) -> Turn:
    accepted = step[2] if len(step) == 3 else True
    return Turn(f"<action>{step[0]}</action>", step[0], True, accepted, step[1])


def episode(
    steps: Sequence[Step],
    *,
    solved: bool = False,
    instruction: str = "put a mug on a shelf",
    first: str = "You are in the middle of a room. You see a shelf 1, a desk 1, and a drawer 1.",
    family: str = "pick",
    outcome: Outcome | None = None,
    metrics: dict[str, float] | None = None,
    task: str = "train/1",
) -> Episode:
    return Episode(
        task=task,
        task_sha256=f"{task:0>64}"[-64:],
        family=family,
        repeat=0,
        seed=1,
        outcome=outcome or (Outcome.SOLVED if solved else Outcome.STEP_LIMIT),
        success=solved,
        score=float(solved),
        instruction=instruction,
        first_observation=first,
        turns=tuple(map(turn, steps)),
        usage=Usage(),
        seconds=0.0,
        metrics=metrics or {},
    )
