"""`seedbench report`: what its pages say, how they are cut into files, and that text from outside stays text."""

import base64
import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import jinja2
import pytest

from seedbench.bundle import pack
from seedbench.compare import compare
from seedbench.errors import SeedBenchError, UsageError
from seedbench.metrics import summarise
from seedbench.report import episodes as paging
from seedbench.report.build import write_report
from seedbench.report.charts import charts, moving_mean, ticks
from seedbench.report.filters import short
from seedbench.report.journal import course
from seedbench.report.site import write
from seedbench.runs import write_json
from seedbench.traces import Trace, trace_file
from seedbench.types import Episode, Message, Outcome, Turn, Usage
from seedbench.ui.text import inert
from seedbench.ui.viewer import TEXT_LIMIT
from tests.eval.helpers import Command, command_line, said
from tests.unit.test_trace_view import TRACE, training_run

FAMILIES = ("pick", "heat")
TURN = Turn("<action>look</action>", "look", True, True, "You see a mug.", usage=Usage(50, 4))
VOID = {"meta", "br", "rect", "line", "circle", "polyline"}


def episode(number: int, *, family: str = "pick", outcome: Outcome = Outcome.SOLVED, **changed: object) -> Episode:
    task, solved = f"test/{family}-{number}", outcome is Outcome.SOLVED
    content = hashlib.sha256(task.encode("utf-8", "backslashreplace")).hexdigest()
    made = Episode(
        task, content, family, 0, number, outcome, solved, float(solved),
        "find the mug.", "You are in a kitchen.", (TURN,) * (1 + number % 3), Usage(100, 8), 1.5,
    )  # fmt: skip
    return dataclasses.replace(made, **changed)  # type: ignore[arg-type]


def write_run(folder: Path, log: Sequence[Episode], families: Sequence[str] = FAMILIES) -> Path:
    """A run folder with these episodes, under one panel and protocol whatever they are."""
    folder.mkdir(parents=True)
    (folder / "episodes.jsonl").write_text("".join(json.dumps(one.to_json()) + "\n" for one in log), encoding="utf-8")
    keys = {one.key for one in log}
    panel = {"name": "mini/test@1", "hash": "a" * 64, "n": len(keys), "suite": "mini-alfworld", "split": "test"}
    write_json(folder / "summary.json", summarise(
        log, panel={**panel, "official": False}, protocol={"name": "plain@1", "hash": "c" * 64},
        policy={"name": "scripted", "identity": {}}, repeats=1, seed=0, families=families, wall_seconds=4.0,
    ))  # fmt: skip
    write_json(folder / "manifest.json", {"settings": {"policy": {}}, "policy": {"name": "scripted"}, "sessions": []})
    return folder


def small(solved: int, broken: int = 0) -> list[Episode]:
    """Four tasks of each family: `solved` of pick, one of heat, the last `broken` of heat infrastructure errors."""
    ends = [Outcome.SOLVED] * solved + [Outcome.STEP_LIMIT] * (4 - solved)
    heat = [Outcome.SOLVED, Outcome.FAILED, Outcome.CONTEXT_OVERFLOW, Outcome.FAILED]
    heat[4 - broken :] = [Outcome.INFRA_ERROR] * broken
    picks = [episode(at, outcome=end) for at, end in enumerate(ends)]
    return [*picks, *(episode(at, family="heat", outcome=end) for at, end in enumerate(heat, 4))]


class Page(HTMLParser):
    """Elements as (tag, attributes, text); refuses unbalanced tags."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file
        self.elements: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.open: list[tuple[str, int]] = []
        self.feed(file.read_text(encoding="utf-8"))
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), []))
        if tag not in VOID:
            self.open.append((tag, len(self.elements) - 1))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), []))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        for _, at in self.open:
            self.elements[at][2].append(data)

    def texts(self, *tags: str) -> list[str]:
        return [" ".join("".join(text).split()) for tag, _, text in self.elements if tag in tags]

    def rows(self, caption: str) -> list[list[str]]:
        """The cells' texts of the rows in the body of a table."""
        inside = ""
        found: list[list[str]] = []
        for tag, _, text in self.elements:
            if tag == "caption":
                inside = " ".join("".join(text).split())
            elif inside.startswith(caption) and tag == "tr":
                found.append([])
            elif inside.startswith(caption) and tag in {"td", "th"} and found:
                found[-1].append(" ".join("".join(text).split()))
        return found[1:]

    def links(self) -> list[str]:
        return [attrs["href"] or "" for tag, attrs, _ in self.elements if tag == "a" and "href" in attrs]


