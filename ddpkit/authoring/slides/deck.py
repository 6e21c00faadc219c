"""The deck of a lesson: a notebook with slides and notes as cells."""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Iterator

from ddpkit.authoring.lesson import SUMMARY, Lesson
from ddpkit.authoring.notebook import Notebook, framed, text_of
from ddpkit.authoring.slides.choice import MOST, chosen
from ddpkit.authoring.slides.sections import (
    CLOSING,
    CODE_COLUMNS,
    WAY_OUT,
    Piece,
    Section,
    sections_of,
    shown,
)
from ddpkit.authoring.slides.words import count, first, sentences, with_formulas

CONTEXT_WORDS, CAPTION_WORDS, TEXT_WORDS, PROMPT_WORDS = 40, 34, 75, 90
TALL = 1.75  # a picture with a smaller ratio of width to height has its caption on the right
FEW_WORDS = 50  # a slide with fewer words has larger letters
LONG_LINES = 17  # a program with more lines has smaller letters
_FIXED = 4  # slides of every deck: title, way out, questions, closing
_MARK = re.compile(r"^\*\*(Predict|Notice):?\*\*:?\s*")


def make_deck(lesson: Lesson, executed: Notebook, teaching: str = "") -> Notebook:
    """Return the deck of a lesson as a notebook for nbconvert, of at most MOST slides.

    executed  solutions/NN_name.ipynb, with the figures
    teaching  the page docs/teaching/NN.md: its questions become a slide, and its list of mistakes
              goes into the notes of the exercises; its key is not used
    """
    sections = sections_of(lesson, executed)
    mistakes = dict(_mistakes(teaching))
    slides = [_title(lesson, sections[0])]
    for block in chosen(sections[1:], MOST - _FIXED):
        slides += _block(block, mistakes)
    asked = _part(teaching, "Ask")
    if asked:
        note = "The lab has no answers to these questions."
        slides.append([_slide("ask", "Discuss", asked), _notes([note])])
    slides += [_way_out(each) for each in sections if each.heading == WAY_OUT]
    slides += [_closing(each) for each in sections if each.heading == CLOSING]
    deck = framed([cell for slide in slides for cell in slide])
    for number, cell in enumerate(deck["cells"]):
        cell["id"] = f"slide-{number}"
    deck["metadata"]["title"] = lesson.title
    return deck


def _title(lesson: Lesson, opening: Section) -> list[Notebook]:
    said = [first(text, TEXT_WORDS) for text in opening.texts]
    lines = [_lined(text) for text in said if text.startswith("**You will build")]
    facts = dict(zip(SUMMARY, lesson.summary, strict=False))
    if facts:
        minutes, needs = facts["minutes"], facts["needs"]
        lines.append(f"{minutes} minutes · {len(lesson.exercises)} exercises · needs {needs}")
    notes = [
        *opening.texts,
        "Keys: S opens these notes, T changes light and dark, F fills the screen.",
    ]
    return [_slide("title", lesson.title, "\n\n".join(lines), level=1), _notes(notes)]


def _block(block: Piece, mistakes: dict[str, list[str]]) -> Iterator[list[Notebook]]:
    if block.kind == "text":
        yield _text_slide(block)
        return
    if block.kind == "contract":
        lines = first(" ".join(_prose(block.context)), CONTEXT_WORDS)
        code = f"```python\n{block.contract}\n```"
        notes = [*block.context, block.docstring, *mistakes.get(block.exercise, [])]
        yield [_slide("contract", block.heading, f"{lines}\n\n{code}"), _notes(notes)]
        return
    if block.prompt:
        prompt = _capital(" ".join(sentences(_MARK.sub("", block.prompt))))
        room = max(0, PROMPT_WORDS - count(prompt))
        context = first(" ".join(_prose(block.context)), min(room, CONTEXT_WORDS)) if room else ""
        words = f'{context}\n\n<p class="predict">Predict</p>\n\n{prompt}'
        notes = [*block.context, *([f"An answer: {block.answer}"] if block.answer else [])]
        notes += [f"After the run: {_MARK.sub('', block.notice)}"] if block.notice else []
        yield [_slide("predict", _bare(block.heading), words), _notes(notes)]
    if block.figure or block.printed:
        yield _result(block)


