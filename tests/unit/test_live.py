"""The live view: what it counts, how fast it says a run is, and what it looks like."""

import dataclasses
import gc
import io
import re
import threading
from collections.abc import Callable

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from seedbench.types import Episode, Outcome, Usage
from seedbench.ui.live import LiveProgress, PlainProgress, Progress, make_progress, pack
from seedbench.ui.tally import Row, Tally, format_number, format_seconds

FAMILIES = {"pick": 24, "look": 18, "heat": 23}
TITLE = "tiny · alfworld/valid_unseen@1 · alfworld/seed"
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


def episode(outcome: Outcome = Outcome.SOLVED, family: str = "pick", error: str = "") -> Episode:
    solved = outcome is Outcome.SOLVED
    changed = {"outcome": outcome, "success": solved, "family": family, "error": error}
    return dataclasses.replace(BASE, score=float(solved), **changed)  # type: ignore[arg-type]


def drawn(view: LiveProgress, width: int, height: int = 40) -> str:
    console = Console(width=width, height=height, file=io.StringIO(), color_system=None)
    with console.capture() as capture:
        console.print(view)
    return capture.get()


def live(clock: Callable[[], float], **start: object) -> LiveProgress:
    console = Console(width=80, file=io.StringIO(), force_terminal=True)
    view = LiveProgress(console, clock)
    view.start(**{"total": 65, "families": FAMILIES, "title": TITLE, **start})  # type: ignore[arg-type]
    return view


def test_rate_leaves_infra_errors_out() -> None:
    row = Row(10)
    for outcome in (Outcome.SOLVED, Outcome.STEP_LIMIT, Outcome.STEP_LIMIT, Outcome.INFRA_ERROR):
        row.add(outcome)
    assert (row.finished, row.scored) == (4, 3)
    assert row.rate == 1 / 3
    row = Row(10)
    row.add(Outcome.INFRA_ERROR)
    assert (row.finished, row.scored, row.rate) == (1, 0, None)


def test_families_add_up_to_the_whole() -> None:
    tally = Tally(65, FAMILIES, now=0.0)
    tally.resume([episode(family="look")])
    for outcome in Outcome:
        tally.add(episode(outcome, "heat"), now=1.0)
    tally.add(episode(family="new family"), now=1.0)
    for outcome in Outcome:
        assert tally.overall.outcomes[outcome] == sum(r.outcomes[outcome] for r in tally.families.values())
    assert [r.finished for r in tally.families.values()] == [0, 1, 5, 1]
    assert tally.overall.finished == 7


def test_speed_and_eta_by_hand_resumed_episodes_are_done_but_not_fast() -> None:
    tally = Tally(65, FAMILIES, now=100.0)
    tally.resume([dataclasses.replace(BASE, usage=Usage(9999, 9999))] * 25)
    assert tally.eta(100.0) is None
    for second in range(1, 11):
        tally.add(episode(), now=100.0 + second)
    rates = tally.rates(105.0 + 15.0)
    # 10 episodes, 100 generated and 1,000 prompt tokens in 20 s; 65 - 25 - 10 = 30 are left.
    assert rates == (0.5, 5.0, 50.0)
    assert tally.rates(120.0, average=True) == rates
    assert tally.eta(120.0) == 60.0


@pytest.mark.parametrize(("count", "seconds", "known"), [(2, 60, False), (3, 0.4, False), (3, 0.5, True)])
def test_speed_is_unknown_until_it_can_be_known(count: int, seconds: float, known: bool) -> None:
    tally = Tally(65, FAMILIES, now=0.0)
    for _ in range(count):
        tally.add(episode(), now=seconds)
    assert (tally.rates(seconds) is not None) is known
    assert (tally.eta(seconds) is not None) is known


def test_average_of_a_run_that_took_no_time_is_unknown() -> None:
    tally = Tally(1, FAMILIES, now=5.0)
    assert tally.rates(6.0, average=True) is None
    tally.add(episode(), now=5.0)
    assert tally.rates(5.0, average=True) is None


def test_recent_speed_follows_a_change_and_the_average_does_not() -> None:
    tally = Tally(2000, FAMILIES, now=0.0)
    for second in range(1, 201):  # one a second, then four a second
        tally.add(episode(), now=float(second))
    for quarter in range(1, 801):
        tally.add(episode(), now=200.0 + quarter / 4)
    recent, average = tally.rates(400.0), tally.rates(400.0, average=True)
    assert recent is not None
    assert average is not None
    assert recent.episodes == pytest.approx(4.0)
    assert average.episodes == pytest.approx(1000 / 400)
    assert tally.eta(400.0) == pytest.approx(1000 / 4)


def test_episodes_that_end_in_bursts_do_not_throw_the_eta_off() -> None:
    tally = Tally(1600, FAMILIES, now=0.0)
    for batch in range(1, 51):  # 16 at once every 30 s
        for _ in range(16):
            tally.add(episode(), now=30.0 * batch)
    # 800 are left: 50 batches, 1,500 s. The burst that opens the window counts but for its first episode.
    assert tally.eta(1500.0) == pytest.approx(1500.0, rel=0.02)