def report(folder: Path, *runs: Path, labels: Sequence[str] = ()) -> Page:
    return Page(write_report(runs, folder / "site", labels))


def every_page(folder: Path) -> list[Page]:
    return [Page(path) for path in sorted((folder / "site").rglob("*.html"))]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return command_line(monkeypatch, capsys)


# what the first page says


def test_rates_have_intervals_and_n(tmp_path: Path) -> None:
    page = report(tmp_path, write_run(tmp_path / "a", small(3)), write_run(tmp_path / "b", small(1, broken=1)))
    rows = page.rows("Success in percent")
    # Wilson by hand for 3 of 4: (0.75 + z²/8 ± z sqrt(0.75·0.25/4 + z²/64)) / (1 + z²/4), z = 1.959964
    assert rows[:4] == [
        ["pick", "a", "75.0", "30–95", "4", ""],
        ["pick", "b", "25.0", "5–70", "4", ""],
        ["heat", "a", "25.0", "5–70", "4", ""],
        ["heat", "b", "33.3", "6–79", "3", ""],
    ]
    assert [[*row[:3], row[4]] for row in rows[4:]] == [["all", "a", "50.0", "8"], ["all", "b", "28.6", "7"]]
    table = page.rows("mini/test@1, split test, 8 tasks")
    assert [row[0] for row in table[:2]] == ["a", "b"]
    assert table[0][1:3] == ["scripted", "75.030–95n=4"]


def test_outcomes_are_counted_by_family_and_the_last_record_of_an_attempt_counts(tmp_path: Path) -> None:
    again = [episode(0, outcome=Outcome.INFRA_ERROR, error="server gone"), *small(3)]
    page = report(tmp_path, write_run(tmp_path / "a", again))
    rows = page.rows("Episodes by outcome")
    assert [row[:7] for row in rows] == [
        ["pick", "a", "3", "0", "1", "0", "0"],
        ["heat", "a", "1", "2", "0", "1", "0"],
        ["all", "a", "4", "2", "1", "1", "0"],
    ]
    listed = Page(tmp_path / "site" / "01-a" / "index.html").rows("8 episodes")
    assert [row[:4] for row in listed[:2]] == [
        ["1", "test/pick-0", "pick", "solved"], ["2", "test/pick-1", "pick", "solved"],
    ]  # fmt: skip
    assert "server gone" not in (tmp_path / "site" / "01-a" / "episodes-0001.html").read_text()


def test_bars_are_drawn_to_scale(tmp_path: Path) -> None:
    page = report(tmp_path, write_run(tmp_path / "a", small(4)))
    rects = [attrs for tag, attrs, _ in page.elements if tag == "rect"]
    first = next(attrs for attrs in rects if attrs["class"] == "range")  # 4 of 4: Wilson from 4 / (4 + z²) to 1
    assert (first["x"], first["width"]) == ("51.01", "48.99")
    stacked = [(a["class"], a["x"], a["width"]) for a in rects if a.get("height") == "8" and "x" in a]
    # all: 5 solved, 2 failed, none at the step limit, 1 overflow
    assert stacked[-3:] == [
        ("solved", "0.00", "62.50"),
        ("failed", "62.50", "25.00"),
        ("context_overflow", "87.50", "12.50"),
    ]


