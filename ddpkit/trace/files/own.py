"""The kit's own file of a trace: one JSON object, gzipped if the file's name ends in ".gz".

    {"ddpkit_trace": 3, "world_size": 2, "facts": {...}, "bounds": {"0": [start, end]},
     "columns": {"rank": [0, 1, ...], "lane": ["comm", ...], ...},
     "memory": {"0": [[ns, bytes, ...], ...]}}

Only ranks of a modelled machine have memory levels; the bytes of a level are in the order of
`MEMORY_KINDS`. In columns, 100,000 spans take about 10 MB, and are read in half the time that rows
would take. Each error in a file is reported in one sentence. The reader also accepts formats 1 and
2, which had "fields", the names of the columns, and "spans", a row for each span. Format 1 had no
`collected_ns`.
"""

import itertools
import json
import operator
import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from ddpkit.errors import TraceError
from ddpkit.trace.base import BaseTrace
from ddpkit.trace.files import disk
from ddpkit.trace.intervals import Interval
from ddpkit.trace.memory import MEMORY_KINDS, MemoryLevel
from ddpkit.trace.span import KINDS, Span

VERSION = 3
MAX_RANKS = 65_536  # a damaged number must not cause a loop that takes years
_FIELDS = tuple(field.name for field in fields(Span))
_FIELDS_OF = {  # the fields of the formats with rows
    1: tuple(name for name in _FIELDS if name != "collected_ns"),
    2: _FIELDS,
}
_OPTIONAL = ("peer", "seq", "ready_ns", "blocked_ns", "collected_ns")
_TEXT = ("lane", "name", "kind", "group")


def write(path: str | os.PathLike[str], trace: BaseTrace) -> None:
    """Write the file of a trace, for `Trace.save`."""
    data = json.dumps(
        {
            "ddpkit_trace": VERSION,
            "world_size": trace.world_size,
            "facts": dict(trace.facts),
            "bounds": {str(rank): list(bounds) for rank, bounds in trace.bounds.items()},
            "columns": _columns(trace.spans),
            **_memory(trace),
        },
        separators=(",", ":"),
    ).encode()
    disk.write(Path(path), data)


def is_saved(top: object) -> bool:
    """True if the content of a JSON file looks like a file by `write`, damaged or not."""
    return isinstance(top, dict) and "ddpkit_trace" in top


def parse(top: Any) -> BaseTrace:
    """Return the trace in the content of a JSON file for which `is_saved` is true.

    Raises TraceError if the content is damaged.
    """
    version: Any = top["ddpkit_trace"]
    if not _is_int(version) or version not in (*_FIELDS_OF, VERSION):
        raise TraceError(
            f"trace format {version} is unknown to this ddpkit, which reads formats 1 "
            f"to {VERSION}: update ddpkit"
        )
    world_size: Any = top.get("world_size")
    facts: Any = top.get("facts")
    if not _is_int(world_size) or not 1 <= world_size <= MAX_RANKS:
        raise TraceError(f"the number of ranks (world_size) is missing or is not 1 to {MAX_RANKS}")
    if not _is_facts(facts):
        raise TraceError("the facts of the run are missing or damaged")
    if version == VERSION:
        spans = _of_columns(top.get("columns"), world_size)
    else:
        spans = _of_rows(top, _FIELDS_OF[version], world_size)
    bounds = _bounds(top.get("bounds", {}), world_size)
    return BaseTrace(spans, world_size, facts, bounds, _levels(top.get("memory", {}), world_size))


def _memory(trace: BaseTrace) -> dict[str, object]:
    """Return the memory levels of the ranks in the file's form; {} if memory is unknown."""
    if not trace.memory:
        return {}
    rows = {
        str(rank): [[level.ns, *level.nbytes] for level in levels]
        for rank, levels in trace.memory.items()
    }
    return {"memory": rows}


def _levels(raw: Any, world_size: int) -> dict[int, tuple[MemoryLevel, ...]]:
    ranks = {str(rank): rank for rank in range(world_size)}
    try:
        rows = {ranks[rank]: [tuple(row) for row in held] for rank, held in raw.items()}
    except (AttributeError, KeyError, TypeError):
        raise TraceError('the levels in "memory" are damaged: save the trace again') from None
    numbers = len(MEMORY_KINDS) + 1
    for held in rows.values():
        if not all(len(row) == numbers and all(map(_is_int, row)) for row in held):
            raise TraceError('the levels in "memory" are damaged: save the trace again')
    return {
        rank: tuple(MemoryLevel(ns, tuple(parts)) for ns, *parts in held)
        for rank, held in rows.items()
    }


