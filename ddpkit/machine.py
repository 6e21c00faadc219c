"""Modelled machines: the cost of an operation, by counting.

An operation that does F floating-point operations and moves B bytes of memory takes

    launch + max(F / (peak · efficiency), B / (bandwidth · efficiency))

The maximum is the roofline of S. Williams, A. Waterman and D. Patterson ("Roofline: an insightful
visual performance model for multicore architectures", CACM 52(4), 2009); the launch is the cost of
starting any operation. The peak is that of the operation's dtype. A measured machine has, for each
kind of operation, its own launch and an efficiency for each size.

A machine may have a device, as each named GPU has. Then a launch takes time on the host, and the
roofline's part takes time on the device, in parallel. A bus copies between both memories.

Machines are named (`named`, in data/machines.json, each number with its source), given in numbers,
"1 TFLOP/s, 100 GB/s, 64 MB, 5 us", or read from a file of `ddpkit machine --measure`. "device of"
adds a device, and a bus and a host after semicolons: "device of 400 TFLOP/s, 5 us; bus 25 GB/s".
"; forward 100 us, backward 20 us, optimizer 100 us" states the host's cost of an operation in each
phase of a step.
"""

import json
import math
import os
import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from ddpkit.machine_numbers import PHASES, number_of, numbers_of, phases_of
from ddpkit.text import by_rank

