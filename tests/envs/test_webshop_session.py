"""Actions, pages and the page state machine, on a hand-made shop: what upstream's rules say, worked out by hand."""

from __future__ import annotations

import pickle
import re
from random import Random

import pytest

from seedbench_envs.webshop.actions import Action, clicks, parse
from seedbench_envs.webshop.pages import Page, Role, Segment, done_page, item_page, results_page, sub_page
from seedbench_envs.webshop.render import MODES, as_html, as_text, as_text_rich, render, shown
from seedbench_envs.webshop.session import HOST, Result, Session, page_kind
from tests.envs.page_reader import Reader
from tests.envs.tiny_shop import GOALS, LAMP, MARKUP, NBSP, ODD, PLAIN, product, tiny_shop

SEP = " [SEP] "
ACTED = Result()


@pytest.fixture
def session() -> Session:
    return Session(tiny_shop(), GOALS["goal/0"], "0", Random(0))


def do(session: Session, *actions: str) -> None:
    """Actions that must all do something."""
    for action in actions:
        assert session.act(action).reason == "", action


def look_at(session: Session, asin: str) -> None:
    """Reach a product through the list of its category (it is on page 1)."""
    do(session, "search[<c> garden]", f"click[{asin.lower()}]")


# ---- actions ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "argument"),
    [
        ("search[red lamp]", "search", "red lamp"),
        ("click[Buy Now]", "click", "buy now"),
        ("click[x] please", "click", "x"),
        ("click[x]\n", "click", "x"),
        ("search[a]\nclick[b]", "search", "a"),
        ("search[a]b]", "search", "a]b"),
        ("search[ ]", "search", " "),
        ("search[]]", "search", "]"),
        ("click[ x]", "click", " x"),
        (" click[x]", " click", "x"),
        ("Click[X]", "Click", "x"),
        ("search[a] click[b]", "search[a] click", "b"),
        ("click[[x]]", "click[", "x]"),
        ("search[a][b]", "search[a]", "b"),
        ("search[a[b]c", "search[a", "b"),
        ("search[a[]", "search", "a["),
        ("x[[]", "x", "["),
        ("search[İ]", "search", "i̇"),
        ("search[]", "search[]", None),
        ("[x]", "[x]", None),
        ("click[x", "click[x", None),
        ("search]x[", "search]x[", None),
        ("\nsearch[x]", "\nsearch[x]", None),
        ("search[a\nb]", "search[a\nb]", None),
        ("", "", None),
        ("[", "[", None),
        ("]", "]", None),
    ],
)
def test_an_action_is_read_by_upstreams_rule(text: str, name: str, argument: str | None) -> None:
    assert parse(text) == Action(name, argument)


def test_actions_are_read_as_upstreams_expression_reads_them() -> None:
    pattern, dice = re.compile(r"(.+)\[(.+)\]"), Random(3)
    matched = 0
    for _ in range(20_000):
        text = "".join(dice.choices("ab[]\n ", weights=(3, 3, 4, 4, 1, 1), k=dice.randrange(12)))
        found = pattern.match(text)
        expected = Action(found[1], found[2].lower()) if found else Action(text, None)
        assert parse(text) == expected, repr(text)
        matched += found is not None
    assert 2_000 < matched < 18_000


def test_a_click_is_offered_only_if_an_action_can_say_it() -> None:
    names = ["search", "buy now", "", " ", "a]b", "]", "x [y]", "a[", "[", "[[", "a\nb", "\n", "[]", "x[]"]
    said = clicks(names)
    assert said == ["click[buy now]", "click[ ]", "click[a]b]", "click[]]", "click[a[]", "click[[]"]
    assert all(parse(action).argument in names for action in said)


# ---- pages ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("", ""), (" ", " "), ("\t  ", " "), ("\n", ""), (" \n ", ""), ("\r", " "), (NBSP, NBSP),
        (f"{NBSP}\n", f"{NBSP}\n"), (" a\nb ", " a\nb "), ("\x0b", "\x0b"),
    ],
)  # fmt: skip
def test_blank_text_is_shown_as_the_original_parser_leaves_it(text: str, node: str) -> None:
    assert shown(text) == node


def test_an_item_page_in_text(session: Session) -> None:
    look_at(session, LAMP.asin)
    assert as_text(session.page) == SEP.join(
        ["Instruction:", GOALS["goal/0"].instruction, "Back to Search", "< Prev", "color", "red", "dark blue", "size",
         "small", "large", "small", "Red Lamp", "Price: $12.5", "Rating: N.A.", "Description", "Features", "Reviews",
         "Buy Now"]
    )  # fmt: skip
    assert list(session.page.clickables) == [
        "back to search", "< prev", "description", "features", "reviews", "buy now", "red", "dark blue", "small",
        "large",
    ]  # fmt: skip


