import functools
import re
import subprocess
import sys

import pytest

from ddpkit.errors import LessonError
from ddpkit.exercises.exercise import Case, exercise, exercises, find, name_of
from ddpkit.exercises.seeds import Seed, current_seed


def token_ring():
    pass


class Model:
    pass


def test_an_exercise_is_registered_with_what_it_says_about_itself(toy_sum):
    assert find("toy_sum") is toy_sum
    assert (toy_sum.lab, toy_sum.points, toy_sum.about) == ("99", 3, "Add up numbers.")
    assert list(exercises())[-1] == "toy_sum"  # lab 99 is the last lab


def test_an_unknown_name_gets_its_neighbours_and_the_list(toy_sum):
    with pytest.raises(LessonError) as caught:
        find("toy_summ")
    assert str(caught.value).startswith(
        "There is no exercise called `toy_summ`. Did you mean `toy_sum`? The exercises are: "
    )
    with pytest.raises(LessonError, match=r"`qqqqq`\. The exercises are: "):
        find("qqqqq")


@pytest.mark.processes
def test_to_find_an_exercise_imports_the_checks_of_no_other_lab():
    code = (
        "import sys; from ddpkit.exercises import find; find('all_gather'); "
        "print(sorted(name for name in sys.modules if name.startswith('ddpkit.checks.lab')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(re.findall(r"lab\d\d", done.stdout)) == {"lab02"}


def test_two_labs_cannot_share_a_name(toy_sum):
    def cases(answer, rng):
        yield Case("", dict, {})

    cases.__module__ = "elsewhere"
    with pytest.raises(LessonError, match="Two labs have an exercise `toy_sum`"):
        exercise("toy_sum", lab="91")(cases)


def test_an_answer_is_known_by_the_name_it_was_defined_with():
    renamed = token_ring
    assert name_of(renamed) == "token_ring"
    assert name_of(functools.partial(functools.partial(token_ring))) == "token_ring"
    assert name_of(Model) == "Model"


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ("token_ring", r"write check\(token_ring\), without quotes"),
        (lambda: 1, "A lambda has no name"),
        (Model(), "its argument is of type Model"),
        (3, "its argument is of type int"),
        (None, "its argument is of type NoneType"),
    ],
)
def test_what_is_no_answer_is_refused_in_a_sentence(answer, sentence):
    with pytest.raises(LessonError, match=sentence):
        name_of(answer)


def test_seeds(monkeypatch):
    public = current_seed()
    assert not public.secret
    monkeypatch.setenv("DDPKIT_SEED", "6c1f…")
    secret = current_seed()
    assert secret == Seed("6c1f…", secret=True)
    draw = [seed.rng(name).random() for seed in (public, secret) for name in ("a", "a", "b")]
    assert draw[0] == draw[1]
    assert len(set(draw)) == 4
    monkeypatch.setenv("DDPKIT_SEED", "")
    assert current_seed() == public
