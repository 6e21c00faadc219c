"""The numbers of a modelled machine in words: "1 TFLOP/s, 100 GB/s, 64 MB, 5 us"."""

import math
import re

from ddpkit.link import Link

_PART = re.compile(r"\s*([\d.]+(?:[eE][+-]?\d+)?)\s*([^\W\d]+(?:/s)?)\s*")
_FLOPS = re.compile(r"([kMGTP]?)(?:FLOPS|FLOP/s|flops|flop/s)")
_SIZE = re.compile(r"(?i:[kmgt]i?)?B")
_PREFIXES = ("", "k", "M", "G", "T", "P")
# The phases of a step, in which an operation costs the host different times: Python starts the
# operations of forwards and optimizers, and autograd's engine those of a backward.
PHASES = ("forward", "backward", "optimizer")


def numbers_of(text: str) -> dict[str, float]:
    """Return the numbers of a machine: "flops" and perhaps "bandwidth", "memory" and "launch".

    Raises ValueError, in a sentence.
    """
    numbers: dict[str, float] = {}
    for part in text.split(","):
        kind, value = number_of(part, text)
        if kind in numbers:
            raise ValueError(f"the machine {text!r} has two numbers of one kind: {part.strip()!r}")
        numbers[kind] = value
    if not numbers.get("flops"):
        raise ValueError(f'the machine {text!r} has no peak: give one, as in "1 TFLOP/s"')
    return numbers


def number_of(part: str, text: str) -> tuple[str, float]:
    """Return the kind of one number of a machine, and its value in FLOP/s, bytes/s, bytes or ns.

    Raises ValueError, in a sentence that shows the whole text.
    """
    match = _PART.fullmatch(part)
    try:
        if match is not None:
            number, unit = match.groups()
            if flops := _FLOPS.fullmatch(unit):
                return "flops", float(number) * 1000 ** _PREFIXES.index(flops[1])
            if _SIZE.fullmatch(unit):
                return "memory", Link.parse(f"{number} {unit}/s").bytes_per_s
            link = Link.parse(f"{number} {unit}")
            if link.bytes_per_s < math.inf:
                return "bandwidth", link.bytes_per_s
            return "launch", float(link.latency_ns)
    except ValueError:
        pass
    raise ValueError(
        f"cannot read {part.strip()!r} in the machine {text!r}: write it as "
        '"1 TFLOP/s, 100 GB/s, 64 MB, 5 us"'
    )


def phases_of(part: str, text: str) -> dict[str, float]:
    """Return the ns of each phase in text such as "forward 100 us, backward 20 us".

    Raises ValueError, in a sentence that shows the whole text.
    """
    phases: dict[str, float] = {}
    for each in part.split(","):
        phase, _, time = each.strip().partition(" ")
        kind, ns = number_of(time, text)
        if phase not in PHASES or kind != "launch":
            raise ValueError(
                f"cannot read {each.strip()!r} in the machine {text!r}: write it as "
                '"forward 100 us, backward 20 us, optimizer 100 us"'
            )
        phases[phase] = ns
    return phases
