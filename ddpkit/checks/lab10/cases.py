"""Lab 10: faults. A slow rank, unequal shares, checkpoints, restarts, drift, and the clinic."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import sqrt
from typing import Any

from ddpkit.checks.lab10 import attempts, clinic, disk, disk_hints, drift, hints, traces, unequal
from ddpkit.exercises.exercise import Case, Observed, exercise
from ddpkit.exercises.guard import Answer
from ddpkit.exercises.ranks import asked, looked, together
from ddpkit.exercises.values import Between, Close
from ddpkit.protocol.per_rank import PerRank

# straggler

OTHERS = {  # kind -> step, a rank's distance from the slow rank, factor on this rank's work time
    "unlike": [(step, 1, 1.1) for step in range(6)],
    "at times": [(1, 1, 1.7), (2, 2, 1.7), (3, 1, 1.7), (5, 2, 1.7)],
}


@exercise("straggler", lab="10", points=2, returns=False)
def straggler(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check that the rank with the longest work is found, if it is a fifth above the median."""
    for about, n, factor, kind in (
        ("4 ranks, equal", 4, 1.0, ""),
        ("4 ranks, 3 times as slow", 4, 3.0, ""),
        ("2 ranks, 1.4 times", 2, 1.4, ""),
        ("8 ranks, 1.5 times", 8, 1.5, ""),
        ("4 ranks, 1.1 times", 4, 1.1, ""),
        ("4 ranks, a slow start", 4, 1.5, "warm-up"),
        ("4 ranks, two good steps", 4, 1.6, "good step"),
        ("4 ranks, slow at the end", 4, 1.38, "end"),
        ("4 ranks, sends early", 4, 1.4, "overlap"),
        ("4 ranks, a slow link", 4, 1.0, "link"),
        ("3 ranks, all unlike", 3, 1.28, "unlike"),
        ("8 ranks, others at times", 8, 1.4, "at times"),
    ):
        # at least two different ranks, so that no constant answer is right
        slow = rng.sample(range(n), 2) + rng.choices(range(n), k=2)
        found = factor > 1.2 and kind != "unlike"
        yield Case(
            about,
            partial(_stragglers, answer, [_slowed(rng, n, each, factor, kind) for each in slow]),
            {"ranks": [each if found else None for each in slow]},
            hints=hints.STRAGGLER,
            given={"slow_ranks": slow, "n": n, "factor": factor, "why": kind},
            trivial=not found,
        )


def _slowed(rng: random.Random, n: int, slow: int, factor: float, kind: str) -> Any:
    """Return the trace of six steps in which rank `slow` takes `factor` times as long."""
    base = rng.randrange(20, 60)
    work = [[base * (factor if rank == slow else 1.0) for rank in range(n)] for _ in range(6)]
    work[0][(slow + 1) % n] *= 30 if kind == "warm-up" else 1
    if kind == "good step":
        work[1] = work[-1] = [base] * n
    if kind == "end":  # without the last step, the slow rank would take only 1.19 times as long
        work[1] = work[2] = [base] * n
    for step, behind, times in OTHERS.get(kind, ()):
        work[step][(slow + behind) % n] *= times
    late = [8.0 * (rank == slow) for rank in range(n)] if kind == "link" else []
    return traces.of_steps(work, late, early=slow if kind == "overlap" else None)


def _stragglers(answer: Answer, of: Sequence[object]) -> Observed:
    return {"ranks": [answer(trace) for trace in of]}


# shares


