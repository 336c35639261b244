"""The pages in a real browser: sorting, filters, viewer, theme, keyboard, phone width; no errors, no requests."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seedbench.report.build import write_report
from seedbench.types import Outcome
from seedbench.ui.page import write_page
from tests.eval.test_report import HOSTILE, TURN, episode, hostile_runs, small, write_run, write_training
from tests.unit.test_trace_view import TRACE

playwright = pytest.importorskip(
    "playwright.sync_api", reason="pages are opened with playwright: pip install playwright"
)
PATH = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(PATH is None, reason="no chromium, chromium-browser or google-chrome on the PATH")

Page = Any
"""A page of playwright, which may not be installed."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    families, ends = ("pick", "heat"), (Outcome.STEP_LIMIT, Outcome.SOLVED)
    log = [episode(at, family=families[at % 5 == 0], outcome=ends[at % 3 == 0], seconds=float(at)) for at in range(250)]
    runs = [write_run(folder / "long", log), write_run(folder / "short", small(3)), write_training(folder / "train")]
    return write_report(runs, folder / "site").parent


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    # A superuser's browser has no sandbox; these pages come from here.
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=PATH, args=options)
        yield opened
        opened.close()


def watched(context: Any) -> tuple[Page, list[str]]:
    """A page, and what went wrong on it: messages of the console, errors, dialogs, requests for anything but files."""
    page, wrong = context.new_page(), []
    page.set_default_timeout(10_000)
    page.on("console", lambda message: wrong.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))
    page.on("request", lambda r: None if r.url.startswith("file://") else wrong.append(f"request: {r.url}"))
    return page, wrong


@pytest.fixture
def page(browser: Any) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1100, "height": 800}, color_scheme="light")
    page, wrong = watched(context)
    yield page
    context.close()
    assert not wrong


def show(page: Page, file: Path, anchor: str = "") -> None:
    page.goto(file.as_uri() + anchor)


def cells(page: Page, column: int, table: str = "table.episodes") -> list[str]:
    """Texts of a column, from 1, in the rows that are shown."""
    texts: list[str] = page.locator(f"{table} tbody tr:visible > :nth-child({column})").all_inner_texts()
    return [text.strip() for text in texts]


def sorted_by(page: Page) -> list[tuple[str, str]]:
    heads = page.locator("table.episodes th[aria-sort]")
    return [(head.inner_text().strip(), head.get_attribute("aria-sort")) for head in heads.all()]


def test_heads_sort_all_rows_and_say_so(page: Page, site: Path) -> None:
    show(page, site / "01-long" / "index.html")
    assert cells(page, 1) == [str(number) for number in range(1, 201)]  # the window
    page.get_by_role("button", name="Seconds").click()
    assert cells(page, 8) == [f"{second}.0" for second in range(249, 49, -1)]  # numbers, largest first, of all 250
    assert sorted_by(page) == [("Seconds", "descending")]
    page.get_by_role("button", name="Seconds").click()
    assert cells(page, 8)[:3] == ["0.0", "1.0", "2.0"]
    page.get_by_role("button", name="Task").click()
    assert cells(page, 2)[:3] == ["test/heat-0", "test/heat-5", "test/heat-10"]  # numbers in texts count as such
    assert sorted_by(page) == [("Task", "ascending")]


def test_cells_without_a_number_come_last_either_way(page: Page, site: Path) -> None:
    show(page, site / "index.html")
    table = "#runs ~ .scroll table"
    head = page.locator(table).get_by_role("button", name="Wall s")
    page.evaluate("document.querySelector('#runs ~ .scroll table').tBodies[0].rows[1].cells[8].dataset.value = ''")
    for first in ("long", "train"):
        head.click()
        assert cells(page, 1, table)[-1] == "short", first


