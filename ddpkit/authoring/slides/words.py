"""Sentences for a slide, and formulas as MathML."""

from __future__ import annotations

import re

_END = re.compile(r"(?<=[.!?:])(?:(?<=\W\W)|(?<!e\.g\.)(?<!i\.e\.))\s+(?=[A-Z*`\[$(\"“])")
_FENCE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.DOTALL | re.MULTILINE)
_FORMULA = re.compile(r"\$\$(?P<block>[^$]+)\$\$|\$(?P<inline>[^$]+)\$")
# Sentences about the notebook, which a slide leaves out: a slide has no cells and no code.
_NOTEBOOK = re.compile(
    r"in place of the dots|cells? (below|above)|Run (it|the cell)|check\(|Scroll", re.IGNORECASE
)


def sentences(paragraph: str) -> list[str]:
    """Return the sentences of a paragraph, without sentences that mention the notebook's cells."""
    text = " ".join(paragraph.split())
    return [_without_place(each) for each in _END.split(text) if not _NOTEBOOK.search(each)]


def first(paragraph: str, words: int) -> str:
    """Return the first whole sentences with at most `words` words, and at least one sentence.

    The last sentence must not introduce a formula or a list, because neither is on the slide.
    """
    kept: list[str] = []
    for sentence in sentences(paragraph):
        if kept and count(" ".join([*kept, sentence])) > words:
            break
        kept.append(sentence)
    while len(kept) > 1 and not re.search(r"[.!?][)*_`]*$", kept[-1]):
        kept.pop()
    said = " ".join(kept)
    return said[:-1] + "." if said.endswith(":") else said


def count(text: str) -> int:
    """Return the number of words in a text; a formula counts as one word."""
    return len(_FORMULA.sub("x", text).split())


def with_formulas(text: str) -> str:
    """Return Markdown with each `$formula$` outside code as MathML, which needs no script."""
    parts = _FENCE.split(text)
    return "".join(
        part if number % 2 else _FORMULA.sub(_drawn, part) for number, part in enumerate(parts)
    )


def _drawn(found: re.Match[str]) -> str:
    return mathml(found["block"] or found["inline"], block=found["block"] is not None)


def mathml(formula: str, *, block: bool = False) -> str:
    """Return a formula of LaTeX as MathML, in one line.

    Without a mathematical font, a browser draws an accent so close to its letter that the bar of a
    mean cannot be seen. So the MathML has accent="false" in place of accent="true".
    """
    from docutils.utils.math.latex2mathml import tex2mathml

    made = str(tex2mathml(formula, as_block=block)).replace('accent="true"', 'accent="false"')
    return re.sub(r"\s*\n\s*", "", made)


def _without_place(sentence: str) -> str:
    """Return a sentence without "below", since nothing stands below a slide."""
    sentence = re.sub(r"^Below, (\w)", lambda word: word[1].upper(), sentence)
    return re.sub(r"(?<=\w) below(?=[ ,.:?)])", "", sentence)
