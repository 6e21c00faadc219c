"""The measure of the project's English: pronoun-like words and weak beginnings, room by room.

A room is a folder, a lesson or a Markdown page with one kind of text: docstrings, comments,
strings (errors, help, hints), cells of a lesson, prose. By this count 0.12 % of the words in trio's
docstrings are *what* or *who*, and 6.3 % stand for a noun. A room within `LIMITS` is good.
`wording.txt` has a line for every room that is not. Its numbers may only fall: a room rises if it
has more such words than its line allows, and they are also a larger share of all its words.

    python -m tests.project.wording            print the rooms that rise, and the texts at fault
    python -m tests.project.wording --lower    after an improvement: write the lower numbers

Where two branches lower one room, git keeps both lines (.gitattributes), and the lower one counts.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.project.source import ROOT, tracked_files

NUMBERS = ROOT / "tests" / "project" / "wording.txt"
HISTORY = ("CHANGELOG.md", "BENCHMARKS.md")  # pages with dates, which stay as they were written
CHANGES = "changes"  # the pages of this folder are one room

WHAT = frozenset({"what", "who", "whom", "whose"})
PRONOUNS = WHAT.union(
    ("it", "its", "they", "them", "their", "theirs", "this", "that", "these", "those"),
    ("one", "ones", "other", "others", "another", "so", "whatever", "whoever"),
    ("nobody", "nothing", "anybody", "anything", "everybody", "everything"),
    ("somebody", "something"),
)
BEGINNINGS = {
    "docstrings": re.compile(
        r"(What|Whether|How|Who|Where"
        r"|Of|As|The same|From|For|On|In|At|By|To be|And|But|Also|If|It)\b"
    ),
    "comments": re.compile(r"(of|by|as|and|too|else|or|but|from|with|which|so)\b", re.IGNORECASE),
}
LIMITS = (0.3, 7.0, 0.0)  # per cent of words, per cent of words, number of texts
LISTED = 10  # texts to list for a room without new texts at fault
SMALL = 400  # words: a smaller room is measured as if it had this many words

CODE = re.compile(
    r"``[^`]*``|`[^`\n]*`|\$[^$\n]*\$|(?<=\])\([^)]*\)|<[^>\n]*>|https?://\S+", re.DOTALL
)
WORD = re.compile(r"[A-Za-z']+")
SENTENCE = re.compile(r"(?:[A-Za-z']+\W*\s\W*){2}[A-Za-z']")

Room = tuple[str, str]  # folder or file, kind of text
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Text:
    """One docstring, comment or string, or one line of a page or of a lesson's cell."""

    room: Room
    path: Path
    line: int
    said: str

    def words(self) -> list[str]:
        """Return the words in lower case, without code, formulas and addresses."""
        return [word.lower() for word in WORD.findall(CODE.sub(" ", self.said))]

    def beginning(self) -> list[str]:
        """Return the weak beginning, if the text has one."""
        weak = BEGINNINGS.get(self.room[1])
        found = weak.match(self.said) if weak else None
        return [f"{found.group()} …"] if found else []

    def weak(self) -> list[str]:
        """Return everything that counts against the text."""
        return self.beginning() + [word for word in self.words() if word in PRONOUNS]


