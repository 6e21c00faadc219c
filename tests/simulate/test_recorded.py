"""A step of torch's own DistributedDataParallel, recorded on real ranks, and read back."""

from itertools import pairwise

import pytest

from ddpkit import Cluster
from ddpkit.simulate import Step, what_if
from ddpkit.simulate.step import recorded_buckets
from ddpkit.simulate.whatif import recorded_link

pytestmark = pytest.mark.processes

WIDTH, LAYERS = 256, 6


def train() -> list[int]:
    """Bytes of the parameters, in the order in which backward comes to them."""
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
    # Which cap is best depends on when a busy machine let the gradients become ready; that all of
    # the bytes are reduced does not.
    for cap in (0.5, 100):
        replayed = what_if(trace, bucket_cap_mb=cap, sizes=sizes)
        assert replayed.traffic.collectives(0)["all_reduce"].bytes == sum(sizes)
    for slower, faster in pairwise(("100 Mbit/s", "400 Mbit/s", "1 Gbit/s")):
        assert what_if(trace, link=slower).end_ns > what_if(trace, link=faster).end_ns
