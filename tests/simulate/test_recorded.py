"""A step of torch's own DistributedDataParallel, recorded on real ranks, and read from the
trace."""

from itertools import pairwise

import pytest

from ddpkit import Cluster
from ddpkit.simulate import Step, what_if
from ddpkit.simulate.step.forecast import forecast
from ddpkit.simulate.step.recorded import recorded_buckets
from ddpkit.simulate.step.whatif import recorded_link

pytestmark = pytest.mark.processes

WIDTH, LAYERS = 256, 6


def train() -> list[int]:
    """Return the bytes of the parameters, in the order of the backward."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.ones(32, WIDTH)).square().mean().backward()
        optimizer.step()
    return [4 * n for _ in range(LAYERS) for n in (WIDTH, WIDTH**2)]


def test_a_real_step_is_read_and_replayed() -> None:
    pytest.importorskip("torch")
    run = Cluster(2, link="400 Mbit/s, 1 ms").run(train)
    trace, sizes = run.trace, run.results[0]
    step = Step.of_trace(trace, sizes=sizes)
    assert [gradient.bytes for gradient in step.gradients] == sizes
    window = trace.step(-1).window_of(0)
    assert 0 < step.compute_ns <= window[1] - window[0]
    buckets = recorded_buckets(trace, sizes=sizes)
    bytes_of = {gradient.name: gradient.bytes for gradient in step.gradients}
    assert [sum(bytes_of[name] for name in b.gradients) for b in buckets] == [
        b.bytes for b in buckets
    ]
    assert len(buckets) == 3
    links, overhead = recorded_link(trace)
    assert str(links) == "400 Mbit/s, 1 ms"
    assert overhead < 10_000_000
    # The best cap depends on when a busy machine let gradients become ready. But all bytes are
    # always reduced.
    for cap in (0.5, 100):
        replayed = what_if(trace, bucket_cap_mb=cap, sizes=sizes)
        assert replayed.traffic.collectives(0)["all_reduce"].bytes == sum(sizes)
    for slower, faster in pairwise(("100 Mbit/s", "400 Mbit/s", "1 Gbit/s")):
        assert what_if(trace, link=slower).end_ns > what_if(trace, link=faster).end_ns


def accumulate(micro_batches: int, by_hand: bool) -> None:
    """Train six steps; only the last micro-batch of each step sends gradients."""
    from contextlib import nullcontext

    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)]
    plain = torch.nn.Sequential(*layers)
    model = plain if by_hand else DistributedDataParallel(plain)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        for micro in range(micro_batches):
            last = by_hand or micro == micro_batches - 1
            with nullcontext() if last else model.no_sync():
                model(torch.ones(64, WIDTH)).square().mean().backward()
        if by_hand:
            for p in model.parameters():
                dist.all_reduce(p.grad)
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("micro_batches", [1, 2, 3])
def test_what_micro_batches_add_up_is_sent_once(micro_batches: int) -> None:
    cluster = Cluster(2, machine="1 TFLOP/s, 100 GB/s, 64 MB, 5 us", link="10 Gbit/s, 10 us")
    trace = cluster.run(accumulate, micro_batches, False).trace
    known = forecast(trace)
    assert [gradient.bytes for gradient in known.step.gradients] == [4 * WIDTH**2] * LAYERS
    window = trace.step(-1).window_of(0)
    assert known.replay().step_ns == pytest.approx(window[1] - window[0], rel=1e-3)
    as_torch_does = known.replay(first_bucket_mb=1)  # the run had this bucket
    assert as_torch_does.step_ns == pytest.approx(known.replay().step_ns, rel=1e-3)


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_so_it_is_where_the_script_reduces_after_backward(micro_batches: int) -> None:
    cluster = Cluster(2, machine="1 TFLOP/s, 100 GB/s, 64 MB, 5 us", link="10 Gbit/s, 10 us")
    trace = cluster.run(accumulate, micro_batches, True).trace
    step = Step.of_trace(trace)
    assert [gradient.bytes for gradient in step.gradients] == [4 * WIDTH**2] * LAYERS
    assert step.begin_ns > (micro_batches - 1) * step.backward_ns
