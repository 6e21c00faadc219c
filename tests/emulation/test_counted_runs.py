"""Whole traces of training with counted compute: equal in every run, on idle and busy machines."""

import pytest

from benchmarks._counted import PROGRAMS, digest
from benchmarks._load import burning
from ddpkit import Cluster

pytestmark = pytest.mark.processes

LINK = "10 Gbit/s, 5 us"


@pytest.mark.parametrize(
    ("program", "world_size"),
    [
        ("torch's DDP", 2),
        ("torch's DDP", 4),
        ("lab 06's DDP", 2),
        ("lab 06's DDP", 4),
        ("DDP, fp16 hook", 2),
        ("DDP, PowerSGD hook", 2),
        ("DDP, PowerSGD hook", 4),
        ("FSDP2", 2),
        ("GPipe", 4),
        ("1F1B", 4),
        ("server", 4),
    ],
)
def test_a_whole_trace_is_the_same_in_every_run(program: str, world_size: int):
    cluster = Cluster(world_size, link=LINK, machine="A100")
    idle = [cluster.run(PROGRAMS[program]) for _ in range(2)]
    with burning(2):
        loaded = cluster.run(PROGRAMS[program])
    runs = [*idle, loaded]
    assert len({digest(run.trace) for run in runs}) == 1
    assert runs[0].results == runs[1].results == runs[2].results
    assert "order" not in loaded.trace.facts


def test_pipelines_take_the_time_of_their_bubble():
    """With S stages and M micro-batches, GPipe and 1F1B take the time of M + S - 1
    micro-batches."""
    cluster = Cluster(4, machine="1 GFLOP/s")
    times = [cluster.run(PROGRAMS[name]).results for name in ("GPipe", "1F1B")]
    (step,) = {took[-1] for ranks in times for took in ranks}
    product = 2 * 16 * 32 * 32  # FLOPs of a micro-batch's forward on one stage
    assert step == pytest.approx((8 + 4 - 1) * 3 * product, rel=0.1)
