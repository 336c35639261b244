"""Reads WebShop pages in HTML as the original environment reads its own."""

from __future__ import annotations

from html.parser import HTMLParser

from seedbench_envs.webshop.render import shown


class Reader(HTMLParser):
    """One page: its visible text nodes, stripped, and what can be clicked, in the original's order."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []
        self.open: list[tuple[str, dict[str, str | None]]] = []
        self.named: dict[str, list[str]] = {"btn": [], "product-link": [], "radio": []}
        self.search_bar = False
        self.checked: list[str | None] = []
        self.feed(html)
        self.close()
        assert [tag for tag, _ in self.open] == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "input":
            self.search_bar |= given.get("id") == "search_input"
            if given.get("type") == "radio":
                self.named["radio"].append(given["value"] or "")
                if "checked" in given:
                    self.checked.append(given["value"])
        elif tag != "meta":
            self.open.append((tag, given))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        tags = [tag for tag, _ in self.open]
        node = shown(data)
        if not node or "head" in tags or not tags:
            return
        self.texts.append(node.strip())
        if (name := self.open[-1][1].get("class")) is not None:
            self.named[name].append(data.lower())

    @property
    def clickables(self) -> list[str]:
        return list(dict.fromkeys([name for names in self.named.values() for name in names]))
