"""Text for people: widths of lines, wrapping, columns, counts, sizes, signs, a blank answer.

Texts that several rooms of the kit must write in the same way are made only here. Widths are in
characters.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from textwrap import fill

# Widths of lines. JupyterLab breaks longer lines again, in the middle of a word.
LINE = 88  # a line printed by a check or a picture
ERROR_LINE = 80  # a line of an error's message: a column or a label may be before it
# Parts of a line; longer parts are cut.
VALUE = 72  # a value; a longer value is shown by its size and digest
MESSAGE = 160  # the first line of a foreign exception
NAME = 80  # a name that another tool has made
REASON = 100  # a library's own words about a fault in a file
EXCERPT = 80  # a quoted line that shows the place of a fault

PASS, FAIL = "✓", "✗"
# Characters that command a terminal or reverse the text, and halves of characters.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_PLAIN = str.maketrans({PASS: "+", FAIL: "x", "…": "...", "·": "-"})

BLANK = "your code here"  # beginning of the error message of an exercise as shipped


def sign(passed: bool) -> str:
    """Return the sign for a verdict, such as "✓" for passed."""
    return PASS if passed else FAIL


def plain(text: str) -> str:
    """Return ``text`` for a console with only ASCII: ``plain("✓ 2 ranks") == "+ 2 ranks"``."""
    return text.translate(_PLAIN).encode("ascii", "replace").decode()


def visible(text: str) -> str:
    """Return ``text`` without active characters: ``visible("\\x1b[1mA") == r"\\x1b[1mA"``.

    Characters that command a terminal or reverse the direction of writing, and halves of characters
    (surrogates, which no file can hold), become their escapes. Tabs and ends of lines stay.
    """
    return _UNSEEN.sub(lambda found: ascii(found[0])[1:-1], text)


def placeholder(lines: int) -> str:
    """Return the line that stands in a blank lab in place of an answer of `lines` lines."""
    return f'raise NotImplementedError("{BLANK}: about {count(lines, "line")}")'


def plural(n: int, noun: str) -> str:
    """Return the noun for `n` things: "rank" if `n` is 1, otherwise "ranks" ("batches")."""
    return noun if n == 1 else f"{noun}es" if noun.endswith("ch") else f"{noun}s"


def count(n: int, noun: str) -> str:
    """Return a number with its noun: ``count(2000, "message") == "2,000 messages"``."""
    return f"{n:,} {plural(n, noun)}"


def ordinal(n: int) -> str:
    """Return an ordinal number: ``ordinal(4) == "4th"``, ``ordinal(21) == "21st"``."""
    ending = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"


def kind_of(value: object) -> str:
    """Return the kind of a value: ``kind_of([1]) == "a list"``, ``kind_of(None) == "None"``."""
    kind = type(value).__name__
    return "None" if value is None else f"{'an' if kind[0] in 'aeioAEIO' else 'a'} {kind}"


def size(n: int) -> str:
    """Return bytes for people, in powers of ten: ``size(4_194_304) == "4.19 MB"``."""
    value, unit = float(n), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 999.5:
            break
        value, unit = value / 1000, larger
    return f"{value:.3g} {unit}"


def cut(text: str, width: int) -> str:
    """Return ``text``, or its first ``width`` characters and "…"."""
    return text if len(text) <= width else text[:width].rstrip() + "…"


def wrap(text: str, width: int = LINE, *, lead: str = "", hang: str = "  ") -> str:
    """Return ``text`` in lines of ``width``: first ``lead``, and ``hang`` before later lines."""
    return fill(text, width, initial_indent=lead, subsequent_indent=hang, break_on_hyphens=False)


def under(lead: str, text: str, width: int = LINE) -> str:
    """Return ``lead`` and ``text``, wrapped; later lines are indented by the length of ``lead``.

    Words and spaces stay as they are, even too long words, because the text may hold values or
    lines of code.
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
    """Return sorted ranks in words: ``rank_list([0, 1, 2, 7]) == "ranks 0 to 2, 7"``."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and runs[-1][-1] == rank - 1:
            runs[-1][1:] = [rank]
        else:
            runs.append([rank])
    said = (f"{run[0]} to {run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
    return f"{plural(len(ranks), 'rank')} {', '.join(said)}"


def by_rank(texts: Sequence[str]) -> str:
    """Return the most common text, and the ranks with other texts: ``"1; rank 3: 0.5"``."""
    common = next((text for text, _ in Counter(texts).most_common(1)), "")
    own = (f"rank {rank}: {text}" for rank, text in enumerate(texts) if text != common)
    return "; ".join([common, *own])


def prose(*lines: str) -> str:
    """Return lines, with long lines wrapped and empty texts left out."""
    return "\n".join(wrap(line) for line in lines if line)


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows of a table as lines: first column flush left, other columns flush right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]
