"""Learning curves as coordinates; the template draws them. A chart has all runs, over updates or environment steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from seedbench.report.journal import Course, Point
from seedbench.statistics import Rate
from seedbench.tables.text import limits, percent

WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 46, 16, 10, 40
"""Margins of the plot inside the picture."""
FRAME = {"width": WIDTH, "height": HEIGHT, "left": LEFT, "right": RIGHT, "top": TOP, "bottom": BOTTOM}
_REACH = 5
"""A mean is taken over so many roll-outs before and after."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A validation: its place and the ends of its interval, in the picture; and what it says."""

    x: float
    y: float
    lo: float
    hi: float
    text: str


@dataclass(frozen=True, slots=True)
class Series:
    """One training run. Paths are points of an SVG polyline."""

    label: str
    kind: int
    """Number of its colour and dash."""
    raw: str
    """Success of each update's roll-outs."""
    mean: str
    """Their moving mean."""
    marks: tuple[Mark, ...]

    @property
    def trend(self) -> str:
        """The line that joins the validations."""
        return _path([(mark.x, mark.y) for mark in self.marks])


@dataclass(frozen=True, slots=True)
class Chart:
    """Success over `title`."""

    title: str
    series: tuple[Series, ...]
    x_ticks: tuple[tuple[float, str], ...]
    """Place and text."""
    y_ticks: tuple[tuple[float, str], ...]


def charts(courses: Sequence[tuple[str, Course]]) -> list[Chart]:
    """The charts of labelled training runs: over updates, and over environment steps where those are known."""
    drawn = [(label, course) for label, course in courses if course.rollouts or course.validations]
    if not drawn:
        return []
    made = [_chart("updates", drawn, lambda point: point.update)]
    if any(point.steps for _, course in drawn for point in course.rollouts):
        made.append(_chart("environment steps", drawn, lambda point: point.steps))
    return made


def _chart(title: str, courses: Sequence[tuple[str, Course]], along: Callable[[Point], float]) -> Chart:
    points = [point for _, course in courses for point in (*course.rollouts, *course.validations)]
    right = max(1, *map(along, points))
    top = _ceiling(max(point.validation.hi if point.validation else point.rate for point in points))

    def x(value: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * value / right, 1)

    def y(value: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top, 1)

    def series(kind: int, label: str, course: Course) -> Series:
        at = [x(along(point)) for point in course.rollouts]
        rates = [point.rate for point in course.rollouts]
        marks = [
            _mark(x(along(point)), point.validation, y, f"{label}, {along(point):,.0f} {title}")
            for point in course.validations
            if point.validation
        ]
        return Series(
            label=label,
            kind=kind % 6,
            raw=_path(zip(at, map(y, rates), strict=True)),
            mean=_path(zip(at, map(y, moving_mean(rates)), strict=True)),
            marks=tuple(marks),
        )

    return Chart(
        title=title,
        series=tuple(series(kind, label, course) for kind, (label, course) in enumerate(courses)),
        x_ticks=tuple((x(value), f"{value:,.0f}") for value in ticks(right, 6, whole=True)),
        y_ticks=tuple((y(value), f"{100 * value:g}") for value in ticks(top, 5)),
    )


def _mark(x: float, rate: Rate, y: Callable[[float], float], where: str) -> Mark:
    assert rate.rate is not None
    said = f"{where}: {percent(rate)} % [{limits(rate, ' to ')}], n = {rate.n}"
    return Mark(x, y(rate.rate), y(rate.lo), y(rate.hi), said)


def moving_mean(values: Sequence[float], reach: int = _REACH) -> list[float]:
    """The mean of each value with up to `reach` before and as many after it."""
    windows = (values[max(0, at - reach) : at + reach + 1] for at in range(len(values)))
    return [sum(window) / len(window) for window in windows]


def ticks(end: float, most: int, *, whole: bool = False) -> list[float]:
    """Round values from 0 to `end` > 0, `most` intervals or fewer: steps of 1, 2 or 5 times a power of ten."""
    size = 10.0 ** math.floor(math.log10(end / most))
    step = next(size * factor for factor in (1, 2, 5, 10, 20) if size * factor * most >= end * (1 - 1e-9))
    step = max(step, 1.0) if whole else step
    return [step * number for number in range(int(end / step + 1e-9) + 1)]


def _ceiling(value: float) -> float:
    return next((top for top in (0.1, 0.2, 0.4, 0.6, 0.8) if value <= top), 1.0)


def _path(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in points)
