"""The process group of every cluster: it records each call, and passes the call to gloo or NCCL.

All calls of torch.distributed pass through this group, even those of DDP's C++ reducer: the group
belongs to a backend at c10d's own extension point (`torch.distributed.Backend.register_backend`).
The group changes no byte. On an emulated cluster, `emulated` sets the times.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import Work

from ddpkit import torch_private
from ddpkit.protocol.call import Call, to_itself
from ddpkit.rank.group import arguments, believed, changed, layout, shared_memory
from ddpkit.rank.group.direct import Scattered
from ddpkit.rank.group.methods import (
    COLLECTIVES,
    INPUT_COMES_SECOND,
    PAIRWISE,
    REFUSED,
)
from ddpkit.rank.group.placed import by_place
from ddpkit.rank.group.work import AllOf, InStream, RecordedWork, alive
from ddpkit.rank.record.call import RecordedCall
from ddpkit.rank.record.recorder import Known, Recorder
from ddpkit.rank.where import user_call


class RecordedGroup(dist.ProcessGroup):
    """A process group that records every call and passes the call to an inner group.

    `inner` is a gloo group; `on_gpu` is None, or an NCCL group for calls with CUDA tensors.
    `members` are the global ranks of the group, in order; `running` are the members that are not
    absent.
    """

    def __init__(
        self,
        inner: dist.ProcessGroupGloo,
        start: Callable[..., Any],
        name: str,
        members: tuple[int, ...],
        recorder: Recorder,
        on_gpu: dist.ProcessGroupNCCL | None = None,
        running: tuple[int, ...] = (),
        described: str = "",
    ) -> None:
        super().__init__(inner.rank(), len(members))  # type: ignore[call-arg]  # a wrong stub
        self._inner, self._start, self._recorder = inner, start, recorder
        self._name, self._members, self._on_gpu = name, members, on_gpu
        self._running, self._described = running or members, described
        self.of_host: RecordedGroup | None = None  # used if the user has asked for two backends
        if recorder.groups is not None:  # kept open, because peers may wait in a destroyed group
            recorder.groups.append(self)
        self._buckets: dict[object, Known] = {}  # buckets of DDP's reducer
        self._batch: list[RecordedCall] | None = None  # NCCL's messages that are posted as one
        self.answers_as = "gloo" if on_gpu is None else "nccl"  # the backend that was asked for
        # c10d stores a group's name in its backends: device meshes and functional collectives ask
        # for it. Calls still come to this class, because its methods override the C++ methods.
        torch_private.register_backend(self, "cpu", inner)
        if on_gpu is not None:
            torch_private.register_backend(self, "cuda", on_gpu)

    def __init_subclass__(cls) -> None:
        cls.__name__ = "ProcessGroup"  # pickle uses `__qualname__` and still finds the class

    def __repr__(self) -> str:
        """Return, for example, "<ProcessGroup gloo [0, 1]>"; a group's name follows "gloo"."""
        named = f"{self.answers_as} {self._desc}".strip()
        return f"<ProcessGroup {named} {list(self._members)}>"

    def shutdown(self) -> None:
        """Leave gloo's connections open until the process ends.

        A closed connection would raise an error on ranks that still wait in a call. The error would
        hide the cause, a call that this rank never made.
        """
        if self._on_gpu is not None:
            self._on_gpu.shutdown()

    def getBackendName(self) -> str:
        return self.answers_as

    @property
    def options(self) -> object:
        """The options of the inner backend, an attribute that torch's own groups have."""
        return (self._on_gpu or self._inner).options

    @property
    def _label(self) -> str:
        """The name of the group in the records of calls, which is different for each group."""
        return self._name

    @by_place
    def _collective(self, method: str, args: tuple[Any, ...], kwargs: dict[str, object]) -> Work:
        op = COLLECTIVES[method]
        as_nccl = self._as_nccl(args)
        strides = layout.order(op, args, as_nccl)
        shared_memory.check(op, args, self._inner.rank(), len(self._members), as_nccl)
        if self.believed_nccl and method == "alltoall" and believed.unlike([*args[0], *args[1]]):
            return self._exchange(*args)
        if self.believed_nccl and method == "allgather" and believed.unlike(args[0][0]):
            return self._broadcasts(*args)
        options = arguments.options(args)
        root = getattr(options, "rootRank", None)
        call = self._posted(
            op,
            () if method == "barrier" else args[method in INPUT_COMES_SECOND :],
            root=self._root(root),
            reduce=arguments.reduction(options),
            options=options,
            strides=strides,
            **arguments.splits(op, args, len(self._members)),
        )
        work = self._started(inner := self._begun(call, method, *args, **kwargs), call, args)
        # A blocking call sees its end in its wait, without a callback, which would take the GIL.
        if inner is not None and getattr(options, "asyncOp", True):
            self._tell_when_done(inner, call)
            alive.keep(work)
        return work

    def _pairwise(
        self,
        base: str,
        outputs: list[torch.Tensor],
        inputs: list[torch.Tensor],
        *options: object,
        **kwargs: object,
    ) -> Work:
        """Start `base` on each pair. Raises ValueError if the two lists differ in length."""
        pairs = zip(outputs, inputs, strict=True)
        works = [self._collective(base, (*pair, *options), kwargs) for pair in pairs]
        return works[0] if len(works) == 1 else AllOf(works)

    def _exchange(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], *rest: object
    ) -> Work:
        """Post an all_to_all of unequal tensors; gloo gets them as parts of two vectors."""
        takes, sends = ([each.numel() for each in tensors] for tensors in (outputs, inputs))
        leaving = torch.cat([each.detach().reshape(-1) for each in inputs])
        coming = leaving.new_empty(sum(takes), dtype=outputs[0].dtype)
        work = self._collective("alltoall_base", (coming, leaving, takes, sends, *rest), {})
        parts = zip(torch.split(coming, takes), outputs, strict=True)
        return believed.ExchangedLists(
            work, [part.view(each.shape) for part, each in parts], outputs
        )

    def _broadcasts(
        self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], *_: object
    ) -> Work:
        """Post an all_gather of unequal tensors as NCCL does: a broadcast from each rank."""
        works = []
        outputs[0][self._inner.rank()].detach().copy_(inputs[0])
        for root, output in enumerate(outputs[0]):
            options = dist.BroadcastOptions()
            options.rootRank, options.rootTensor = root, 0
            works.append(self._collective("broadcast", ([output], options), {}))
        return AllOf(works)

    def allreduce(self, *args: Any, **kwargs: object) -> Work:
        """Post an all_reduce, with little Python code for calls by DDP's reducer.

        The reducer waits in C++ for the work's future, and no Python code sees this wait.
        """
        caller = sys._getframe().f_back
        if not is_reducer(caller):
            return self._collective("allreduce", args, kwargs)
        call = self._bucket_posted(args[0][0], caller)
        inner: Work = self._begun(call, "allreduce", *args, **kwargs)
        self._tell_when_done(inner, call)
        call.work = inner
        return inner

    @by_place
    def send(self, tensors: list[torch.Tensor], dstRank: int, tag: int = 0) -> Work:
        peer = self._peer("send", "dst", dstRank)
        call = self._posted_message("send", tensors, peer=peer, tag=tag)
        call.holds = arguments.numbers(tensors[0])
        return self._started(self._begun(call, "send", tensors, dstRank, tag), call, tensors)

    @by_place
    def recv(self, tensors: list[torch.Tensor], srcRank: int, tag: int = 0) -> Work:
        peer = self._peer("recv", "src", srcRank)
        call = self._posted_message("recv", tensors, peer=peer, tag=tag)
        return self._started(self._begun(call, "recv", tensors, srcRank, tag), call, tensors)

    @property
    def has_nccl(self) -> bool:
        """True if NCCL moves CUDA tensors; ranks that share a GPU use gloo for all tensors."""
        return self._on_gpu is not None

    @property
    def believed_nccl(self) -> bool:
        """True if the script has requested NCCL, and gloo works in place of NCCL."""
        return self._on_gpu is None and "nccl" in self.answers_as

    @contextmanager
    def as_one(self) -> Iterator[list[Work]]:
        """A block whose messages NCCL posts as one operation; its end fills the yielded list."""
        works: list[Work] = []
        batch: list[RecordedCall] = []
        self._batch = batch
        with torch_private.posted_as_one(self._on_gpu) as posted:
            try:
                yield works
            finally:
                self._batch = None
        works += [self._started(posted[0], call) for call in batch]

    def _root(self, group_rank: int | None) -> int | None:
        """Return the global rank of a root; None if the group has no such rank."""
        if group_rank is None or not 0 <= group_rank < len(self._members):
            return None
        return self._members[group_rank]

    def gather_single(self, output: torch.Tensor, input: torch.Tensor, *options: Any) -> Work:
        """Gather equal tensors into one tensor on the root, as torch 2.15 and later can.

        gloo can gather only into a list, so gloo gets the parts of `output`. Raises ValueError on
        the root if `output` does not have as many elements as all inputs together.
        """
        opts = options[0] if options else dist.distributed_c10d.GatherOptions()
        lists = []
        if opts.rootRank == self._inner.rank():
            size = len(self._members)
            if output.numel() != size * input.numel():
                raise ValueError(
                    f"gather_single: {size} ranks give {input.numel()} elements each, and the "
                    f"output has {output.numel()} instead of {size * input.numel()}"
                )
            lists = [[*output.view(size, *input.shape).unbind()]]
        return self._collective("gather", (lists, [input], opts), {})

    gather_into_tensor = gather_single

    @property
    def supports_reconfigure(self) -> bool:
        return False  # see `methods.REFUSED`

    supports_window = supports_reconfigure

    def _peer(self, op: str, argument: str, group_rank: int) -> int:
        """Return the global rank of a peer. Raises ValueError for a rank outside the group."""
        if group_rank == self._inner.rank():
            raise ValueError(to_itself(op, argument, group_rank))
        if 0 <= group_rank < len(self._members):
            return self._members[group_rank]
        last = len(self._members) - 1  # without this check, gloo would wait forever
        there_are = f"ranks 0 to {last}" if last else "rank 0 only"
        raise ValueError(f"{op}({argument}={group_rank}): this group has {there_are}")

    @by_place
    def recv_anysource(self, tensors: list[torch.Tensor], tag: int = 0) -> Work:
        call = self._posted_message("recv", tensors, tag=tag)
        return self._started(self._begun(call, "recv_anysource", tensors, tag), call, tensors)

    def _begun(self, call: RecordedCall, method: str, *args: object, **kwargs: object) -> Any:
        """Return the result of `start`; forget a call that the backend refuses."""
        try:
            if self.answers_as == "nccl" and self._on_gpu is None:
                believed.check(method, args)
            if self.believed_nccl:
                args = believed.fitted(method, args, len(self._members))
            inner = self._start(call, method, *args, **kwargs)
        except Exception:
            self._recorder.refused(call)
            raise
        self._recorder.made(call)
        return inner

    def _as_nccl(self, args: object) -> bool:
        """True if NCCL's rules hold for a call: with both backends, gloo gets the CPU tensors."""
        if self.has_nccl:
            return arguments.on_gpu(arguments.tensor(args), None)
        return self.answers_as == "nccl"

    def _posted_message(self, op: str, tensors: list[torch.Tensor], **details: Any) -> RecordedCall:
        layout.check_message(op, tensors[0], self._as_nccl(tensors))
        return self._posted(op, tensors, strides=layout.strides(tensors[0]), **details)

    def _posted(
        self, op: str, payload: Any, *, options: object = None, **details: Any
    ) -> RecordedCall:
        tensor = arguments.tensor(payload)
        if tensor is not None:
            details["shape"], details["dtype"] = tensor.shape, arguments.dtype_name(tensor.dtype)
            # An all_to_all sends its whole list, and a coalesced call moves all its tensors. In
            # every other list, the first tensor has the bytes of one rank.
            if op == "all_to_all":
                moved = arguments.tensors(payload[:1])
            else:
                moved = arguments.tensors(payload) if op.endswith("_coalesced") else [tensor]
            details["bytes"] = sum(map(arguments.nbytes, moved))
        if self.has_nccl:
            details["on_gpu"] = arguments.on_gpu(tensor, options)
        return self._recorder.posted(op, self._label, **self._of_all_calls, **details)

    @cached_property
    def _of_all_calls(self) -> dict[str, Any]:
        """The fields that have the same values in the records of all calls."""
        absent = len(self._members) - len(self._running)
        return {"members": self._running, "absent": absent, "group_desc": self._desc}

    @cached_property
    def _desc(self) -> str:
        """The user's name of the group; c10d sets it after the group is made."""
        return self._described or arguments.group_desc(getattr(self, "group_desc", ""))

    def _bucket_posted(self, bucket: torch.Tensor, caller: FrameType | None) -> RecordedCall:
        """Record a bucket's all_reduce; store the bucket's facts for the next steps."""
        backward = self._recorder.backward
        where, via = user_call(caller) if backward is None else backward.line
        key = where, bucket.shape, bucket.dtype, self._recorder.model_sending()
        known = self._buckets.get(key)
        if known is None or bucket.is_sparse:
            what = Call("all_reduce", self._label, where, via, reduce="SUM", **self._of_all_calls)
            what = what._replace(
                shape=bucket.shape,
                dtype=arguments.dtype_name(bucket.dtype),
                bytes=arguments.nbytes(bucket),
                model=key[-1],
            )
            known = self._buckets[key] = self._recorder.know(what)
        return self._recorder.post(known, self.has_nccl and bucket.is_cuda)

    def _tell_when_done(self, inner: Work, call: RecordedCall) -> None:
        if isinstance(inner, Scattered):  # the wait notes the end: a future would cost a thread
            return
        future = inner.get_future()
        call.future = future
        future.add_done_callback(self._recorder.teller(call))

    def _started(self, inner: Work | None, call: RecordedCall, payload: object = ()) -> Work:
        if inner is None and self._batch is not None:
            self._batch.append(call)
            return InStream()
        if inner is None:  # NCCL works in the current stream, which waits for the result
            call.blocked = call.posted
            self._recorder.done(call)
            return InStream()
        call.work, call.versions = inner, changed.versions(call.what, payload, self._recorder.rank)
        work = self._work(inner, call)
        if (watch := self._recorder.watch) is not None:
            watch.posted(work, call.what, payload)
        return work

    def _work(self, inner: Work, call: RecordedCall) -> Work:
        """Return the Work that the caller gets for a started operation."""
        return RecordedWork(inner, call, self._recorder)


