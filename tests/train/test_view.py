"""The views of a training run: what they count, and what they show at every width."""

import dataclasses
import gc
import io
import math
import re
import threading

import pytest
from rich.cells import cell_len
from rich.console import Console

from seedbench.types import Episode, Outcome, Usage
from seedbench_trainers.journal import Record
from seedbench_trainers.view import LiveView, PlainView, TrainView, make_view
from seedbench_trainers.watch import Watch, figure, score, sparkline

TITLE = "grpo · mini-alfworld · tiny:small · mini-alfworld/seed"
FAMILIES = ["pick", "look", "heat"]
BASE = Episode("task", "0" * 64, "pick", 0, 1, Outcome.SOLVED, True, 1.0, "do", "see", (), Usage(100, 10), 1.0)


class FakeClock:
    """Seconds that pass only when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def metrics(update: int) -> dict[str, float]:
    """Invented figures of an update, equal each time."""
    found = {
        "rollout/success": 0.01 * update,
        "rollout/success/pick": 0.02 * update,
        "rollout/success/look": 0.0,
        "rollout/success/heat": 0.01 * update,
        "rollout/return": -0.25,
        "rollout/response_tokens": 12.34,
        "rollout/invalid": 0.125,
        "rollout/turns": 17.0,
        "rollout/truncated": 0.0,
        "groups/zero_variance": 0.5,
        "loss/total": -0.0123,
        "policy/entropy": 1.5,
        "policy/clipped": 0.031,
        "policy/old_kl": 0.0002,
        "policy/ref_kl": 0.05,
        "policy/ratio_max": 1.75,
        "policy/parity": 3e-6,
        "optim/lr": 1e-6,
        "optim/grad_norm": 0.75,
        "time/rollout": 6.0,
        "time/signals": 1.0,
        "time/update": 3.0,
        "tokens/generated": 600.0 * update,
        "tokens/trained": 1200.0 * update,
        "steps/environment": 1000.0 * update,
        "memory/peak_gib": 1.23,
    }
    if update % 10 == 0:
        found |= {"validation/success": 0.2 + update / 100, "validation/n": 200.0, "validation/success/pick": 0.75}
    return found


def records(last: int) -> list[Record]:
    return [Record(update, update, metrics(update)) for update in range(last + 1)]


def running(clock: FakeClock, past: int = 38, width: int = 80, height: int = 40) -> LiveView:
    """A run of 100 updates, 10 s each, at update 40, playing its next roll-outs."""
    view = LiveView(Console(width=width, height=height, file=io.StringIO(), force_terminal=True), clock)
    view.start(100, TITLE, FAMILIES, records(past))
    for update in range(past + 1, 41):
        clock.now += 10.0
        view.update(update, metrics(update))
    return view


def drawn(view: LiveView, width: int, height: int = 40) -> str:
    console = Console(width=width, height=height, file=io.StringIO(), color_system=None)
    with console.capture() as capture:
        console.print(view)
    return capture.get()


def words(text: str) -> str:
    return " ".join(re.sub(r"[│╭╮╰╯─━╸╺]", " ", text).split())


@pytest.mark.parametrize("width", [60, 80, 111, 112, 120, 200])
def test_panel_fits_its_terminal_and_says_everything(clock: FakeClock, width: int) -> None:
    view = running(clock)
    view.phase("rollout", 128)
    for outcome in (Outcome.SOLVED, Outcome.STEP_LIMIT, Outcome.INFRA_ERROR):
        view.episode(dataclasses.replace(BASE, outcome=outcome, success=outcome is Outcome.SOLVED))
    clock.now += 4.0
    text = drawn(view, width)
    view.stop()
    assert {cell_len(line) for line in text.rstrip("\n").split("\n")} == {min(width, 120)}
    for part in (
        TITLE,
        "update 40/100",
        "elapsed 0:24",
        "ETA 9:56",  # 60 updates of 10 s, 4 s of the next have passed
        "rollout, 3/128 episodes, 1 solved, 1 infra error, 0:04",
        "validation at update 40: 60.0% of 200 (53.1 to 66.5%)",
        "first 20.0%",
        "best 60.0% at 40",
        "█ rollout 60%",
        "▓ signals 10%",
        "▒ update 30%",
        "100 tokens/s generated",  # 600 an update in 6 s
        "400 tokens/s trained",
        "40,000 environment steps",
        "peak memory 1.23 GiB",
        "return -0.25", "loss -0.0123", "response tokens 12.3", "entropy 1.5", "KL to reference 0.05", "clipped 3.1%",
        "gradient norm 0.75", "learning rate 1.0e-06", "invalid actions 12.5%", "equal groups 50.0%",
        "KL to old 2.0e-04", "largest ratio 1.75", "turns 17", "truncated 0.0%", "parity 3.0e-06",
    ):  # fmt: skip
        assert part in re.sub(r" +", " ", words(text)), part
    # Now 40 %, the mean of updates 31 to 40, 71 % of the highest success shown (0.8), and the validation's.
    assert re.search(r"success +40.0% +35.5% +[▁▂▃▄▅]{7,30} +60.0%", text)
    assert re.search(r"pick +80.0% +71.0% +[▁▂▃▄▅▆▇█]{7,30} +75.0%", text)
    assert re.search(r"look +0.0% +0.0% +▁{7,30} +–", text)


@pytest.mark.parametrize(("width", "height"), [(60, 24), (80, 24), (120, 24), (120, 18), (80, 30)])
def test_panel_fits_the_height_while_it_is_redrawn_and_is_whole_at_the_end(
    clock: FakeClock, width: int, height: int
) -> None:
    view = running(clock)
    text = drawn(view, width, height)
    assert len(text.rstrip("\n").split("\n")) <= height - 1
    assert "peak memory" in text
    assert "validation at update 40" in text
    view.stop()
    assert "parity" in drawn(view, width, height)


def test_many_families_leave_room(clock: FakeClock) -> None:
    view = LiveView(Console(width=80, height=24, file=io.StringIO(), force_terminal=True), clock)
    view.start(10, TITLE, [f"family {number}" for number in range(50)])
    view.update(1, {"rollout/success": 0.5, "loss/total": 0.1})
    text = drawn(view, 80, 24)
    assert len(text.rstrip("\n").split("\n")) <= 23
    assert re.search(r"… \d+ more", text)
    view.stop()
    assert "family 49" in drawn(view, 80, 24)


def test_a_method_without_rollouts_shows_its_loss(clock: FakeClock) -> None:
    view = LiveView(Console(width=80, file=io.StringIO(), force_terminal=True), clock)
    view.start(4, "sft", FAMILIES)
    assert "pick" in drawn(view, 80)  # not known yet
    for update in range(1, 4):
        clock.now += 2.0
        spent = {"time/rollout": 0.1, "time/update": 2.0, "tokens/generated": 0.0, "tokens/trained": 80.0 * update}
        view.update(update, {"loss/total": 4.0 / update, "optim/lr": 1e-3, **spent})
    text = drawn(view, 80)
    view.stop()
    assert "pick" not in text
    assert "success" not in text
    assert re.search(r"loss +1.33 +2.44 +█▃▁", text)
    assert "ETA 0:02" in text
    assert "40 tokens/s trained" in text
    assert "generated" not in text


def test_bar_shows_the_shares_of_the_time(clock: FakeClock) -> None:
    view = running(clock)
    text = drawn(view, 80)
    view.stop()
    # 76 columns: 60, 10 and 30 %, cut at 45.6 and 53.2.
    assert f"│ {'█' * 46}{'▓' * 7}{'▒' * 23} │" in text


def test_what_comes_from_outside_is_inert(clock: FakeClock) -> None:
    view = LiveView(Console(width=100, file=io.StringIO(), force_terminal=True), clock)
    view.start(4, "[red]tiny[/red] \x1b[2J\nx", ["[b]f[/b]"])
    view.phase("[blink]\x07p[/blink]")
    text = drawn(view, 100)
    view.stop()
    assert "[red]tiny[/red] <1b>[2J x" in text
    assert "[b]f[/b]" in text
    assert "[blink]<07>p[/blink]" in text
    assert "\x1b" not in text


def test_live_leaves_the_last_state_and_how_to_go_on(clock: FakeClock) -> None:
    file = io.StringIO()
    view = LiveView(Console(width=80, height=40, file=file, force_terminal=True, color_system=None), clock)

    def run() -> None:
        with view:
            view.start(10, TITLE, FAMILIES)
            clock.now += 4.0
            view.update(1, metrics(1))
            view.note("zero\nvariance [bold]everywhere[/bold]")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert "note: zero variance [bold]everywhere[/bold]" in file.getvalue()
    clock.now += 100.0  # the time that passes afterwards is not the run's
    text = drawn(view, 80)
    assert "stopped; the same command with --resume goes on from the last checkpoint" in text
    assert "elapsed 0:04" in text
    assert "ETA" not in text
    view.stop()
    assert "stopped" in drawn(view, 80)


def test_a_second_stage_begins_anew(clock: FakeClock) -> None:
    view = running(clock)
    view.start(5, "second stage", ["pick"])
    text = drawn(view, 80)
    view.stop()
    assert "second stage" in text
    assert "update 0/5" in text
    assert "validation at" not in text


def test_calls_from_several_threads_are_all_counted_and_no_episode_is_kept(clock: FakeClock) -> None:
    view = running(clock)
    progress = view.progress("validation")
    one = dataclasses.replace(BASE)
    progress.start(8001, {"pick": 8001}, "ignored", [one])

    def many() -> None:
        for _ in range(2000):
            progress.update(one)

    threads = [threading.Thread(target=many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    text = drawn(view, 120)
    progress.stop()
    view.stop()
    assert "validation, 8,001/8,001 episodes, 8,001 solved" in text
    assert not [x for x in gc.get_referrers(one) if isinstance(x, list | dict | set)]


def test_plain_writes_a_line_an_update(clock: FakeClock) -> None:
    stream = io.StringIO()
    with PlainView(stream, clock) as view:
        view.start(4, "[b]sft[/b]\x1b", ["pick"], [Record(1, 1, {"loss/total": 2.0, "tokens/trained": 100.0})])
        view.phase("update")
        for update, loss in ((2, 1.5), (3, math.nan)):
            clock.now += 2.5
            view.update(update, {"loss/total": loss, "tokens/trained": 100.0 * update, "time/update": 2.0})
        view.note("[red]slow[/red]")
        clock.now += 2.0
        view.update(4, {"rollout/success": 0.25, "validation/success": 0.5, "validation/n": 4.0})
    assert stream.getvalue().splitlines() == [
        "[b]sft[/b]<1b>: 4 updates, 1 made before",
        "update 2/4 · loss 1.5 · 50 tokens/s trained · elapsed 0:03 · ETA 0:05",
        "update 3/4 · loss – · 50 tokens/s trained · elapsed 0:05 · ETA 0:03",
        "note: [red]slow[/red]",
        "update 4/4 · success 25.0% (mean 25.0%) · validation 50.0% of 4 (15.0 to 85.0%) · 50 tokens/s trained"
        " · elapsed 0:07",
        "finished: 4/4 updates in 0:07",
    ]


def test_plain_says_that_it_was_stopped(clock: FakeClock) -> None:
    raw = io.BytesIO()
    view = PlainView(io.TextIOWrapper(raw, encoding="ascii"), clock)
    view.start(4, "a · b")
    view.stop(interrupted=True)
    view.stop()
    assert raw.getvalue().splitlines() == [
        rb"a \xb7 b: 4 updates",
        b"stopped; the same command with --resume goes on from the last checkpoint: 0/4 updates in 0:00",
    ]


def test_make_view_suits_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Console(file=io.StringIO(), force_terminal=True)
    pipe = Console(file=io.StringIO())
    ascii_terminal = Console(file=io.TextIOWrapper(io.BytesIO(), encoding="ascii"), force_terminal=True)
    assert type(make_view(terminal)) is LiveView
    assert type(make_view(pipe)) is PlainView
    assert type(make_view(ascii_terminal)) is PlainView
    quiet = make_view(terminal, quiet=True)
    assert type(quiet) is TrainView
    with quiet:
        quiet.start(1, TITLE, FAMILIES, [])
        quiet.phase("rollout", 2)
        quiet.episode(BASE)
        quiet.update(1, metrics(1))
        quiet.note("x")
    assert isinstance(terminal.file, io.StringIO)
    assert terminal.file.getvalue() == ""


def test_eta_starts_after_what_was_measured_before_the_first_update() -> None:
    watch = Watch(10, [], began=0.0)
    watch.resume([])
    watch.add(0, {"validation/success": 0.5}, now=100.0)
    assert watch.eta(100.0) is None
    watch.add(1, {}, now=103.0)
    watch.add(2, {}, now=106.0)
    assert watch.eta(107.0) == 3.0 * 8 - 1.0
    assert watch.eta(1000.0) == 0.0


def test_a_metric_that_is_left_out_has_a_gap_and_a_second_record_adds() -> None:
    watch = Watch(10, [], began=0.0)
    watch.resume([(1, {"a": 1.0}), (2, {"b": 5.0}), (2, {"a": 3.0}), (3, {"b": 7.0})])
    assert list(watch.history["a"])[:2] == [1.0, 3.0]
    assert math.isnan(watch.value("a"))
    assert watch.recent("a") == 2.0
    assert list(watch.history["b"]) == [5.0, 7.0]
    assert math.isnan(watch.value("never"))


def test_validation_interval_is_the_one_logged_or_wilsons() -> None:
    found = score(3, {"validation/success": 0.5, "validation/n": 10.0})
    assert found is not None
    assert (found.n, round(found.lo, 4), round(found.hi, 4)) == (10, 0.2366, 0.7634)  # scipy, proportion_ci
    logged = score(3, {"validation/success": 0.5, "validation/n": 10.0, "validation/lo": 0.125, "validation/hi": 0.875})
    assert logged is not None
    assert (logged.lo, logged.hi) == (0.125, 0.875)
    assert score(3, {"validation/success": math.nan}) is None
    alone = score(3, {"validation/success": 0.5})
    assert alone is not None
    assert alone.words() == "50.0%"
    scored = score(3, {"validation/success": 0.5, "validation/n": 10.0, "validation/score": 0.625})
    assert scored is not None
    assert scored.words() == "50.0% of 10 (23.7 to 76.3%), score 0.625"
    same = score(3, {"validation/success": 0.5, "validation/score": 0.5})
    assert same is not None
    assert same.words() == "50.0%"


@pytest.mark.parametrize(
    ("values", "width", "scale", "line"),
    [
        (range(8), 8, (None, None), "▁▂▃▄▅▆▇█"),
        (range(8), 3, (None, None), "▁▅█"),
        ([0.0, 0.5, 1.0, 2.0, -1.0], 5, (0.0, 1.0), "▁▅██▁"),
        ([1.0, math.nan, 2.0, math.inf], 9, (None, None), "▁ █ "),
        ([3.0, 3.0], 9, (None, None), "▁▁"),
        ([math.nan], 9, (None, None), ""),
        ([1.0, 2.0], 0, (None, None), ""),
    ],
)
def test_sparkline(values: list[float], width: int, scale: tuple[float | None, float | None], line: str) -> None:
    assert sparkline(values, width, *scale) == line


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("loss/total", -1234.5, "-1,234"),
        ("loss/total", 0.0, "0"),
        ("optim/lr", 1e-6, "1.0e-06"),
        ("policy/clipped", 0.0315, "3.1%"),
        ("rollout/success/pick", 1.0, "100.0%"),
        ("policy/entropy", math.nan, "–"),
        ("policy/entropy", math.inf, "–"),
    ],
)
def test_figure(name: str, value: float, text: str) -> None:
    assert figure(name, value) == text
