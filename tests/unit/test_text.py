"""Text made safe for terminals."""

import pytest

from seedbench.ui.text import inert


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain, œuf 卵 🥚", "plain, œuf 卵 🥚"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("[bold]markup[/bold] $x$ <b>", "[bold]markup[/bold] $x$ <b>"),
        ("\x1b[31mred\x1b[0m", "<1b>[31mred<1b>[0m"),
        ("over\rwritten\x07\x7f\x9b", "over<0d>written<07><7f><9b>"),
        ("\u202ereversed\u200b\ufeff", "<202e>reversed<200b><feff>"),
    ],
)
def test_controls_and_directions_are_shown_as_their_codes(text: str, expected: str) -> None:
    assert inert(text) == expected


def test_limit_cuts_and_says_how_much() -> None:
    assert inert("x" * 5000, 10) == "x" * 10 + "… (4,990 more characters)"
    assert inert("x" * 10, 10) == "x" * 10
    assert inert("\x1b" * 3, 2) == "<1b><1b>… (1 more characters)"
