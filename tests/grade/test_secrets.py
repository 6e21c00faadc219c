"""The sandbox gets the inputs of questions, and not the right results.

A student's function can look at the frames of its callers. A value that a question holds, or can
compute, is an answer without work.
"""

from __future__ import annotations

import ast
import functools
import inspect
import io
import pickle
import re
import textwrap
import types
from collections.abc import Iterator

import pytest
import torch

from ddpkit.exercises import Case, Exercise, exercises
from ddpkit.exercises.compare import same
from ddpkit.exercises.seeds import Seed
from ddpkit.grade.questions import LAB_MODULE, SealedCase, questions

SECRET = Seed("a secret of tests", secret=True)
ANOTHER = Seed("another secret of tests")  # public: a secret seed draws twice
# exercises in which the right result is one of the inputs, and the answer only passes it on
GIVEN = {
    "scatter": "",  # the root's chunks
    "flatten": r"one of shape \(4,\)$",
    "gradients_of": "",  # the .grad of the parameters
    "Reducer": "",  # the order in which gradients come
    "merge": "no key so far$",
    "own_tokens": "",  # the places of all ranks
    "catch_up": r"\[\] lack them$",  # every rank has the tensors
    "within_capacity": r"(\d+) tokens, .* room for \1$",  # room for all
}


class Filling(pickle.Unpickler):
    def persistent_load(self, pid: object) -> object:
        return print


def loaded(question: SealedCase) -> object:
    return Filling(io.BytesIO(question.pickled)).load()


def reached(root: object) -> Iterator[tuple[object, bool]]:
    """Yield all objects that code inside can reach, and True for each that is computed."""
    done: dict[int, object] = {}  # keeps the objects alive, because Python uses ids again
    todo = [(root, False)]
    while todo:
        thing, computed = todo.pop()
        if id(thing) not in done and _is_ours(thing):
            done[id(thing)] = thing
            yield thing, computed
            todo += [(part, computed) for part in _parts(thing)]
            todo += [(value, True) for value in _computed(thing)]


def _is_ours(thing: object) -> bool:
    """True for objects that travel in the pickle; other code is the same for everyone."""
    match thing:
        case types.FunctionType() | type():
            return LAB_MODULE.fullmatch(thing.__module__) is not None
        case types.ModuleType():
            return LAB_MODULE.fullmatch(thing.__name__) is not None
    return True


def _parts(thing: object) -> Iterator[object]:
    match thing:
        case dict():
            yield from thing.values()
        case list() | tuple() | set() | frozenset():
            yield from thing
        case functools.partial():
            yield from (thing.func, thing.args, thing.keywords)
        case types.MethodType():
            yield from (thing.__self__, thing.__func__)
        case types.FunctionType():
            yield from (thing.__globals__, thing.__defaults__, thing.__kwdefaults__)
            yield from (cell.cell_contents for cell in thing.__closure__ or ())
        case _ if not type(thing).__module__.startswith(("torch", "numpy")):
            yield from getattr(thing, "__dict__", {}).values()


def _computed(thing: object) -> Iterator[object]:
    """Yield the values of properties, and of methods without arguments, of a lab's own classes."""
    kind = type(thing)
    if not LAB_MODULE.fullmatch(kind.__module__):
        return
    for name in dir(kind):
        member = inspect.getattr_static(kind, name)
        try:
            if _home(member).startswith("torch."):
                continue  # a torch module has a hundred methods that copy it
            if isinstance(member, property | functools.cached_property):
                yield getattr(thing, name)
            elif isinstance(member, types.FunctionType) and _needs_nothing(member):
                yield getattr(thing, name)()
        except Exception:
            continue


def _home(member: object) -> str:
    """Return the module in which a method or a property is written."""
    match member:
        case property():
            return str(getattr(member.fget, "__module__", ""))
        case functools.cached_property():
            return member.func.__module__
    return str(getattr(member, "__module__", ""))


def _needs_nothing(method: types.FunctionType) -> bool:
    return method.__name__[:2] != "__" and len(inspect.signature(method).parameters) == 1


def given_away(question: SealedCase) -> list[str]:
    """Return the names of secret values within reach; inputs may contain a number by chance."""
    found = []
    within = list(reached(loaded(question)))
    for name, expected in question.case.expect.items():
        value = getattr(expected, "value", expected)
        number = isinstance(value, int | float | str)
        if name not in question.shown and any(
            same(thing, value) for thing, computed in within if computed or not number
        ):
            found.append(name)
    return found


