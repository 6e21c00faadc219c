"""Guesses have a place, and the guesses of solved labs come true.

Questions in words have a place too.
"""

import json
import re

import pytest

from ddpkit.authoring import parse
from ddpkit.authoring.notebook import load, text_of
from ddpkit.grade.evidence import written_answers
from tests.project.source import ROOT

LESSONS = sorted((ROOT / "solutions").glob("0[0-6]_*.py"))
IDS = [path.stem for path in LESSONS]
WORDS = "*Your words:*"
RATIO = re.compile(r"measured ÷ predicted (\d+\.\d\d)")


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
    """Each guess of a solution is the text's formula, and is right within 10 %."""
    cells = load(path.with_suffix(".ipynb"))["cells"]
    printed = "".join(text_of(out.get("text", "")) for c in cells for out in c.get("outputs", ()))
    ratios = [float(ratio) for ratio in RATIO.findall(printed)]
    assert len(ratios) == sum(bool(cell.guess) for cell in parse(path).cells)
    assert all(0.9 <= ratio <= 1.1 for ratio in ratios), ratios


@pytest.mark.parametrize("path", LESSONS, ids=IDS)
def test_a_question_in_words_is_collected_with_its_answer(path):
    cells = json.loads((ROOT / "labs" / f"{path.stem}.ipynb").read_text("utf-8"))["cells"]
    lab = [text_of(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    asked = [text for text in lab if text.startswith("**In words:**")]
    assert asked
    assert lab.count(WORDS) == len(asked)
    texts = ["The link waits, 3 of 6 ms." if text == WORDS else text for text in lab]
    found = dict(written_answers(lab, texts))
    assert set(found.values()) == {"The link waits, 3 of 6 ms."}
    assert {question.split("\n")[0] for question in found} == {
        text.split("\n")[0] for text in asked
    }