def test_runs_on_one_panel_are_compared(tmp_path: Path) -> None:
    a, b = write_run(tmp_path / "a", small(4)), write_run(tmp_path / "b", small(0))
    page = report(tmp_path, a, b, labels=["first", "second"])
    (pair,) = compare([[a], [b]], labels=["first", "second"]).comparisons
    assert pair.conclusion in page.texts("li")
    assert page.texts("h1") == ["Report of 2 runs"]
    unfinished = write_run(tmp_path / "c", small(4))
    with (unfinished / "summary.json").open() as file:
        summary = json.load(file)
    summary["panel"]["n"] = 9
    write_json(unfinished / "summary.json", summary)
    (said_,) = (text for text in report(tmp_path, a, unfinished).texts("p") if text.startswith("No comparison: "))
    assert said_.startswith("No comparison: 'c' is unfinished: 8 of 9 episodes")
    assert str(tmp_path) not in "".join(page.file.read_text() for page in every_page(tmp_path))


def trained(run: Path, method: str, seed: int) -> Path:
    """The run as that of a checkpoint of this training."""
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["policy"]["trained"] = {"model": "M", "method": method, "seed": seed, "cost": {"environment_steps": 900}}
    write_json(run / "manifest.json", manifest)
    return run


def test_training_seeds_of_a_method_are_one_side(tmp_path: Path) -> None:
    grpo = [trained(write_run(tmp_path / f"grpo-{seed}", small(seed)), "grpo", seed) for seed in (1, 2)]
    sft = [trained(write_run(tmp_path / f"sft-{seed}", small(4)), "sft", seed) for seed in (1, 2)]
    page = report(tmp_path, *grpo, *sft)
    (pair,) = compare([grpo, sft], labels=["grpo (2 seeds)", "sft (2 seeds)"]).comparisons
    assert page.texts("li")[0] == pair.conclusion
    assert "Not compared: grpo-1, grpo-2 are training seeds of one method." in report(tmp_path, *grpo).texts("p")
    twice = [grpo[0], trained(write_run(tmp_path / "again", small(3)), "grpo", 1)]
    (pair,) = compare([[run] for run in twice], labels=["grpo-1", "again"]).comparisons
    page = report(tmp_path, *twice)
    assert page.texts("li")[0] == pair.conclusion
    assert page.rows("What each run spent")[0][1:4] == ["M", "grpo", "1"]
    assert page.rows("What each run spent")[0][10:] == ["900", "–", "–"]


def test_costs_are_those_of_the_summary(tmp_path: Path) -> None:
    page = report(tmp_path, write_run(tmp_path / "a", small(3)))
    # 8 episodes with 1 + number % 3 turns: 1 2 3 1 2 3 1 2; 100 and 8 tokens each
    assert page.rows("What each run spent")[0][:10] == ["a", "", "scripted", "–", "8", "15", "800", "64", "4", "–"]


# training runs


def write_training(folder: Path) -> Path:
    folder.mkdir()
    training_run(folder, 1, 2)
    (folder / "training.json").write_text(json.dumps({"settings": {"seed": 5, "updates": 2}}))
    records = [
        {"update": 1, "metrics": {"rollout/success": 0.25, "steps/environment": 300.0, "policy/entropy": None}},
        {"update": 2, "metrics": {"rollout/success": 0.75, "steps/environment": 1000.0}},
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records) + '{"update": 3, "met')
    write_run(folder / "validation" / "update-000000", small(0))
    write_run(folder / "validation" / "update-000002", small(3))
    return folder


def test_a_training_run_shows_its_course_its_last_validation_and_its_traces(tmp_path: Path) -> None:
    run = write_training(tmp_path / "train")
    found = course(run)
    assert [(point.update, point.steps, point.rate) for point in found.rollouts] == [(1, 300, 0.25), (2, 1000, 0.75)]
    assert [(p.update, p.steps, p.rate, p.validation and p.validation.n) for p in found.validations] == [
        (0, 0, 0.125, 8), (2, 1000, 0.5, 8),
    ]  # fmt: skip
    page = report(tmp_path, run)
    assert [row[:4] + row[5:] for row in page.rows("Success in validations")] == [
        ["train", "0", "0", "12.5", "8"], ["train", "2", "1,000", "50.0", "8"],
    ]  # fmt: skip
    assert page.texts("h3")[-3:] == ["Over updates", "Over environment steps", "Validations"]
    listed = Page(tmp_path / "site" / "01-train" / "index.html")
    assert {"update-000001.html", "update-000002.html"} <= set(listed.links())
    traces = Page(tmp_path / "site" / "01-train" / "update-000002.html")
    assert TRACE.notes["skill"] in traces.texts("dd")
    assert "more3 gated" in {attrs.get("class") for tag, attrs, _ in traces.elements if tag == "span"}