def test_blank_texts_of_a_product_and_names_that_collide(session: Session) -> None:
    page = item_page("i", ODD, {})
    assert as_text(page) == SEP.join(
        ["Instruction:", "i", "Back to Search", "< Prev", "kind", "buy now", "reviews", "search", "a]b", "x [y]",
         "attributes", "", "café", "other", "a]b", "none", "Price:", "Rating: N.A.", "Description", "Features",
         "Reviews", "Buy Now"]
    )  # fmt: skip
    # An option called like a button takes its place in the list; of two equal values the later option is clicked.
    assert list(page.clickables) == [
        "back to search", "< prev", "description", "features", "reviews", "buy now", "search", "a]b", "x [y]",
        "attributes", "", " ", "café",
    ]  # fmt: skip
    assert page.clickables["reviews"].role is Role.OPTION
    assert page.clickables["a]b"].target == "other"
    assert as_text(sub_page("i", ODD, "Description")) == SEP.join(["Instruction:", "i", "Back to Search", "< Prev"])
    features = as_text(sub_page("i", ODD, "Features")).split(SEP)[4:]
    assert features == ["", "", "", "two\nlines"]  # "", " " and the non-breaking space; the lone line break is gone
    assert as_text(results_page("i", 1, 1, [ODD])).split(SEP)[2:] == [
        "Back to Search", "Page 1 (Total results: 1)", "Next >", ODD.asin,
    ]  # fmt: skip


def test_the_end_page_shows_the_score_and_escapes_options_as_json() -> None:
    page = done_page("B000000001", {"b": "a<b>&'c'", "a": 'é "q"'}, 2 / 3)
    assert as_text(page) == (
        "Thank you for shopping with us! [SEP] Your code: [SEP] None [SEP] (Paste it in your MTurk interface.) [SEP]"
        " Purchased [SEP] asin [SEP] B000000001 [SEP] options [SEP]"
        r' {"a": "\u00e9 \"q\"", "b": "a\u003cb\u003e\u0026\u0027c\u0027"}'
        " [SEP] attrs [SEP] None [SEP] category [SEP] None [SEP] query [SEP] None [SEP] product category [SEP] None"
        " [SEP] Target [SEP] asin [SEP] options [SEP] attrs [SEP] price upper [SEP] instuction text [SEP] category"
        " [SEP] product category [SEP] query [SEP] Goal [SEP] None [SEP] Reward [SEP] Your score (min 0.0, max 1.0)"
        " [SEP] 0.6666666666666666 [SEP] Reward Details [SEP] None"
    )
    assert dict(page.clickables) == {}
    assert done_page("x", {}, 0.0).segments[8].text == "{}"


def test_rich_text_marks_what_was_chosen_and_where_one_has_been(session: Session) -> None:
    look_at(session, LAMP.asin)
    do(session, "click[dark blue]", "click[small]")
    rich = as_text_rich(session.page, session.url)
    # The last one on the page comes first; the repeated size is marked twice, as upstream marks it.
    assert rich.startswith(
        "You have clicked small.\nYou have clicked small.\nYou have clicked dark blue.\nInstruction:\n"
    )
    assert "\ncolor\n  [button] red [button_]\n  [clicked button] dark blue [clicked button_]\nsize\n" in rich
    do(session, "click[< prev]")
    rich = as_text_rich(session.page, session.url)
    assert f"\n\n[clicked button] {LAMP.asin} [clicked button_]\nRed Lamp\n$12.5\n" in rich
    assert f"\n\n[button] {MARKUP.asin} [button_]\n" in rich
    do(session, "click[back to search]", "search[<c> garden]")
    assert f"\n[button] {LAMP.asin} [button_]\n" in as_text_rich(session.page, session.url)


def test_rich_text_takes_a_quoted_word_of_the_query_for_a_click(session: Session) -> None:
    do(session, 'search["red" lamp]', f"click[{LAMP.asin.lower()}]")
    assert session.options == {}
    assert as_text_rich(session.page, session.url).startswith("You have clicked red.\nInstruction:\n")
    # JSON writes é as an escape, so this one is never recognised.
    look_at(session, ODD.asin)
    do(session, "click[café]")
    assert "clicked" not in as_text_rich(session.page, session.url)


# ---- html -------------------------------------------------------------------------------------------------