def test_speed_falls_while_nothing_ends() -> None:
    tally = Tally(65, FAMILIES, now=0.0)
    for second in range(1, 11):
        tally.add(episode(), now=float(second))
    assert tally.rates(10.0) == (1.0, 10.0, 100.0)
    assert tally.rates(40.0) == (0.25, 2.5, 25.0)


def test_views_keep_no_episode(clock: FakeClock) -> None:
    one = episode(Outcome.INFRA_ERROR, error="gone")
    console = Console(file=io.StringIO(), force_terminal=True)
    for view in (LiveProgress(console, clock), PlainProgress(io.StringIO(), clock=clock)):
        view.start(65, FAMILIES, TITLE)
        view.update(one)
        assert not [x for x in gc.get_referrers(one) if isinstance(x, list | dict | tuple | set)]
        view.stop()


def test_updates_from_several_threads_are_all_counted(clock: FakeClock) -> None:
    view = live(clock, total=8000)
    one = episode()

    def many() -> None:
        for _ in range(2000):
            view.update(one)

    threads = [threading.Thread(target=many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    view.stop()
    assert "8,000/8,000 episodes" in drawn(view, 100)


@pytest.mark.parametrize("width", [60, 80, 113, 114, 120, 200])
def test_panel_fits_its_terminal_and_says_everything(clock: FakeClock, width: int) -> None:
    view = live(clock, done=[episode(family="look")] * 3)
    for outcome in Outcome:
        clock.now += 2.0
        view.update(episode(outcome, "pick", "server gone" if outcome is Outcome.INFRA_ERROR else ""))
    text = drawn(view, width)
    view.stop()
    lines = text.rstrip("\n").split("\n")
    assert {cell_len(line) for line in lines} == {min(width, 120)}
    words = " ".join(re.sub(r"[│╭╮╰╯─━╸╺]", " ", text).split())
    for part in (
        TITLE,
        "pick 5/24 25.0%",
        "look 3/18 100.0%",
        "heat 0/23 –",
        "all 8/65 57.1%",  # 4 of 7 scored
        "8/65 episodes (3 from before)",
        "0.5 episodes/s",
        "5 generated tokens/s",
        "50 prompt tokens/s",
        "elapsed 0:10",
        "ETA 1:54",  # 57 left at one in 2 s
        "1 infra error, not in the rates; last: server gone",
    ):
        assert part in words
    if width < 114:
        assert "solved 4 · failed 1 · step limit 1 · context overflow 1" in words
        assert "infra error 1" in words
    else:
        assert "family done success solved failed step limit context overflow infra error" in words
        assert "all 8/65 57.1% 4 1 1 1 1" in words


def test_unknown_speed_is_a_dash_and_infra_errors_are_red(clock: FakeClock) -> None:
    view = live(clock)
    assert "– episodes/s · – generated tokens/s · – prompt tokens/s" in drawn(view, 80)
    assert "ETA –" in drawn(view, 80)
    view.update(episode(Outcome.INFRA_ERROR, error="no route"))
    console = Console(width=100, file=io.StringIO(), force_terminal=True, color_system="standard")
    with console.capture() as capture:
        console.print(view)
    view.stop()
    assert "\x1b[1;31m1 infra error, not in the rates; last: no route" in capture.get()
    assert "\x1b[1;31minfra error 1" in capture.get()


def test_what_comes_from_outside_is_inert(clock: FakeClock) -> None:
    view = live(clock, title="[red]tiny[/red] \x1b[2J\nx", families={"[b]f[/b]": 2})
    view.update(episode(Outcome.INFRA_ERROR, "[b]f[/b]", "[blink]\x07lone \ud800[/blink]"))
    text = drawn(view, 100)
    view.stop()
    assert "[red]tiny[/red] <1b>[2J x" in text
    assert "[b]f[/b]" in text
    assert "[blink]<07>lone <d800>[/blink]" in text
    assert "\x1b" not in text


def test_many_families_leave_room_for_the_totals(clock: FakeClock) -> None:
    view = live(clock, families={f"family {number}": 1 for number in range(50)})
    text = drawn(view, 80, height=24)
    assert "family 8" in text
    assert "family 9" not in text
    assert "… 41 more" in text
    assert len(text.rstrip("\n").split("\n")) <= 24
    view.stop()
    assert "family 49" in drawn(view, 80, height=24)


def test_live_leaves_the_last_state_and_how_to_go_on(clock: FakeClock) -> None:
    file = io.StringIO()
    view = LiveProgress(Console(width=80, file=file, force_terminal=True, color_system=None), clock)

    def run() -> None:
        with view:
            view.start(65, FAMILIES, TITLE)
            clock.now += 4.0
            view.update(episode())
            view.note("the server asked\nto wait [bold]2 s[/bold]")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    text = file.getvalue()
    assert "note: the server asked to wait [bold]2 s[/bold]" in text
    clock.now += 100.0  # the time that passes afterwards is not the run's
    final = drawn(view, 100)
    assert "stopped; finished episodes are saved and the same command goes on from here" in final
    assert "elapsed 0:04" in final
    assert "0.25 episodes/s" in final
    assert "ETA" not in final
    assert final.split("\n")[0][:20] in text


def test_stop_counts_once(clock: FakeClock) -> None:
    stream = io.StringIO()
    with PlainProgress(stream, clock=clock) as plain:
        plain.start(65, FAMILIES, TITLE)
        plain.stop(interrupted=True)
        plain.stop()
    assert len(stream.getvalue().splitlines()) == 2
    view = live(clock)
    view.stop(interrupted=True)
    view.stop()
    assert "stopped" in drawn(view, 80)


def test_plain_lines_every_tenth_of_the_run(clock: FakeClock) -> None:
    stream = io.StringIO()
    with PlainProgress(stream, clock=clock) as view:
        view.start(20, {"pick": 12, "look": 8}, TITLE)
        for number in range(20):
            clock.now += 0.5
            view.update(episode(Outcome.FAILED if number % 4 else Outcome.SOLVED))
    lines = stream.getvalue().splitlines()
    assert lines[0] == f"{TITLE}: 20 episodes (pick 12, look 8)"
    # Every second episode but the last, which the final line tells.
    assert [line.split("/")[0] for line in lines[1:-1]] == [str(n) for n in range(2, 20, 2)]
    assert lines[2] == (
        "4/20 episodes · 2 episodes/s · 20 generated tokens/s · 200 prompt tokens/s · elapsed 0:02 · ETA 0:08"
        " · solved 1/4 (25.0%)"
    )
    assert lines[-1] == (
        "finished: 20/20 episodes · 2 episodes/s · 20 generated tokens/s · 200 prompt tokens/s · elapsed 0:10"
        " · solved 5/20 (25.0%)"
    )


def test_plain_lines_every_ten_seconds(clock: FakeClock) -> None:
    stream = io.StringIO()
    view = PlainProgress(stream, clock=clock)
    view.start(1000, {"pick": 1000}, TITLE)
    for _ in range(12):
        clock.now += 4.0
        view.update(episode())
    counts = [line.split("/")[0] for line in stream.getvalue().splitlines()[1:]]
    assert counts == ["3", "6", "9", "12"]  # 12, 24, 36 and 48 s


def test_plain_says_what_was_resumed_and_what_broke(clock: FakeClock) -> None:
    stream = io.StringIO()

    def run() -> None:
        with PlainProgress(stream, clock=clock) as view:
            view.start(4, {"pick": 4}, TITLE, iter([episode()] * 2))
            view.note("[red]slow[/red]\x1b[31m")
            clock.now += 10.0
            view.update(episode(Outcome.INFRA_ERROR, error="reset"))
            raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        run()
    lines = stream.getvalue().splitlines()
    assert lines[0] == f"{TITLE}: 4 episodes (pick 4), 2 from before"
    assert lines[1] == "note: [red]slow[/red]<1b>[31m"
    broke = "solved 2/2 (100.0%) · 1 infra error, not in the rates; last: reset"
    assert lines[2].startswith("3/4 episodes (2 from before) · – episodes/s")
    assert lines[2].endswith(broke)
    assert lines[3].startswith("stopped; finished episodes are saved and the same command")
    assert lines[3].endswith(broke)
    assert len(lines) == 4


def test_plain_writes_to_a_stream_that_cannot_encode_it(clock: FakeClock) -> None:
    raw = io.BytesIO()
    view = PlainProgress(io.TextIOWrapper(raw, encoding="ascii"), clock=clock)
    view.start(4, {"pick": 4}, "a · b\ud800")
    assert raw.getvalue() == rb"a \xb7 b<d800>: 4 episodes (pick 4)" + b"\n"


def test_make_progress_suits_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Console(file=io.StringIO(), force_terminal=True)
    pipe = Console(file=io.StringIO())
    assert type(make_progress(terminal)) is LiveProgress
    assert type(make_progress(pipe)) is PlainProgress
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert type(make_progress(Console(file=io.StringIO()))) is PlainProgress
    for console in (terminal, pipe):
        view = make_progress(console, quiet=True)
        assert type(view) is Progress
        with view:
            view.start(1, {"pick": 1}, TITLE)
            view.update(episode())
            view.note("x")
        assert isinstance(console.file, io.StringIO)
        assert console.file.getvalue() == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.01234, "0.0123"), (12.34, "12.3"), (99.94, "99.9"), (99.96, "100"), (12345.6, "12,346")],
)
def test_format_number(value: float, text: str) -> None:
    assert format_number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "–"), (0, "0:00"), (0.2, "0:01"), (59.5, "1:00"), (3600, "1:00:00"), (1e5, "27:46:40")],
)
def test_format_seconds(seconds: float | None, text: str) -> None:
    assert format_seconds(seconds) == text


def test_pack_breaks_between_phrases_only() -> None:
    parts = [Text("aa bb"), Text("cc"), Text("dddd dddd dddd"), Text("e")]
    assert pack(parts, 10).plain == "aa bb · cc\ndddd dddd dddd\ne"
    assert pack(parts, 9).plain == "aa bb\ncc\ndddd dddd dddd\ne"
    assert pack(parts, 80).plain == "aa bb · cc · dddd dddd dddd · e"
