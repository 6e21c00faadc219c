"""A training step with sharded parameters, as a program.

Each rank keeps 1/n of the parameters of every unit (a layer, or several layers). It gathers a unit
before the unit's forward, drops the gathered unit afterwards, gathers it again before the backward,
and reduce-scatters the gradient. This is stage 3 of Rajbhandari et al., ZeRO, 2020, and torch's
`fully_shard`. The gathers and the scatters are in separate process groups: each group does its
collectives in order, and both groups share the links.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddpkit.simulate.engine.program import Action, After, CollectivePart, Lane, Program, Work
from ddpkit.simulate.messages.by_name import schedule


@dataclass(frozen=True, slots=True)
class ShardUnit:
    """Layers that are gathered together: the bytes of their parameters, and their compute in ns."""

    bytes: int
    forward_ns: int
    backward_ns: int


def shard_program(
    units: Sequence[ShardUnit],
    world_size: int,
    *,
    ahead: int = 1,
    keep: bool = False,
    optimizer_ns: int = 0,
) -> Program:
    """Return the program of a step with sharded units, given in the order of the forward.

    ``ahead`` is the number of units that are gathered while one unit computes, so a rank holds
    ``ahead`` + 1 gathered units at a time. ``keep``: units gathered in the forward stay until the
    backward, which gathers nothing (stage 2). Raises ValueError for a negative ``ahead``, and for
    fewer than one rank.
    """
    if ahead < 0 or world_size < 1:
        raise ValueError(
            f"ahead= must be 0 or more, and world_size= 1 or more, not {ahead=} and {world_size=}"
        )
    lanes: dict[str, Lane] = {
        "compute": _compute(units, optimizer_ns, keep),
        "gather": _gathers(units, world_size, ahead, keep),
        "scatter": _scatters(units, world_size),
    }
    return Program("sharded parameters", (lanes,) * world_size)


def _compute(units: Sequence[ShardUnit], optimizer_ns: int, keep: bool) -> list[Action]:
    lane: list[Action] = []
    for i, unit in enumerate(units):
        lane += [After((("gathered F", i),)), _work(unit, i, "F")]
    for i in reversed(range(len(units))):
        lane += [After((("gathered F" if keep else "gathered B", i),)), _work(units[i], i, "B")]
    scattered = tuple(("scattered", i) for i in range(len(units)))
    return [*lane, After(scattered), Work(optimizer_ns, "optimizer", "optimizer")]


def _work(unit: ShardUnit, i: int, kind: str) -> Work:
    forward = kind == "F"
    ns = unit.forward_ns if forward else unit.backward_ns
    name = "forward" if forward else "backward"
    return Work(ns, name, name, handle=(kind, i), facts={"unit": i})


def _gathers(units: Sequence[ShardUnit], world_size: int, ahead: int, keep: bool) -> list[Action]:
    """Return the steps that gather the units.

    Each gather waits for the compute of the unit ``ahead`` + 1 places before its own unit.
    """
    order = [("F", i) for i in range(len(units))]
    order += [] if keep else [("B", i) for i in reversed(range(len(units)))]
    lane: list[Action] = []
    for number, (kind, i) in enumerate(order):
        if number > ahead:
            lane.append(After((order[number - ahead - 1],)))
        lane.append(_part("all_gather", units[i], i, number, world_size, f"gathered {kind}"))
    return lane


def _scatters(units: Sequence[ShardUnit], world_size: int) -> list[Action]:
    lane: list[Action] = []
    for number, i in enumerate(reversed(range(len(units)))):
        part = _part("reduce_scatter", units[i], i, number, world_size, "scattered")
        lane += [After((("B", i),)), part]
    return lane


def _part(
    operation: str, unit: ShardUnit, i: int, number: int, world_size: int, handle: str
) -> CollectivePart:
    handed_in = unit.bytes // world_size if operation == "all_gather" else unit.bytes
    return CollectivePart(
        schedule(operation, world_size, unit.bytes), tuple(range(world_size)), number, handed_in,
        operation, handle=(handle, i), facts={"unit": i},
    )  # fmt: skip