def test_html_has_the_texts_buttons_links_and_options_of_the_page() -> None:
    lamp = {"color": "red", "size": "small"}
    pages: list[Page] = [
        Session(tiny_shop(), GOALS["goal/0"], "0", Random(0)).page,
        results_page("<i>", 2, 13, [LAMP, ODD, MARKUP], {LAMP.asin}),
        done_page("x", {"b": "a<b>&'c'"}, 0.5),
        *(item_page("a & b", thing, lamp) for thing in (LAMP, ODD, MARKUP)),
        *(sub_page("'\"", thing, name) for thing in (ODD, MARKUP) for name in ("Description", "Features", "Reviews")),
    ]
    for page in pages:
        read = Reader(as_html(page))
        assert SEP.join(read.texts) == as_text(page)
        assert read.clickables == list(page.clickables)
        assert read.search_bar is page.has_search_bar
    assert Reader(as_html(pages[3])).checked == ["red", "small", "small"]
    assert "<script>" not in as_html(sub_page("i", MARKUP, "Description"))
    assert "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;" in as_html(sub_page("i", MARKUP, "Description"))


def test_each_mode_is_its_own_rendering() -> None:
    page = Page((Segment("Go", Role.BUTTON),))
    assert [render(page, "u", mode) for mode in MODES] == ["Go", "[button] Go [button_]\n", as_html(page), "u"]


# ---- the state machine ------------------------------------------------------------------------------------


def test_a_visit_from_the_start_to_the_purchase(session: Session) -> None:
    assert (session.url, list(session.page.clickables), session.page.has_search_bar) == (f"{HOST}/0", ["search"], True)
    do(session, "search[Red  Lamp]")
    assert session.url == f"{HOST}/search_results/0/red++lamp/1"
    assert session.page.has_search_bar is False
    do(session, f"click[{LAMP.asin}]", "click[RED]")
    assert session.url == f'{HOST}/item_page/0/B000000001/red++lamp/1/{{"color": "red"}}'
    do(session, "click[features]")
    assert session.url == f"{HOST}/item_sub_page/0/B000000001/red++lamp/1/Features/{{'color': 'red'}}"
    do(session, "click[< prev]")
    result = session.act("click[buy now]")
    assert (result.reward, result.done, result.reason) == (1.0, True, "")
    assert session.url == f"{HOST}/done/0/B000000001/{{'color': 'red'}}"
    # Shopping goes on after the end: no clicks, but a search, and another purchase.
    assert session.act("click[back to search]").reason == "nothing of this name can be clicked on this page"
    look_at(session, LAMP.asin)
    assert session.options == {}
    assert session.act("click[buy now]").reward == pytest.approx(2 / 3)  # attribute and price, but not the colour


def test_options_stay_on_sub_pages_and_go_with_the_product(session: Session) -> None:
    look_at(session, LAMP.asin)
    do(session, "click[red]", "click[large]", "click[dark blue]")
    assert session.options == {"color": "dark blue", "size": "large"}
    do(session, "click[description]", "click[< prev]", "click[reviews]", "click[< prev]")
    assert session.options == {"color": "dark blue", "size": "large"}
    do(session, "click[< prev]")
    assert (session.options, session.product) == ({}, None)
    do(session, f"click[{LAMP.asin.lower()}]", "click[red]", "click[back to search]")
    assert (session.options, session.product, session.words, session.page_number) == ({}, None, (), 0)


def test_pages_go_on_past_the_end_and_back(session: Session) -> None:
    do(session, "search[<q> shelf lamps]")
    assert as_text(session.page).split(SEP)[3:6] == ["Page 1 (Total results: 60)", "Next >", PLAIN[0].asin]
    do(session, *["click[next >]"] * 5)
    assert as_text(session.page).split(SEP)[3:7] == [
        "Page 6 (Total results: 60)", "< Prev", "Next >", PLAIN[50].asin,
    ]  # fmt: skip
    do(session, "click[next >]", "click[next >]")
    assert as_text(session.page).split(SEP)[3:] == ["Page 8 (Total results: 60)", "< Prev", "Next >"]
    do(session, "click[< prev]", "click[< prev]", f"click[{PLAIN[59].asin.lower()}]", "click[< prev]")
    assert session.url == f"{HOST}/search_results/0/<q>+shelf+lamps/6"


@pytest.mark.parametrize(
    ("query", "total"),
    [
        ("<c> garden", 63), ("<c> garden ignored", 63), ("<C> Garden", 63), ("<c>  garden", 0), ("<c> gardens", 0),
        ("<q> shelf lamps", 60), ("<q>  shelf lamps ", 60), ("<q> shelf", 0), ("<q>", 0), ("<r>", 50), ("<r> x", 50),
        ("soap", 1), ("lamp", 50), (" ", 0), ("\t", 0), ("zzzz", 0), ("<z> soap", 1), ("soap <c>", 1),
    ],
)  # fmt: skip
def test_how_many_hits_a_query_has(session: Session, query: str, total: int) -> None:
    do(session, f"search[{query}]")
    assert f"Page 1 (Total results: {total})" in as_text(session.page).split(SEP)


