"""Detects tensors that the code changes between the post of an operation and its wait.

torch gives each tensor a version, to which every in-place operation adds 1. gloo moves bytes
without torch, and does not change the version (tests/rank/test_changed.py asks gloo itself). So two
reads of a version, of 0.2 us each, reveal a change. The versions are read for every asynchronous
call of the user's code.

Views of one storage share a version. So a change counts only if the tensor fills its storage: then
no view of other elements can have changed the version. `in_flight` also sees changes of views, and
reads of tensors that have not arrived yet, at the higher cost of a dispatch mode.
"""

from __future__ import annotations

import weakref
from typing import Any, TypeAlias

import torch

from ddpkit.protocol.call import ASYNCHRONOUS, Call
from ddpkit.rank.group import arguments

IN_PLACE = ("all_reduce", "all_reduce_coalesced", "reduce", "recv")
SCALED = ("AVG", "PREMUL_SUM")  # reductions in which the backend divides with torch's operation
KINDS = (torch.Tensor, torch.nn.Parameter)  # no subclasses: a wrapper has a version of its own

Versions: TypeAlias = list[tuple[weakref.ref[torch.Tensor], int]]


def versions(what: Call, payload: object, rank: int) -> Versions:
    """Return the versions of the tensors that only the network may touch until the wait.

    The list is empty for calls that block, for calls of torch's own code, and for averages. The
    list does not contain outputs of a gather, because the backend copies into them with an
    operation of torch's.
    """
    if not (what.via in ASYNCHRONOUS or (not what.via and not what.is_message)):
        return []
    if what.reduce in SCALED:
        return []
    reads, writes = used(what, payload, rank)
    in_place = what.op in IN_PLACE or what.op == "broadcast"
    return [
        (weakref.ref(each), each._version)
        for each in (*reads, *(writes if in_place else ()))
        if type(each) in KINDS and not each.is_inference()
    ]


def have_changed(before: Versions) -> bool:
    """True if a tensor that fills its storage no longer has the version in `before`."""
    for known, version in before:
        tensor = known()
        if tensor is not None and tensor._version != version and _is_whole(tensor):
            return True
    return False


def used(what: Call, payload: Any, rank: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return the tensors that an operation only reads, and the tensors that it writes."""
    tensors = arguments.tensors(payload)
    if what.op == "send" or (what.op == "broadcast" and what.root == rank):
        return tensors, []
    if what.op in IN_PLACE or what.op == "broadcast":
        return [], tensors
    return arguments.tensors(payload[1:]), arguments.tensors(payload[:1])


def _is_whole(tensor: torch.Tensor) -> bool:
    if tensor.layout is not torch.strided:
        return False
    return tensor.untyped_storage().nbytes() == tensor.nbytes
