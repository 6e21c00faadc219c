"""The score of a training: the medians of time, bytes and memory over several runs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING

from ddpkit.capstone.task import GIVEN_MS, GIVEN_PEAK, GIVEN_SENT, TextTask, floor_ms
from ddpkit.capstone.trained import Outcome, observed, on_a_rank, outcome
from ddpkit.cluster.torchrun.job import active, job
from ddpkit.exercises.progress import folder, write
from ddpkit.exercises.say import say

if TYPE_CHECKING:
    from torch import Tensor, nn

FILE = "capstone.json"  # a file in the folder of a student's progress
FORMAT = 2  # version of the file; a new task gets a new version, so that old scores are dropped
SEEDS = (1, 2)
EQUAL = 0.03  # relative difference in time; scores with a smaller difference are called equal
HEAD = f"  {'':12} {'ms':>7} {'times':>6} {'loss':>6} {'MB sent':>8} {'peak MB':>8}"


@dataclass(frozen=True)
class TrainingScore:
    """The costs of several runs of one training: the median of each cost, and the worst loss."""

    name: str
    ms: float
    loss: float
    sent: float  # bytes
    peak: float  # bytes
    why: str = ""  # the reason why the score is not ranked; "" for a ranked score
    real: bool = False  # True if the time is real, and so not comparable with emulated times

    @property
    def line(self) -> str:
        """The score as a row of the table."""
        times = "–" if self.why else f"{GIVEN_MS / self.ms:.2f}"
        peak = "–" if self.real else f"{self.peak / 1e6:.1f}"
        return (
            f"{self.name[:12]:12} {self.ms:7,.0f} {times:>6} "
            f"{self.loss:6.2f} {self.sent / 1e6:8.1f} {peak:>8}  {self.why}".rstrip()
        )

    @property
    def costs(self) -> tuple[float, float, float]:
        """The time in ms, the bytes sent, and the peak memory in bytes."""
        return self.ms, self.sent, self.peak


def best(scores: Iterable[TrainingScore]) -> list[TrainingScore]:
    """Return the Pareto front of the ranked scores.

    A score is beaten if some score is as good in time, bytes and memory, and better in at least
    one of the three. The front has the scores that are not beaten.
    """
    ranked = [each for each in scores if not each.why]
    return [one for one in ranked if not any(_beats(other, one) for other in ranked)]


def _beats(other: TrainingScore, one: TrainingScore) -> bool:
    pairs = list(zip(other.costs, one.costs, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def score(
    train: Callable[..., object], name: str = "mine", seeds: Sequence[int] = SEEDS
) -> TrainingScore:
    """Train once for each seed, print the table of your scores, and return the new score.

    train  a function that trains the model in place; each rank calls ``train(model, shard)``
    name   the name of the row in the table; a new ranked score replaces the old score of the name
    seeds  the seeds of the task; each seed has a different language and a different model

    There are four ranks. The table is kept in ``.ddpkit/capstone.json``. Under torchrun the time is
    real, and the score is shown but not ranked. Errors of `train` reach the caller.
    """
    if active():
        shown = _real(train, name, seeds[0])
        say(f"{HEAD}\n{shown.line}\n")
        return shown
    runs = []
    for seed in seeds:
        task = TextTask(seed)
        runs.append(outcome(task, observed(train, task)))
    new = score_of(name, runs)
    kept = {each.name: each for each in kept_scores()}
    if not new.why:
        kept[name] = new
        rows = [asdict(each) for each in kept.values()]
        write(folder() / FILE, json.dumps({"format": FORMAT, "scores": rows}, indent=1) + "\n")
    say(table(new, kept.values()))
    return new


def score_of(name: str, runs: Sequence[Outcome]) -> TrainingScore:
    """Return the score of several runs, with a reason if the score is not ranked."""
    return TrainingScore(
        name,
        median(each.ms for each in runs),
        max(each.loss for each in runs),
        median(each.sent for each in runs),
        median(each.peak for each in runs),
        next(filter(None, map(unranked, runs)), ""),
    )


def unranked(run: Outcome) -> str:
    """Return the reason why a run is not ranked; "" for a ranked run."""
    why = {
        "cannot be recomputed": "torch's DDP, or a callback: its time cannot be recomputed",
        "too little": "the ranks compute less than the gradients of all stretches",
        "not that of the clock": "its time is not that of its work",
        "different": "the replicas differ",
        "another": "the model is not the given script's",
    }
    for found in (run.time, run.replicas, run.model):
        if found in why:
            return f"not ranked: {why[found]}"
    return ""


def kept_scores() -> list[TrainingScore]:
    """Return the scores in the student's file; none if the file is missing or damaged."""
    try:
        data = json.loads((folder() / FILE).read_text("utf-8"))
        return [TrainingScore(**each) for each in data["scores"] if data["format"] == FORMAT]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def table(new: TrainingScore, kept: Iterable[TrainingScore]) -> str:
    """Return the scores as a text, the fastest first. A star marks the scores on the front."""
    rows = sorted(
        {each.name: each for each in [*kept, *([new] if new.why else [])]}.values(),
        key=lambda each: each.ms,
    )
    unbeaten = best(rows)
    told = [HEAD, *(f"{'*' if each in unbeaten else '':2}{each.line}" for each in rows)]
    costs = f"{1:6.2f} {'':6} {GIVEN_SENT / 1e6:8.1f} {GIVEN_PEAK / 1e6:8.1f}"
    told += [f"  {'given script':12} {GIVEN_MS:7,.0f} {costs}"]
    told += [f"  {'floor':12} {floor_ms():7,.0f}   nobody can be faster"]
    ranked = [each for each in rows if not each.why]
    if len(ranked) > 1 and ranked[1].ms <= ranked[0].ms * (1 + EQUAL):
        told += [f"{ranked[0].name} and {ranked[1].name} are equal: less than 3 % between them."]
    return "\n".join(told) + "\n"


def _real(train: Callable[..., object], name: str, seed: int) -> TrainingScore:
    """Return the score of a run under torchrun, on all ranks of the job, in real time."""
    from ddpkit.cluster import Cluster

    task, n = TextTask(seed), job().size
    run = Cluster(n).run(_timed, train, task.model(), task.shards)
    models, seconds = zip(*run.results, strict=True)
    alike = all(bool((each - models[0]).abs().max() <= 1e-4) for each in models)
    why = f"real time on {n} ranks: not ranked" + ("" if alike else "; the replicas differ")
    sent = sum(one.bytes for one in run.trace.spans if one.is_comm)
    ms = max(seconds) * 1000
    return TrainingScore(name, ms, task.loss(models[0]), sent, 0.0, why, real=True)


def _timed(
    train: Callable[..., object], model: nn.Module, shards: Sequence[list[list[Tensor]]]
) -> tuple[Tensor, float]:
    """Train on this rank. Return the parameters and the duration in seconds."""
    import torch.distributed as dist

    shard = shards[dist.get_rank() % len(shards)]  # torchrun may start more ranks, or fewer
    dist.barrier()
    start = time.perf_counter()
    parameters = on_a_rank(train, model, shard)
    return parameters, time.perf_counter() - start
