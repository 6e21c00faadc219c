"""The start page, labs/start.ipynb: made from solutions/start.md and all lessons' headers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ddpkit.authoring.lesson import Lesson
from ddpkit.authoring.notebook import Notebook, framed
from ddpkit.authoring.readme import table_of_labs
from ddpkit.authoring.syllabus import paths_table

CODE = re.compile(r"^```python\n(.*?)\n```\n", re.DOTALL | re.MULTILINE)
SECTION = re.compile(r"^(?=## )", re.MULTILINE)


def make_start(text: str, lessons: Sequence[Lesson]) -> Notebook:
    """Return a page of Markdown as a notebook. Sections and blocks of Python become cells.

    `{labs}` in the text becomes the table of labs, and `{paths}` the table of paths.
    """
    text = text.replace("{labs}", table_of_labs(lessons, folder=""))
    if "{paths}" in text:
        text = text.replace("{paths}", paths_table(lessons))
    return framed([_cell(f"start-{n}", *each) for n, each in enumerate(_pieces(text))])


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """Yield the kind and the source of each cell."""
    for number, piece in enumerate(CODE.split(text)):
        sources = [piece] if number % 2 else SECTION.split(piece)
        for source in sources:
            if source.strip():
                yield ("code" if number % 2 else "markdown"), source.strip()


def _cell(name: str, kind: str, source: str) -> Notebook:
    made: Notebook = {
        "cell_type": kind,
        "id": name,
        "metadata": {},
        "source": source.splitlines(keepends=True),
    }
    return made | ({"execution_count": None, "outputs": []} if kind == "code" else {})
