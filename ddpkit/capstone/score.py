"""The score of a training: the median of three runs, with its spread and what it cost."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from ddpkit.capstone.task import GIVEN_MS, TARGET, TextTask, floor_ms
from ddpkit.capstone.trained import Outcome, observed, on_a_rank, outcome
from ddpkit.cluster.torchrun.job import active, job
from ddpkit.exercises.progress import folder, write
from ddpkit.exercises.say import say

FILE = "capstone.json"  # in the folder of a student's progress
SEEDS = (1, 2, 3)
EQUAL = 0.03  # scores that differ by less are called equal
HEAD = f"{'':12} {'ms':>7} {'spread':>11} {'times':>6} {'loss':>6} {'MB sent':>8} {'peak MB':>8}"


@dataclass(frozen=True)
class TrainingScore:
    """What several runs of one training came to: the median of each, and the range of times."""

    name: str
    ms: float
    least_ms: float
    most_ms: float
    loss: float  # the worst of them
    sent: float  # bytes
    peak: float  # bytes
    why: str = ""  # it is not ranked; "" if it is
    real: bool = False  # by the machine's own clock: nothing that is emulated compares with it

    @property
    def line(self) -> str:
        """A row of the table."""
        spread = f"{self.least_ms:,.0f}–{self.most_ms:,.0f}"
        times, peak = f"{GIVEN_MS / self.ms:.2f}", f"{self.peak / 1e6:.1f}"
        if self.real:
            times, peak = "–", "–"
        return (
            f"{self.name[:12]:12} {self.ms:7,.0f} {spread:>11} {times:>6} "
            f"{self.loss:6.2f} {self.sent / 1e6:8.1f} {peak:>8}  {self.why}".rstrip()
        )


def score(
    train: Callable[..., Any], name: str = "mine", seeds: Sequence[int] = SEEDS
) -> TrainingScore:
    """Train once for each seed, print the table of your scores, and return the new one.

    train  called on each of four ranks as ``train(model, text)``; it trains the model in place
    name   the row of the table; a better score of a name replaces the one before

    Each seed has a text and a model of its own. The table is kept in ``.ddpkit/capstone.json``.
    Under torchrun time is real: the score is shown, and is not ranked. Raises what `train` raises.
    """
    if active():
        shown = _real(train, name, seeds[0])
        say(f"{HEAD}\n{shown.line}\n")
        return shown
    runs = []
    for seed in seeds:
        task = TextTask(seed)
        runs.append(outcome(task, observed(train, task.model(), task.text)))
    new = score_of(name, runs)
    kept = {each.name: each for each in kept_scores()}
    if not new.why:
        old = kept.get(name)
        kept[name] = new if old is None or new.ms <= old.ms else old
        rows = [asdict(each) for each in kept.values()]
        write(folder() / FILE, json.dumps({"format": 1, "scores": rows}, indent=1) + "\n")
    say(table(new, kept.values()))
    return new


def score_of(name: str, runs: Sequence[Outcome]) -> TrainingScore:
    """The score of runs, and why it is not ranked, if it is not."""
    times = [each.ms for each in runs]
    worst = max(each.loss for each in runs)
    return TrainingScore(
        *(name, median(times), min(times), max(times), worst),
        *(median(each.sent for each in runs), median(each.peak for each in runs)),
        next(filter(None, map(unranked, runs)), ""),
    )


def unranked(run: Outcome) -> str:
    """Why a run is not ranked; "" if it is."""
    why = {
        "cannot be recomputed": "torch's DDP, or a callback: its time cannot be recomputed",
        "below the floor": "below the floor, so not trained by gradients that were counted",
        "not that of the clock": "its time is not that of its work",
        "other weights": "the training did not start from the given weights",
        "one rests": "a rank rests",
        "one is silent": "a rank sends less than one gradient",
        "different": "the replicas differ",
    }
    for found in (run.time, run.start, run.ranks, run.replicas):
        if found in why:
            return f"not ranked: {why[found]}"
    return "" if run.loss < TARGET else f"not ranked: the loss is above {TARGET}"


def kept_scores() -> list[TrainingScore]:
    """The scores in the student's file; none if there is no such file, or it is damaged."""
    try:
        data = json.loads((folder() / FILE).read_text("utf-8"))
        return [TrainingScore(**each) for each in data["scores"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def table(new: TrainingScore, kept: Iterable[TrainingScore]) -> str:
    """The scores as a text, the fastest first, between the given script and the floor."""
    rows = sorted(
        {each.name: each for each in [*kept, *([new] if new.why else [])]}.values(),
        key=lambda each: each.ms,
    )
    told = [HEAD, *(each.line for each in rows)]
    told += [f"{'given script':12} {GIVEN_MS:7,.0f} {'':11} {1:6.2f}"]
    told += [f"{'floor':12} {floor_ms():7,.0f}   nobody can be faster"]
    ranked = [each for each in rows if not each.why]
    if len(ranked) > 1 and ranked[1].ms <= ranked[0].ms * (1 + EQUAL):
        told += [f"{ranked[0].name} and {ranked[1].name} are equal: less than 3 % between them."]
    return "\n".join(told) + "\n"


def _real(train: Callable[..., Any], name: str, seed: int) -> TrainingScore:
    """A run under torchrun, on as many ranks as there are, by their own clocks."""
    from ddpkit.cluster import Cluster

    task, n = TextTask(seed), job().size
    run = Cluster(n).run(_timed, train, task.model(), task.text)
    models, seconds = zip(*run.results, strict=True)
    alike = all(bool((each - models[0]).abs().max() <= 1e-4) for each in models)
    why = f"real time on {n} ranks: not ranked" + ("" if alike else "; the replicas differ")
    sent = sum(one.bytes for one in run.trace.spans if one.is_comm)
    ms = max(seconds) * 1000
    return TrainingScore(name, ms, ms, ms, task.loss(models[0]), sent, 0.0, why, real=True)


def _timed(train: Callable[..., Any], model: Any, text: Any) -> tuple[Any, float]:
    """The parameters, and the seconds that this rank took for them."""
    import torch.distributed as dist

    dist.barrier()
    start = time.perf_counter()
    parameters = on_a_rank(train, model, text)
    return parameters, time.perf_counter() - start