def test_a_training_run_without_a_validation_has_its_course_alone(tmp_path: Path) -> None:
    run = write_training(tmp_path / "train")
    (run / "validation").rename(tmp_path / "elsewhere")
    page = report(tmp_path, run)
    assert "Learning curves" in page.texts("h2")
    assert not page.rows("Success in percent")
    assert Page(tmp_path / "site" / "01-train" / "index.html").texts("dd") == [
        "A training run without a validation yet."
    ]


def test_curves_are_drawn_to_scale(tmp_path: Path) -> None:
    updates, steps = charts([("train", course(write_training(tmp_path / "train")))])
    (series,) = updates.series
    # the plot spans x 46 to 704 and y 260 (0 %) to 10 (here 80 %: the last interval ends at 78.5)
    assert series.raw == "375,181.9 704,25.6"
    assert (series.marks[1].x, series.marks[1].y) == (704, 103.8)
    assert series.marks[1].text == "train, 2 updates: 50.0 % [22 to 78], n = 8"
    assert updates.y_ticks == ((260, "0"), (197.5, "20"), (135, "40"), (72.5, "60"), (10, "80"))
    assert steps.series[0].raw == "243.4,181.9 704,25.6"
    assert [text for _, text in steps.x_ticks] == ["0", "200", "400", "600", "800", "1,000"]


def test_ticks_are_round_and_means_do_not_lag() -> None:
    assert ticks(7, 5) == [0, 2, 4, 6]
    assert ticks(1, 5) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1])
    assert ticks(3, 6, whole=True) == [0, 1, 2, 3]
    assert ticks(123_456, 6) == [0, 50_000, 100_000]
    assert moving_mean([1, 2, 6, 4], reach=1) == [1.5, 3, 4, 5]


def test_a_damaged_journal_is_named(tmp_path: Path) -> None:
    run = write_training(tmp_path / "train")
    (run / "metrics.jsonl").write_text('{"update": 1}\n{"update": 2, "metrics": {}}\n')
    with pytest.raises(SeedBenchError, match=r"metrics\.jsonl' line 1 is damaged \(KeyError\)"):
        report(tmp_path, run)


# how the pages are cut


def test_every_link_leads_somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "PAGE_EPISODES", 3)
    monkeypatch.setattr(paging, "LIST_ROWS", 5)
    report(tmp_path, write_run(tmp_path / "a", small(3)), write_training(tmp_path / "train"))
    pages = {page.file: page for page in every_page(tmp_path)}
    assert len([path for path in pages if path.name.startswith("episodes-")]) == 6
    for path, page in pages.items():
        for link in page.links():
            name, _, anchor = link.partition("#")
            target = pages[(path.parent / name).resolve()] if name else page
            assert not anchor or anchor in {attrs.get("id") for _, attrs, _ in target.elements}, link
    lists = [pages[tmp_path / "site" / "01-a" / name] for name in ("index.html", "list-0002.html")]
    assert [len(page.rows("Episodes ")) for page in lists] == [5, 3]
    assert lists[1].texts("caption") == ["Episodes 6 to 8 of 8"]


