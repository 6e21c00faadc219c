"""Slides: the deck of each lab has the right size, notes, and no answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from ddpkit.authoring import Lesson
from ddpkit.authoring.leaks import leaks
from ddpkit.authoring.notebook import load, text_of
from ddpkit.authoring.slides import deck, make_deck, page
from ddpkit.authoring.slides.choice import LEAST, MOST
from ddpkit.authoring.slides.words import first, sentences, with_formulas
from ddpkit.authoring.stale import solution_path
from ddpkit.commands.main import main
from tests.project.source import ROOT, lesson_in, sources

Slide = tuple[str, str, str]  # the look, the text and the notes of a slide


@pytest.fixture(params=sources(), ids=lambda path: path.stem[:2])
def lesson(request: pytest.FixtureRequest) -> Lesson:
    return lesson_in(request.param)


def teaching(lesson: Lesson) -> str:
    return (ROOT / "docs" / "teaching" / f"{lesson.number}.md").read_text("utf-8")


def made(lesson: Lesson) -> dict[str, Any]:
    return make_deck(lesson, load(solution_path(ROOT, lesson)), teaching(lesson))


def slides(notebook: dict[str, Any]) -> list[Slide]:
    found: list[Slide] = []
    for cell in notebook["cells"]:
        kind, source = cell["metadata"]["slideshow"]["slide_type"], text_of(cell["source"])
        if kind == "slide":
            found.append((cell["metadata"]["ddpkit"]["look"], source, ""))
        else:
            look, text, notes = found[-1]
            found[-1] = (
                (look, text, source) if kind == "notes" else (look, f"{text}\n{source}", notes)
            )
    return found


def test_a_deck_is_a_lecture_with_notes(lesson: Lesson) -> None:
    shown = slides(made(lesson))
    assert LEAST <= len(shown) <= MOST
    assert [text for _, text, notes in shown if not notes.strip()] == []
    looks = [look.split()[0] for look, _, _ in shown]
    assert looks[0] == "title"
    assert looks.count("ask") == 1
    assert {"predict", "result", "contract"} <= set(looks)
    assert sum(cell["cell_type"] == "code" for cell in made(lesson)["cells"]) >= 2


def test_a_deck_shows_no_answer_and_no_key(lesson: Lesson) -> None:
    made_deck = made(lesson)
    assert list(leaks(lesson, made_deck)) == []
    text = "\n".join(text_of(cell["source"]) for cell in made_deck["cells"])
    assert [
        key for key in re.findall(r"^   Key: (.+)$", teaching(lesson), re.M) if key in text
    ] == []
    cells = [cell for cell in lesson.cells if cell.guess]
    guesses = [cell.source.partition("#")[0].strip() for cell in cells]
    assert [guess for guess in guesses if f"\n{guess}" in text] == []


def test_slides_speak_of_no_cell(lesson: Lesson) -> None:
    said = [text for look, text, _ in slides(made(lesson)) if not look.startswith("way-out")]
    assert [text for text in said if re.search(r"place of the dots|cell below|\$", text)] == []


def test_a_result_follows_its_prediction(lesson: Lesson) -> None:
    shown = [(look.split()[0], text.splitlines()[0]) for look, text, _ in slides(made(lesson))]
    pairs = list(zip(shown, [*shown[1:], ("", "")], strict=True))
    asked = [(at, after) for at, after in pairs if at[0] == "predict" and after[0] == "result"]
    assert asked
    assert all(at[1] == after[1] for at, after in asked), "both have one heading"


def test_the_mistakes_of_an_exercise_are_in_its_notes() -> None:
    shown = slides(made(lesson_in(sources()[3])))
    (notes,) = (notes for _, text, notes in shown if "def all_to_all(" in text)
    assert "Common mistakes" in notes
    assert "adds in the order of arrival" in notes


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        ("One two. Three four five. Six.", 5, "One two. Three four five."),
        ("One two three.", 1, "One two three."),
        ("It costs bytes. They are:", 9, "It costs bytes."),
        ("These are the bytes:", 9, "These are the bytes."),
        ("A message takes $a$. A sum of $b$ bytes takes", 30, "A message takes $a$."),
        ("Guess. Write it in place of the dots.", 30, "Guess."),
        ("Below, four ranks add. The check below counts.", 30, "Four ranks add. The check counts."),
    ],
)
def test_whole_sentences_are_taken(text: str, words: int, said: str) -> None:
    assert first(text, words) == said


def test_an_abbreviation_ends_no_sentence() -> None:
    assert sentences("Take a unit, e.g. Bytes.") == ["Take a unit, e.g. Bytes."]


def test_formulas_are_set_outside_code() -> None:
    made_text = with_formulas("$x$ and `$HOME` and\n```sh\necho $x $y\n```\n$$\\bar z$$")
    assert "`$HOME`" in made_text
    assert "echo $x $y" in made_text
    assert made_text.count("<math") == 2
    assert 'accent="true"' not in made_text


def refused(*words: str) -> str:
    result = CliRunner().invoke(main, ["slides", *words])
    assert result.exit_code != 0
    assert "Traceback" not in result.output
    return result.output


def test_bad_input_gets_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(page.importlib.util, "find_spec", lambda name: None)
    assert "The slides need nbconvert and sphinx-revealjs: run `make slides`" in refused("00")
    monkeypatch.undo()
    if page.missing() == "":
        assert "There is no lesson 98" in refused("98")
    monkeypatch.setattr("ddpkit.commands.slides.CHECKOUT", tmp_path)
    assert "works in a checkout of ddpkit only" in refused("00")


def test_every_look_of_a_slide_has_a_style() -> None:
    style = (page.HERE / "slides.css").read_text("utf-8")
    used = set(re.findall(r'_slide\(\s*f?"([a-z-]+)', deck.__loader__.get_source(deck.__name__)))
    assert used >= {"title", "predict", "result", "contract", "text"}
    assert [look for look in _looks(style) if look not in used] == []


def _looks(style: str) -> Iterator[str]:
    yield from dict.fromkeys(re.findall(r"\.look-([a-z-]+)", style))
