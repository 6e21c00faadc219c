"""Lab 13: values from a rank's trace: sent bytes, operations, and blocks in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ddpkit.checks.lab13.on_ranks import REST, STEP
from ddpkit.checks.shared.travel import sent as sent_in
from ddpkit.exercises.ranks import Did
from ddpkit.trace import Span, Trace

SHARD_COPIES = 4  # the shard, Adam's two states, and the check's copy of the gradient


def sent(did: Did) -> list[int]:
    """Return the bytes that each rank sent in the step."""
    return [sent_in(did.trace, rank, STEP) for rank in did.trace.ranks]


def sent_by_all(did: Did) -> int:
    """Return the bytes that all ranks together send in the step."""
    return sum(sent(did))


def kept_at_rest(did: Did) -> list[int]:
    """Return, for each rank, the growth of memory in bytes from before to after the steps.

    Return zeros where memory is not counted: under torchrun, and without a modelled machine.
    """
    if not did.trace.memory:
        return [0] * did.trace.world_size
    found = []
    for rank in did.trace.ranks:
        before, after = (
            next(one for one in did.trace.of(rank) if one.name == name) for name in REST
        )
        found.append(_held(did.trace, rank, after) - _held(did.trace, rank, before))
    return found


def operations(did: Did) -> int:
    """Return the largest number of collectives that a rank calls in the step."""
    return max(len(_collectives(did.trace, rank)) for rank in did.trace.ranks)


def _collectives(trace: Trace, rank: int) -> list[Span]:
    spans = trace.of(rank)
    (step,) = (one for one in spans if one.name == STEP)
    inside = (one for one in spans if step.start_ns <= one.start_ns < step.end_ns)
    return [one for one in inside if one.is_collective and one.bytes]


def blocks_in_memory(lines: Sequence[int], nbytes: int, frozen: int, did: Did) -> dict[str, int]:
    """Return the largest number of whole blocks that any rank holds, at four moments.

    "rest" is the beginning of the last step. The count at "rest" leaves out the shards, Adam's
    state, the check's copy of the shards' gradients, and the frozen parameters. "forward" and
    "backward" are the moments when a block computes. "between" is the moment between the two
    passes. These three count only the memory beyond "rest", without the chunks of gradients that
    exist already. `lines` are the lengths of the blocks' flat tensors. `nbytes` is the size of an
    element in a whole block.
    """
    if not did.trace.memory:  # torchrun uses real machines, and their memory is not counted
        return dict.fromkeys(("rest", "forward", "between", "backward"), 0)
    found = [_of_rank(did.trace, rank, lines, nbytes, frozen) for rank in did.trace.ranks]
    return {name: max(each[name] for each in found) for name in found[0]}


def _of_rank(
    trace: Trace, rank: int, lines: Sequence[int], nbytes: int, frozen: int
) -> dict[str, int]:
    held = {one.name: _held(trace, rank, one) for one in trace.of(rank) if one.kind == "span"}
    one, before, last = nbytes * max(lines), held["begins"], range(len(lines))

    n = trace.world_size
    at_rest = frozen + sum(4 * SHARD_COPIES * numbers // n for numbers in lines)

    def whole(name: str, made: Sequence[int]) -> int:
        """Return the number of blocks in memory at `name`; the shards in `made` have gradients."""
        chunks = sum(4 * lines[k] // n for k in made)
        return round((held[name] - before - chunks) / one)

    return {
        "rest": round((before - at_rest) / one),
        "forward": max(whole(f"forward {k}", ()) for k in last),
        "between": whole("between", ()),
        "backward": max(
            (whole(f"backward {k}", last[k + 1 :]) for k in last if f"backward {k}" in held),
            default=0,
        ),
    }


def _held(trace: Trace, rank: int, at: Span) -> int:
    """Return the bytes in memory in the middle of a span."""
    middle = (at.start_ns + at.end_ns) // 2
    levels = [level for level in trace.memory[rank] if level.ns <= middle]
    return levels[-1].total if levels else 0


def field(name: str) -> Callable[[Did], list[object]]:
    """Return a function that collects the value `name` that each rank has returned."""
    return partial(_field, name)


def _field(name: str, did: Did) -> list[object]:
    return [each[name] for each in did.returned]
