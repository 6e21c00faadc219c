"""Lab 13: functions on ranks: steps of a sharded optimizer, chunks, blocks that learn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from ddpkit.checks.lab13 import blocks, training
from ddpkit.exercises.guard import Answer, returning
from ddpkit.rank.emulation.busy import busy
from ddpkit.rank.group.work import RecordedWork
from ddpkit.rank.record.marks import span
from ddpkit.torch_private import storage_id

STEP = "the step of the check"  # span around the counted messages
LAST = "the end of the step"  # a span after the last operation of the step
REST = ("before the steps", "after the steps")  # spans in which the check reads the memory


# ShardedOptimizer


def stepped(answer: Answer, asked: Mapping[str, Any]) -> dict[str, object]:
    """Run the steps of the answer's optimizer; return parameters, loss, and bytes of state.

    "cleared" is true if zero_grad() has cleared the gradients, and "let go" if it has freed them.
    """
    parameters = training.made(asked["start"], asked["frozen"])
    sets = training.grouped(parameters, asked["groups"])
    busy("2 us", REST[0])
    with _optimizers() as found:
        made = getattr(torch.optim, asked["name"])
        optimizer = returning(answer)(sets, made, **asked["options"])
        with span(STEP):
            memory, loss, calls = training.take_steps(
                optimizer, parameters, asked["gradients"], asked["rates"]
            )
            busy("1 us", LAST)
    optimizer.zero_grad()
    cleared = all(p.grad is None or not p.grad.any() for p in parameters)
    for p in parameters:  # zero_grad() may leave zeros
        p.grad = None
    busy("2 us", REST[1])
    return {
        "parameters": [p.detach().clone() for p in parameters],
        "state": _bytes_of_state(found),
        "loss": loss,
        "calls": calls,
        "cleared": cleared,
        "let go": all(reference() is None for reference in memory),
    }


@contextmanager
def _optimizers() -> Iterator[list[torch.optim.Optimizer]]:
    """Collect all optimizers that make a step inside the block."""
    found: list[torch.optim.Optimizer] = []

    def note(optimizer: torch.optim.Optimizer, *_: object) -> None:
        if not any(optimizer is each for each in found):
            found.append(optimizer)

    handle = register_optimizer_step_post_hook(note)
    try:
        yield found
    finally:
        handle.remove()


def _bytes_of_state(optimizers: Sequence[torch.optim.Optimizer]) -> int:
    """Return the bytes of the storages of the optimizers' state, each storage once."""
    tensors = [
        value
        for optimizer in optimizers
        for state in optimizer.state.values()
        for value in (state.values() if isinstance(state, dict) else ())
        if isinstance(value, torch.Tensor)
    ]
    pieces = {storage_id(each.untyped_storage()): each.untyped_storage() for each in tensors}
    return sum(piece.nbytes() for piece in pieces.values())


# reduce_to_owner


def reduced(answer: Answer, flat: Tensor) -> dict[str, object]:
    """Return an answer's chunk of a flat tensor, and the bytes of the chunk's storage.

    "kept" is true if the flat tensor is unchanged. A second call gets the negated tensor: the
    result of the first call must keep its values.
    """
    given = flat.clone()
    with span(STEP):
        mine = returning(answer)(given)
    answer(-flat)
    return {
        "chunk": mine,
        "memory": mine.untyped_storage().nbytes() if isinstance(mine, torch.Tensor) else 0,
        "kept": torch.equal(given, flat),
    }


# FullyShard


def learned(
    answer: Answer,
    states: bytes,
    kinds: Sequence[str],
    inputs: Sequence[Tensor],
    dtype: torch.dtype,
) -> dict[str, object]:
    """Return the gradients of shards in the first step, and the net's output after all steps."""
    telling: list[bool] = []

    def say(name: str) -> None:
        if telling:
            busy("2 us", name)

    made = blocks.made(kinds, say, states)
    units = [returning(answer)(each, *([dtype] if dtype else [])) for each in made]
    directions = _directions(units)
    waited: list[bool] = []
    for unit in units:
        if callable(gather := getattr(unit, "gather", None)):
            unit.gather = _noted(gather, waited)
    net, shards = nn.Sequential(*units), [unit.shard for unit in units]
    optimizer = torch.optim.Adam(shards, 1e-2)
    gradients: list[Tensor] = []
    for number, mine in enumerate(inputs):
        optimizer.zero_grad()
        if number == len(inputs) - 1:
            telling.append(True)
        say("begins")
        with span(STEP if telling else "another step"):
            for x in mine:
                output = net(x.to(dtype)).float().square().mean()
                say("between")
                output.backward()
                del output
            busy("1 us", LAST)
        if number == 0:
            gradients = [_copy(shard.grad, shard) for shard in shards]
        optimizer.step()
    telling.clear()
    with torch.no_grad():
        output = net(torch.ones(1, blocks.WIDTH, dtype=dtype)).float()
    others = sorted(set(directions) - {1, -1})
    return {
        "gradients": gradients,
        "output": output,
        "directions": others,
        "waited for": sum(waited),
    }


def _directions(units: Sequence[Any]) -> list[Any]:
    """Return a list that collects the arguments of the units' `before` methods, if these exist."""
    heard: list[Any] = []

    def listening(before: Callable[..., Any]) -> Callable[..., Any]:
        def listened(*steps: Any) -> object:
            heard.extend(steps)
            return before(*steps)

        return listened

    for unit in units:
        if callable(before := getattr(unit, "before", None)):
            unit.before = listening(before)
    return heard


def _noted(gather: Callable[[], object], waited: list[bool]) -> Callable[[], object]:
    """Wrap a unit's gather; a call appends True to `waited` if its Work is already waited for."""

    def noted() -> object:
        work = gather()
        waited.append(isinstance(work, RecordedWork) and work.claimed)
        return work

    return noted


def _copy(gradient: Tensor | None, shard: Tensor) -> Tensor:
    return torch.zeros_like(shard) if gradient is None else gradient.clone()
