"""The sections of a lesson as blocks, each of which can become one or two slides."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from ddpkit.authoring.leaks import secret_lines
from ddpkit.authoring.lesson import Cell, Lesson
from ddpkit.authoring.notebook import Notebook, text_of
from ddpkit.text import cut, wrap

Kind = Literal["seen", "told", "contract", "text"]
_DETAILS = re.compile(r"<details>.*?</summary>(.*?)</details>", re.DOTALL)
_OPTIONAL = re.compile(r"Optional\b")
CLOSING = "In this lab you have"
WAY_OUT = "The way out"
PRINTED_LINES = 14
PRINTED_COLUMNS = 98
CODE_COLUMNS = 84
DOCSTRING_LINES = 8
SIGNATURES = 5  # methods of a class in its contract


@dataclass
class Piece:
    """A part of a section: a prediction and its run, an exercise, or a text.

    context   the texts of the section before the block
    prompt    the paragraph that begins with "**Predict:**"
    answer    the folded answer, for the notes
    figure    the first output with a picture
    printed   the text that the cells printed, for a run without a picture
    notice    the paragraph that begins with "**Notice:**"
    after     the first text after the run, for a run without a notice
    exercise  the name of the exercise
    contract  the signature and the first paragraphs of the docstring, as Python
    docstring the whole docstring, for the notes
    """

    heading: str
    kind: Kind
    context: list[str] = field(default_factory=list)
    prompt: str = ""
    answer: str = ""
    figure: Notebook | None = None
    printed: str = ""
    notice: str = ""
    after: str = ""
    exercise: str = ""
    contract: str = ""
    docstring: str = ""

    @property
    def slides(self) -> int:
        """The number of slides for the block: 2 for a prompt and its result, otherwise 1."""
        return 1 + bool(self.prompt and (self.figure or self.printed))


@dataclass
class Section:
    """A heading of a lesson, with its texts and blocks. The lecture skips `optional` sections."""

    heading: str
    optional: bool
    texts: list[str] = field(default_factory=list)
    blocks: list[Piece] = field(default_factory=list)


def sections_of(lesson: Lesson, executed: Notebook) -> list[Section]:
    """Return the sections of a lesson. The first section has the lesson's title as its heading."""
    sections = [Section(lesson.title, False)]
    # an error quotes the line at fault, which may be a line of an answer
    secrets = secret_lines(lesson)
    pending: list[str] = []  # texts since the last block
    for cell, ran in zip(lesson.cells, executed["cells"], strict=True):
        if cell.kind == "markdown":
            for paragraph in _paragraphs(cell.source):
                if found := re.match(r"##? (.*)", paragraph):
                    if found[0].startswith("## "):
                        sections.append(Section(found[1], _is_optional(found[1], sections[-1])))
                    pending = []
                else:
                    _add_text(sections[-1], paragraph, pending)
        elif cell.exercise:
            there = sections[-1]
            first = not any(block.exercise for block in there.blocks)
            context = pending or (there.texts[:1] if first else [])
            block = Piece(there.heading, "contract", context, exercise=cell.exercise)
            block.contract, block.docstring = contract(cell), ast.get_docstring(_node(cell)) or ""
            there.blocks.append(block)
            pending = []
        elif not cell.check and not cell.guess:
            _add_outputs(sections[-1], ran.get("outputs", []), pending, secrets)
    return sections


def contract(cell: Cell) -> str:
    """Return the signature of an exercise and its docstring's first paragraphs, as valid Python.

    For a class, the signatures of the first methods follow.
    """
    node = _node(cell)
    lines = [_head(node), *_docstring(ast.get_docstring(node) or "")]
    methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
    if isinstance(node, ast.ClassDef):
        public = [each for each in methods if not each.name.startswith("_")][:SIGNATURES]
        lines += [f"    {_head(each)} ..." for each in public]
    else:
        lines.append("    ...")
    return "\n".join(lines)


def _node(cell: Cell) -> ast.FunctionDef | ast.ClassDef:
    return next(
        each
        for each in ast.parse(cell.blank).body
        if isinstance(each, ast.FunctionDef | ast.ClassDef) and each.name == cell.exercise
    )


def _head(node: ast.FunctionDef | ast.ClassDef) -> str:
    """Return the first line of a definition, wrapped if it is too long for a slide."""
    bare = ast.parse(ast.unparse(node)).body[0]
    assert isinstance(bare, ast.FunctionDef | ast.ClassDef)
    bare.body, bare.decorator_list = [ast.Expr(ast.Constant(...))], []
    head = ast.unparse(bare).partition("\n")[0]
    if len(head) > CODE_COLUMNS and isinstance(bare, ast.FunctionDef):
        start, _, end = head.partition("(")
        arguments, _, result = end.rpartition(")")
        head = f"{start}(\n        {arguments},\n    ){result}"
    return head


