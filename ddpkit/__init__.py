"""Learn distributed training on real ranks. The public names:

Cluster    real torch.distributed ranks, started from a notebook
Run        the outcome of a run: results, output, trace, traffic
torchrun   a script under real torchrun, from a cell
PerRank    an argument with one item for every rank
Trace      the acts of every rank, with their times; `show` draws it
show       the timeline of a run
span       names a stretch of a rank's work for the timeline
step       marks a training step that does not end with a step of an optimizer
busy       works for a stated duration
same       compares a model on all ranks
stated     gives a tensor its values, in a run that computes no values
check      checks the answer to an exercise
beside     a prediction beside the measured number, and their ratio
carry      your own answer to an earlier exercise, or the kit's
course     the labs, and your solved exercises in each

DdpkitError and its kinds are in `ddpkit.errors`, drawn as a tree.

The rooms, from the top (ARCHITECTURE.md has the layers of imports): commands; grade; authoring;
checks, capstone and exercises; faults; cluster; mesh, measure, rank, view; protocol; simulate;
trace; and the plain things asked, link, networks, machine, machine_numbers, data, answers, files,
source, text, torch_private.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddpkit.cluster import Cluster, Run
from ddpkit.cluster.elastic import ElasticRun, torchrun
from ddpkit.errors import (
    CallError,
    ClusterError,
    DdpkitError,
    Deadlock,
    GradeError,
    LessonError,
    Mismatch,
    RankDied,
    RankError,
    RunFailed,
    RunTimeout,
    TraceError,
    UnsupportedTorch,
)
from ddpkit.protocol.per_rank import PerRank
from ddpkit.rank.emulation.busy import busy
from ddpkit.rank.record.marks import span, step
from ddpkit.rank.same import same
from ddpkit.rank.stated import stated
from ddpkit.trace import Trace

if TYPE_CHECKING:
    from ddpkit.exercises.carry import carry
    from ddpkit.exercises.check import check
    from ddpkit.exercises.course import course
    from ddpkit.exercises.guess import beside
    from ddpkit.view import show

__version__ = "0.3.0"

__all__ = [
    "CallError",
    "Cluster",
    "ClusterError",
    "DdpkitError",
    "Deadlock",
    "ElasticRun",
    "GradeError",
    "LessonError",
    "Mismatch",
    "PerRank",
    "RankDied",
    "RankError",
    "Run",
    "RunFailed",
    "RunTimeout",
    "Trace",
    "TraceError",
    "UnsupportedTorch",
    "beside",
    "busy",
    "carry",
    "check",
    "course",
    "same",
    "show",
    "span",
    "stated",
    "step",
    "torchrun",
]


def __getattr__(name: str) -> Any:
    """Load names for readers of lessons on demand, because a rank never needs these names."""
    if name in ("beside", "carry", "check", "course"):
        from ddpkit import exercises

        return getattr(exercises, name)
    if name == "show":
        from ddpkit import view

        return view.show
    raise AttributeError(f"module 'ddpkit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
