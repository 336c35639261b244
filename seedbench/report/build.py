"""`seedbench report RUN... --out FOLDER`: runs as a folder of static pages, to be opened from `index.html`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seedbench import __version__
from seedbench.errors import SeedBenchError, UsageError
from seedbench.registry import get_suite
from seedbench.report.charts import FRAME, charts
from seedbench.report.conclusions import conclude
from seedbench.report.entries import entry
from seedbench.report.episodes import Counts, write_episodes
from seedbench.report.filters import plural
from seedbench.report.measured import Measured, read_runs
from seedbench.report.site import write
from seedbench.runs import write_json
from seedbench.statistics import Rate
from seedbench.subject import run_names
from seedbench.tables import Block, Table, build
from seedbench.traces import read_traces, traced_updates
from seedbench.types import Outcome

MARKER, SCHEMA = "report.json", "seedbench.report/1"


@dataclass(frozen=True, slots=True)
class Panel:
    """What the report says of the runs on one panel."""

    table: Table
    block: Block
    runs: tuple[Measured, ...]
    rates: tuple[tuple[str, Measured, Rate], ...]
    """Family or `all`, run, rate; families first."""
    conclusions: tuple[str, ...]
    notes: tuple[str, ...]
    cost: Table

    @property
    def links(self) -> list[str]:
        """The page of each run."""
        return [f"{run.place}/index.html" for run in self.runs]

    def ended(self, counts: Mapping[int, Counts]) -> Iterator[tuple[str, Measured, list[tuple[str, int]]]]:
        """Family, run, and how many of its episodes ended in each outcome; the sums of each run last."""
        for family in self.runs[0].summary["success"]["families"]:
            for run in self.runs:
                yield family, run, [(o.value, counts[run.number].outcomes[family, o]) for o in Outcome]
        for run in self.runs:
            yield "all", run, [(o.value, run.summary["outcomes"][o.value]) for o in Outcome]


def write_report(given: Sequence[Path], out: Path, labels: Sequence[str] = ()) -> Path:
    """Write the report of runs, bundles and training runs into the folder `out` and return its first page.

    Args:
        given: their folders, or archives of bundles.
        out: a new or empty folder, or that of an earlier report, which is replaced.
        labels: names of the runs in their order; default: what their folders are called.

    Raises:
        UsageError: labels that do not fit, a folder that holds no run, or an `out` that holds something else.
        SeedBenchError: a run is damaged or of another version, or a page cannot be written.
    """
    from seedbench.bundle import opened

    if labels and (len(labels) != len(given) or len(set(labels)) < len(labels)):
        raise UsageError(f"--labels must name {plural(len(given), 'run')}, each differently, not {', '.join(labels)}.")
    with ExitStack() as stack:
        folders = [stack.enter_context(opened(path)) for path in given]
        runs = read_runs(folders, list(labels) or run_names(given))
        panels = _panels(runs)  # what cannot be built leaves an earlier report as it was
        _prepare(out, runs)
        counts = {run.number: _write_run(run, out) for run in runs}
        return write(
            out / "index.html",
            "index.html.jinja",
            runs=runs,
            panels=panels,
            counts=counts,
            charts=charts([(run.label, run.course) for run in runs if run.course]),
            frame=FRAME,
            outcomes=list(Outcome),
            version=__version__,
        )


def _prepare(out: Path, runs: Sequence[Measured]) -> None:
    """Make the folder, without the pages of an earlier report."""
    if out.is_dir() and any(out.iterdir()) and not (out / MARKER).is_file():
        raise UsageError(f"'{out}' is not empty and holds no report ({MARKER}); choose another folder with --out.")
    try:
        out.mkdir(parents=True, exist_ok=True)
        for page in (out / "index.html", *out.glob("[0-9][0-9]-*/*.html")):
            page.unlink(missing_ok=True)
        for folder in out.glob("[0-9][0-9]-*"):
            with suppress(OSError):  # somebody has put something there
                folder.rmdir()
        for run in runs:
            (out / run.place).mkdir(exist_ok=True)
    except OSError as error:
        raise SeedBenchError(f"cannot write into '{out}': {error.strerror}; choose another --out.") from error
    write_json(out / MARKER, {"schema": SCHEMA, "runs": {run.place: run.label for run in runs}})


def _write_run(run: Measured, out: Path) -> Counts:
    folder = out / run.place
    traced = traced_updates(run.folder) if run.course else []
    for update in traced:
        entries = (entry(number, trace) for number, trace in enumerate(read_traces(run.folder, update), 1))
        write(folder / f"update-{update:06}.html", "traces.html.jinja", run=run, update=update, entries=entries)
    about: dict[str, Any] = {"run": run, "traced": traced}
    if run.evaluation is None:
        none: dict[str, Any] = {"rows": (), "first": 1, "last": 0, "total": 0, "before": "", "after": "", "window": 0}
        write(folder / "index.html", "list.html.jinja", **none, **about)
        return Counts()
    return write_episodes(run.evaluation, folder, **about)


def _panels(runs: Sequence[Measured]) -> list[Panel]:
    together: defaultdict[tuple[str, str], list[Measured]] = defaultdict(list)
    for run in runs:
        if run.evaluation:
            together[run.summary["panel"]["name"], run.summary["panel"]["hash"]].append(run)
    return [_panel(members) for members in together.values()]


def _panel(runs: Sequence[Measured]) -> Panel:
    layout = get_suite(runs[0].summary["panel"]["suite"]).layout
    table = build([(run.label, run.summary) for run in runs], layout)
    success = runs[0].summary["success"]
    rates = [
        (family, run, run.summary["success"]["families"][family]) for family in success["families"] for run in runs
    ]
    rates += [("all", run, run.summary["success"]["micro"]) for run in runs]
    conclusions, notes = conclude(runs)
    return Panel(
        table=table,
        block=table.blocks[0],
        runs=tuple(runs),
        rates=tuple((family, run, Rate(cell["rate"], cell["n"], *cell["ci"])) for family, run, cell in rates),
        conclusions=tuple(conclusions),
        notes=tuple(notes),
        cost=build([(run.label, run.summary) for run in runs], "cost"),
    )