@exercise("shares", lab="10", points=2)
def shares(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check shares of a batch with which the slowest rank is done as early as possible."""
    drawn = [rng.randrange(20, 300) / 7 for _ in range(5)]
    # exact: 2 / v * v is 2, so the case does not depend on rounding errors
    v = 16.0 * rng.randrange(3, 9)
    for batch, speeds in (
        # The number of images is 7·k + 2 and 5·m + 3: shares 2:2:2:1 rounded down leave 2 images,
        # and inverted shares 1:1:1:2 leave 3, so each mistake shows.
        (128 + 35 * rng.randrange(6), [v, v, *rng.sample((v, v / 2), 2)]),
        (3, rng.sample((v, v, v / 100), 3)),
        (2, rng.sample((v, v / 3, v / 3), 3)),
        (rng.randrange(50, 150), drawn),
        (rng.randrange(1000, 2000), drawn[::-1]),
    ):
        yield Case(
            f"{batch} images, {len(speeds)} ranks",
            partial(_shares, answer, batch, speeds),
            {"images": batch, "done after": Close(_optimum(batch, speeds), digits=5)},
            read=partial(_done, speeds),
            hints=hints.SHARES,
            given={"batch": batch, "speeds": speeds},
            trivial=batch <= 3,
        )


def _shares(answer: Answer, batch: int, speeds: Sequence[float]) -> Observed:
    return {"shares": answer(batch, list(speeds))}


def _done(speeds: Sequence[float], seen: Observed) -> Observed:
    taken = seen["shares"]
    if not isinstance(taken, list | tuple) or len(taken) != len(speeds):
        return {"images": "not a share for each rank", "done after": None}
    if any(type(share) is not int or share < 0 for share in taken):
        return {"images": "not whole numbers from 0", "done after": None}
    return {"images": sum(taken), "done after": hints.makespan(taken, speeds)}


def _optimum(batch: int, speeds: Sequence[float]) -> float:
    """Return the time in which the ranks are done with the batch if the shares are the best."""
    ends = sorted(share / speed for speed in speeds for share in range(1, batch + 1))
    low, high = 0, len(ends) - 1
    while low < high:
        middle = (low + high) // 2
        done = sum(int(ends[middle] * speed + 1e-9) for speed in speeds)
        low, high = (low, middle) if done >= batch else (middle + 1, high)
    return ends[low]


# train_unequal


@exercise("train_unequal", lab="10", points=4)
def train_unequal(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check training with unequal shares: each step as in one process with all images."""
    for about, lengths in unequal.ABOUT:
        task = unequal.Unequal(lengths, rng.randrange(10**6))
        yield Case(
            about,
            asked(
                partial(unequal.steps, answer),
                task.model(),
                PerRank(task.by_rank()),
                world_size=task.n,
                see={"gave": "returned", "exchanged": unequal.exchanged},
            ),
            {
                "steps": [task.most] * task.n,
                "models": [Close(each, digits=5) for each in task.as_seen(task.trained())],
                "ranks": "alike",
                "exchanged": "the gradients once a step, and a few bytes",
            },
            read=partial(_trained, task),
            hints=hints.UNEQUAL,
            given=task,
        )


def _trained(task: unequal.Unequal, seen: Observed) -> Observed:
    steps = task.most
    last = [found[-1] for _, found in seen["gave"]]
    few = all(count <= 2 * (steps + 1) for count, _ in seen["exchanged"])
    right = {number * task.sizes for number in (steps, steps - task.empty)}
    once = all(large in right for _, large in seen["exchanged"])
    return {
        "steps": [taken for taken, _ in seen["gave"]],
        "models": [found for _, found in seen["gave"]],
        "ranks": "alike" if all(bool((each == last[0]).all()) for each in last) else "different",
        "exchanged": "the gradients once a step, and a few bytes"
        if few and once
        else "too many small messages"
        if once
        else "other bytes than the gradients",
    }


# checkpoints


@exercise("save_checkpoint", lab="10", points=2, returns=False)
def save_checkpoint(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check that a checkpoint replaces the previous one only when the new file is complete."""
    seeds = [rng.randrange(10**6) for _ in range(5)]  # two runs serve five cases, to save time
    saves = [([disk.state(seed, steps) for steps in (2, 3)], own)
             for seed, own in zip(seeds, (True, False), strict=False)]  # fmt: skip
    told = together(partial(disk.saved, answer), [[each] * 2 for each in saves], files=True)
    for about, own, seed, of_one in zip(
        ("2 ranks, a disk each", "2 ranks, one disk"), (True, False), seeds[:2], told, strict=True
    ):
        holds = "step 3, the model after 3 steps and its momentum"
        yield Case(
            about,
            looked(of_one, {"gave": "returned"}),
            {
                "there": [True, not own],
                "holds": [holds, "no file" if own else holds],
                "besides": [],
                "moved": "within its folder",
            },
            read=partial(_saved, seed),
            hints=disk_hints.SAVE,
            given={"case": "disks"},
        )
    ways = ("full", "killed while it writes", "killed at the end")
    calls = [[(disk.written(seed, 3), [disk.state(seed, steps) for steps in (5, 6)], how)]
             for seed, how in zip(seeds[2:], ways, strict=True)]  # fmt: skip
    told = together(partial(disk.unlucky, answer), calls, files=True)
    for how, seed, of_one in zip(ways, seeds[2:], told, strict=True):
        yield Case(
            f"the disk is {how}" if how == "full" else how,
            looked(of_one, {"gave": "returned"}),
            {
                "ended": "raised" if how == "full" else "killed",
                **({"besides": []} if how == "full" else {}),  # no killed rank can remove a file
                "holds": "step 3, the model after 3 steps and its momentum",
                "the next": "step 6, the model after 6 steps and its momentum",
            },
            read=partial(_unlucky, seed),
            hints=disk_hints.SAVE,
            given={"case": how},
        )


def _saved(seed: int, seen: Observed) -> Observed:
    ranks = seen["gave"]
    return {
        "there": [rank["there"] for rank in ranks],
        "holds": [_in_words(seed, rank["holds"]) for rank in ranks],
        "besides": ranks[0]["besides"],
        "moved": "within its folder"
        if all(all(rank["moved"]) for rank in ranks)
        else "from another folder",
    }


def _unlucky(seed: int, seen: Observed) -> Observed:
    found = seen["gave"][0]
    found_there = {name: _in_words(seed, found[name]) for name in ("holds", "the next")}
    return {"ended": found["ended"], "besides": found["besides"], **found_there}


def _in_words(seed: int, found: Any) -> str:
    """Describe a checkpoint in words, compared with the models that `seed` gives."""
    import torch

    if isinstance(found, str):
        return found
    step, here, later = found
    for steps in range(8):
        _, right, right_later = disk.as_written(seed, steps)
        if torch.allclose(here, right):
            momentum = "its momentum" if torch.allclose(later, right_later) else "no momentum"
            return f"step {step}, the model after {steps} steps and {momentum}"
    return f"step {step}, another model"


@exercise("load_checkpoint", lab="10", points=2)
def load_checkpoint(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check that all ranks load the same model and optimizer, and the step to continue with."""
    for about, n, steps in (
        ("2 ranks, no file", 2, None),
        ("3 ranks, rank 0 has the file", 3, rng.randrange(2, 6)),
    ):
        seed = rng.randrange(10**6)
        own = [rng.randrange(10**6) for _ in range(n)]
        file = None if steps is None else disk.written(seed, steps)
        right = "step 0, the model after 0 steps and its momentum"
        if steps is not None:
            right = f"step {steps}, the model after {steps} steps and its momentum"
        nbytes = disk.nbytes()
        least = 0 if steps is None else nbytes  # only rank 0 has the file
        yield Case(
            about,
            asked(
                partial(disk.loaded, answer),
                PerRank([file, *[None] * (n - 1)]),
                PerRank([disk.state(each, 0) for each in own]),
                world_size=n,
                see={"gave": "returned", "handed in": "handed_in"},
            ),
            {
                "ranks": [right] * n,
                "handed in": [Between(least, 8 * nbytes), *[Between(0, 8 * nbytes)] * (n - 1)],
            },
            read=partial(_loaded, own if steps is None else [seed] * n, own),
            hints=disk_hints.LOAD,
            given={"steps": steps},
            trivial=steps is None,
        )
    seed = rng.randrange(10**6)
    whole = disk.written(seed, 3)
    yield Case(
        "a file that was cut in the middle",
        asked(
            partial(disk.of_a_cut_file, answer, whole[: len(whole) // 2], disk.state(seed, 0)),
            world_size=1,
            see={"gave": "returned"},
        ),
        {"ended": "raised", "file": "as it was"},
        read=lambda seen: dict(seen["gave"][0]),
        hints=disk_hints.LOAD,
        given={"steps": 3},
        trivial=True,  # a rank alone
    )


def _loaded(right: Sequence[int], own: Sequence[int], seen: Observed) -> Observed:
    in_words = []
    for seed, before, found in zip(right, own, seen["gave"], strict=True):
        what = _in_words(seed, found)
        if "another" in what and "another" not in _in_words(before, found):
            what = f"step {found[0]}, its own model"
        in_words.append(what)
    return {"ranks": in_words, "handed in": seen["handed in"]}


# checkpoint_every


@exercise("checkpoint_every", lab="10", points=1)
def checkpoint_every(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the time between checkpoints at which the least time is lost."""
    for saves, failures in (((40, 80), (2, 5)), ((8, 20), (2, 5)), ((4, 8), (0.1, 0.8))):
        save, failure = float(rng.randrange(*saves)), 3600 * rng.uniform(*failures)
        yield Case(
            f"{save:.0f} s to save, a failure every {failure / 60:.0f} minutes",
            partial(_every, answer, save, failure),
            {"lost": Close(sqrt(2 * save / failure), digits=2)},
            read=partial(_lost, save, failure),
            hints=hints.EVERY,
            given={"save": save, "failure": failure},
        )


def _every(answer: Answer, save: float, failure: float) -> Observed:
    return {"every": float(answer(save, failure))}


def _lost(save: float, failure: float, seen: Observed) -> Observed:
    """Return the share of the time that is lost by saving and by repeated work."""
    every = seen["every"]
    return {"lost": hints.lost(every, save, failure) if every > 0 else float("inf")}


# supervise


@exercise("supervise", lab="10", points=2)
def supervise(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check a supervisor that restarts a run without its dead ranks, within limits."""
    for about, ends, arguments, started, ended in attempts.drawn(rng):
        yield Case(
            about,
            partial(attempts.supervised, answer, ends, arguments),
            {"started": started, "ended": ended},
            hints=hints.SUPERVISE,
            given={"arguments": arguments, "ends": ends},
            trivial=about == "all is well",
        )


# drifted


@exercise("drifted", lab="10", points=3)
def drifted(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check that all ranks get the names of differing tensors, for a few sent bytes."""
    for about, n, changes, drifts in drift.drawn(rng):
        part = f"part{rng.randrange(10, 100)}"
        names = [f"{part}.{name}" for name in drifts]
        yield Case(
            about,
            asked(
                partial(drift.on_a_rank, answer, part),
                PerRank([changes.get(rank, {}) for rank in range(n)]),
                world_size=n,
                see={"names": "returned", "handed in": drift.cheap},
            ),
            {"names": [names] * n, "handed in": "at most 64 bytes a tensor"},
            hints=drift.HINTS,
            given={"about": about, "n": n, "right": names},
            trivial=not names,
            stop_if="raised",
        )


# The clinic


def _patient(name: str) -> Callable[[Answer, random.Random], Iterator[Case]]:
    def cases(answer: Answer, rng: random.Random) -> Iterator[Case]:
        yield from clinic.cases(name, answer, rng)

    cases.__doc__ = f"Patient {name}: the cause, the rank, and a mend that heals it."
    return cases


for _name in clinic.DIAGNOSES:
    exercise(f"patient_{_name.lower()}", lab="10", points=1)(_patient(_name))