def _docstring(text: str) -> list[str]:
    """Return the first paragraphs of a docstring that fit on a slide, wrapped and quoted."""
    lines: list[str] = []
    for paragraph in text.split("\n\n"):
        columns = any(re.search(r"\S {2,}\S", line) for line in paragraph.splitlines())
        wrapped = (
            paragraph.splitlines()
            if columns
            else wrap(" ".join(paragraph.split()), CODE_COLUMNS - 10, hang="").splitlines()
        )
        if lines and len(lines) + len(wrapped) >= DOCSTRING_LINES:
            break
        lines += [""] * bool(lines) + wrapped
    if not lines:
        return []
    quoted = [f'    """{lines[0]}', *(f"    {line}".rstrip() for line in lines[1:])]
    return [*quoted[:-1], f'{quoted[-1]}"""']


def _paragraphs(source: str) -> Iterator[str]:
    """Yield the paragraphs of a text cell; a fence or a folded answer is one paragraph."""
    folded = [f"\0{answer.strip()}" for answer in _DETAILS.findall(source)]
    rest = iter(folded)
    source = _DETAILS.sub(lambda _: next(rest).replace("\n\n", "\n"), source)
    lines: list[str] = []
    fenced = False
    for line in source.splitlines():
        fenced ^= line.startswith("```")
        heading = not fenced and re.match(r"##? ", line)
        if lines and not fenced and (heading or not line.strip()):
            yield "\n".join(lines)
            lines = []
        if line.strip() or fenced:
            lines.append(line)
        if heading:
            yield "\n".join(lines)
            lines = []
    if lines:
        yield "\n".join(lines)


def _add_text(section: Section, paragraph: str, pending: list[str]) -> None:
    """Put a paragraph into the section, or into the section's last block, or open a new block."""
    last = section.blocks[-1] if section.blocks else None
    if paragraph.startswith("\0"):
        if last is not None:
            last.answer = paragraph[1:]
    elif paragraph.startswith("**Predict"):
        section.blocks.append(Piece(section.heading, "told", [*pending], prompt=paragraph))
        pending.clear()
    elif paragraph.startswith("**Notice") and last is not None:
        last.notice = paragraph
        pending.clear()
    elif not paragraph.startswith(("**In words", "*Your words")):
        section.texts.append(paragraph)
        pending.append(paragraph)
        leads_on = paragraph.startswith("Now ")  # the paragraph introduces the next run
        if last is not None and (last.figure or last.printed) and not leads_on:
            last.after = last.after or paragraph


def _add_outputs(
    section: Section, outputs: list[Notebook], pending: list[str], secrets: tuple[str, ...]
) -> None:
    """Add a cell's outputs to the prediction before the cell, or make a block for a picture."""
    figure = next((out for out in outputs if "image/png" in out.get("data", {})), None)
    lines = "".join(map(_printed, outputs)).splitlines(keepends=True)
    printed = shown("".join(line for line in lines if not any(each in line for each in secrets)))
    last = section.blocks[-1] if section.blocks else None
    if last is not None and last.kind == "told" and last.figure is None and not last.notice:
        last.printed = "\n".join(filter(None, [last.printed, printed]))
        if figure is not None:
            last.figure, last.kind = figure, "seen"
    elif figure is not None:
        block = Piece(section.heading, "seen", [*pending], figure=figure, printed=printed)
        section.blocks.append(block)
        pending.clear()


def _printed(output: Notebook) -> str:
    """Return the text of an output: the printed text, or the value of the cell's last line."""
    if output.get("name") == "stdout":
        return text_of(output["text"])
    value = text_of(output.get("data", {}).get("text/plain", ""))
    return "" if value.startswith("<") or "text/html" in output.get("data", {}) else f"{value}\n"


def shown(printed: str) -> str:
    """Return printed text that fits on a slide: its first lines, cut at PRINTED_COLUMNS.

    The guesses in the lines of `beside` are left out: they are the course's own guesses.
    """
    lines = [re.sub(r"   measured ÷ .*", "", line.rstrip()) for line in printed.splitlines()]
    lines = [line for line in lines if line and not line.startswith("predicted ")]
    short = [cut(line, PRINTED_COLUMNS) for line in lines]
    return "\n".join([*short[:PRINTED_LINES], *(["…"] if len(short) > PRINTED_LINES else [])])


def _is_optional(heading: str, before: Section) -> bool:
    """True for a section "Optional: …" and for the sections after it, up to "The way out".

    The sections after the lab's closing section are optional too.
    """
    if heading in (WAY_OUT, CLOSING):
        return False
    return bool(_OPTIONAL.match(heading)) or before.optional or before.heading == CLOSING