NAMED_FILE = Path(__file__).with_name("data") / "machines.json"
EXAMPLE = '"A100", "1 TFLOP/s, 100 GB/s, 64 MB, 5 us" or "mine.json"'
# Kinds of operations; a measured machine has an efficiency for each kind.
KINDS = (
    *("matmul", "convolution", "attention", "elementwise", "copy"),
    "reduction",  # sums, softmax and normalization, forward and backward
    "transposed",  # copies and elementwise operations on tensors with different orders in memory
)
# replacements for kinds that are missing in a machine file
_LIKE = {"reduction": "elementwise", "transposed": "copy"}
# A dtype without its own peak has the peak of another dtype.
_COMPUTED_AS = {
    "float16": "float32",
    "bfloat16": "float32",
    "complex64": "float32",
    "complex128": "float64",
    "float64": "float32",
    "float8_e4m3fn": "float16",
    "float8_e5m2": "float8_e4m3fn",
    "float8_e4m3fnuz": "float8_e4m3fn",
    "float8_e5m2fnuz": "float8_e5m2",
    "float4_e2m1fn_x2": "float8_e4m3fn",
}
PAGEABLE = 0.5  # the part of the bus's rate that copies of pageable memory reach: an assumption
_DEVICE = re.compile(r"(?:device\s+of\s+)+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class KindCost:
    """The cost of one kind of operation on a measured machine.

    ``points`` are (FLOPs or bytes, efficiency), in rising order. Between two points the efficiency
    is interpolated linearly in the logarithm of the size; outside, the nearest point is used.
    """

    launch_ns: float
    points: tuple[tuple[float, float], ...]

    def efficiency(self, work: float) -> float:
        """Return the fraction of the peak or of the bandwidth that this amount of work reaches."""
        points = self.points
        at = bisect_left(points, (work, 0.0))
        if at in (0, len(points)):
            return points[min(at, len(points) - 1)][1]
        (less, low), (more, high) = points[at - 1], points[at]
        share = math.log(work / less) / math.log(more / less)
        return low + (high - low) * share


@dataclass(frozen=True, slots=True, repr=False)
class MachineModel:
    """A modelled machine: its name, and the cost of computing on it.

    flops       peak FLOP/s by dtype, "float32" at least
    bandwidth   bytes/s of its memory; math.inf: unlimited
    memory      bytes; None: unlimited
    launch_ns   the cost of starting an operation
    efficiency  the fractions of the peak and of the bandwidth that operations reach
    kinds       the costs of each kind of operation, only on a measured machine
    has_device  True if a host launches operations on a device
    bus         bytes/s of a copy between the device and the host's pinned memory
    host        the rank's share of the device's host; None: a host without limits
    phases      phase of a step -> the host's ns for an operation on the device, Python included
    title       the machine in words; `source` has the source of each number, by its name
    """

    name: str
    flops: Mapping[str, float]
    bandwidth: float = math.inf
    memory: int | None = None
    launch_ns: float = 0.0
    efficiency: tuple[float, float] = (1.0, 1.0)
    kinds: Mapping[str, KindCost] = field(default_factory=dict, hash=False)
    title: str = ""
    source: Mapping[str, str] = field(default_factory=dict, hash=False)
    has_device: bool = False
    bus: float = math.inf
    host: "MachineModel | None" = None
    phases: Mapping[str, float] = field(default_factory=dict, hash=False)

    def peak(self, dtype: str = "float32") -> float:
        """Return the peak FLOP/s of a dtype, named as in torch; if unknown, of a similar dtype.

        "tf32" is float32 on tensor cores: half of bfloat16's peak on each of NVIDIA's GPUs since
        the A100 (data sheets of A100, H100, L4, A10), and float32's peak on older GPUs.
        """
        if dtype == "tf32" and dtype not in self.flops:
            return max(self.peak(), self.flops.get("bfloat16", 0.0) / 2)
        while dtype not in self.flops:
            dtype = _COMPUTED_AS.get(dtype, "float32")
        return self.flops[dtype]

    def cost_ns(self, kind: str, flops: float, nbytes: int, dtype: str = "float32") -> int:
        """Return the ns of an operation of a kind in `KINDS`: the sum of launch and work."""
        launch, work = self._costs(kind, flops, nbytes, dtype)
        return round(launch + work)

    def host_and_device_ns(
        self, kind: str, flops: float, nbytes: int, dtype: str = "float32"
    ) -> tuple[int, int]:
        """Return an operation's ns on the host (the launch) and on the device (the work)."""
        launch, work = self._costs(kind, flops, nbytes, dtype)
        return round(launch), round(work)

    def _measured(self, kind: str) -> KindCost | None:
        return self.kinds.get(kind) or self.kinds.get(_LIKE.get(kind, kind))

    def copy_ns(self, nbytes: int, *, pinned: bool) -> int:
        """Return the ns of a copy over the bus; pageable memory takes twice as long as pinned."""
        return round(1e9 * nbytes / (self.bus if pinned else self.bus * PAGEABLE))

    def _costs(self, kind: str, flops: float, nbytes: int, dtype: str) -> tuple[float, float]:
        launch, (of_peak, of_bandwidth) = self.launch_ns, self.efficiency
        own = self._measured(kind)
        if own is not None:
            launch = own.launch_ns
            if flops:
                of_peak = own.efficiency(flops)
            elif nbytes:
                of_bandwidth = own.efficiency(nbytes)
        computing = flops / (self.peak(dtype) * of_peak) if flops else 0.0
        return launch, 1e9 * max(computing, nbytes / (self.bandwidth * of_bandwidth))

    @classmethod
    def parse(cls, text: "str | os.PathLike[str] | MachineModel") -> "MachineModel":
        """Return a machine by its name, by its numbers, or from a file.

        The units tell the numbers apart: FLOP/s is the peak of every dtype, B/s or bit/s the
        memory's bandwidth, B the memory's size, s the launch. The peak is required. A missing
        launch takes no time, other missing numbers are unlimited, and the efficiency is 1.
        "device of" before numbers or a file adds a device, with launches on the host. Then
        "; bus 25 GB/s" and "; host 70 GFLOP/s, 20 GB/s, 64 GB" may follow. Raises ValueError.
        """
        if isinstance(text, MachineModel):
            return text
        if not isinstance(text, str | os.PathLike):
            raise ValueError(f"cannot read the machine {text!r}: write it as {EXAMPLE}")
        words = os.fspath(text).strip()
        device = _DEVICE.match(words)
        if device is not None:
            return _device_of(words[device.end() :])
        if words.endswith(".json"):
            return _from_file(Path(words))
        for name, machine in named().items():
            if name.lower() == words.lower():
                return machine
        if words[:1].isdigit() or words[:1] == ".":
            return _from_numbers(words)
        near = get_close_matches(words.lower(), [name.lower() for name in named()], 1, 0.4)
        meant = [name for name in named() if name.lower() in near]
        hint = f'Did you mean "{meant[0]}"?' if meant else f"Named are {', '.join(named())}."
        raise ValueError(
            f'there is no machine "{words}". {hint} Or give its numbers, as in '
            '"1 TFLOP/s, 100 GB/s, 64 MB, 5 us", or a file that ddpkit machine --measure wrote'
        )

    def as_json(self) -> dict[str, Any]:
        """Return the machine as the JSON content of a machine file."""
        found: dict[str, Any] = {"title": self.title, "flops": dict(self.flops)}
        if self.bandwidth < math.inf:
            found["bandwidth"] = self.bandwidth
        if self.memory is not None:
            found["memory"] = self.memory
        found["launch_us"] = self.launch_ns / 1e3
        if self.has_device:
            found["has_device"] = True
        if self.bus < math.inf:
            found["bus"] = self.bus
        if self.host is not None:
            found["host"] = self.host.name
        if self.phases:
            found["phases_us"] = {phase: ns / 1e3 for phase, ns in self.phases.items()}
        found["efficiency"] = dict(zip(("flops", "bytes"), self.efficiency, strict=True))
        if self.kinds:
            found["kinds"] = {
                kind: {"launch_us": cost.launch_ns / 1e3, "efficiency": [*map(list, cost.points)]}
                for kind, cost in self.kinds.items()
            }
        return {**found, "source": dict(self.source)}

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<MachineModel {self.name}>"


MachineSpec: TypeAlias = (
    str
    | os.PathLike[str]
    | MachineModel
    | Mapping[int | str, "str | os.PathLike[str] | MachineModel"]
)


def machines_of(spec: MachineSpec, world_size: int) -> tuple[MachineModel, ...]:
    """Return each rank's machine; ``spec`` is one for all, or ``{"default": "V100", 3: "K80"}``.

    Raises ValueError, in one sentence.
    """
    if not isinstance(spec, Mapping):
        return (MachineModel.parse(spec),) * world_size
    for rank in spec:
        if rank != "default" and (isinstance(rank, str) or rank not in range(world_size)):
            raise ValueError(
                f"machine={{{rank!r}: ...}}: a key is a rank from 0 to {world_size - 1}, or "
                '"default"'
            )
    if missing := [r for r in range(world_size) if r not in spec and "default" not in spec]:
        raise ValueError(
            f"machine= names no machine for rank {missing[0]}: name one for each rank, or a "
            '"default", as in {"default": "V100", 3: "K80"}'
        )
    parsed = {key: MachineModel.parse(text) for key, text in spec.items()}
    return tuple(parsed.get(rank, parsed.get("default")) for rank in range(world_size))  # type: ignore[misc]


def speed_range(was: MachineModel, to: MachineModel) -> tuple[float, float]:
    """Return the least and the largest speed-up of work on another machine.

    The three limits of an operation are launches, float32 FLOPs and bytes per second. The speed-up
    lies between the least and the largest ratio of the machines' limits. Measured machines have
    ratios for each kind and size. Raises ValueError if only one machine has some limit.
    """
    ratios: set[float] = set()
    for kind in KINDS:
        costs = [machine._measured(kind) for machine in (was, to)]
        sizes = {work for cost in costs if cost for work, _ in cost.points} or {1.0}
        for work in sizes:
            here, there = (_rates(*each, work) for each in zip((was, to), costs, strict=True))
            pairs = [*zip(there, here, strict=True)]
            ratios |= {more / less if less else math.inf for more, less in pairs if more != less}
            ratios |= {1.0 for more, less in pairs if more == less < math.inf}
    if not all(0 < ratio < math.inf for ratio in ratios):
        raise ValueError(
            f"{was} and {to} cannot be compared: one has a launch time or a bandwidth, which the "
            "other lacks. Give both numbers for both machines"
        )
    return min(ratios, default=1.0), max(ratios, default=1.0)


def _rates(machine: MachineModel, cost: KindCost | None, work: float) -> tuple[float, ...]:
    """Return four rates: launches/s, FLOP/s, bytes/s, bytes/s of operations that also compute."""
    launch, (of_peak, of_bandwidth) = machine.launch_ns, machine.efficiency
    beside = machine.bandwidth * of_bandwidth
    if cost is not None:
        launch, of_peak = cost.launch_ns, cost.efficiency(work)
        of_bandwidth = of_peak
    launches = 1e9 / launch if launch else math.inf
    return launches, machine.peak() * of_peak, machine.bandwidth * of_bandwidth, beside


def machine_text(machines: tuple[MachineModel, ...]) -> str:
    """Return the machines of all ranks in words; "" without machines."""
    return by_rank([machine.name for machine in machines]) if machines else ""


@cache
def named() -> Mapping[str, MachineModel]:
    """Return the machines of data/machines.json, by name."""
    found = json.loads(NAMED_FILE.read_text("utf-8"))
    return MappingProxyType({name: _read(name, facts) for name, facts in found.items()})


def _from_file(path: Path) -> MachineModel:
    """Return the machine in a machine file."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read the machine file {path}: {error.strerror}") from None
    except ValueError:
        raise ValueError(f"the machine file {path} is not JSON") from None
    try:
        return _read(path.stem, found)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ValueError(
            f"{path} is not a machine file ({type(error).__name__}: {error}): "
            "`ddpkit machine --measure -o mine.json` writes such a file"
        ) from None


def _device_of(text: str) -> MachineModel:
    """Return the machine for text such as "400 TFLOP/s, 5 us; bus 25 GB/s; host 70 GFLOP/s"."""
    first, *more = (part.strip() for part in text.split(";"))
    machine = MachineModel.parse(first)
    given: dict[str, Any] = {}
    for part in more:
        name, _, numbers = part.partition(" ")
        if name == "bus":
            kind, given["bus"] = number_of(numbers, text)
            if kind != "bandwidth":
                raise ValueError(
                    f'cannot read {part!r} in the machine {text!r}: write "bus 25 GB/s"'
                )
        elif name == "host":
            given["host"] = _from_numbers(numbers)
        elif name in PHASES:
            given["phases"] = phases_of(part, text)
        else:
            raise ValueError(
                f"cannot read {part!r} in the machine {text!r}: after a semicolon, write "
                '"bus 25 GB/s", "host 70 GFLOP/s, 20 GB/s, 64 GB" or "forward 100 us"'
            )
    name = machine.name if machine.has_device else f"device of {machine}"
    return replace(machine, name="; ".join([name, *more]), has_device=True, **given)


def _read(name: str, found: Mapping[str, Any]) -> MachineModel:
    """Return the machine that a file describes. Raises KeyError, TypeError or ValueError."""
    efficiency = found.get("efficiency", {})
    kinds = {
        kind: KindCost(
            1e3 * float(cost["launch_us"]),
            tuple(sorted((float(work), float(part)) for work, part in cost["efficiency"])),
        )
        for kind, cost in found.get("kinds", {}).items()
    }
    flops = {dtype: float(peak) for dtype, peak in found["flops"].items()}
    machine = MachineModel(
        name,
        flops,
        float(found.get("bandwidth", math.inf)),
        None if found.get("memory") is None else int(found["memory"]),
        1e3 * float(found.get("launch_us", 0)),
        (float(efficiency.get("flops", 1)), float(efficiency.get("bytes", 1))),
        kinds,
        str(found.get("title", "")),
        dict(found.get("source", {})),
        bool(found.get("has_device", False)),
        float(found.get("bus", math.inf)),
        _from_numbers(found["host"]) if "host" in found else None,
        {phase: 1e3 * float(us) for phase, us in found.get("phases_us", {}).items()},
    )
    if not {*machine.phases} <= {*PHASES}:
        raise ValueError(f'"phases_us" may have {", ".join(PHASES)}')
    parts = [*machine.efficiency, *(part for cost in kinds.values() for _, part in cost.points)]
    if "float32" not in flops:
        raise ValueError('"flops" gives no peak for "float32"')
    rates = *flops.values(), machine.bandwidth, machine.bus, *parts
    if not all(number > 0 for number in rates):
        raise ValueError("a peak, a bandwidth, a bus and an efficiency must be above 0")
    for kind, cost in kinds.items():
        if kind not in KINDS:
            raise ValueError(f"the kind {kind!r} is unknown: the kinds are {', '.join(KINDS)}")
        if not cost.points:
            raise ValueError(f'the kind {kind!r} has an empty list "efficiency"')
    return machine


def _from_numbers(text: str) -> MachineModel:
    """Return the machine for text such as "1 TFLOP/s, 100 GB/s, 64 MB, 5 us"."""
    numbers = numbers_of(text)
    memory = numbers.get("memory")
    return MachineModel(
        ", ".join(part.strip() for part in text.split(",")),
        {"float32": numbers["flops"], "float64": numbers["flops"]},
        numbers.get("bandwidth", math.inf),
        None if memory is None else round(memory),
        numbers.get("launch", 0.0),
        title="by its numbers",
        source=dict.fromkeys(numbers, "given"),
    )
