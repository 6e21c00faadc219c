"""Guesses have a place, and what solved labs predict comes out; so do questions in words."""

import json
import re

import pytest

from ddpkit.authoring import parse
from ddpkit.authoring.notebook import load, text_of
from ddpkit.grade.evidence import written_answers
from tests.project.source import ROOT

LESSONS = sorted((ROOT / "solutions").glob("[01][0-9]_*.py"))
IDS = [path.stem for path in LESSONS]
WORDS = "*Your words:*"
RATIO = re.compile(r"measured ÷ predicted (\d+\.\d\d)")
BESIDE = re.compile(r"beside\((\w+)(\(?)")
STATED = re.compile(r"within (\d+) %")
USUAL = 10  # per cent


@pytest.mark.parametrize("path", LESSONS, ids=IDS)
def test_each_guess_is_compared_once_below_it(path):
    code = [cell for cell in parse(path).cells if cell.kind == "code"]
    guesses = [(number, cell.guess) for number, cell in enumerate(code) if cell.guess]
    assert len(guesses) >= 2
    for number, name in guesses:
        used = [n for n, cell in enumerate(code) if f"beside({name}, " in cell.source]
        assert len(used) == 1, name
        assert used[0] > number


@pytest.mark.parametrize("path", LESSONS, ids=IDS)
def test_what_is_predicted_comes_out(path):
    """Within 10 %, or what the question states: each guess of the solution is the text's formula.

    What is beside something else is a guess, or what a function of the reader's says.
    """
    cells = load(path.with_suffix(".ipynb"))["cells"]
    printed = "".join(text_of(out.get("text", "")) for c in cells for out in c.get("outputs", ()))
    ratios = [float(ratio) for ratio in RATIO.findall(printed)]
    stated, question = {}, ""
    beside = []
    for cell in parse(path).cells:
        if cell.kind == "markdown":
            question = cell.source
        elif cell.guess:
            stated[cell.guess] = int((STATED.findall(question) or [USUAL])[0])
        beside += BESIDE.findall(cell.source) if cell.kind == "code" else []
    assert {name for name, called in beside if not called} == stated.keys()
    assert len(ratios) == len(beside)
    for (name, _), ratio in zip(beside, ratios, strict=True):
        assert abs(ratio - 1) <= stated.get(name, USUAL) / 100, name


@pytest.mark.parametrize("path", LESSONS, ids=IDS)
def test_a_question_in_words_is_collected_with_its_answer(path):
    cells = json.loads((ROOT / "labs" / f"{path.stem}.ipynb").read_text("utf-8"))["cells"]
    lab = [text_of(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    paragraphs = [paragraph for text in lab for paragraph in text.split("\n\n")]
    asked = [paragraph for paragraph in paragraphs if paragraph.startswith("**In words:**")]
    assert asked
    written = [text for text in lab if text.startswith(WORDS)]  # an answer may be folded below it
    assert len(written) == len(asked)
    texts = [
        text.replace(WORDS, "The link waits, 3 of 6 ms.", 1) if text in written else text
        for text in lab
    ]
    found = dict(written_answers(lab, texts))
    assert set(found.values()) == {"The link waits, 3 of 6 ms."}
    assert {question.split("\n")[0] for question in found} == {
        text.split("\n")[0] for text in asked
    }