def _forward(method: str) -> Callable[..., Work]:
    def collective(self: RecordedGroup, *args: Any, **kwargs: object) -> Work:
        return self._collective(method, args, kwargs)

    collective.__name__ = method
    return collective


def _forward_pairs(method: str) -> Callable[..., Work]:
    def collective(self: RecordedGroup, *args: Any, **kwargs: Any) -> Work:
        return self._pairwise(PAIRWISE[method], *args, **kwargs)

    collective.__name__ = method
    return collective


def _refuse(method: str) -> Callable[..., object]:
    def refused(self: RecordedGroup, *args: object, **kwargs: object) -> object:
        raise RuntimeError(f"ddpkit's process groups do not support {method}: {REFUSED[method]}")

    refused.__name__ = method
    return refused


for _method in COLLECTIVES.keys() - {"allreduce"}:
    setattr(RecordedGroup, _method, _forward(_method))
for _method in PAIRWISE:
    setattr(RecordedGroup, _method, _forward_pairs(_method))
for _method in REFUSED:
    setattr(RecordedGroup, _method, _refuse(_method))


# Errors of Python and torch name the class of a group: "cannot pickle 'ProcessGroup' object".
RecordedGroup.__name__ = "ProcessGroup"


def is_reducer(caller: FrameType | None) -> bool:
    """True for a call by DDP's reducer, not by a hook; on a GPU, its caller is None."""
    return caller is None or caller.f_code.co_name == torch_private.IN_BACKWARD
