"""Lab 06's `DistributedDataParallel` beside torch's, and the best size of a bucket.

    python -m benchmarks.ddp [--quick] [--markdown] [--figure overlap.png] [--device cuda]

Prints, for three models on 2 and 4 ranks, on raw gloo and on an emulated link,
- ours ÷ torch's: the step (goal ≤ 1.02), and the shares of communication that both hide;
- naive ÷ ours: naive is an all-reduce for each parameter, after backward;
- on the link, ours ÷ (the longer of compute and communication + the last bucket) (goal ≤ 1.1),
  also for a model that sleeps in place of computing: two ranks that compute on two cores leave no
  core for communication, which is copying on the CPU;
then the share that torch's DDP hides if compute takes as long as communication (goal ≥ 80 %), with
a picture; and the step time against the bucket cap, and `best_cap`'s choice ÷ the best measured
(goal ≤ 1.05).

With `--device cuda`, prints the steps alone, on GPUs: NCCL with a GPU for each rank, else gloo.

All variants take their steps in turns, inside the same ranks, so that a busy machine slows all
variants alike. A ratio is the median over rounds; in each round, the two variants are measured one
after the other. Both wrappers have the same caps, and gradients as views of the buckets.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from statistics import mean, median
from typing import Any

from tqdm import tqdm

from benchmarks import _ddp
from benchmarks._report import as_markdown, as_text, machine
from ddpkit import Cluster, Trace, answers
from ddpkit.link import Link
from ddpkit.simulate import Step, cost
from ddpkit.simulate.step.whatif import moved
from ddpkit.view import timeline_model
from ddpkit.view.timeline.figure import draw_timeline

LINK = "1 Gbit/s, 200 us"
BATCHES = {"wide MLP": 512, "conv net": 32, "transformer": 16}
DEVICE = "emulated device"  # sleeps in place of computing, so communication has the cores alone
CAP_MB = 0.5
CAPS_MB = (0.03, 0.06, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
VARIANTS = {"alone": CAP_MB, "naive": CAP_MB, "torch": CAP_MB, "ours": CAP_MB}
BALANCED = "balanced device"  # like DEVICE, with as much compute as communication
GOAL, BOUND_GOAL, CAP_GOAL, HIDDEN_GOAL = 1.02, 1.10, 1.05, 0.8


def measure(
    model: str,
    ranks: int,
    link: str | None,
    caps: dict[str, float],
    steps: int,
    device: str = "cpu",
) -> Any:
    """Return the run of `_ddp.in_turns`."""
    cluster, batch = Cluster(ranks, link=link, device=device), BATCHES.get(model, 8)
    return cluster.run(_ddp.in_turns, model, batch, caps, steps)


def seconds(run: Any, variant: str) -> list[float]:
    """Return the seconds of each step, from the first rank's start to the last rank's end."""
    rounds = zip(*(windows[variant] for windows in run.results), strict=True)
    return [(max(e for _, e in each) - min(s for s, _ in each)) / 1e9 for each in rounds]


def ratio(run: Any, one: str, other: str) -> float:
    """Return the median, over the rounds, of one variant's step ÷ another variant's."""
    pairs = zip(seconds(run, one), seconds(run, other), strict=True)
    return median(a / b for a, b in pairs)


def hidden(run: Any, variant: str) -> float:
    """Return the share of a variant's communication that overlaps compute, over ranks and steps."""
    parts = [
        Trace(run.trace.spans, run.trace.world_size, {}, {rank: window}).breakdown()[rank]
        for rank, windows in enumerate(run.results)
        for window in windows[variant]
    ]
    return sum(p.overlapped_ns for p in parts) / (sum(p.comm_ns for p in parts) or 1)


def buckets(run: Any, variant: str) -> list[int]:
    """Return the bytes of each all-reduce of a variant's last step, in order."""
    start, end = run.results[0][variant][-1]
    posted = sorted((s.start_ns, s.bytes) for s in run.trace.of(0) if s.name == "all_reduce")
    return [nbytes for at, nbytes in posted if start <= at < end]


def bound(run: Any, link: str) -> float:
    """Return a lower bound of the overlapped step, in seconds (see the module's docstring)."""
    costs = [
        cost("ring", run.trace.world_size, nbytes, Link.parse(link)) / 1e9
        for nbytes in buckets(run, "ours")
    ]
    return max(median(seconds(run, "alone")), sum(costs)) + costs[-1]


def chosen_cap(model: str, steps: int) -> float:
    """Return the choice of lab 05's `best_cap` from one recorded run on the link.

    The latency given to `best_cap` is the link's latency plus half of the mean time that an
    all-reduce took beyond the link's time, because each further bucket waits once more for a busy
    core.
    """
    run = measure(model, 2, LINK, {"ours": CAP_MB}, steps)
    link = Link.parse(LINK)
    beyond_ns = mean(max(0, ns - cost("ring", 2, nbytes, link)) for nbytes, ns in moved(run.trace))
    gradients = Step.typical(run.trace).gradients
    choice = answers.get("best_cap")(
        CAPS_MB,
        [gradient.ready_ns / 1e9 for gradient in gradients],
        [gradient.bytes for gradient in gradients],
        (link.latency_ns + beyond_ns / 2) / 1e9,
        link.bytes_per_s,
        2,
    )
    return float(choice)