def test_filters_narrow_the_list_and_tell_how_far(page: Page, site: Path) -> None:
    show(page, site / "01-long" / "index.html")
    page.get_by_label("Family").select_option("heat")
    assert set(cells(page, 3)) == {"heat"}
    assert page.get_by_role("status").inner_text() == "50 of 250"
    page.get_by_label("Outcome").select_option("solved")  # multiples of 15 under 250: 17
    assert page.get_by_role("status").inner_text() == "17 of 250"
    page.get_by_label("Filter").fill("HEAT-1 test")
    playwright.expect(page.get_by_role("status")).to_have_text("8 of 250")
    assert cells(page, 2) == [f"test/heat-{number}" for number in (15, 105, 120, 135, 150, 165, 180, 195)]
    page.get_by_label("Filter").fill("")
    page.get_by_label("Family").select_option("all")
    page.get_by_label("Outcome").select_option("all")
    playwright.expect(page.get_by_role("status")).to_have_text("")
    more = page.get_by_role("button", name="Show 50 more of 50")
    more.click()
    assert len(cells(page, 1)) == 250
    assert not more.is_visible()


def test_sorting_keeps_the_filter(page: Page, site: Path) -> None:
    show(page, site / "01-long" / "index.html")
    page.get_by_label("Family").select_option("heat")
    page.get_by_role("button", name="Seconds").click()
    assert cells(page, 8)[:2] == ["245.0", "240.0"]
    assert len(cells(page, 8)) == 50


def test_a_link_opens_the_episode_and_back_keeps_the_filter(page: Page, site: Path) -> None:
    show(page, site / "01-long" / "index.html")
    page.get_by_label("Family").select_option("heat")
    page.get_by_role("link", name="test/heat-110").click()
    assert page.url.endswith("/episodes-0002.html#e111")
    article = page.get_by_role("article", name="111. test/heat-110")
    assert article.get_by_text("You see a mug.").first.is_visible()
    assert article.get_by_role("heading").all_inner_texts()[1:3] == ["start", "observation"]
    assert page.locator("details[open]").count() == 1
    assert 0 <= article.bounding_box()["y"] < 400
    page.get_by_text("Next episodes").click()
    assert page.get_by_role("heading", level=1).inner_text() == "long: episodes 201 to 250 of 250"
    page.go_back()
    page.go_back()
    playwright.expect(page.get_by_role("status")).to_have_text("50 of 250")


def test_tokens_of_a_trace_are_coloured_and_in_figures(page: Page, site: Path) -> None:
    show(page, site / "03-train" / "update-000002.html")
    token = page.locator(".response span.more3").first
    assert token.inner_text().strip() == "1"
    assert token.evaluate("e => getComputedStyle(e).backgroundColor") == "rgb(29, 95, 174)"
    page.locator("summary", has_text="tokens in figures").first.click()
    assert page.locator("table.figures").first.get_by_role("row").nth(3).inner_text().split() == [
        "bed", "−0.70", "0.03", "−1.50",
    ]  # fmt: skip


def ground(page: Page) -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


def test_the_theme_follows_the_system_until_it_is_chosen(browser: Any, site: Path) -> None:
    context = browser.new_context(color_scheme="dark")
    page, wrong = watched(context)
    show(page, site / "index.html")
    assert ground(page) == "rgb(21, 23, 26)"
    page.emulate_media(color_scheme="light")
    assert ground(page) == "rgb(255, 255, 255)"
    page.get_by_role("button", name="Dark colours").click()
    assert ground(page) == "rgb(21, 23, 26)"
    page.get_by_role("link", name="short").first.click()
    assert ground(page) == "rgb(21, 23, 26)"  # it holds on the next page
    page.get_by_role("button", name="Light colours").click()
    assert ground(page) == "rgb(255, 255, 255)"
    context.close()
    assert not wrong


def focused(page: Page) -> str:
    return str(page.evaluate("document.activeElement.textContent")).strip()


def test_the_keyboard_reaches_everything(page: Page, site: Path) -> None:
    show(page, site / "02-short" / "index.html")
    page.keyboard.press("Tab")
    assert focused(page) == "Skip to the content"
    assert page.locator(".skip").bounding_box()["x"] >= 0  # it shows while it has the focus
    order = []
    for _ in range(16):
        page.keyboard.press("Tab")
        order.append(focused(page))
    assert order[:2] == ["Report", "Dark colours"]
    at = order.index("No.")
    assert order[at:][:9] == ["No.", "Task", "Family", "Outcome", "Score", "Turns", "Tokens", "Seconds", "Instruction"]
    outline = page.evaluate(
        "getComputedStyle(document.activeElement).outlineStyle + ' ' + document.activeElement.matches(':focus-visible')"
    )
    assert outline == "solid true"
    while focused(page) != "Task":
        page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    assert cells(page, 2)[0] == "test/heat-4"
    while focused(page) != "test/heat-5":
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**/episodes-0001.html#e6")
    page.keyboard.press("Tab")
    assert focused(page) == "3 turns in 1.5 s"
    page.keyboard.press("Enter")
    assert page.locator("details[open]").count() == 0