def test_pages_of_episodes_are_bounded_by_number_and_by_text(tmp_path: Path) -> None:
    long = dataclasses.replace(TURN, observation="x" * 1_200_000)
    log = [episode(at) for at in range(250)] + [episode(at, turns=(long,)) for at in range(250, 254)]
    write_report([write_run(tmp_path / "a", log)], tmp_path / "site")
    headings = [
        Page(path).texts("h1")[0].removeprefix("a: episodes ")
        for path in sorted((tmp_path / "site" / "01-a").glob("episodes-*"))
    ]
    assert headings == [
        "1 to 100 of 254", "101 to 200 of 254", "201 to 252 of 254", "253 to 254 of 254",
    ]  # fmt: skip
    listed = [attrs for tag, attrs, _ in Page(tmp_path / "site" / "01-a" / "index.html").elements if tag == "tr"][1:]
    assert ["hidden" in attrs for attrs in listed] == [False] * 200 + [True] * 54
    assert max(path.stat().st_size for path in (tmp_path / "site").rglob("*.html")) < 250_000


def test_a_log_is_read_as_pages_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, alive, most = write_run(tmp_path / "a", [episode(at) for at in range(40)]), 0, 0

    class Counted(Episode):
        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    def read(_: Path) -> Iterator[Episode]:
        nonlocal alive, most
        for at in range(40):
            alive += 1
            most = max(most, alive)
            yield Counted(**{f.name: getattr(episode(at), f.name) for f in dataclasses.fields(Episode)})

    monkeypatch.setattr(paging, "read_episodes", read)
    monkeypatch.setattr(paging, "PAGE_EPISODES", 4)
    report(tmp_path, run)
    assert alive == 0
    assert most <= 10  # two pages and what is in hand


# what may be given, and where it goes


