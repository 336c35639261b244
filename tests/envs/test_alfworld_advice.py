"""What a skill gets right about a household task: its id is the truth."""

import pytest

from seedbench.registry import get_suite
from seedbench_envs.alfworld.advice import checked

CLOCK = "train/look_at_obj_in_light-AlarmClock-None-TableLamp-2309/trial_1"
CUP = "valid_seen/pick_heat_then_place_in_recep-Cup-None-Fridge-2031/trial_T2019"


def marks(task: str, advice: str) -> list[bool]:
    """Names object, place, both; takes nothing else; forbids object."""
    return list(checked(task, advice).values())


@pytest.mark.parametrize(
    ("task", "advice", "expected"),
    [
        (CUP, "Do in this order: take cup 1 from shelf 1, move cup 1 to fridge 1.", [True, True, True, True, False]),
        (CUP, "Take mug 1 from shelf 1, then move mug 1 to fridge 1.", [False, True, False, False, False]),
        (CUP, "Do not take mug 2. Do in this order: take cup 1 from cabinet 1.", [True, False, False, True, False]),
        (CUP, "Do not take cup 1. Never take the mug 1. Open fridge 1.", [True, True, True, True, True]),
        (CUP, "Don't take mug 2. Take cup 1 from cabinet 1.", [True, False, False, True, False]),
        (CUP, "Don\u2019t take the cup 1.", [True, False, False, True, True]),
        (CUP, "Find the cupboard.", [False, False, False, True, False]),
        (CUP, "Heat two Cups, take only what is asked for.", [True, False, False, True, False]),
        (CLOCK, "Take the alarm clock to the tablelamp.", [True, True, True, True, False]),
        (CLOCK, "Take alarmclock 2 from desk 1, use desklamp 1.", [True, False, False, True, False]),
    ],
)
def test_marks(task: str, advice: str, expected: list[bool]) -> None:
    assert marks(task, advice) == expected


def test_titles_and_other_tasks() -> None:
    titles = ["Names object", "Names place", "Names both", "Takes nothing else", "Forbids object"]
    assert list(get_suite("mini-alfworld").advice_checks(CLOCK, "")) == titles
    assert checked("train/a-cup/x", "take cup 1") == {}
    assert checked("train/pick_and_place_simple-Cup/trial", "take cup 1") == {}
    assert get_suite("mini-webshop").advice_checks("goal-1", "click buy now") == {}