@pytest.fixture(scope="module", params=sorted(exercises()))
def asked(request: pytest.FixtureRequest) -> list[SealedCase]:
    """Return an exercise's questions, for both tests of the exercise."""
    return questions(exercises()[request.param], SECRET)


@pytest.mark.processes("some")
def test_a_question_does_not_know_what_is_right(asked: list[SealedCase]) -> None:
    for question in asked:
        name, title = question.exercise, question.case.title
        if title.startswith("1 rank") or re.search(GIVEN.get(name, "^nothing$"), title):
            continue
        assert given_away(question) == [], f"{question.key}, {title}"


LARGE = 1000  # a smaller number may be a size that was drawn


def seeds_of(exercise: Exercise, asked: list[SealedCase]) -> dict[str, list[str]]:
    """Return question -> names of functions that could compute its result from a drawn number.

    A number is drawn if a second secret gives another number. A function that is seeded with the
    number could return all ranks' inputs, or the right result.
    """
    found = {}
    for question, other in zip(asked, questions(exercise, ANOTHER), strict=True):
        within, elsewhere = (
            [thing for thing, _ in reached(loaded(each))] for each in (question, other)
        )
        functions = [name for thing in within for name in _seeding(thing)]
        if functions and _large(within) - _large(elsewhere):
            found[f"{question.key}, {question.case.title}"] = functions
    return found


def _large(within: list[object]) -> set[int]:
    numbers = (each for thing in within for each in (thing, *_items(thing)))
    return {each for each in numbers if type(each) is int and each >= LARGE}


def _items(thing: object) -> list[object]:
    """Return the values in a container, in which numbers are looked for."""
    match thing:
        case dict():
            return list(thing.values())
        case list() | tuple():
            return list(thing)
        case functools.partial():
            return [*thing.args, *thing.keywords.values()]
    return list(getattr(thing, "__dict__", {}).values()) if hasattr(thing, "__dict__") else []


def _seeding(thing: object) -> Iterator[str]:
    """Yield names of functions, alone or in a class, that seed a generator with a variable."""
    functions = vars(thing).values() if isinstance(thing, type) else [thing]
    for function in functions:
        if isinstance(function, types.FunctionType) and _seeds_by_a_variable(function):
            yield function.__qualname__


def _seeds_by_a_variable(function: types.FunctionType) -> bool:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return False
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr in ("manual_seed", "seed", "Random", "default_rng")
        and any(isinstance(part, ast.Name) and part.id == "seed" for part in ast.walk(call))
        for call in calls
    )


@pytest.mark.processes("some")
def test_no_question_has_a_seed_and_a_function_that_draws_by_it(asked: list[SealedCase]) -> None:
    assert seeds_of(exercises()[asked[0].exercise], asked) == {}


def drawn_from(seed: int) -> torch.Tensor:
    return torch.rand(3, generator=torch.Generator().manual_seed(seed))


def on_a_rank(answer: object, seed: int) -> dict[str, object]:
    return {"x": drawn_from(seed)}


drawn_from.__module__ = on_a_rank.__module__ = "ddpkit.checks.lab99.cases"


@pytest.mark.processes("some")
def test_a_question_with_a_seed_is_found_out() -> None:
    def cases(answer, rng):
        seed = rng.randrange(10**6)
        yield Case("a case", functools.partial(on_a_rank, answer, seed), {"x": drawn_from(seed)})

    exercise = Exercise("f", "00", 1, "", cases)
    (question,) = questions(exercise, SECRET)
    assert seeds_of(exercise, [question]) == {f"{question.key}, a case": ["drawn_from"]}
    # a walk that calls no function with arguments does not find it
    assert given_away(question) == []


class Knowing:
    """The class of a careless author of cases."""

    def __init__(self, n: int) -> None:
        self.n = n

    @functools.cached_property
    def due(self) -> list[int]:
        return [self.n, self.n + 1]

    def best(self) -> int:
        return self.n + 7

    def observe(self, answer: object) -> dict[str, object]:
        return {}


Knowing.__module__ = "ddpkit.checks.lab99.cases"


@pytest.mark.processes("some")
@pytest.mark.parametrize("key", ["due", "best"])
def test_a_careless_question_is_found_out(key: str) -> None:
    def cases(answer, rng):
        knowing = Knowing(rng.randrange(1000))
        expect = {"due": knowing.due} if key == "due" else {"best": knowing.best()}
        yield Case("a case", functools.partial(knowing.observe, answer), expect)

    (question,) = questions(Exercise("f", "00", 1, "", cases), SECRET)
    assert given_away(question) == [key]
