"""Machine-made mistakes: of each kind, only in the lines of a student, each named once."""

import tomllib
from pathlib import Path

import pytest

from benchmarks import mutate
from benchmarks._mutants import mutants
from ddpkit.exercises.seeds import Seed

LABS = Path(__file__).parents[1] / "labs"
SOURCE = '''
@decorated(1)
def f(x: int = 3, *, last=False) -> "int":
    """Up to 10."""
    given = 5
    total = x + 1
    for i in range(x):
        if i < 2 and x:
            total += i
            g(total, i, deep=True).wait()
    try:
        return total
    finally:
        total = 0
'''


def changes(*asked):
    return {each.change for each in mutants(SOURCE, asked or None)}


@pytest.mark.parametrize(
    "change",
    [
        "total = x + 1  →  total = x + 2",
        "total = x + 1  →  total = x - 1",
        "total = x + 1  →  total = x",
        "total = x + 1  →  pass",
        "for i in range(x):  →  for i in x:",
        "if i < 2 and x:  →  if i <= 2 and x:",
        "if i < 2 and x:  →  if i < 2 or x:",
        "if i < 2 and x:  →  if True:",
        "if i < 2 and x:  →  if not (i < 2 and x):",
        "total += i  →  total -= i",
        "total += i  →  total = i",
        "g(total, i, deep=True).wait()  →  pass",
        "g(total, i, deep=True).wait()  →  g(total, i, deep=True)",
        "g(total, i, deep=True).wait()  →  g(i, total, deep=True).wait()",
        "g(total, i, deep=True).wait()  →  g(total, i).wait()",
        "g(total, i, deep=True).wait()  →  g(total, i, deep=False).wait()",
        "return total  →  total",
        "try: ⏎ return total ⏎ finally:  →  return total",
        "def f(x: int=3, *, last=False) -> 'int':  →  def f(x: int=4, *, last=False) -> 'int':",
        "def f(x: int=3, *, last=False) -> 'int':  →  def f(x: int=3, *, last=True) -> 'int':",
    ],
)
def test_a_mistake_is_made(change):
    assert change in changes()


def test_texts_annotations_and_decorators_stay():
    for each in mutants(SOURCE):
        assert "@decorated(1)" in each.source
        assert "Up to 10." in each.source
        assert "'int'" in each.source


def test_lines_that_are_given_stay_but_for_defaults():
    assert {each.partition("  →")[0][:5] for each in changes(6)} == {"def f", "total"}


def test_no_mutant_is_made_twice_or_is_no_change():
    sources = [each.source for each in mutants(SOURCE)]
    assert len(sources) == len(set(sources))
    assert all(each.before != each.after for each in mutants(SOURCE))


@pytest.mark.slow
def test_an_answers_mutants_change_what_the_lab_asks_for():
    found = mutate.all_mutants(["flatten", "Reducer"])
    assert {asked.exercise for asked in found} == {"flatten", "Reducer"}
    assert not any("bucket_of = " in asked.mutant.before for asked in found)  # that line is given
    with pytest.raises(SystemExit, match="no lab or exercise is called fltten"):
        mutate.all_mutants(["fltten"])


def test_a_mutant_is_refused_or_survives():
    ends = {
        asked.mutant.change: mutate.outcome(asked, Seed("1"), limit_s=30)
        for asked in mutate.all_mutants(["flatten"])
    }
    row = "return torch.cat([tensor.reshape(-1) for tensor in tensors])"
    only_cat = "return torch.cat([tensor for tensor in tensors])"
    assert ends[f"{row}  →  {only_cat}"] == "hint: not 1-D first"
    assert all(ends.values())


def test_a_mutant_that_never_ends_is_refused():
    (endless,) = [
        asked
        for asked in mutate.all_mutants(["unused_parameters"])
        if asked.mutant.after == "while True:"
    ]
    made = mutate.Asked("unused_parameters", "06", mutants(ENDLESS)[0])
    assert endless.exercise == made.exercise
    assert mutate.outcome(made, Seed(), limit_s=0.5) == "too long"


ENDLESS = """
def unused_parameters(output, parameters):
    while parameters:
        pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(LABS.glob("lab*/no_mistakes.toml")), ids=str)
def test_what_is_called_no_mistake_can_be_made_and_has_a_reason(path):
    lab = path.parent.name.removeprefix("lab")
    made = {(a.exercise, a.mutant.before, a.mutant.after) for a in mutate.all_mutants([lab])}
    rows = tomllib.loads(path.read_text("utf-8"))
    assert sum(map(len, rows.values())) == len(mutate.no_mistakes(lab)), "a row stands twice"
    for row, why in mutate.no_mistakes(lab).items():
        assert row in made, f"{path.name}: no such mutant, has the answer changed?"
        assert why.endswith("."), row