def _result(block: Piece) -> list[Notebook]:
    notice = _MARK.sub("", block.notice) or "".join(_prose([block.after]))
    if not notice and not block.prompt:
        notice = "".join(_prose(block.context)[-1:])
    caption = _capital(first(notice, CAPTION_WORDS)) if notice else ""
    # The slide of a prediction has shown the context already. A picture without a prediction has no
    # such slide, so the context goes into the notes.
    notes = [*([] if block.prompt else block.context), notice]
    printed = _fenced(shown(block.printed))
    heading = _bare(block.heading)
    if block.figure is None:
        text = f"{printed}\n\n{caption}"
        return [_slide("result", heading, text), _notes(notes)]
    said = [_more(caption)] if caption else []
    tall = " tall" if caption and _aspect(block.figure) < TALL else ""
    slide = _slide(f"result{tall}", heading, "")
    return [slide, _picture(block.figure), *said, _notes([*notes, printed])]


def _text_slide(block: Piece) -> list[Notebook]:
    room = TEXT_WORDS
    said: list[str] = []
    for text in block.context:
        if room < 12 or (said and _is_block(text) and not _short(text)):
            break
        piece = text if _is_block(text) else first(text, room)
        said.append(piece)
        room -= count(piece)
    return [_slide("text", block.heading, "\n\n".join(map(_lined, said))), _notes(block.context)]


def _way_out(section: Section) -> list[Notebook]:
    fences = [text for text in section.texts if text.startswith("```")][:1]
    words = [first(text, CAPTION_WORDS - 10) for text in _prose(section.texts)[:1]]
    return [
        _slide("way-out", section.heading, "\n\n".join([*words, *fences])),
        _notes(section.texts),
    ]


def _closing(section: Section) -> list[Notebook]:
    lists = [text for text in section.texts if _is_block(text)][:1] or section.texts[:1]
    return [_slide("closing", section.heading, "\n\n".join(lists)), _notes(section.texts)]


def _prose(texts: list[str]) -> list[str]:
    return [text for text in texts if not _is_block(text)]


def _is_block(text: str) -> bool:
    """True for Markdown in which lines matter: a list, a table, a fence or a formula block."""
    return re.match(r"```|\||- |\d+\. |\$\$|<|>", text) is not None


def _short(text: str) -> bool:
    return len(text.splitlines()) <= 8


def _lined(text: str) -> str:
    return text if _is_block(text) else " ".join(text.split())


def _bare(heading: str) -> str:
    """Return a heading without "Your turn", which belongs on the slide of the exercise."""
    return _capital(heading.removeprefix("Your turn: "))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _fenced(text: str) -> str:
    return f"```text\n{text}\n```" if text else ""


def _mistakes(teaching: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each exercise of a teacher's page with its lines of "Common mistakes"."""
    lines = re.findall(r"^- `(\w+)`, (.*)$", _part(teaching, "Common mistakes"), re.MULTILINE)
    for name in dict.fromkeys(name for name, _ in lines):
        yield name, ["Common mistakes:", *(f"- {said}" for other, said in lines if other == name)]


def _part(teaching: str, heading: str) -> str:
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", teaching, re.DOTALL | re.MULTILINE)
    return found[1].strip() if found else ""


def _slide(look: str, heading: str, text: str, level: int = 2) -> Notebook:
    """Return the first cell of a slide; `look` becomes the slide's class."""
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    code = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = "".join(code).splitlines()
    sizes = {
        "few": count(prose) < FEW_WORDS,
        "long": len(lines) > LONG_LINES,
        "wide": any(len(line) > CODE_COLUMNS for line in lines),
    }
    look = " ".join([look, *(size for size, holds in sizes.items() if holds)])
    return _cell("slide", f"{'#' * level} {heading}\n\n{text}".strip(), look=look)


def _more(text: str) -> Notebook:
    return _cell("-", text)


def _notes(texts: list[str]) -> Notebook:
    said = "\n\n".join(text for text in texts if text)
    return _cell("notes", said or "The lesson has no more text here.")


def _cell(slide_type: str, source: str, look: str = "") -> Notebook:
    metadata: Notebook = {"slideshow": {"slide_type": slide_type}}
    if look:
        metadata["ddpkit"] = {"look": look}
    return {
        "cell_type": "markdown",
        "id": "",
        "metadata": metadata,
        "source": with_formulas(source).splitlines(keepends=True),
    }


def _aspect(output: Notebook) -> float:
    """Return the width of a PNG divided by its height; both stand in the first 24 bytes."""
    head = base64.b64decode(text_of(output["data"]["image/png"])[:32])
    width, height = struct.unpack(">II", head[16:24])
    return float(width / height)


def _picture(output: Notebook) -> Notebook:
    """Return a cell with one picture as its output, and without code."""
    data = {"image/png": output["data"]["image/png"]}
    shown_output = {
        "output_type": "display_data",
        "data": data,
        "metadata": output.get("metadata", {}),
    }
    return {
        "cell_type": "code",
        "id": "",
        "metadata": {"slideshow": {"slide_type": "-"}},
        "execution_count": None,
        "source": [],
        "outputs": [shown_output],
    }
