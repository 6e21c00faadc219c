"""`ddpkit.text`: texts that two rooms write alike."""

import pytest

from ddpkit import text


@pytest.mark.parametrize(
    ("n", "said"), [(0, "0 ranks"), (1, "1 rank"), (2, "2 ranks"), (2000, "2,000 ranks")]
)
def test_counts(n: int, said: str):
    assert text.count(n, "rank") == said


@pytest.mark.parametrize(
    ("n", "said"),
    [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (12, "12th"), (21, "21st"), (113, "113th")],
)
def test_ordinals(n: int, said: str):
    assert text.ordinal(n) == said


def test_a_console_that_knows_only_ascii_sees_which_sign_it_is():
    signs = text.plain(f"{text.sign(True)}{text.sign(False)}")
    assert signs == "+x"
    assert text.plain("4 ranks · α…") == "4 ranks - ?..."


@pytest.mark.parametrize("lines", [1, 7])
def test_a_placeholder_is_a_line_that_raises_the_blank(lines: int):
    with pytest.raises(NotImplementedError, match=rf"^{text.BLANK}: about {lines} lines?$"):
        exec(text.placeholder(lines))


@pytest.mark.parametrize(
    ("value", "said"), [(None, "None"), (5, "an int"), ([5], "a list"), (text, "a module")]
)
def test_kinds_of_values(value: object, said: str):
    assert text.kind_of(value) == said


def test_what_is_cut_says_so():
    assert text.cut("12345", 5) == "12345"
    assert text.cut("1234 6", 5) == "1234…"


def test_wrapped_lines_hang_under_the_first():
    said = text.wrap("word " * 30, text.ERROR_LINE)
    first, *others = said.split("\n")
    assert others
    assert max(map(len, (first, *others))) <= text.ERROR_LINE
    assert all(line.startswith("  word") for line in others)


def test_values_hang_under_their_own_beginning_and_stay_whole():
    value = "7" * (text.LINE + 5)
    assert text.under("✓ a   ", f"x\n{value}").split("\n") == ["✓ a   x", f"      {value}"]


def test_prose_leaves_out_what_is_empty():
    assert text.prose("one", "", "two") == "one\ntwo"


def test_columns():
    assert text.columns([["", "step"], ["rank 10", "5 ms"]]) == ["         step", "rank 10  5 ms"]


@pytest.mark.parametrize("active", ["\x1b", "\x00", "\x7f", "\x9b", "\u202e", "\u2028", "\ud800"])
def test_what_acts_on_its_reader_is_shown_as_its_escape(active: str):
    assert text.visible(f"ä{active}ü\n\t") == f"ä{ascii(active)[1:-1]}ü\n\t"
