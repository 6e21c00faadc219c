"""The map of the course: the solved exercises, and the next one."""

import re

import pytest

from ddpkit import answers, course


@pytest.fixture(autouse=True)
def own_progress(tmp_path, monkeypatch):
    monkeypatch.setenv("DDPKIT_PROGRESS", str(tmp_path))
    return tmp_path / "progress"


def solve(folder, *names, passed=True):
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / f"{name}.json").write_text(
            f'{{"format": 1, "exercise": "{name}", "passed": {str(passed).lower()}, '
            '"earned": 1.0, "points": 2.0}'
        )


def of(lab):
    return [name for name, where in answers.LABS.items() if where == lab]


def test_at_first_nothing_is_solved():
    found = course()
    assert [lab.solved for lab in found.labs] == [0] * len(answers.TITLES)
    assert sum(lab.exercises for lab in found.labs) == len(answers.LABS)
    assert found.headline == f"0 of {len(answers.LABS)} exercises solved. Start with 00 ranks."


def test_a_solved_lab_is_full_and_the_next_one_is_named(own_progress):
    solve(own_progress, *of("lab00"))
    solve(own_progress, "sgd_step")
    solve(own_progress, "minibatches", passed=False)
    found = course()
    assert [(lab.solved, lab.exercises) for lab in found.labs[:2]] == [(2, 2), (1, 3)]
    assert found.headline.endswith("Next: 01 sgd.")
    assert re.search(r"^01 sgd +●○○ +1 of 3 +\d+ min$", repr(found), re.MULTILINE)


def test_all_is_solved(own_progress):
    solve(own_progress, *answers.LABS)
    assert course().next is None
    assert repr(course()).endswith(f"All {len(answers.LABS)} exercises are solved.")


def test_a_notebook_gets_links_and_the_next_lab_stands_out(own_progress):
    solve(own_progress, *of("lab00"))
    shown = course()._repr_html_()
    assert shown.count("<a href=") == len(answers.TITLES)
    assert re.findall(r"<b>(.*?)</b>", shown) == ['<a href="01_sgd.ipynb">01 sgd</a>']


def test_a_notebook_that_has_moved_says_where_it_looks(own_progress, tmp_path, monkeypatch):
    monkeypatch.delenv("DDPKIT_PROGRESS")
    monkeypatch.chdir(tmp_path)
    here = tmp_path / ".ddpkit"
    assert course().notes == (
        f"ddpkit keeps results in {here}, and this folder does not exist yet.",
    )
    here.mkdir()
    assert course().notes == ()  # the labs were copied to this folder, and none was checked yet
    solve(here / "progress", "token_ring")
    assert course().notes == ()
    (moved := tmp_path / "sub").mkdir()
    monkeypatch.chdir(moved)
    said = f"Results are in {here}, and this notebook looks in {moved / '.ddpkit'}."
    assert course().notes == (said,)


def test_a_damaged_file_is_told(own_progress):
    own_progress.mkdir()
    (own_progress / "ring.json").write_text("{")
    assert "was damaged" in repr(course())
