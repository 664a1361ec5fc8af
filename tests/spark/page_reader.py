"""Reads a finished page for tests: the tree, the style sheet's colours, what is wrong with access.

On html.parser alone. The checks are those of WCAG 2.1 that a tree can answer; contrasts come from
the style sheet, because no browser has to be there.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "br", "link", "img", "input", "hr"}
LANDMARKS = {"header", "nav", "main", "footer"}


@dataclass
class Element:
    """One element; `children` are elements and texts in their order."""

    tag: str
    attributes: dict[str, str]
    children: list[Element | str] = field(default_factory=list)

    def walk(self) -> Iterator[Element]:
        yield self
        for child in self.children:
            if isinstance(child, Element):
                yield from child.walk()

    def all(self, *tags: str) -> list[Element]:
        return [element for element in self.walk() if element.tag in tags]

    def text(self) -> str:
        parts = (child if isinstance(child, str) else child.text() for child in self.children)
        return " ".join("".join(parts).split())

    @property
    def classes(self) -> list[str]:
        return self.attributes.get("class", "").split()


class _Builder(HTMLParser):
    """Fails on a tag that closes what is not open: a browser would guess."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Element("", {})
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"{tag} has an attribute twice: {names}"
        element = Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].children.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open[-1].tag == tag, f"</{tag}> closes <{self._open[-1].tag}>"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)

    def tree(self) -> Element:
        self.close()
        assert self._open == [self.root], f"<{self._open[-1].tag}> is never closed"
        return self.root


def read_page(html: bytes) -> Element:
    """The page's tree. AssertionError where its tags do not nest."""
    builder = _Builder()
    builder.feed(html.decode())
    return builder.tree()


def access_problems(page: Element) -> list[str]:
    """What would keep somebody out, in words; empty for a good page."""
    return [*_document(page), *_headings(page), *_names(page), *_tables(page), *_focus(page)]


def _document(page: Element) -> Iterator[str]:
    if page.all("html")[0].attributes.get("lang") != "en":
        yield "no lang"
    if not page.all("title")[0].text():
        yield "no title"
    for landmark in sorted(LANDMARKS):
        if len(page.all(landmark)) != 1:
            yield f"{len(page.all(landmark))} <{landmark}>"
    ids = [e.attributes["id"] for e in page.walk() if "id" in e.attributes]
    yield from (f"id {name} twice" for name in {i for i in ids if ids.count(i) > 1})
    for element in page.walk():
        for attribute in ("aria-labelledby", "aria-describedby"):
            for name in element.attributes.get(attribute, "").split():
                if name not in ids:
                    yield f"{attribute} {name} leads nowhere"
        target = element.attributes.get("href", "")
        if target.startswith("#") and target[1:] not in ids:
            yield f"link {target} leads nowhere"
        if element.tag == "a" and not element.text():
            yield "a link without text"


def _headings(page: Element) -> Iterator[str]:
    levels = [int(heading.tag[1]) for heading in page.all("h1", "h2", "h3", "h4", "h5", "h6")]
    if levels.count(1) != 1 or levels[0] != 1:
        yield f"headings begin with {levels[:1]}, {levels.count(1)} h1"
    for before, after in itertools.pairwise(levels):
        if after > before + 1:
            yield f"h{after} follows h{before}"


def _names(page: Element) -> Iterator[str]:
    drawings = [svg for svg in page.all("svg") if "plot" in svg.classes]
    for svg in drawings:
        if svg.attributes.get("role") != "img" or len(svg.attributes.get("aria-label", "")) < 20:
            yield "a plot without role=img and a text alternative"
    nested = {id(inner) for svg in drawings for inner in svg.all("svg")}
    for svg in page.all("svg"):
        if id(svg) not in nested and svg.attributes.get("aria-hidden") != "true":
            yield "a drawing that is neither a plot nor hidden"
    for figure in page.all("figure"):
        if not figure.all("figcaption") or not figure.all("svg"):
            yield "a figure without caption or drawing"


def _tables(page: Element) -> Iterator[str]:
    for table in page.all("table"):
        name = "".join(caption.text() for caption in table.all("caption"))
        if not name:
            yield "a table without caption"
        for header in table.all("th"):
            if header.attributes.get("scope") not in {"col", "row"}:
                yield f"{name}: a th without scope"
        width = {_width(row) for row in table.all("tr")}
        if len(width) != 1:
            yield f"{name}: rows of {sorted(width)} cells"
        for row in table.all("tbody")[0].all("tr"):
            if len(row.all("th")) != 1:
                yield f"{name}: a row without its header"


def _width(row: Element) -> int:
    return sum(int(cell.attributes.get("colspan", 1)) for cell in row.all("th", "td"))


def _focus(page: Element) -> Iterator[str]:
    labels = []
    for box in page.walk():
        if "scroll" in box.classes:
            label = box.attributes.get("aria-label") or box.attributes.get("aria-labelledby", "")
            labels.append(label)
            if box.attributes.get("tabindex") != "0" or not label or "role" not in box.attributes:
                yield "a box that scrolls cannot be reached by keyboard or has no name"
    inside = {
        id(table) for box in page.walk() if "scroll" in box.classes for table in box.all("table")
    }
    if any(id(table) not in inside for table in page.all("table")):
        yield "a table outside of a box that scrolls"
    if any(element.attributes.get("tabindex", "0") != "0" for element in page.walk()):
        yield "a tabindex that changes the order"


def palettes(css: str) -> dict[str, dict[str, str]]:
    """Custom properties by scheme, `light` and `dark` (which has light's where it says nothing)."""
    blocks = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    light, dark = (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block)) for block in blocks)
    return {"light": light, "dark": light | dark}


def contrast(one: str, other: str) -> float:
    """WCAG 2.1 contrast ratio of two #rrggbb colours, 1 to 21."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