@dataclass(frozen=True)
class Measured:
    """The numbers of a room: what/who, all pronoun-like words, weak beginnings."""

    shares: tuple[float, ...]  # per cent, per cent, number of texts
    counts: tuple[int, ...]

    @classmethod
    def of(cls, texts: Iterable[Text]) -> Measured:
        """Measure the texts of one room."""
        texts = list(texts)
        words = [word for text in texts for word in text.words()]
        what, pronouns = (sum(word in weak for word in words) for weak in (WHAT, PRONOUNS))
        begin = sum(len(text.beginning()) for text in texts)
        share = 100 / max(len(words), SMALL)
        shares = round(what * share, 2), round(pronouns * share, 2), float(begin)
        return cls(shares, (what, pronouns, begin))

    def above(self, bound: Measured) -> bool:
        """True if a number is above the limit, and above `bound` as a share and as a count."""
        numbers = zip(self.shares, self.counts, bound.shares, bound.counts, LIMITS, strict=True)
        return any(
            share > max(allowed, limit) and count > most
            for share, count, allowed, most, limit in numbers
        )

    def lowered(self, bound: Measured) -> Measured:
        """Return the lower one of each two numbers."""
        return Measured(
            tuple(map(min, self.shares, bound.shares)), tuple(map(min, self.counts, bound.counts))
        )

    def __str__(self) -> str:
        (what, pronouns, _), (whats, pronoun_count, begin) = self.shares, self.counts
        return (
            f"what/who {what:.2f} % ({whats}), pronouns {pronouns:.2f} % ({pronoun_count}), "
            f"beginnings {begin}"
        )


LIMIT = Measured(LIMITS, (0, 0, 0))  # the bound of a room without a line
ADVICE = (
    "Rewrite the texts above: a noun in the place of a pronoun, a verb at the beginning of a "
    f"docstring. If texts came from another room, move its numbers in {NUMBERS.name} by hand too."
)
LINE = re.compile(
    r"(\S+) (\w+): what/who (.+) % \((\d+)\), pronouns (.+) % \((\d+)\), beginnings (\d+)"
)


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the first line and the text of each docstring of a module, cleaned."""
    for node in ast.walk(tree):
        if isinstance(node, Documented) and (text := ast.get_docstring(node)):
            yield node.body[0].lineno, text


def comments(code: str) -> Iterator[tuple[int, str]]:
    """Yield the first line and the text of each comment; full lines in a row are one comment."""
    first, said, last = 0, "", -1
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type != tokenize.COMMENT:
            continue
        line, text = token.start[0], token.string.lstrip("# ")
        full = token.line.strip() == token.string
        if full and line == last + 1:
            said = f"{said}\n{text}"
        else:
            yield from [(first, said)] if said else []
            first, said = line, text
        last = line if full else -1
    yield from [(first, said)] if said else []


def strings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the first line and the text of each string that holds a sentence; no docstrings.

    An f-string is one string, with "…" in the place of each value.
    """
    parts = {id(part) for node in ast.walk(tree) for part in _parts(node)}
    for node in ast.walk(tree):
        match node:
            case ast.JoinedStr(values=values):
                text = "".join(v.value if isinstance(v, ast.Constant) else "…" for v in values)
            case ast.Constant(value=str(text)):
                pass
            case _:
                continue
        if id(node) not in parts and SENTENCE.search(text):
            yield node.lineno, text


def _parts(node: ast.AST) -> list[ast.expr]:
    """Return the pieces of an f-string, or the docstring that is a statement."""
    match node:
        case ast.JoinedStr(values=values):
            return values
        case ast.Expr(value=value):
            return [value]
    return []