def step_row(
    model: str, ranks: int, link: str | None, steps: int, device: str = "cpu"
) -> list[str]:
    run = measure(model, ranks, link, VARIANTS, steps, device)
    facts = run.trace.facts
    row = [model, str(ranks), link or f"raw {facts['backend']}, {facts['device']}"]
    row += [f"{median(seconds(run, variant)) * 1e3:.1f}" for variant in VARIANTS]
    row += [f"{ratio(run, 'ours', 'torch'):.3f}", f"{ratio(run, 'naive', 'ours'):.2f}"]
    row += [f"{hidden(run, 'ours'):.0%}, {hidden(run, 'torch'):.0%}"]
    return [*row, f"{median(seconds(run, 'ours')) / bound(run, link):.2f}" if link else ""]


def balanced(steps: int, path: str) -> str:
    """Return the share that torch's DDP hides if compute takes as long as communication.

    Writes a picture of one step.
    """
    run = measure(BALANCED, 2, LINK, {"alone": CAP_MB, "torch": CAP_MB}, steps)
    costs = [cost("ring", 2, nbytes, Link.parse(LINK)) for nbytes in buckets(run, "torch")]
    share, alone = hidden(run, "torch"), median(seconds(run, "alone"))
    trace = measure(BALANCED, 2, LINK, {"torch": CAP_MB}, 3).trace
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    draw_timeline(timeline_model(trace, step=-1)).savefig(path)
    return (
        f"compute {alone * 1e3:.0f} ms, communication {sum(costs) / 1e6:.0f} ms, 2 ranks, {LINK}: "
        f"torch's hides {share:.0%} of it (goal ≥ {HIDDEN_GOAL:.0%}), in a step of "
        f"{median(seconds(run, 'torch')) * 1e3:.0f} ms; picture: {path}"
    )


def cap_row(model: str, steps: int) -> list[str]:
    """Return a row of step times by cap; caps that make the same buckets share their steps."""
    variants = {cap: f"ours {cap:g}" for cap in CAPS_MB}
    run = measure(model, 2, LINK, {variant: cap for cap, variant in variants.items()}, steps)
    layouts = {cap: tuple(buckets(run, variant)) for cap, variant in variants.items()}
    pools: dict[tuple[int, ...], list[float]] = defaultdict(list)
    for cap, variant in variants.items():
        pools[layouts[cap]] += seconds(run, variant)
    times = {cap: median(pools[layouts[cap]]) for cap in CAPS_MB}
    choice, best = chosen_cap(model, steps), min(times, key=lambda cap: times[cap])
    row = [model, *(f"{times[cap] * 1e3:.1f}" for cap in CAPS_MB), f"{choice:g}", f"{best:g}"]
    return [*row, f"{times[choice] / times[best]:.3f}"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one model, 2 ranks, 5 steps")
    parser.add_argument("--markdown", action="store_true", help="the tables as for BENCHMARKS.md")
    parser.add_argument("--figure", default="tests/artifacts/overlap.png", metavar="PNG")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="of the steps")
    options = parser.parse_args()
    models = ["wide MLP"] if options.quick else list(BATCHES)
    worlds, steps = ((2,), 5) if options.quick else ((2, 4), 30)
    layout = as_markdown if options.markdown else as_text
    print(machine())
    links = (None, LINK) if options.device == "cpu" else (None,)
    cases = [(m, n, link) for link in links for n in worlds for m in models]
    cases += [(DEVICE, n, LINK) for n in worlds if LINK in links]
    in_turn = tqdm(cases, unit="case", leave=False, disable=None)
    rows = [step_row(*case, steps, options.device) for case in in_turn]
    head = ["model", "ranks", "network", *(f"{variant}, ms" for variant in VARIANTS)]
    head += ["ours ÷ torch", "naive ÷ ours", "hidden: ours, torch", "ours ÷ bound"]
    print(layout([head, *rows]))
    ratios = [float(row[7]) for row in rows]
    print(f"\nours ÷ torch: {min(ratios):.3f} to {max(ratios):.3f}, ", end="")
    print(f"median {median(ratios):.3f} (goal ≤ {GOAL})")
    if options.device == "cuda":
        return
    for what, judged in (("computing on the cores", models), (DEVICE, [DEVICE])):
        bounds = [float(row[10]) for row in rows if row[10] and row[0] in judged]
        print(f"ours ÷ bound, {what}: {min(bounds):.2f} to {max(bounds):.2f}", end=" ")
        print(f"(goal ≤ {BOUND_GOAL:.2f})")
    print(balanced(steps, options.figure), end="\n\n")
    rows = [
        cap_row(model, steps) for model in tqdm(models, unit="model", leave=False, disable=None)
    ]
    head = [f"ms a step, 2 ranks, {LINK}", *(f"{cap:g} MB" for cap in CAPS_MB)]
    print(layout([[*head, "best_cap", "best", "its step ÷ the best"], *rows]))
    worst = max(float(row[-1]) for row in rows)
    print(f"\nbest_cap's choice ÷ the best measured: at most {worst:.3f} (goal ≤ {CAP_GOAL})")


if __name__ == "__main__":
    main()