def test_random_products_are_those_of_the_generator_and_new_on_every_view(session: Session) -> None:
    asins = tiny_shop().catalogue.asins
    session.dice.seed(7)
    do(session, "search[<r>]")
    draws = Random(7)
    first, second = draws.sample(asins, 50), draws.sample(asins, 50)
    assert list(session.page.clickables)[2:] == [asin.lower() for asin in first[:10]]
    do(session, "click[next >]")
    assert list(session.page.clickables)[3:] == [asin.lower() for asin in second[10:20]]


def test_names_in_the_query_decide_what_back_does(session: Session) -> None:
    do(session, "search[search_results lamp]", "click[next >]")
    do(session, list(map("click[{}]".format, session.page.clickables))[-1], "click[features]")
    assert page_kind(session.url) == "search_results"
    do(session, "click[< prev]")
    assert session.url == f"{HOST}/search_results/0/search_results+lamp/1"
    # From page 1 it leads to a page 0 without products, and on from there.
    do(session, list(map("click[{}]".format, session.page.clickables))[-1], "click[< prev]")
    assert as_text(session.page).split(SEP)[3:] == ["Page 0 (Total results: 50)", "Next >"]
    do(session, "click[next >]")
    assert session.page_number == 1
    do(session, "search[item_page lamp]", list(map("click[{}]".format, session.page.clickables))[-1])
    assert session.act("click[buy now]").done


def test_from_a_sub_page_back_leads_to_results_if_the_query_names_an_item_page(session: Session) -> None:
    do(session, "search[item_page lamp]", "click[next >]")
    do(session, list(map("click[{}]".format, session.page.clickables))[-1], "click[description]", "click[< prev]")
    assert session.url == f"{HOST}/search_results/0/item_page+lamp/2"


def test_options_called_like_buttons(session: Session) -> None:
    look_at(session, ODD.asin)
    assert session.act("click[search]").reason == "a search needs a query: search[...]"
    do(session, "click[a]b]", "click[attributes]")
    assert session.options == {"other": "a]b", "kind": "attributes"}
    assert session.act("click[x [y]]").reason != ""  # read as `click[x ` and `y]`
    do(session, "click[ ]")
    assert session.options[""] == " "
    do(session, "click[reviews]")
    assert session.url.split("/")[-2] == "Reviews"
    do(session, "click[< prev]")
    assert session.act("click[buy now]").done


def test_an_action_that_is_ignored_changes_nothing(session: Session) -> None:
    look_at(session, LAMP.asin)
    do(session, "click[red]")
    before = (session.page, session.url, dict(session.options), session.words, session.page_number)
    many = " ".join(f"w{number}" for number in range(1100))
    for action, reason in (
        ("", "not of the form search[...] or click[...]"),
        ("buy[red]", "not of the form search[...] or click[...]"),
        ("Click[red]", "not of the form search[...] or click[...]"),
        ("click[next >]", "nothing of this name can be clicked on this page"),
        ("click[ red]", "nothing of this name can be clicked on this page"),
        ("click[search]", "a search needs a query: search[...]"),
        ("search[<a> soft]", "search by attribute (<a>) does not exist"),
        ("search[<c>]", "search by category (<c>) needs a category: search[<c> beauty]"),
    ):
        assert session.act(action) == Result(reason=reason), action
    assert session.act(f"search[{many}]").reason.startswith("the query has more than 1,024 distinct terms")
    assert (session.page, session.url, session.options, session.words, session.page_number) == before


def test_a_product_whose_asin_is_not_upper_case_can_be_opened() -> None:
    odd = product("b00aBcDeFg", "Odd")
    link = results_page("i", 1, 1, [odd]).clickables["b00abcdefg"]
    assert (link.role, link.target) == (Role.LINK, "b00aBcDeFg")


def test_a_session_keeps_no_history(session: Session) -> None:
    def size() -> int:
        return len(pickle.dumps([getattr(session, name) for name in Session.__slots__ if name not in ("shop", "dice")]))

    sizes = []
    for _ in range(50):
        for listed in ("<c> garden", "<q> soap", "<r>"):
            do(session, f"search[{listed}]", "click[next >]", "click[< prev]")
        look_at(session, LAMP.asin)
        do(session, "click[red]", "click[large]", "click[features]", "click[< prev]", "click[buy now]")
        sizes.append(size())
    assert sizes == sizes[:1] * 50
