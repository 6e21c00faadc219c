"""Calls on NCCL beside gloo; the stand-in for NCCL is gloo that returns no Work, as NCCL does."""

import sys
from typing import Any

import cloudpickle
import pytest
import torch
import torch.distributed as dist

from ddpkit import Cluster
from ddpkit.rank.group import arguments, nccl
from ddpkit.rank.group.backend import register
from ddpkit.rank.group.recorded import is_reducer
from ddpkit.rank.group.work import InStream

GPU = torch.float64  # the dtype of the stand-in's tensors; all others are the CPU's


@pytest.fixture(autouse=True, scope="module")
def by_value(request: pytest.FixtureRequest):
    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)


def pretend() -> tuple[Any, list[str]]:
    """Return a group of two backends, and the list of calls to NCCL's. Called on a rank."""
    asked: list[str] = []

    class Batch(InStream):
        """A work for which, unlike a work of gloo, each message of a batch may wait in turn."""

        def __init__(self, works):
            super().__init__()
            self.works = works

        def wait(self, timeout=None):
            while self.works:
                self.works.pop().wait()
            return True

    class Nccl(dist.ProcessGroupGloo):
        """A stand-in for ProcessGroupNCCL since torch 2.8.

        A blocking collective returns no Work. A message of a batch is posted when the batch ends. A
        message alone waits at once.
        """

        batch = None

        def allreduce(self, tensors, options):
            asked.append("allreduce")
            work = super().allreduce(tensors, options)
            if options.asyncOp:
                return work
            work.wait()
            return None

        def send(self, *args):
            return self._message(super().send, args)

        def recv(self, *args):
            return self._message(super().recv, args)

        def _message(self, post, args):
            asked.append(post.__name__)
            if self.batch is None:
                return post(*args)
            self.batch.append((post, args))
            return None

        def _start_coalescing(self):
            asked.append("begin")
            self.batch = []

        def _end_coalescing(self):
            asked.append("end")
            works, self.batch = [post(*args) for post, args in self.batch], None
            return Batch(works)

    def make(options):
        store = dist.PrefixStore("nccl", options.store)
        return Nccl(store, options.group_rank, options.group_size, options.timeout)

    nccl.make = make
    arguments.on_gpu = lambda tensor, options: tensor is not None and tensor.dtype == GPU
    return dist.new_group(backend="ddpkit_nccl"), asked


def collectives():
    group, asked = pretend()
    mine, async_, cpu = torch.ones(3, dtype=GPU), torch.ones(2, dtype=GPU), torch.ones(2)
    dist.all_reduce(mine, group=group)
    assert asked == ["allreduce"]
    dist.all_reduce(async_, group=group, async_op=True).wait()
    dist.all_reduce(cpu, group=group)
    dist.barrier(group=group)
    assert asked == ["allreduce"] * 2  # gloo did the other calls
    return mine.tolist(), async_.tolist(), cpu.tolist()


@pytest.mark.processes
def test_each_tensor_goes_to_the_backend_of_its_device():
    run = Cluster(2).run(collectives)
    assert run.results == [([2.0] * 3, [2.0] * 2, [2.0] * 2)] * 2
    for rank in range(2):
        spans = [s for s in run.trace.of(rank) if s.name == "all_reduce" and s.group]
        assert [span.bytes for span in spans] == [24, 16, 8]


def messages():
    group, asked = pretend()
    other = 1 - dist.get_rank()
    mine, theirs = torch.full((2,), float(other), dtype=GPU), torch.zeros(2, dtype=GPU)
    batch = [
        dist.P2POp(dist.isend, mine, other, group),
        dist.P2POp(dist.irecv, theirs, other, group),
    ]
    register()  # each run of a process under torchrun registers
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    assert asked == ["begin", "send", "recv", "end"]
    theirs.zero_()
    on_gloo = [dist.P2POp(one.op, one.tensor, other) for one in batch]  # ranks share a GPU
    for work in dist.batch_isend_irecv(on_gloo):
        work.wait()
    assert len(asked) == 4
    plain = torch.zeros(1)
    first, second = (dist.send, dist.recv) if other else (dist.recv, dist.send)
    first(plain, other, group=group)
    second(plain, other, group=group)
    return theirs.tolist()


@pytest.mark.processes
def test_a_batch_of_messages_is_one_operation():
    """Without a batch, two ranks that send to each other on NCCL wait forever."""
    run = Cluster(2).run(messages)
    assert run.results == [[0.0, 0.0], [1.0, 1.0]]
    sent = [s for s in run.trace.of(0) if s.name == "send" and s.group]
    assert [span.bytes for span in sent] == [16, 4]


def test_a_bucket_that_no_python_posts_is_ddps():
    """A GPU's backward runs in a C++ thread, where a frame of the kit has no frame below."""
    assert is_reducer(None)
    assert not is_reducer(sys._getframe())


def test_what_a_blocking_call_gives_has_ended():
    work = InStream()
    work.synchronize()
    assert (work.wait(), work.is_completed(), work.is_success()) == (True, True, True)
