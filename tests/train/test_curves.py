"""Learning curves: what is drawn from a journal, and the same figures as a table."""

import csv
import html
import math
import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from seedbench.errors import SeedBenchError, UsageError
from seedbench_trainers.curves import curve_csv, draw_curves, moving_mean
from seedbench_trainers.journal import Journal

pytest.importorskip("matplotlib")


def rl(update: int) -> dict[str, float]:
    found = {
        "rollout/success": 0.1 + 0.02 * update,
        "policy/entropy": 1.0 - 0.01 * update,
        "policy/ref_kl": 0.001 * update,
        "rollout/response_tokens": 12.0,
        "steps/environment": 1000.0 * update,
        "loss/total": -0.01,
    }
    return found | ({"validation/success": 0.5, "validation/n": 100.0} if update % 5 == 0 else {})


def sft(update: int) -> dict[str, float]:
    return {"loss/total": 2.0 / update, "optim/grad_norm": math.nan if update == 2 else 0.5}


def journal(folder: Path, metrics: Any, updates: range) -> Path:
    with Journal(folder) as made:
        for update in updates:
            made.record(update, metrics(update), optimiser_steps=2 * update)
    return folder


def labels(svg: Path) -> list[str]:
    """The texts of a drawing: matplotlib writes each as a comment before its glyphs."""
    ElementTree.parse(svg)  # well-formed
    return [html.unescape(text) for text in re.findall(r"<!-- (.*?) -->", svg.read_text(encoding="utf-8"))]


def axes_of(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[Any]:
    """The panels of the figure that `draw_curves` saves."""
    from matplotlib.figure import Figure

    seen: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: seen.append(self))
    draw_curves(folder)
    return list(seen[0].axes)


def test_files_are_real_and_equal_each_time(tmp_path: Path) -> None:
    folder = journal(tmp_path, rl, range(21))
    png, svg = draw_curves(folder, "grpo · tiny $x_1")
    assert (png.name, svg.name) == ("learning-curve.png", "learning-curve.svg")
    assert png.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    first = svg.read_bytes()
    found = labels(svg)
    for text in ("success (%)", "environment steps", "validation, n = 100, 95 % interval", "entropy (nats)", "KL",
                 "response tokens", "mean of 11 updates", "roll-outs", "grpo · tiny $x_1"):  # fmt: skip
        assert text in found, text
    draw_curves(folder, "grpo · tiny $x_1")
    assert svg.read_bytes() == first


def test_curve_holds_the_numbers_with_wilsons_intervals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top, *below = axes_of(monkeypatch, journal(tmp_path, rl, range(21)))
    light, mean, *_ = top.get_lines()
    assert list(light.get_xdata()) == list(range(21))
    assert list(light.get_ydata()) == pytest.approx([10 + 2 * update for update in range(21)])
    assert mean.get_ydata()[10] == pytest.approx(30.0)  # of 5 to 15, a straight line
    points, caps, bars = top.containers[0]
    assert list(points.get_xdata()) == [0, 5, 10, 15, 20]
    assert list(points.get_ydata()) == [50.0] * 5
    # Wilson's 95 % interval for 50 of 100 by scipy.stats.binomtest(50, 100).proportion_ci(method="wilson").
    assert [cap.get_ydata()[0] for cap in caps] == pytest.approx([40.3832, 59.6168], abs=1e-4)
    assert len(bars[0].get_segments()) == 5
    assert [axes.get_title() for axes in below] == ["entropy (nats)", "KL", "response tokens"]
    assert {axes.get_xlim() for axes in (top, *below)} == {(-0.5, 20.5)}


def test_second_axis_counts_environment_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top, *_ = axes_of(monkeypatch, journal(tmp_path, rl, range(21)))
    above = top.child_axes[0]
    marks = dict(zip(above.get_xticks(), (tick.get_text() for tick in above.get_xticklabels()), strict=True))
    assert marks[10.0] == "10k"
    assert marks[20.0] == "20k"


def test_sft_has_its_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top, below = axes_of(monkeypatch, journal(tmp_path, sft, range(1, 5)))
    assert top.get_ylabel() == "loss"
    assert list(top.get_lines()[0].get_ydata()) == [2.0, 1.0, 2.0 / 3.0, 0.5]
    assert below.get_title() == "gradient norm"
    assert list(below.get_lines()[0].get_xdata()) == [1, 3, 4]  # what is NaN is left out


def test_later_records_of_an_update_add_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Journal(tmp_path) as made:
        made.record(1, {"loss/total": 1.0})
        made.record(1, {"validation/success": 1.0, "validation/n": 4.0})
    rate, loss = axes_of(monkeypatch, tmp_path)
    assert list(rate.containers[0][0].get_ydata()) == [100.0]
    assert list(loss.get_lines()[0].get_ydata()) == [1.0]


def test_nothing_to_draw(tmp_path: Path) -> None:
    assert draw_curves(journal(tmp_path / "run", lambda _: {"other": 1.0}, range(3))) == []
    assert draw_curves(journal(tmp_path / "empty", rl, range(0))) == []
    with pytest.raises(UsageError, match="holds no training journal"):
        draw_curves(tmp_path)


def test_without_matplotlib_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = journal(tmp_path, rl, range(3))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SeedBenchError, match="pip install matplotlib"):
        draw_curves(folder)


def test_csv_has_every_metric_and_reads_back_exactly(tmp_path: Path) -> None:
    path = curve_csv(journal(tmp_path, sft, range(1, 4)))
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["update", "optimiser_steps", "loss/total", "optim/grad_norm"]
    assert rows[2] == ["2", "4", "1.0", ""]
    assert [float(row[2]) for row in rows[1:]] == [2.0 / update for update in range(1, 4)]


def test_moving_mean_is_centred_and_shorter_at_the_ends() -> None:
    values = np.asarray([1.0, 2.0, 6.0, 3.0, 8.0])
    assert moving_mean(values, 1) == pytest.approx([1.5, 3.0, 11 / 3, 17 / 3, 5.5])
    assert moving_mean(np.asarray([4.0]), 5) == pytest.approx([4.0])
    assert moving_mean(np.asarray([]), 5).shape == (0,)
