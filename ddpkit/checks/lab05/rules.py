"""Buckets by the right rule, and by common wrong rules."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

MB = 2**20
KB = 1024
Kind = tuple[Any, str]  # a dtype (torch's dtype or its name), and the name of a device


@dataclass(frozen=True)
class Rule:
    """A rule for `assign_buckets`; the default values give the right rule.

    The right answers of the exercise come from the simulator, not from this class.
    """

    reverse: bool = True
    unit: int = MB
    each: int = 0  # bytes counted for an element; 0: the element's real bytes
    hard: bool = False  # a bucket closes before a parameter would exceed the cap
    strict: bool = False  # a bucket closes when its bytes exceed the cap, not when they reach it
    dtypes: bool = True  # each dtype has its own open bucket
    devices: bool = True  # each device has its own open bucket
    # buckets with the first cap: the first bucket of each kind; also "of all", "never", "always"
    first: str = "of each kind"
    alone: bool = False  # a parameter as large as the cap gets its own bucket
    rest: bool = True  # the buckets open at the end are closed too
    in_turn: bool = False  # the buckets open at the end are sorted by their kind's first parameter
    all_kinds: bool = False  # the bytes of all open buckets together count for the cap
    by_kind: bool = False  # all buckets of a kind, then all buckets of the next kind
    # (place, kind, members) of a bucket that is open at the end -> sort key
    rest_by: Callable[[int, str, Sequence[int]], Any] | None = None
    short: int = 0  # a bucket also closes if it lacks at most this number of bytes

    def buckets(
        self, parameters: Sequence[Tensor], cap_mb: float, first_mb: float
    ) -> list[list[int]]:
        """Return, for each bucket, the indices in `parameters` of its members."""
        kinds = [(p.dtype, str(p.device)) for p in parameters]
        sizes = [p.numel() * p.element_size() for p in parameters]
        return self.filled(kinds, sizes, cap_mb, first_mb)

    def filled(
        self, kinds: Sequence[Kind], sizes: Sequence[int], cap_mb: float, first_mb: float
    ) -> list[list[int]]:
        """Return the indices of each bucket's members, for parameters of these kinds and bytes."""
        if self.each:
            pairs = zip(sizes, kinds, strict=True)
            sizes = [self.each * (size // dtype.itemsize) for size, (dtype, _) in pairs]
        kinds = [
            (dtype if self.dtypes else 0, device if self.devices else "") for dtype, device in kinds
        ]
        closed: list[list[int]] = []
        filling: dict[object, list[int]] = {}
        begun: set[object] = set()
        for i in sorted(range(len(sizes)), reverse=self.reverse):
            kind = kinds[i]
            counter = kind if self.first == "of each kind" else 0
            early = self.first == "always" or (self.first != "never" and counter not in begun)
            cap = (first_mb if early else cap_mb) * self.unit - self.short
            if self.alone and sizes[i] >= cap_mb * self.unit:
                closed.append([i])
                continue
            held = filling.setdefault(kind, [])
            counted = [j for each in filling.values() for j in each] if self.all_kinds else held
            size = sum(sizes[j] for j in [*counted, i])
            if self.hard and held and size > cap:
                closed.append(filling.pop(kind))
                begun.add(counter)
            filling.setdefault(kind, []).append(i)
            if not self.hard and (size > cap if self.strict else size >= cap):
                closed.append(filling.pop(kind))
                begun.add(counter)
        seen = list(dict.fromkeys(kinds[:: -1 if self.reverse else 1]))
        if self.in_turn:
            return closed + [filling[kind] for kind in seen if kind in filling]
        if self.by_kind:
            both = [*closed, *filling.values()]
            return sorted(both, key=lambda held: seen.index(kinds[held[0]]))
        left = list(filling.items())
        if self.rest_by:
            keys = [self.rest_by(i, str(kind), held) for i, (kind, held) in enumerate(left)]
            left = [left[i] for i in sorted(range(len(left)), key=keys.__getitem__)]
        return closed + ([held for _, held in left] if self.rest else [])


# fmt: off
WRONG_RULES: tuple[tuple[str, Rule, str], ...] = (
    ("forward", Rule(reverse=False),
     "Backward begins with the last layer. Walk over the parameters in reverse order."),
    ("below the cap", Rule(hard=True),
     "A bucket closes when its bytes reach the cap. The parameter that reaches the cap still goes "
     "into the bucket, even if the bucket is then larger than the cap."),
    ("past the cap", Rule(strict=True),
     "A bucket closes when its bytes reach the cap. The bytes need not exceed the cap."),
    ("large alone", Rule(alone=True),
     "A large parameter goes into the open bucket too, and then the bucket closes."),
    ("no rest", Rule(rest=False), "The buckets that are open at the end are missing. Close them "
    "too."),
    ("elements", Rule(each=1), "The cap counts bytes: numel() times element_size()."),
    ("four bytes", Rule(each=4), "An element of float64 has 8 bytes, not 4: element_size()."),
    ("decimal", Rule(unit=10**6), "1 MB is 2**20 bytes here, as in torch."),
    ("one first of all", Rule(first="of all"),
     "Each kind, a dtype on a device, has a first bucket."),
    ("two dtypes", Rule(dtypes=False),
     "Two dtypes are in one bucket, but a bucket must be one tensor. Keep an open bucket for each "
     "dtype and device."),
    ("two devices", Rule(devices=False),
     "Two devices are in one bucket, but a bucket must be one tensor. Keep an open bucket for each "
     "dtype and device."),
    ("no first", Rule(first="never"),
     "The first bucket has its own cap: first_bucket_mb, if given. A first_bucket_mb of 0 is a cap "
     "too."),
    ("always first", Rule(first="always"),
     "first_bucket_mb is only for the first bucket of a kind."),
)
# fmt: on

# Wrong orders of the buckets left at the end. All orders have the same hint, "order of buckets",
# and may give the same buckets.
ORDERS: dict[str, Rule] = {
    "kinds in turn": Rule(in_turn=True),
    "back to front": Rule(rest_by=lambda i, kind, held: -i),
    "by name": Rule(rest_by=lambda i, kind, held: kind),
    "by name, back to front": Rule(rest_by=lambda i, kind, held: [-ord(each) for each in kind]),
    "fewest first": Rule(rest_by=lambda i, kind, held: len(held)),
    "most first": Rule(rest_by=lambda i, kind, held: -len(held)),
    "as they were filled": Rule(rest_by=lambda i, kind, held: -held[-1]),
}

ALONE = Rule(unit=0)  # each parameter in its own bucket
BELOW = Rule(hard=True)  # each bucket stays below the cap

# Wrong rules without a sentence. If an answer's buckets follow such a rule, no hint of
# `WRONG_RULES` is shown.
UNNAMED: dict[str, Rule] = {
    **ORDERS,
    "bytes of all kinds": Rule(all_kinds=True),
    "kind after kind": Rule(by_kind=True),
    "each in a bucket of its own": ALONE,
}


def by_torchs_rule(parameters: Sequence[Tensor], cap: float, first: float) -> list[list[int]]:
    """Return the indices of the parameters in each bucket, by the kit's simulator.

    The simulator is tested against torch.
    """
    from ddpkit.simulate import Gradient, assign_buckets

    gradients = [
        Gradient(str(i), p.numel() * p.element_size(), 0, f"{p.dtype} {p.device}")
        for i, p in enumerate(parameters)
    ]
    buckets = assign_buckets(gradients[::-1], cap, first)
    return [[int(name) for name in bucket.gradients] for bucket in buckets]


# Sizes to draw from, in KB. Sums of WHOLE can be exactly a cap. Sums with SHORT can be a bit less.
WHOLE, SHORT = [64 * n for n in range(1, 17)], [64 * n - 24 for n in range(4, 17)]


def that_tell(
    rng: random.Random, kinds: Sequence[Kind], cap: float, first: float, mistakes: Iterable[str]
) -> list[tuple[Kind, int]]:
    """Draw the kinds and bytes of parameters for which the buckets identify the given mistakes.

    A kind is the name of a dtype and the name of a device. A mistake is a name from `WRONG_RULES`
    or `ORDERS`. Each mistake gives buckets that differ from the right buckets. No two of
    `WRONG_RULES` give the same wrong buckets. The rule "below the cap" does not put each parameter
    into its own bucket.
    """
    import torch

    rules = {**ORDERS, **{name: rule for name, rule, _ in WRONG_RULES}}
    while True:
        mixed = rng.sample(kinds, len(kinds))
        sizes = [KB * rng.choice(rng.choice((WHOLE, SHORT))) for _ in mixed]
        asked = [(getattr(torch, dtype), device) for dtype, device in mixed]
        right = Rule().filled(asked, sizes, cap, first)
        if any(rules[name].filled(asked, sizes, cap, first) == right for name in mistakes):
            continue
        alone, below = (rule.filled(asked, sizes, cap, first) for rule in (ALONE, BELOW))
        if alone == below != right:
            continue
        made = [rule.filled(asked, sizes, cap, first) for _, rule, _ in WRONG_RULES]
        wrong = [str(buckets) for buckets in made if buckets != right]
        if len(set(wrong)) == len(wrong):
            return list(zip(mixed, sizes, strict=True))
