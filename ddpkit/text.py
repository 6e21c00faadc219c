"""Text for people: widths of lines, wrapping, columns, counts, sizes, signs, an exercise's blank.

Whatever two rooms of the kit must write alike has its one home here. Widths are in characters.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from textwrap import fill

# Lines. JupyterLab breaks longer ones once more, in the middle of a word.
LINE = 88  # a line that a check or a picture prints
ERROR_LINE = 80  # a line of an error's message: a column or a label may be before it
# Parts of a line, longer ones are cut.
VALUE = 72  # a value; a longer one is shown as its size and digest
MESSAGE = 160  # the first line of a foreign exception
NAME = 80  # a name that another tool wrote
REASON = 100  # a library's own words for what is wrong with a file
EXCERPT = 80  # a line that is quoted to say where something is

PASS, FAIL = "✓", "✗"
# What commands a terminal, turns the text around, or is half a character and cannot be written.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_PLAIN = str.maketrans({PASS: "+", FAIL: "x", "…": "...", "·": "-"})

BLANK = "your code here"  # how the message of an exercise as shipped begins


def sign(passed: bool) -> str:
    """The sign of a verdict."""
    return PASS if passed else FAIL


def plain(text: str) -> str:
    """``text`` for a console that knows only ASCII: ``plain("✓ 2 ranks") == "+ 2 ranks"``."""
    return text.translate(_PLAIN).encode("ascii", "replace").decode()


def visible(text: str) -> str:
    """``text`` in which nothing acts on who reads it: ``visible("\\x1b[1mA") == r"\\x1b[1mA"``.

    Characters that command a terminal or reverse the direction of writing, and halves of characters
    (surrogates, which no file can hold), become their escapes. Tabs and ends of lines stay.
    """
    return _UNSEEN.sub(lambda found: ascii(found[0])[1:-1], text)


def placeholder(lines: int) -> str:
    """The line that stands for an answer of so many lines in a lab as shipped."""
    return f'raise NotImplementedError("{BLANK}: about {count(lines, "line")}")'


def plural(n: int, noun: str) -> str:
    """``plural(1, "rank") == "rank"``, ``plural(0, "rank") == "ranks"``; "batch" ends in "es"."""
    return noun if n == 1 else f"{noun}es" if noun.endswith("ch") else f"{noun}s"


def count(n: int, noun: str) -> str:
    """``count(1, "message") == "1 message"``, ``count(2000, "message") == "2,000 messages"``."""
    return f"{n:,} {plural(n, noun)}"


def ordinal(n: int) -> str:
    """``ordinal(4) == "4th"``, ``ordinal(21) == "21st"``."""
    ending = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"


def kind_of(value: object) -> str:
    """What a value is, in a sentence: ``kind_of([1]) == "a list"``, ``kind_of(None) == "None"``."""
    kind = type(value).__name__
    return "None" if value is None else f"{'an' if kind[0] in 'aeioAEIO' else 'a'} {kind}"


def size(n: int) -> str:
    """Bytes for people, in powers of ten: ``size(4_194_304) == "4.19 MB"``."""
    value, unit = float(n), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 999.5:
            break
        value, unit = value / 1000, larger
    return f"{value:.3g} {unit}"


def cut(text: str, width: int) -> str:
    """``text``, or so many characters of it and "…"."""
    return text if len(text) <= width else text[:width].rstrip() + "…"


def wrap(text: str, width: int = LINE, *, lead: str = "", hang: str = "  ") -> str:
    """``text`` in lines of ``width``: ``lead`` before the first, ``hang`` before the others."""
    return fill(text, width, initial_indent=lead, subsequent_indent=hang, break_on_hyphens=False)


def under(lead: str, text: str, width: int = LINE) -> str:
    """``lead`` and ``text``, wrapped with the text hanging under its own beginning.

    Words and spaces stay as they are, too long or not: the text may hold values, or lines of code.
    """
    return fill(
        text.replace("\n", " "),
        width,
        initial_indent=lead,
        subsequent_indent=" " * len(lead),
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
    )


def rank_list(ranks: Sequence[int]) -> str:
    """``rank_list([4]) == "rank 4"``, ``rank_list([0, 1, 2, 7]) == "ranks 0 to 2, 7"``; sorted."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and runs[-1][-1] == rank - 1:
            runs[-1][1:] = [rank]
        else:
            runs.append([rank])
    said = (f"{run[0]} to {run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
    return f"{plural(len(ranks), 'rank')} {', '.join(said)}"


def by_rank(texts: Sequence[str]) -> str:
    """What is said of all ranks, and of those that differ: ``"1; rank 3: 0.5"``."""
    common = next((text for text, _ in Counter(texts).most_common(1)), "")
    own = (f"rank {rank}: {text}" for rank, text in enumerate(texts) if text != common)
    return "; ".join([common, *own])


def prose(*lines: str) -> str:
    """Lines, long ones wrapped; "" is left out."""
    return "\n".join(wrap(line) for line in lines if line)


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of a table as lines: the first column to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]
