"""Watches over a run: the mistakes that they name, and their cost.

    python -m benchmarks.accusations [--quick] [--markdown] [--part cost|mutants] [--seed 1]

Prints two tables. *Cost*: each watch's share of a training step on three ranks; the watch's time
and the step's processor time are taken in the same steps. The table also has the step of a strict
run beside a usual step, in turns. *Mutants*: 200 training loops with one machine-made communication
mistake each (dropped, doubled or moved calls, wrong group, wrong rank, missing contiguous, or
missing wait). The table has the shares of runs that name the mutated line, that say something else,
and that say nothing although numbers are wrong. A silent mutant with right numbers is no mistake.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import linecache
import math
import re
import time
from collections import Counter
from collections.abc import Callable
from random import Random
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from tqdm import tqdm

from benchmarks._loops import Loop, loops, mutants
from benchmarks._report import as_markdown, as_text, machine
from ddpkit import Cluster, RunFailed

RANKS, TIMEOUT, MUTANTS = 3, 60, 200
WIDTH, LAYERS, BATCH = 256, 6, 64  # a step of about 10 ms
WARM = 3  # first steps, which do not count
OUTCOMES = ("cause named", "named in part", "silent, wrong numbers", "no mistake", "false alarm")


# Cost


def timed_steps(steps: int) -> dict[str, float]:
    """Return the processor time of the steps, and of each watch in them, in seconds, on a rank."""
    from ddpkit.rank.group import changed, layout, shared_memory
    from ddpkit.rank.record.replicas import Replicas

    own: Counter[str] = Counter()

    def wrap(home: Any, name: str, label: str) -> None:
        original = getattr(home, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            before = time.thread_time()
            begun = time.thread_time()
            try:
                return original(*args, **kwargs)
            finally:  # without the time that reading the clock takes
                own[label] += time.thread_time() - begun - (begun - before)

        setattr(home, name, call)

    wrap(layout, "order", "layout.py")
    wrap(shared_memory, "check", "shared_memory.py")
    wrap(changed, "versions", "changed.py")
    wrap(changed, "have_changed", "changed.py")
    wrap(Replicas, "_prints", "replicas.py")
    step = _trainer()
    for _ in range(WARM):
        step()
    own.clear()
    begun = time.process_time()
    for _ in range(steps):
        step()
    return {"step": time.process_time() - begun, **own}


def strict_steps(blocks: int) -> dict[str, list[float]]:
    """Return the processor time of usual and of strict steps, in turns, in seconds, on a rank."""
    from ddpkit.rank.group.in_flight import InFlight

    step, taken = _trainer(), dict[str, list[float]](usual=[], strict=[])
    for block in range(-WARM, blocks):
        for name in ("usual", "strict"):
            mode = InFlight(dist.get_rank(), users_only=True) if name == "strict" else None
            with mode or contextlib.nullcontext():
                begun = time.process_time()
                step()
                if block >= 0:
                    taken[name].append(time.process_time() - begun)
    return taken


def _trainer() -> Callable[[], None]:
    """Return a step with an asynchronous all_reduce for each gradient, and one for the loss."""
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    model, rows = torch.nn.Sequential(*layers), torch.randn(BATCH, WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        loss = model(rows).pow(2).mean()
        loss.backward()
        works = [dist.all_reduce(p.grad, async_op=True) for p in model.parameters()]
        for work in works:
            work.wait()
        dist.all_reduce(loss.detach())
        optimizer.step()

    return step


def cost(steps: int) -> list[list[str]]:
    """Return the table of costs."""
    cluster = Cluster(RANKS)
    found = cluster.run(timed_steps, steps).results
    rows = [["watch", "goal", "share of a step", "ms of a step"]]
    step = sum(each["step"] for each in found) / steps / len(found)
    labels = dict.fromkeys(label for each in found for label in each if label != "step")
    shares = {label: sum(e.get(label, 0.0) for e in found) for label in labels}
    whole = sum(each["step"] for each in found)
    shares["lines.py, in the launcher"] = _launchers(steps) * steps * len(found)
    for label, seconds in [*shares.items(), ("together", sum(shares.values()))]:
        goal = ""
        if label == "together":
            goal = f"≤ 1 % {'ok' if seconds / whole <= 0.01 else 'MISSED'}"
        ms = 1e3 * seconds / steps / len(found)
        rows.append([label, goal, f"{100 * seconds / whole:.2f} %", f"{ms:.4f}"])
    rows.append(["the step itself", "", "100 %", f"{1e3 * step:.2f}"])
    turns = cluster.run(strict_steps, max(4, steps // 4)).results
    usual, strict = (median(t for each in turns for t in each[name]) for name in turns[0])
    rows.append(["in_flight.py, if strict", "", f"+ {100 * (strict / usual - 1):.0f} %", ""])
    return rows


def _launchers(steps: int) -> float:
    """Return the launcher's seconds for the lines of a step's collectives, divided by the ranks."""
    from ddpkit.cluster.lines import Lines
    from ddpkit.protocol.call import Call

    lines, calls = Lines(), 2 * LAYERS + 1
    what = Call("all_reduce", "", ("train.py", 3), seq=1)
    begun = time.thread_time()
    for _ in range(steps * calls):
        for rank in range(RANKS):
            lines.came(rank, what)
        lines.met(dict.fromkeys(range(RANKS), what))
    return (time.thread_time() - begun) / steps / RANKS


# Mutants


def judge(loop: Loop, right: list[list[float]]) -> tuple[str, str]:
    """Run a loop; return its outcome, and the text of the run."""
    file = f"<mutant of {loop.name}: {loop.kind}>"
    linecache.cache[file] = len(loop.source), None, loop.source.splitlines(True), file
    names: dict[str, Any] = {}
    exec(compile(loop.source, file, "exec"), names)
    said, results = io.StringIO(), None
    try:
        with contextlib.redirect_stdout(said):
            results = Cluster(RANKS).run(names["train"], timeout=TIMEOUT).results
        text = "\n".join(
            line for line in said.getvalue().splitlines() if not line.startswith("[rank")
        )
    except RunFailed as error:
        text = f"{type(error).__name__}: {error}"
    same = results is not None and _equal(results, right)
    if not text.strip():
        return ("no mistake" if same else "silent, wrong numbers"), text
    if same and not loop.kind:
        return "false alarm", text
    near = range(loop.line - 1, loop.line + 4)
    lines = set(map(int, re.findall(r"lines? (\d+)", text)))
    return ("cause named" if lines & {*near} else "named in part"), text


def _equal(results: list[list[float]], right: list[list[float]]) -> bool:
    if [len(each) for each in results] != [len(each) for each in right]:
        return False
    flat = ([number for each in ranks for number in each] for ranks in (results, right))
    pairs = zip(*flat, strict=True)
    return all(math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-5) for one, other in pairs)


def drawn(seed: int, number: int) -> list[Loop]:
    """Return `number` mutants, drawn by `seed` from all mutants of all loops."""
    every = [mutant for loop in loops() for mutant in mutants(loop)]
    return Random(seed).sample(every, min(number, len(every)))


def named(seed: int, number: int, *, log: str | None = None) -> list[list[str]]:
    """Return the table of the mutants' outcomes, by kind; `log` is a file for all texts."""
    right = {}
    for loop in loops():
        outcome, text = judge(loop, [])
        assert not text, f"a right loop is accused: {loop.name}: {text}"
        names: dict[str, Any] = {}
        exec(compile(loop.source, "<loop>", "exec"), names)
        right[loop.name] = Cluster(RANKS).run(names["train"]).results
    found: dict[str, Counter[str]] = {}
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(open(log, "w", encoding="utf-8")) if log else None
        for mutant in tqdm(drawn(seed, number), leave=False, disable=None):
            outcome, text = judge(mutant, right[mutant.name])
            found.setdefault(mutant.kind, Counter())[outcome] += 1
            if out is not None:
                line = mutant.source.splitlines()[mutant.line - 1].strip()
                print(
                    f"== {outcome} | {mutant.name} | {mutant.kind} | {mutant.line}: {line}",
                    file=out,
                )
                print(text, file=out, flush=True)
    total = sum(found.values(), Counter())
    rows = [["mistake", "mutants", *OUTCOMES]]
    for kind, counts in [*sorted(found.items()), ("all", total)]:
        rows.append([kind, str(sum(counts.values())), *(str(counts[each]) for each in OUTCOMES)])
    mistakes = sum(total.values()) - total["no mistake"]
    share = 100 * total["silent, wrong numbers"] / max(1, mistakes)
    shares = [f"{100 * total[each] / max(1, mistakes):.0f} %" for each in OUTCOMES[:2]]
    verdict = "ok" if share <= 5 else "MISSED"
    rows.append(
        ["share of the mistakes", str(mistakes), *shares, f"{share:.1f} % (≤ 5 % {verdict})"]
    )
    rows[-1] += [""] * (len(rows[0]) - len(rows[-1]))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few steps and mutants")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--part", choices=("cost", "mutants"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", help="a file for the text of each mutant's run")
    options = parser.parse_args()
    print(machine())
    as_table = as_markdown if options.markdown else as_text
    if options.part != "mutants":
        print(as_table(cost(20 if options.quick else 200)))
    if options.part != "cost":
        number = 10 if options.quick else MUTANTS
        print(as_table(named(options.seed, number, log=options.log)))


if __name__ == "__main__":
    main()
