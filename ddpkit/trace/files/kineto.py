"""Reading of torch.profiler's files (kineto's Chrome JSON, one per rank) into events.

    {"distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2, ...}, "host_name": "a",
     "baseTimeNanoseconds": 1790857026000000000,
     "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 7,
                      "ts": 4371966695382.813, "dur": 529.096, "args": {...}}, ...]}

``ts`` and ``dur`` are microseconds; ``ts`` counts from ``baseTimeNanoseconds`` (Unix time), so the
ranks of one host share a clock. Before torch 2.4 there is no ``baseTimeNanoseconds``, and ``ts`` is
Unix time itself, such as 1661203462598738.125. A float would lose the nanoseconds of such a number.
All times become whole nanoseconds of Unix time. `profiled` makes spans from the events.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from ddpkit.errors import TraceError
from ddpkit.text import NAME
from ddpkit.trace.files.disk import Written
from ddpkit.trace.files.own import MAX_RANKS

OPERATOR = "cpu_op"
ANNOTATION = "user_annotation"
GPU_ANNOTATION = "gpu_user_annotation"
COPY = ("gpu_memcpy", "gpu_memset")
ON_GPU = ("kernel", *COPY)
LAUNCH = ("cuda_runtime", "cuda_driver")
_WANTED = frozenset((OPERATOR, ANNOTATION, GPU_ANNOTATION, *ON_GPU, *LAUNCH))
_OF_2021 = {  # categories of torch 1.8 to 1.11
    "operator": OPERATOR,
    "memcpy": "gpu_memcpy",
    "memset": "gpu_memset",
    "runtime": "cuda_runtime",
}
# Torch 1.8 to 1.11 recorded these annotations as operators.
_ANNOTATIONS = ("ProfilerStep#", "Optimizer.", "gloo:", "nccl:", "DistributedDataParallel.forward")
_LIMIT_US = 9e15  # Unix time of the year 2255: larger numbers are damaged, or nanoseconds
_AGAIN = "record the trace again"


@dataclass(frozen=True, slots=True)
class Event:
    """A stretch of time in one thread of the CPU, or in one stream of a GPU."""

    cat: str
    name: str
    thread: str
    start_ns: int
    end_ns: int
    args: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Recording:
    """The content of one rank's file."""

    path: str
    rank: int
    world_size: int
    backend: str  # "" if the file does not say
    host: str
    groups: int  # how many process groups the job had; 0 if the file does not say
    events: tuple[Event, ...]

    @property
    def has_gpu(self) -> bool:
        return any(event.cat in ON_GPU for event in self.events)


def thin(found: dict[str, Any]) -> Any:
    """Return None for an event that ddpkit does not use, such as a stack frame of Python.

    Other objects are returned unchanged. `disk.read_json` calls this function as its hook.
    """
    is_event = "ph" in found and "pid" in found and "ts" in found
    return None if is_event and not _is_wanted(found) else found


def is_recording(top: object) -> bool:
    """True if the content of a JSON file looks like a profiler's file, damaged or not."""
    return isinstance(top, dict) and "traceEvents" in top


def parse(top: Any, path: str, *, alone: bool) -> Recording:
    """Return the recording in the JSON content of a file that torch.profiler made.

    ``alone`` is True for the only file of a recording, which need not name its rank. Raises
    TraceError with a sentence that begins with the path.
    """
    if not isinstance(top["traceEvents"], list):
        raise TraceError(f"{path}: the traceEvents are damaged; {_AGAIN}")
    info = _mapping(top.get("distributedInfo"))
    if not info and not alone:
        raise TraceError(
            f"{path}: the rank is missing (no distributedInfo), because the recording began before "
            f"init_process_group; {_AGAIN} after init_process_group, or name only this file"
        )
    world_size = _count(info, "world_size", path, 1, 1, MAX_RANKS)
    base: Any = top.get("baseTimeNanoseconds", 0)
    if not isinstance(base, int) or not 0 <= base < 2**63:
        raise TraceError(f"{path}: baseTimeNanoseconds is damaged; {_AGAIN}")
    return Recording(
        path,
        _count(info, "rank", path, 0, 0, world_size - 1),
        world_size,
        str(info.get("backend", ""))[:40].removeprefix("ddpkit_"),
        str(top.get("host_name", ""))[:NAME],
        _count(info, "pg_count", path, 0, 0, 10**9),
        tuple(
            _event(number, raw, base, path)
            for number, raw in enumerate(top["traceEvents"])
            if isinstance(raw, dict) and _is_wanted(raw)
        ),
    )


def _is_wanted(raw: Mapping[str, Any]) -> bool:
    return raw.get("ph") == "X" and _category(raw) in _WANTED


def _category(raw: Mapping[str, Any]) -> str:
    """Return the category of an event, under the name that torch uses today."""
    cat, name = raw.get("cat"), raw.get("name")
    if not isinstance(cat, str):
        return ""
    today = _OF_2021.get(cat.lower(), cat.lower())
    if today == OPERATOR and isinstance(name, str) and name.startswith(_ANNOTATIONS):
        return ANNOTATION
    return today


def _event(number: int, raw: Mapping[str, Any], base: int, path: str) -> Event:
    name = raw.get("name")
    where = f"{path}: event {number} ({str(name)[:40]!r})"
    if not isinstance(name, str):
        raise TraceError(f"{where} has no name; {_AGAIN}")
    start, length = (
        _nanoseconds(raw.get(field, 0), f"{where} has the {field}") for field in ("ts", "dur")
    )
    begin = base + start
    return Event(
        _category(raw),
        name,
        f"{raw.get('pid')}/{raw.get('tid')}",
        begin,
        begin + max(0, length),  # older profilers write some lengths below 0
        _mapping(raw.get("args")),
    )


def _nanoseconds(value: object, what: str) -> int:
    """Return a number of microseconds as whole nanoseconds."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not -_LIMIT_US <= value <= _LIMIT_US:  # type: ignore[operator]  # NaN too
        raise TraceError(f"{what} {str(value)[:40]!r}, which is not a time; {_AGAIN}")
    if isinstance(value, Written):
        return round(Decimal(value.digits) * 1000)
    return round(value * 1000)  # type: ignore[operator]


def _count(
    info: Mapping[str, Any], field: str, path: str, missing: int, least: int, most: int
) -> int:
    value: Any = info.get(field, missing)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise TraceError(
            f"{path}: in distributedInfo, {field} is {str(value)[:40]!r}, but must be a whole "
            f"number from {least} to {most}; {_AGAIN}"
        )
    return value


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