def test_a_bundle_and_its_archive_read_like_the_run(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", small(3))
    pack(run, tmp_path / "packed", model="M", method="grpo")
    pack(run, tmp_path / "b.tar.gz", model="M", method="grpo")
    plain = report(tmp_path, run, labels=["x"]).rows("Episodes by outcome")
    for given in (tmp_path / "packed", tmp_path / "b.tar.gz"):
        page = report(tmp_path, given, labels=["x"])
        assert page.rows("Episodes by outcome") == plain
        assert page.rows("What each run spent")[0][:3] == ["x", "M", "grpo"]
    assert report(tmp_path, tmp_path / "b.tar.gz").rows("What each run spent")[0][0] == "b"


def test_an_earlier_report_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    site = tmp_path / "site"
    many = write_run(tmp_path / "many", [episode(at) for at in range(120)])
    report(tmp_path, many, write_run(tmp_path / "a", small(1)))
    (site / "02-a" / "notes.txt").write_text("mine")
    report(tmp_path, tmp_path / "a")
    assert sorted(str(path.relative_to(site)) for path in site.rglob("*") if path.is_file()) == [
        "01-a/episodes-0001.html", "01-a/index.html", "02-a/notes.txt", "index.html", "report.json",
    ]  # fmt: skip
    before = (site / "index.html").read_bytes()
    (tmp_path / "a" / "summary.json").unlink()
    with pytest.raises(SeedBenchError, match=r"summary\.json is missing"):
        report(tmp_path, tmp_path / "a")
    assert (site / "index.html").read_bytes() == before


def test_another_folder_is_left_alone(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", small(1))
    with pytest.raises(UsageError, match="is not empty and holds no report"):
        write_report([run], run)
    assert sorted(path.name for path in run.iterdir()) == ["episodes.jsonl", "manifest.json", "summary.json"]
    with pytest.raises(SeedBenchError, match=r"cannot write into .*choose another --out"):
        write_report([run], run / "summary.json")


def test_the_command(cli: Command, tmp_path: Path) -> None:
    runs = write_run(tmp_path / "a", small(1)), write_run(tmp_path / "b" / "a", small(2))
    told = cli("report", *runs, "--out", tmp_path / "site")
    assert (told.code, told.err, told.out) == (0, "", f"{tmp_path}/site/index.html: 2 runs\n")
    assert [row[0] for row in Page(tmp_path / "site" / "index.html").rows("What each run spent")] == list(
        map(str, runs)
    )
    for labels in ("x", "x,x"):
        told = cli("report", *runs, "--out", tmp_path / "site", "--labels", labels)
        assert said(told, 2).startswith("--labels must name 2 runs, each differently")
    assert "neither a folder nor an archive" in said(cli("report", tmp_path / "no", "--out", tmp_path / "x"), 2)
    assert "no manifest.json" in said(cli("report", tmp_path, "--out", tmp_path / "x"), 2)
    assert not (tmp_path / "x").exists()


def test_equal_runs_make_equal_pages(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", small(2))
    for place in ("one", "two"):
        write_report([run], tmp_path / place)
    one, two = (
        {str(path.relative_to(tmp_path / place)): path.read_bytes() for path in (tmp_path / place).rglob("*.*")}
        for place in ("one", "two")
    )
    assert one == two


# text from outside

HOSTILE = {
    "script": "<script>alert(1)</script>",
    "handler": "\"'><img src=x onerror=alert(1)><svg onload=alert(1)>",
    "link": '<a href="javascript:alert(1)">x</a> javascript:alert(1)',
    "end": "</script></style></title></table></details><!-- ]]>",
    "template": "{{ 7*7 }}{% raw %}",
    "ansi": "\x1b[2J\x1b]0;x\x07 \x9b31m \r gone",
    "direction": "\u202egnp.exe \u2066 \u200b \ufeff",
    "markup": "[bold red]x[/] [link=http://e.example]y[/link]",
    "surrogate": "\ud800 & \x00",
    "style": "<style>*{display:none}</style><link rel=stylesheet href=//e.example>",
}


def hostile_runs(folder: Path, text: str) -> Iterable[Path]:
    turn = Turn(text, text, False, False, text, prompt=(Message(text, text),), finish_reason=text)
    one = episode(1, family=text, task=text, instruction=text, first_observation=text, error=text, turns=(turn, turn))
    run = write_run(folder / "a", [one], families=[text])
    text = text.replace("\ud800", "")  # summaries are read strictly
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["policy"] = {"name": text}
    manifest["source"] = {"revision": text, "dirty": True}
    write_json(run / "manifest.json", manifest)
    summary = json.loads((run / "summary.json").read_text())
    summary["policy"]["name"] = summary["protocol"]["name"] = summary["panel"]["name"] = text
    summary["panel"]["split"] = text
    summary["success"]["families"] = {text: summary["success"]["micro"]}
    write_json(run / "summary.json", summary)
    training = write_training(folder / "train")
    text = turn.action
    trace = dataclasses.replace(
        TRACE, notes={"skill": None, "analysis": text, text: text},
        episode=dataclasses.replace(TRACE.episode, task=text, turns=(turn, turn, turn)),
    )  # fmt: skip
    write_traces(training, trace)
    return run, training


def write_traces(folder: Path, trace: Trace) -> None:
    import gzip

    trace_file(folder, 2).write_bytes(gzip.compress(json.dumps(trace.to_json()).encode() + b"\n"))


@pytest.fixture
def any_family(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layout takes its suite's families alone; this one takes any, as a third party's might."""
    from seedbench.tables.layouts import LAYOUTS, Column, Layout

    layout = Layout("Anything", (Column("micro", "micro", "Micro"),), "")
    monkeypatch.setitem(LAYOUTS, "alfworld", layout)


@pytest.mark.usefixtures("any_family")
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_text_stays_text(tmp_path: Path, kind: str) -> None:
    text = HOSTILE[kind]
    write_report(list(hostile_runs(tmp_path, text)), tmp_path / "site", [text, f"2 {text}"])
    scripts = files("seedbench.report").joinpath("assets", "site.js").read_text(encoding="utf-8")
    for page in every_page(tmp_path):
        source = page.file.read_text(encoding="utf-8")
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]", source)
        tags = {tag for tag, *_ in page.elements}
        assert not tags & {"img", "link", "iframe", "object", "form", "base", "embed"}
        assert ["".join(said) for tag, _, said in page.elements if tag == "script"] == [scripts]
        names = {name for _, attrs, _ in page.elements for name in attrs}
        assert not [name for name in names if name.startswith("on") or name in {"src", "style", "srcdoc"}]
        assert all(
            re.fullmatch(r"(\.\./)?([a-z0-9-]+/)?[a-z0-9-]*(\.html)?(#[a-z0-9]+)?", link) for link in page.links()
        )
    shown = inert(text)
    episodes = Page(tmp_path / "site" / report_place(tmp_path, 1) / "episodes-0001.html")
    # start; of both turns the prompt, the response unless it is the action, and the observation
    assert ["".join(s) for _, attrs, s in episodes.elements if attrs.get("class") == "text"].count(shown) >= 5
    assert " ".join(shown.split()) in Page(tmp_path / "site" / "index.html").texts("td", "th", "a")


def report_place(folder: Path, number: int) -> str:
    (place,) = (path.name for path in (folder / "site").glob(f"{number:02}-*"))
    return place


def test_endless_lines_are_cut_with_the_count_of_what_is_left_out(tmp_path: Path) -> None:
    long = "m" * 1_000_000
    turn = Turn(long, long, True, True, long, prompt=(Message("user", long),))
    one = episode(1, instruction=long, first_observation=long, task=f"test/{long}", turns=(turn,))
    report(tmp_path, write_run(tmp_path / "a", [one, episode(2, family="heat")]))
    episodes, listed = (Page(tmp_path / "site" / "01-a" / name) for name in ("episodes-0001.html", "index.html"))
    texts = ["".join(text) for _, attrs, text in episodes.elements if attrs.get("class") == "text"]
    assert texts[0] == "m" * TEXT_LIMIT + "… (980,000 more characters)"
    assert listed.rows("2 episodes")[0][8] == "m" * 100 + "…"
    assert listed.file.stat().st_size < 50_000
    assert episodes.file.stat().st_size < 300_000


def test_short_texts_are_one_line() -> None:
    assert short("a\n b\t c") == "a b c"
    assert short("abcdef", 3) == "abc…"
    assert short(" " * 1_000_000 + "x", 3) == "…"


# pages by themselves


def test_the_policy_allows_the_page_s_script_by_its_hash_and_nothing_else(tmp_path: Path) -> None:
    page = report(tmp_path, write_run(tmp_path / "a", small(1)))
    (script,) = ("".join(text) for tag, _, text in page.elements if tag == "script")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = (attrs["content"] for tag, attrs, _ in page.elements if "http-equiv" in attrs)
    assert policy == (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )
    style = next("".join(text) for tag, _, text in page.elements if tag == "style")
    assert "url(" not in style
    assert "@import" not in style
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|fetch\(", script)


def test_headings_descend_one_by_one_and_tables_are_described(tmp_path: Path) -> None:
    report(tmp_path, write_run(tmp_path / "a", small(1)), write_training(tmp_path / "train"))
    for page in every_page(tmp_path):
        levels = [int(tag[1]) for tag, *_ in page.elements if re.fullmatch("h[1-6]", tag)]
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after - before <= 1 for before, after in pairwise(levels))
        ids = [attrs["id"] for _, attrs, _ in page.elements if "id" in attrs]
        assert len(ids) == len(set(ids))
        assert all(attrs.get("scope") in {"row", "col"} for tag, attrs, _ in page.elements if tag == "th")
        data = [attrs for tag, attrs, _ in page.elements if tag == "table" and "data" in (attrs["class"] or "").split()]
        assert len(page.texts("caption")) == len(data)


def test_a_page_is_whole_or_is_not_replaced(tmp_path: Path) -> None:
    def torn() -> Iterator[object]:
        yield from ()
        raise SeedBenchError("the log has changed")

    page = write(tmp_path / "page.html", "view.html.jinja", title="T", about="", entries=[])
    before = page.read_bytes()
    with pytest.raises(SeedBenchError, match="the log has changed"):
        write(page, "view.html.jinja", title="T", about="", entries=torn())
    with pytest.raises(jinja2.UndefinedError, match="'about' is undefined"):
        write(page, "view.html.jinja", title="T", entries=[])
    assert page.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    with pytest.raises(SeedBenchError, match=r"cannot write the page '.*no/page\.html': No such file or directory"):
        write(tmp_path / "no" / "page.html", "view.html.jinja", title="T", about="", entries=[])