def _columns(spans: Sequence[Span]) -> dict[str, list[Any]]:
    columns = {name: [*map(operator.attrgetter(name), spans)] for name in _FIELDS}
    columns["args"] = [*map(dict, columns["args"])]  # a span's args may be any mapping
    return columns


def _of_columns(columns: Any, world_size: int) -> tuple[Span, ...]:
    """Return the spans in a file's columns.

    Fields are checked one by one only if `_are_sound` finds a damaged column.
    """
    if (
        not isinstance(columns, dict)
        or {*columns} != {*_FIELDS}
        or {*map(type, columns.values())} != {list}
        or len({*map(len, columns.values())}) != 1
    ):
        raise TraceError("the columns of the spans are missing or damaged")
    if columns["rank"] and _are_sound(columns, world_size):
        return Span.of_columns(len(columns["rank"]), columns)
    rows = zip(*(columns[name] for name in _FIELDS), strict=True)
    return tuple(_span(n, list(row), _FIELDS, world_size) for n, row in enumerate(rows))


def _of_rows(top: Any, names: tuple[str, ...], world_size: int) -> tuple[Span, ...]:
    """Return the spans in the rows of a file of format 1 or 2."""
    rows = top.get("spans")
    if top.get("fields") != list(names) or not isinstance(rows, list):
        raise TraceError("the list of spans is missing or damaged")
    if set(map(type, rows)) == {list} and set(map(len, rows)) == {len(names)}:
        columns = {name: [*map(operator.itemgetter(k), rows)] for k, name in enumerate(names)}
        if _are_sound(columns, world_size):
            return Span.of_columns(len(rows), columns)
    return tuple(_span(number, row, names, world_size) for number, row in enumerate(rows))


def _are_sound(columns: dict[str, list[Any]], world_size: int) -> bool:
    """True if every row of the columns can become a span.

    For speed, the types of the values are checked for a whole column at a time.
    """
    for name, column in columns.items():
        allowed: set[type] = {str} if name in _TEXT else {dict} if name == "args" else {int}
        if not set(map(type, column)) <= allowed | ({type(None)} if name in _OPTIONAL else set()):
            return False
    facts = itertools.chain.from_iterable(map(dict.values, columns["args"]))
    return (
        set(map(type, facts)) <= {str, int, float, bool, disk.Written}
        and min(columns["rank"]) >= 0
        and max(columns["rank"]) < world_size
        and set(columns["kind"]) <= set(KINDS)
        and all(map(operator.le, columns["start_ns"], columns["end_ns"]))
    )


def _span(number: int, row: Any, names: tuple[str, ...], world_size: int) -> Span:
    if not isinstance(row, list) or len(row) != len(names):
        raise TraceError(f"span {number} does not have {len(names)} fields")
    values = dict(zip(names, row, strict=True))
    for name, value in values.items():
        if not _fits(name, value):
            raise TraceError(f"the {name} of span {number} is damaged: {str(value)[:40]!r}")
    if not 0 <= row[0] < world_size:
        raise TraceError(
            f"span {number} belongs to rank {row[0]}, but there are {world_size} ranks"
        )
    return Span(**values)


def _bounds(raw: Any, world_size: int) -> dict[int, Interval]:
    ranks = {str(rank): rank for rank in range(world_size)}
    try:
        pairs = {ranks[rank]: (start, end) for rank, (start, end) in raw.items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise TraceError(
            'the "bounds", the times of each rank\'s begin and end, are damaged'
        ) from None
    if not all(_is_int(start) and _is_int(end) and start <= end for start, end in pairs.values()):
        raise TraceError('the "bounds", each rank\'s begin and end, are damaged')
    return pairs


def _fits(name: str, value: object) -> bool:
    if name in _TEXT:
        return isinstance(value, str)
    if name == "args":
        return _is_facts(value)
    return _is_int(value) or (value is None and name in _OPTIONAL)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_facts(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(v, str | int | float) for v in value.values())
