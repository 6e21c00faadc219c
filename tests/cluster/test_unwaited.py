"""A warning after a run about works for which neither the code nor torch waited."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddpkit import Cluster
from ddpkit.cluster.afterwards.unwaited import unwaited
from ddpkit.trace import UNWAITED, Span, Trace


def leaves() -> None:
    works: list[object] = [dist.all_reduce(torch.ones(3), async_op=True)]
    if dist.get_rank() == 0:
        works.append(dist.isend(torch.ones(2), dst=1))
    else:
        dist.recv(torch.ones(2), src=0)
    dist.barrier()  # a rank that drops works and returns may lose a message


def waits() -> None:
    """Wait for a work in every way, as torch's own code does too."""
    dist.all_reduce(torch.ones(3), async_op=True).wait()
    dist.all_reduce(torch.ones(3), async_op=True).get_future().wait()
    work = dist.all_reduce(torch.ones(3), async_op=True)
    while not work.is_completed():
        pass
    other = 1 - dist.get_rank()
    message = dist.P2POp((dist.isend, dist.irecv)[dist.get_rank()], torch.ones(2), other)
    for work in dist.batch_isend_irecv([message]):
        work.wait()
    dist.all_gather_object([None, None], "word")
    layers = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(8)))
    model = DistributedDataParallel(layers, bucket_cap_mb=1e-5)
    with model.join():
        for _ in range(4):
            model(torch.ones(3, 4)).sum().backward()


@pytest.mark.processes
@pytest.mark.parametrize("link", [None, "1 Gbit/s, 200 us"])
def test_what_nobody_waits_for_is_said_after_the_run(
    link: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster(2, link=link)
    cluster.run(waits)
    assert capsys.readouterr().out == ""
    cluster.run(leaves)
    said = " ".join(capsys.readouterr().out.split())
    first = leaves.__code__.co_firstlineno + 1
    assert said.startswith(
        f"Nobody waited for the all_reduce in line {first} (ranks 0, 1), "
        f"the isend in line {first + 2} (rank 0). Keep the Work "
    )


def call(name: str, line: int, rank: int, **facts: int) -> Span:
    return Span(rank, "comm", name, "comm", 0, 1, args={"line": line, **facts})


def test_three_lines_are_named_and_the_others_counted() -> None:
    left = [call("all_reduce", line, 0, **{UNWAITED: 1}) for line in range(1, 6)]
    said = " ".join(unwaited(Trace(tuple(left), 1)).split())
    assert "in line 3 (rank 0), nor for those of 2 more lines. Keep" in said


def test_of_what_torch_has_posted_nothing_is_said() -> None:
    spans = call("broadcast", 0, 0, **{UNWAITED: 1}), call("all_reduce", 3, 0)
    assert unwaited(Trace(spans, 1)) == ""
