"""Takes the fingerprints of models that should be equal on several ranks.

Two kinds of models should be equal: a module in DDP, and the parameters of an optimizer that begin
equal on all ranks. The launcher compares the fingerprints when the run has ended
(`cluster.afterwards.replicas`).

A function's model is gone when the function returns. So a `Witness` lies in the `__dict__` of the
DDP module, or of the optimizer, and holds the parameters no longer than this owner does: when the
owner is freed, the witness takes the last fingerprints, and then is freed too.

A fingerprint costs about 0.1 ms for a megabyte. Fingerprints are taken after the optimizer steps 1,
2, 3, 4, 6, 8, 12, 16, 24 and so on, which are the same steps on each rank. No emulated time passes.
On a modelled device a fingerprint would wait for gloo, and could change times and memory. So no
fingerprint is taken of a model with a tensor that gloo may still read or write.
"""

from __future__ import annotations

import functools
import weakref
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from ddpkit import torch_private
from ddpkit.protocol.replica import Fingerprints, Prints, Replica
from ddpkit.rank.record.recorder import Recorder

if TYPE_CHECKING:
    from torch import nn

    from ddpkit.rank.emulation.machine import Machine

ATTRIBUTE = "_ddpkit_witness"  # name of the attribute with a witness
LOCAL_SGD = "localSGD"  # part of the name of hooks for averages of weights
SMALL = 4096  # bytes, up to which a checksum is faster than a sum
KINDS = (torch.Tensor, torch.nn.Parameter)
MOST = 64  # models


class Witness:
    """Takes the last fingerprints of a model when the model's owner is freed."""

    def __init__(
        self, replicas: Replicas, replica: Replica, tensors: Sequence[torch.Tensor]
    ) -> None:
        self.replicas, self.replica, self.tensors = replicas, replica, tensors
        self.may_differ = False

    def __del__(self) -> None:
        self.replicas.end(self)

    def __reduce__(self) -> tuple[object, ...]:  # a copy of the owner has no witness
        return type(None), ()