def prose(page: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line of a page, without fenced code."""
    fenced = False
    for number, line in enumerate(page.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and line.strip():
            yield number, line


def divided(lesson: str) -> tuple[str, str]:
    """Return a lesson's text cells and its code, each line at its number in the lesson."""
    page, code, is_text = [], [], False
    for line in lesson.splitlines():
        if header := line.startswith("# %%"):
            is_text = "[markdown]" in line
        page.append(line.lstrip("# ") if is_text and not header else "")
        code.append("" if is_text or header else line)
    return "\n".join(page), "\n".join(code)


def texts_of(path: Path, source: str) -> Iterator[Text]:
    """Yield the texts of a file; strings are read in the package and in lessons only.

    `path` is relative to the root of the project.
    """
    top, *folders = path.parent.parts or (".",)
    room, found = str(path), dict[str, Iterable[tuple[int, str]]]()
    if top == CHANGES:
        room = CHANGES
    if path.suffix == ".md" and room not in HISTORY:
        found["prose"] = prose(source)
    elif path.suffix == ".py" and not path.match("ddpkit/answers/lab*.py"):
        if top == "solutions":
            page, source = divided(source)
            found["cells"] = prose(page)
        else:
            room = "/".join([top, *(folders if top == "ddpkit" else folders[:1])])
        tree = ast.parse(source)
        found |= {"docstrings": docstrings(tree), "comments": comments(source)}
        if top in ("ddpkit", "solutions"):
            found["strings"] = strings(tree)
    for kind, each in found.items():
        yield from (Text((room, kind), path, line, said) for line, said in each)


@functools.cache
def rooms() -> dict[Room, list[Text]]:
    """Return the texts of each room of the project."""
    found = defaultdict(list)
    for path in tracked_files():
        if path.suffix in (".md", ".py"):
            for text in texts_of(path.relative_to(ROOT), path.read_text("utf-8")):
                found[text.room].append(text)
    return found


def read(lines: str) -> dict[Room, Measured]:
    """Return the numbers in `wording.txt`."""
    found: dict[Room, Measured] = {}
    for line in lines.splitlines():
        match = LINE.fullmatch(line)
        assert match, f"not a line of {NUMBERS.name}: {line}"
        where, kind, what, whats, pronouns, pronoun_count, begin = match.groups()
        shares = float(what), float(pronouns), float(begin)
        bound = Measured(shares, (int(whats), int(pronoun_count), int(begin)))
        found[where, kind] = bound.lowered(found.get((where, kind), bound))
    return found


def rising(
    rooms: dict[Room, list[Text]], bounds: dict[Room, Measured]
) -> Iterator[tuple[Room, Measured, Measured]]:
    """Yield each room that rises, with its numbers and its bound."""
    for room, texts in sorted(rooms.items()):
        measured, bound = Measured.of(texts), bounds.get(room, LIMIT)
        if measured.above(bound):
            yield room, measured, bound


def lower(rooms: dict[Room, list[Text]], bounds: dict[Room, Measured]) -> str:
    """Return `wording.txt` with the lower one of each two numbers, without lines for good rooms."""
    measured = {room: Measured.of(rooms.get(room, ())) for room in sorted(bounds)}
    return "".join(
        f"{' '.join(room)}: {now.lowered(bounds[room])}\n"
        for room, now in measured.items()
        if now.above(LIMIT)
    )


def report() -> str:
    """Return a line for each room that rises, and one for each of its new texts at fault.

    New is a text that was not in its file when `wording.txt` was last committed. In a room without
    new texts at fault, the texts with the most weak words are listed.
    """
    lines = []
    for room, measured, bound in rising(rooms(), read(NUMBERS.read_text("utf-8"))):
        lines.append(f"{' '.join(room)}: {measured}, where the bound is {bound}")
        weak = [text for text in rooms()[room] if text.weak()]
        new = [text for text in weak if text.said not in _before(text.path)]
        for text in new or sorted(weak, key=lambda text: -len(text.weak()))[:LISTED]:
            said = " ".join(text.said.split())
            lines.append(f"  {text.path}:{text.line}: ({', '.join(text.weak())}) {said}")
    return "\n".join(lines)


@functools.cache
def _before(path: Path) -> frozenset[str]:
    """Return the texts of a file at the last commit of `wording.txt`; none without git."""
    commit = _git("log", "-1", "--format=%H", "--", str(NUMBERS)).strip()
    source = _git("show", f"{commit}:{path.as_posix()}") if commit else ""
    return frozenset(text.said for text in texts_of(path, source))


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout


if __name__ == "__main__":
    if sys.argv[1:] == ["--lower"]:
        NUMBERS.write_text(lower(rooms(), read(NUMBERS.read_text("utf-8"))), "utf-8")
    elif found := report():
        sys.exit(f"{found}\n{ADVICE}")
