"""A page as an agent reads it: `text`, `text_rich`, `html` or `url`.

`text` and `text_rich` equal upstream's character for character. `html` is SeedBench's own markup: its visible
text nodes, buttons, links and options are those of upstream's pages, its tags are not. It keeps the element names
that programs look for (`id="search_input"`, `class="btn"`, `class="product-link"`, radio inputs in labels).
"""

from __future__ import annotations

from html import escape
from typing import Literal, get_args

from seedbench_envs.webshop.pages import Page, Role, Segment

ObservationMode = Literal["text", "text_rich", "html", "url"]
MODES: tuple[ObservationMode, ...] = get_args(ObservationMode)

_BLANKS = " \t\n\f\r"


def shown(text: str) -> str:
    """The text node that upstream's HTML parser makes of a text; empty where it shows none.

    Text of blanks alone becomes one space, or nothing where a line break is among them. Other spaces (the
    non-breaking one, for instance) are no blanks.
    """
    if text.strip(_BLANKS):
        return text
    return " " if text and "\n" not in text else ""


def render(page: Page, url: str, mode: ObservationMode) -> str:
    """The observation of a page in one of `MODES`; `url` is the page's address."""
    if mode == "text":
        return as_text(page)
    if mode == "text_rich":
        return as_text_rich(page, url)
    return as_html(page) if mode == "html" else url


def as_text(page: Page) -> str:
    """The visible texts, stripped, joined by ` [SEP] `. Chosen options do not show."""
    return " [SEP] ".join(text.strip() for text in (shown(segment.text) for segment in page.segments) if text)


def as_text_rich(page: Page, url: str) -> str:
    """One line a text, buttons marked. Upstream takes an option for clicked if the URL holds it in double quotes.

    So an option written `"red"` in the query is shown as clicked, and one with characters that JSON escapes never is.
    """
    clicked, lines = "", []
    for segment in page.segments:
        text = shown(segment.text)
        if not text:
            continue
        line = text
        if segment.role is Role.BUTTON:
            line = f"[button] {text} [button_]"
        elif segment.role is Role.LINK:
            mark = "clicked button" if segment.chosen else "button"
            line = f"\n[{mark}] {text} [{mark}_]"
        elif segment.role is Role.OPTION:
            line = f"  [button] {text} [button_]"
            if f'"{text}"' in url:
                clicked = f"You have clicked {text}.\n{clicked}"
                line = f"  [clicked button] {text} [clicked button_]"
        lines.append(line + "\n")
    return clicked + "".join(lines)


def as_html(page: Page) -> str:
    """A complete HTML document; every text is escaped. See the module for what it promises."""
    bar = '<input id="search_input" type="search" name="query">\n' if page.has_search_bar else ""
    body = "\n".join(_element(segment) for segment in page.segments)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8"><title>WebShop</title></head>\n'
        f"<body>\n{bar}{body}\n</body>\n</html>\n"
    )


def _element(segment: Segment) -> str:
    text = escape(segment.text)
    if segment.role is Role.BUTTON:
        return f'<button type="button" class="btn">{text}</button>'
    if segment.role is Role.LINK:
        return f'<a class="product-link" href="#{escape(segment.target)}">{text}</a>'
    if segment.role is Role.OPTION:
        checked = " checked" if segment.chosen else ""
        return f'<label><input type="radio" name="{escape(segment.target)}" value="{text}"{checked}>{text}</label>'
    return f"<p>{text}</p>"
