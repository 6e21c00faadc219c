"""The texts of a `Mismatch`: pure functions from the calls of the ranks to a text."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ddpkit.cluster import causes
from ddpkit.cluster.explain import GROUPS
from ddpkit.cluster.phrases import (
    ROOT_NAMES,
    describe,
    of_group,
    place,
    ranks,
    tensor,
    wrapped,
)
from ddpkit.errors import MismatchKind
from ddpkit.protocol.call import Call, Where
from ddpkit.source import locate
from ddpkit.text import count


def mismatch(kind: MismatchKind, calls: Mapping[int, Call], late: Collection[int] = ()) -> str:
    """Return the text of a `Mismatch` from its fields; `late` ranks have not made the call."""
    if kind == "message":
        return _message_mismatch(calls)
    if kind == "splits":
        return _splits_mismatch(calls)
    alike: dict[tuple[str, str], list[int]] = {}
    for rank, call in sorted(calls.items()):
        alike.setdefault((describe(call), place(call.where)), []).append(rank)
    lines = [
        f"  {ranks(group)} {'calls' if len(group) == 1 else 'call'} {text}\n      {line}"
        for (text, line), group in alike.items()
    ]
    first = next(iter(calls.values()))
    if kind == "members":
        head = f"Group number {first.group} has different members on different ranks."
        return "\n".join([head, *lines, wrapped(GROUPS)])
    if late:
        lines.append(f"  {ranks(late)} {'has' if len(late) == 1 else 'have'} not called it yet")
    if len({call.function for call in calls.values()}) > 1:
        kind = "operation"
    head = f"The ranks disagree on collective number {first.seq} of this run."
    return "\n".join([head, *lines, wrapped(_rule(kind, first))])


def first_apart(calls: Mapping[int, Call]) -> str:
    """Return an error's sentence about the first collective called from different lines, or ""."""
    if not calls:
        return ""
    first = next(iter(calls.values()))
    if len({call.is_users for call in calls.values()}) > 1:
        case = "in which a call of the code met a call of torch's own"
    elif len({call.where for call in calls.values()}) > 1:
        case = "that ranks called from different lines"
    else:
        case = "in which ranks sent gradients of different models"
    sentence = (
        f"Collective number {first.seq}{of_group(first)} was the first {case}: {from_lines(calls)}."
    )
    return f"\n{wrapped(sentence)}"


def from_lines(calls: Mapping[int, Call]) -> str:
    """Return "rank 0 line 8, ranks 1, 2 line 16", with the DDP models' numbers if they differ."""
    at: dict[tuple[Where, int], list[int]] = {}
    for rank, call in sorted(calls.items()):
        at.setdefault((call.where, call.model), []).append(rank)
    several = len({file for (file, _), _ in at}) > 1
    models = len({model for _, model in at}) > 1
    return ", ".join(
        f"{ranks(numbers)} {locate(*where) if several else f'line {where[1]}'}"
        + (f" (model {model + 1} of those that DDP wrapped)" if models else "")
        for (where, model), numbers in at.items()
    )


LAYOUT = (
    "A collective moves elements in the order of memory, and this order differs between these "
    "tensors. Pass x.contiguous() on every rank."
)


def _rule(kind: MismatchKind, call: Call) -> str:
    """Return the rule that the ranks broke."""
    if kind == "shape" and call.objects is not None:
        return "Every rank must pass a list of the same number of objects."
    return {
        "operation": "Every rank must call the same collectives in the same order.",
        "root": f"Every rank must name the same {ROOT_NAMES.get(call.op, 'root')}.",
        "dtype": "Every rank must pass a tensor of the same dtype.",
        "shape": "Every rank must pass a tensor of the same shape.",
        "reduction": "Every rank must ask for the same reduction.",
        "strides": LAYOUT,
    }[kind]


def _message_mismatch(calls: Mapping[int, Call]) -> str:
    (src, sent), (dst, received) = sorted(calls.items(), key=lambda each: each[1].op != "send")
    tag = f" with tag {sent.tag}" if sent.tag else ""
    if sent.objects is not None and received.objects is not None:
        return "\n".join(
            [
                "A list of objects does not fit the list that it is received into.",
                f"  rank {src} sends {count(sent.objects, 'object')} to rank {dst}{tag}\n"
                f"      {place(sent.where)}",
                f"  rank {dst} receives {received.objects}\n      {place(received.where)}",
                "Both sides must pass lists of the same number of objects.",
            ]
        )
    return "\n".join(
        [
            "A message does not fit the tensor that it is received into.",
            f"  rank {src} sends {tensor(sent)} to rank {dst}{tag}\n      {place(sent.where)}",
            f"  rank {dst} receives into {tensor(received)}\n      {place(received.where)}",
            "Both sides must agree on the number of elements and on the dtype."
            if causes.same_layout(sent, received)
            else wrapped(LAYOUT),
        ]
    )


def _splits_mismatch(calls: Mapping[int, Call]) -> str:
    ends = next(filter(None, (causes.misfit(calls, rank) for rank in sorted(calls))))
    (src, sent), (dst, taken) = ((end, calls[end]) for end in ends)
    order = sent.members or range(len(sent.sends))
    much, little = sent.sends[order.index(dst)], taken.takes[order.index(src)]
    to, of = (" itself", " itself") if src == dst else (f" rank {dst}", f" rank {src}")
    return "\n".join(
        [
            f"In {sent.op} number {sent.seq} of this run, ranks disagree on the size of a part.",
            f"  rank {src} sends {count(much, 'number')} to{to}\n      {place(sent.where)}",
            f"  rank {dst} takes {little} from{of}\n      {place(taken.where)}",
            wrapped(
                "For each pair of ranks, the sender's input_split_sizes and the receiver's "
                "output_split_sizes must name the same number."
            ),
        ]
    )
