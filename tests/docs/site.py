"""The parts of a built page that tests read."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path


class Page(HTMLParser):
    """A page of HTML: words, anchors, links, and the addresses of loaded files."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.ids: set[str] = set()
        self.links: list[str] = []  # addresses in <a>
        self.loads: list[str] = []  # addresses of scripts, styles and images
        self.images: list[tuple[str, str]] = []  # (name of the file, text in its place)
        self.titles: set[str] = set()  # titles of links: the full names of their targets
        self._words: list[str] = []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = {name: value or "" for name, value in attrs}
        self.ids |= {has[name] for name in ("id",) if name in has}
        if tag == "a" and "href" in has:
            self.links.append(has["href"])
            self.titles.add(has.get("title", ""))
        elif tag == "link" and not {"next", "prev", "index", "search"} & set(has["rel"].split()):
            self.loads.append(has["href"])
        elif tag in {"script", "img", "iframe", "source"} and "src" in has:
            self.loads.append(has["src"])
        if tag == "img":
            self.images.append((has["src"].rpartition("/")[2], has.get("alt", "")))

    def handle_data(self, data: str) -> None:
        self._words.append(data)

    @property
    def text(self) -> str:
        """The readable text of the page, with single spaces."""
        return " ".join("".join(self._words).split())
