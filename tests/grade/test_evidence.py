"""The parts of a submission that a result keeps for people."""

from __future__ import annotations

from ddpkit.grade.course import note_on_name
from ddpkit.grade.evidence import answers_code, plain_code, written_answers
from tests.grade.honest import HONEST, merged

LAB = [
    "# 00 · Ranks\n\n**You need** some Python.",
    "## Four\n\nText.\n\n**Predict:** what will the four\nranks return?",
    "All four ran. Nothing is asked here.",
    "## Ring\n\nWhy a third round?",
]


def test_what_was_written_stands_below_its_question() -> None:
    texts = [
        LAB[0],
        LAB[1] + "\n\nThey return 0 to 3.",
        LAB[2],
        "And the notebook keeps 0.",
        LAB[3],
    ]
    predict = "**Predict:** what will the four\nranks return?"
    written = written_answers(LAB, [*texts, "Because\n\nit is odd."])
    assert written == [
        (predict, "They return 0 to 3.\nAnd the notebook keeps 0."),
        ("Why a third round?", "Because\nit is odd."),
    ]
    assert written_answers(LAB, LAB) == []
    assert written_answers(LAB, ["before all", *LAB]) == [("", "before all")]


def test_a_long_text_is_cut() -> None:
    ((_, text),) = written_answers(LAB, ["x" * 1_000_000])
    assert len(text) == 20_000


def test_code_without_comments_and_layout() -> None:
    source = 'def f( x ):\n  """Doc."""\n  # comment\n  return  x+1\n\n\nclass A:\n    """Doc."""\n'
    assert plain_code(source) == "def f(x):\n    return x + 1\n\nclass A:\n    pass"
    assert plain_code(" %%time\nf(") == "%%time\nf("
    assert plain_code("-" * 50_000 + "1").endswith("1")


def test_an_answer_comes_with_the_helpers_that_it_needs() -> None:
    code = dict(answers_code(merged(HONEST["split in two, both with the metadata"])))
    assert code["double"] == (
        "def helper(x):\n    return x + x\n\ndef double(x):\n    return helper(x)"
    )
    assert "helper" not in code["triple"].split("FACTORS")[1]


def test_a_file_that_is_named_as_another_lab_is_noted() -> None:
    (note,) = note_on_name("hana/00_ranks.ipynb", "01")
    assert note == "The file's name begins with 00, but the notebook was graded as lab 01."
    for name in ("hana/01_sgd.ipynb", "hana/lab.ipynb", "2026/77_x.ipynb", "00_x/lab.ipynb"):
        assert note_on_name(name, "01") == []
