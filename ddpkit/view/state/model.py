"""`state_model`: the bytes of a training's state on each rank, stage by stage of ZeRO. Pure."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

from ddpkit.text import columns, count, plural, size

StateBytes: TypeAlias = Callable[[int, int, int], int]  # (parameters, ranks, stage) -> bytes
# bytes for each parameter; stage 1 shards the first kind, stage 2 two kinds, stage 3 all kinds
WHOLE = {"optimizer": 12, "gradients": 2, "parameters": 2}
STAGES = range(len(WHOLE) + 1)
SHARED = ("nothing shared out", "the optimizer is", "gradients too", "parameters too")


@dataclass(frozen=True, slots=True)
class StateBar:
    """The bytes of one stage on a rank."""

    stage: int
    by_kind: dict[str, int]  # parameters first, as in the bar
    total: int
    least: int  # bytes on a rank if there are as many ranks as parameters
    enough: int | None  # the fewest ranks on which the stage fits; None: no number is enough


@dataclass(frozen=True)
class StateModel:
    """The bars of all stages, and the memory that a rank has."""

    parameters: int
    ranks: int
    memory: int  # bytes
    bars: tuple[StateBar, ...]

    @property
    def title(self) -> str:
        billions = self.parameters / 1e9
        return f"{billions:.4g} billion parameters on {count(self.ranks, 'rank')}, 16 bytes each"

    @property
    def text(self) -> str:
        """The finding: the bytes that each rank holds in each stage."""
        takes = ", ".join(f"{size(bar.total)} in stage {bar.stage}" for bar in self.bars)
        return f"Each rank holds {takes}."

    @property
    def notice(self) -> str:
        """The fewest ranks on which each stage fits, in a sentence."""
        fits = []
        for enough, same in groupby(self.bars, key=lambda bar: bar.enough):
            stages = [str(bar.stage) for bar in same]
            where = f"in {plural(len(stages), 'stage')} {', '.join(stages)}"
            fits.append(f"{where} from {count(enough, 'rank')} on" if enough else f"never {where}")
        return f"Notice: in {size(self.memory)}, the model's state fits {', '.join(fits)}."

    def table(self) -> str:
        """Return all bars as text."""
        kinds = list(self.bars[0].by_kind)
        rows = [["stage", *kinds, "on each", "at least", "fits from"]]
        for bar in self.bars:
            numbers = [*bar.by_kind.values(), bar.total, bar.least]
            enough = f"{bar.enough:,} ranks" if bar.enough else "never"
            rows.append([str(bar.stage), *map(size, numbers), enough])
        return "\n".join([self.title, *columns(rows), self.notice])


def state_model(
    state_bytes: StateBytes, parameters: int, ranks: int = 64, memory: int = 80 * 10**9
) -> StateModel:
    """Return the bars for ``state_bytes(parameters, ranks, stage)``, the function of lab 13.

    Each stage shards one more kind of state, so the bytes that a stage saves, compared with the
    stage before, belong to this kind. Source of the stages: S. Rajbhandari and others, ZeRO, 2020,
    figure 1. Raises ValueError for fewer than one parameter or rank.
    """
    if parameters < 1 or ranks < 1:
        raise ValueError(
            f"give 1 parameter or more and 1 rank or more, not {parameters=}, {ranks=}"
        )
    held = {kind: each * parameters for kind, each in WHOLE.items()}
    bars: list[StateBar] = []
    for stage, kind in zip(STAGES, ["", *WHOLE], strict=True):
        total = state_bytes(parameters, ranks, stage)
        if kind:
            held[kind] = max(0, held[kind] - (bars[-1].total - total))
        by_kind = {each: held[each] for each in reversed(WHOLE)}
        least = state_bytes(parameters, parameters, stage)
        enough = _enough(state_bytes, parameters, stage, memory) if least <= memory else None
        bars.append(StateBar(stage, by_kind, total, least, enough))
    return StateModel(parameters, ranks, memory, tuple(bars))


def _enough(state_bytes: StateBytes, parameters: int, stage: int, memory: int) -> int:
    """Return the fewest ranks on which a stage fits; it must fit with one rank per parameter."""
    counts = range(1, parameters + 1)
    fits: Callable[[int], bool] = lambda n: state_bytes(parameters, n, stage) <= memory  # noqa: E731
    return counts[bisect_left(counts, True, key=fits)]