class Replicas:
    """The models of a rank that should be equal on several ranks."""

    def __init__(self, recorder: Recorder, machine: Machine | None) -> None:
        self.found: list[Replica] = []
        self._recorder, self._machine = recorder, machine
        self._witnesses: weakref.WeakSet[Witness] = weakref.WeakSet()
        self._in_ddp: set[int] = set()  # ids of the parameters of DDP modules
        self._steps = self._calls = (
            0  # numbers of optimizer steps, and of calls before the newest step
        )
        self._has_called = False
        self._open = True

    @contextmanager
    def watched(self) -> Iterator[None]:
        """A block in which new models are found; at its end, the last fingerprints are taken."""
        with ExitStack() as stack:
            for name, wrap in (("__init__", self._init), ("register_comm_hook", self._hooked)):
                original = getattr(DistributedDataParallel, name)
                setattr(DistributedDataParallel, name, wrap(original))
                stack.callback(setattr, DistributedDataParallel, name, original)
            stack.callback(register_optimizer_step_pre_hook(self._step_begins).remove)
            stack.callback(register_optimizer_step_post_hook(self._step_ends).remove)
            yield
            for witness in list(self._witnesses):
                self.end(witness)
        self._open = False

    def end(self, witness: Witness) -> None:
        """Take the last fingerprints of a model, unless they have been taken already."""
        replica = witness.replica
        if self._open and replica.end is None and not witness.may_differ:
            replica.end = self._seen(witness)

    def _hooked(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def register(ddp: nn.parallel.DistributedDataParallel, state: object, hook: object) -> None:
            original(ddp, state, hook)
            if (witness := vars(ddp).get(ATTRIBUTE)) is not None:
                witness.may_differ |= not _averages(hook)

        return register

    def _init(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def init(ddp: nn.parallel.DistributedDataParallel, *args: object, **kwargs: object) -> None:
            original(ddp, *args, **kwargs)
            self._take_ddp(ddp)

        return init

    def _take_ddp(self, ddp: nn.parallel.DistributedDataParallel) -> None:
        ignored = ddp.parameters_to_ignore
        named = [(n, p) for n, p in ddp.module.named_parameters() if n not in ignored]
        self._in_ddp.update(map(id, ddp.module.parameters()))
        try:
            members = tuple(dist.get_process_group_ranks(ddp.process_group))
        except KeyError:  # a group of the user's own, which torch.distributed does not know
            return
        self._take(
            ddp, Replica("DDP", tuple(n for n, _ in named), members=members), [p for _, p in named]
        )

    def _step_begins(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        if ATTRIBUTE in vars(optimizer):
            return
        tensors = [p for group in optimizer.param_groups for p in group["params"]]
        if any(id(each) in self._in_ddp for each in tensors):
            tensors = []
        kind = type(optimizer).__name__
        names = tuple(f"parameter {number} of {kind}" for number in range(len(tensors)))
        matrices = tuple(each.dim() > 1 for each in tensors)
        self._take(optimizer, Replica(kind, names, matrices), tensors)

    def _take(self, owner: object, replica: Replica, tensors: Sequence[torch.Tensor]) -> None:
        vars(owner)[ATTRIBUTE] = None
        if len(self.found) == MOST or not all(_is_plain(each) for each in tensors) or not tensors:
            return
        if replica.kind != "DDP":
            begun = self._prints(tensors)
            if begun is None:
                return
            replica.begun = begun
        witness = vars(owner)[ATTRIBUTE] = Witness(self, replica, tensors)
        self.found.append(replica)
        self._witnesses.add(witness)

    def _step_ends(self, *_: object) -> None:
        self._steps += 1
        assert self._recorder.box is not None
        before, self._calls = self._calls, self._recorder.box.calls_written
        self._has_called = self._calls > before
        if is_looked_after(self._steps):
            for witness in list(self._witnesses):
                if (seen := self._seen(witness)) is not None:
                    witness.replica.seen.append(seen)

    def _seen(self, witness: Witness) -> Fingerprints | None:
        prints = self._prints(witness.tensors)
        return None if prints is None else Fingerprints(self._steps, prints, self._has_called)

    def _prints(self, tensors: Sequence[torch.Tensor]) -> Prints | None:
        """Return the fingerprints of tensors, with no effect on counted compute or emulated time.

        Return None if gloo may still read or write one of the tensors.
        """
        machine = self._machine
        if machine and machine.device and machine.device.carried.has(tensors):
            return None
        with (
            machine.clocks.mine.stopped() if machine else nullcontext(),
            torch_private.no_modes(),
            torch.no_grad(),
        ):
            return tuple(map(fingerprint, tensors))


def _averages(hook: object) -> bool:
    """True if a DDP hook is one of torch's hooks that average gradients.

    With other hooks, the ranks' models may differ.
    """
    is_torchs = str(getattr(hook, "__module__", "")).startswith("torch.")
    return is_torchs and LOCAL_SGD not in getattr(hook, "__name__", "")


def fingerprint(tensor: torch.Tensor) -> int:
    """Return a hash of a tensor: equal tensors have equal hashes, unequal ones almost never."""
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    if flat.numel() <= SMALL:
        return zlib.crc32(flat.numpy().tobytes())
    if flat.storage_offset() % 8:
        flat = flat.clone()
    whole = flat.numel() // 8 * 8
    total = flat[:whole].view(torch.int64).sum().item()
    return int(total) ^ zlib.crc32(flat[whole:].numpy().tobytes())


def is_looked_after(step: int) -> bool:
    """True for the steps after which fingerprints are taken: 1, 2, 3, 4, 6, 8, 12, 16 and so on."""
    largest = 1 << (step.bit_length() - 1)
    return step == largest or 2 * step == 3 * largest


def _is_plain(tensor: Any) -> bool:
    plain = type(tensor) in KINDS and tensor.layout is torch.strided
    return plain and not tensor.is_meta and tensor.dtype not in (torch.complex32,)