def test_skipping_leads_to_the_content(page: Page, site: Path) -> None:
    show(page, site / "02-short" / "index.html")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_without_scripts_everything_can_be_read(browser: Any, site: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page, wrong = watched(context)
    show(page, site / "01-long" / "index.html")
    assert page.locator("tbody tr:visible").count() == 250
    assert page.get_by_role("button").count() == 0
    page.get_by_role("link", name="test/heat-110").click()
    article = page.get_by_role("article", name="111. test/heat-110")
    if not article.get_by_text("You see a mug.").first.is_visible():
        article.locator("summary").first.click()
    assert article.get_by_text("You see a mug.").first.is_visible()
    context.close()
    assert not wrong


def test_pages_fit_and_tables_scroll_in_their_own_box(page: Page, site: Path) -> None:
    for file in sorted(site.rglob("*.html")):
        show(page, file)
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        for width in (320, 390, 1100):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, file
    page.set_viewport_size({"width": 390, "height": 800})
    show(page, site / "01-long" / "index.html")
    inside, outside = page.locator(".scroll").evaluate("box => [box.scrollWidth, box.clientWidth]")
    assert inside > outside > 300


CONTRAST = """selector => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const light = colour => {
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const part = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    const [r, g, b] = canvas.getImageData(0, 0, 1, 1).data;
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const ground = element => {
    const own = getComputedStyle(element).backgroundColor;
    return own === "rgba(0, 0, 0, 0)" ? ground(element.parentElement) : own;
  };
  return Array.from(document.querySelectorAll(selector), element => {
    const [a, b] = [light(getComputedStyle(element).color), light(ground(element))].sort((x, y) => y - x);
    return [(a + 0.05) / (b + 0.05), element.outerHTML.slice(0, 80)];
  }).sort((a, b) => a[0] - b[0])[0];
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_contrast(browser: Any, site: Path, theme: str) -> None:
    context = browser.new_context(color_scheme=theme)
    page, wrong = watched(context)
    for name in ("index.html", "01-long/index.html", "03-train/update-000002.html", "01-long/episodes-0001.html"):
        show(page, site / name)
        ratio, where = page.evaluate(
            CONTRAST, "h1, h2, h3, h4, p, a, td, th, dt, dd, small, summary, button, span, li, .text"
        )
        assert ratio >= 4.5, where
    context.close()
    assert not wrong


TRY_EVERYTHING = """() => {
  document.querySelectorAll("details").forEach(one => one.open = true);
  document.querySelectorAll("th button").forEach(one => one.click());
  document.querySelectorAll("select").forEach(one => {
    one.selectedIndex = 1;  // a value from the cells
    one.dispatchEvent(new Event("change"));
  });
}"""


def test_hostile_text_does_nothing(page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from seedbench.tables.layouts import LAYOUTS, Column, Layout

    monkeypatch.setitem(LAYOUTS, "alfworld", Layout("Anything", (Column("micro", "micro", "Micro"),), ""))
    text = " ".join(HOSTILE[kind] for kind in ("end", "script", "handler", "link", "style"))
    write_report(list(hostile_runs(tmp_path, text)), tmp_path / "site", [text, f"2 {text}"])
    for file in sorted((tmp_path / "site").rglob("*.html")):
        show(page, file)
        page.evaluate(TRY_EVERYTHING)
        assert page.locator("img, link, iframe, [onerror], [onload], a[href^=javascript]").count() == 0
        assert page.locator("script").count() == 1
        assert page.locator("h1").is_visible()


def test_the_page_of_view_has_no_script(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "view.html"
    write_page(file, "Episodes", "2 of 2 episodes", [TRACE, episode(1, turns=(TURN,))])
    show(page, file)
    assert page.locator("script").count() == 0
    assert page.locator("details[open]").count() == 1
    page.get_by_text("1 turn in 1.5 s").click()
    assert page.get_by_text("You see a mug.").is_visible()
