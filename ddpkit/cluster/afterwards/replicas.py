"""The text about models that should be equal on several ranks, but have unequal parameters.

The replicas of a DDP model should be equal. The parameters of an optimizer should be equal only if
the program averages gradients: ranks of a pipeline, of a parameter server or of local SGD may begin
with equal parameters too. So the parameters of an optimizer count only if all parameters began
equal, and in one of four cases:

- after some step, all parameters had changed and were still equal;
- a matrix has changed and is equal on all ranks, while another parameter differs (a vector does not
  count, because the gradient of a bias may depend on no data);
- after some step, the classes of ranks with equal models had unequal sizes (the stages of a
  pipeline with replicas make classes of equal sizes);
- no rank has sent more data than a loss: the calls were only barriers, broadcasts, and collectives
  of at most 16 bytes.

If two ranks differ in a parameter and later have equal values, the program averages parameters from
time to time: this is local SGD, in which replicas drift apart on purpose. Then only the last case
counts.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import TypeAlias

from ddpkit.cluster.phrases import ranks, wrapped
from ddpkit.protocol.replica import Fingerprints, Prints, Replica
from ddpkit.text import count
from ddpkit.trace import Trace

SCALARS = 16  # bytes of a loss, a count or both
Model: TypeAlias = Mapping[int, Replica]  # rank -> the rank's replica of one model


def differing(replicas: Mapping[int, Sequence[Replica]], *, alone: bool) -> str:
    """Return a text, "0.weight differs between ranks 0 and 1, first after step 3 ...", or "".

    replicas  the models of each rank
    alone     the result of `train_alone` for the run's trace
    """
    for model in _models(replicas):
        ends = {rank: each.end for rank, each in model.items() if each.end is not None}
        if len(ends) < len(model):
            continue
        wrong = _apart(ends)
        if wrong and _should_be_equal(model, alone=alone):
            return wrapped(_words(model, ends, wrong))
    return ""


def train_alone(trace: Trace) -> bool:
    """True if no rank has sent a gradient or an activation: each rank trained by itself."""
    return all(
        span.name in ("barrier", "broadcast") or (span.is_collective and span.bytes <= SCALARS)
        for span in trace.spans
        if span.is_comm
    )


def _models(replicas: Mapping[int, Sequence[Replica]]) -> Iterator[Model]:
    """Yield each model that all ranks of its group have, as a dict of replicas by rank."""
    found: dict[tuple[str, tuple[int, ...], int], dict[int, Replica]] = {}
    for rank, each in replicas.items():
        numbers: dict[tuple[str, tuple[int, ...]], int] = {}
        for replica in each:
            key = replica.kind, replica.members
            numbers[key] = number = numbers.get(key, -1) + 1
            found.setdefault((*key, number), {})[rank] = replica
    for (_, members, _), model in found.items():
        first = next(iter(model.values()))
        alike = all(each.names == first.names for each in model.values())
        if alike and model.keys() == set(members or replicas) and len(model) > 1:
            yield model


def _should_be_equal(model: Model, *, alone: bool) -> bool:
    first = next(iter(model.values()))
    if first.kind == "DDP":
        return True
    begun = first.begun
    if any(each.begun != begun for each in model.values()):
        return False
    if alone:
        return True
    if _meet_again(model):
        return False
    for seen in _moments(model):
        equal = [same and prints[0] != before for same, prints, before in _compared(seen, begun)]
        if all(equal) or any(map(operator.and_, equal, first.matrices)):
            return True
        classes = Counter(each.prints for each in seen.values())
        if begun not in classes and max(classes.values()) > min(classes.values()):
            return True
    return False


def _meet_again(model: Model) -> bool:
    """True if two ranks had different values of a parameter, and later have equal values."""
    apart: set[tuple[int, int, int]] = set()  # (parameter, rank, rank) that have differed
    for seen in _moments(model):
        for one, other in combinations(sorted(seen), 2):
            pairs = zip(seen[one].prints, seen[other].prints, strict=True)
            for number, (mine, theirs) in enumerate(pairs):
                if mine != theirs:
                    apart.add((number, one, other))
                elif (number, one, other) in apart:
                    return True
    return False


def _moments(model: Model) -> Iterator[dict[int, Fingerprints]]:
    """Yield the fingerprints of all ranks after each step, and at the end of the run."""
    at: dict[int, dict[int, Fingerprints]] = {}
    for rank, replica in model.items():
        for seen in replica.seen:
            at.setdefault(seen.step, {})[rank] = seen
    yield from (seen for _, seen in sorted(at.items()) if len(seen) == len(model))
    yield {rank: replica.end for rank, replica in model.items() if replica.end is not None}


def _compared(
    seen: Mapping[int, Fingerprints], begun: Prints
) -> Iterator[tuple[bool, tuple[int, ...], int]]:
    """Yield, for each parameter, True if it is equal on all ranks, and its fingerprints.

    The fingerprints are a tuple with one for each rank, and the one at the start of the run.
    """
    by_parameter = zip(*(each.prints for each in seen.values()), strict=True)
    for prints, before in zip(by_parameter, begun, strict=True):
        yield len({*prints}) == 1, prints, before


def _apart(seen: Mapping[int, Fingerprints]) -> list[int]:
    """Return the indices of the parameters with different fingerprints on the ranks."""
    by_parameter = zip(*(each.prints for each in seen.values()), strict=True)
    return [number for number, prints in enumerate(by_parameter) if len({*prints}) > 1]


def _words(model: Model, ends: Mapping[int, Fingerprints], wrong: Sequence[int]) -> str:
    first = next(iter(model.values()))
    name = first.names[wrong[0]]
    one = min(ends)
    other = next(r for r in sorted(ends) if ends[r].prints[wrong[0]] != ends[one].prints[wrong[0]])
    ddp = first.kind == "DDP"
    begun = "A DDP model should be equal" if ddp else "The parameters of an optimizer began equal"
    text = f"{begun} on all ranks, but {name} differs between ranks {one} and {other}"
    if wrong[1:]:
        verb = "do" if wrong[2:] else "does"
        text += f", and so {verb} {count(len(wrong) - 1, 'more parameter')}"
    return f"{text}{_since(model)}.{_steps(ends)}"


def _since(model: Model) -> str:
    """Return text such as ", first after step 3; during step 3, no rank communicated", or ""."""
    last = 0
    for seen in _moments(model):
        step = max(each.step for each in seen.values())
        if not _apart(seen):
            last = step
            continue
        if not step:
            return ""
        when = f"after step {step}" if step <= last + 1 else f"between steps {last} and {step}"
        quiet = [rank for rank, each in seen.items() if not each.called]
        if not quiet:
            return f", first {when}"
        who = ranks(quiet) if len(quiet) < len(seen) else "no rank"
        verb = "communicated nothing" if len(quiet) < len(seen) else "communicated"
        return f", first {when}; during step {step}, {who} {verb}"
    return ""


def _steps(ends: Mapping[int, Fingerprints]) -> str:
    """Return " Rank 0 made 3 optimizer steps, rank 1 made 2.", or "" if the numbers are equal."""
    made: dict[int, list[int]] = {}
    for rank, end in sorted(ends.items()):
        made.setdefault(end.step, []).append(rank)
    if len(made) == 1:
        return ""
    each = [f"{ranks(those)} made {count(step, 'optimizer step')}" for step, those in made.items()]
    text = ", ".join(each)
    return f" {text[0].upper()}{text[1:]}."
