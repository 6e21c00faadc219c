"""Every fault of the table ends with an explanation on an emulated cluster too, and leaves
nothing."""

from __future__ import annotations

import gc
import math
import threading
import time

import pytest
import torch.distributed as dist

from benchmarks import soak
from ddpkit import Cluster
from tests.cluster.explained import ends_explained
from tests.cluster.faults import FAULTS, Fault
from tests.cluster.processes import descriptors

pytestmark = pytest.mark.processes
LINK = "1 Gbit/s, 200 us"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault(fault: Fault) -> None:
    ends_explained(fault, Cluster(fault.world_size, link=LINK), "emulated")


def test_random_faults_leave_no_process_no_thread_and_no_descriptor(capsys):
    assert soak.main(8, seed=7, emulated=True) == 0, capsys.readouterr().out


def test_many_runs_leave_no_thread_and_no_descriptor():
    def work():
        time.sleep(0.1)
        dist.barrier()

    cluster = Cluster(2, link=LINK, speed=math.inf)
    cluster.run(work)
    gc.collect()
    gc.disable()  # only the garbage collector would close forgotten files
    try:
        before, threads = descriptors(), threading.active_count()
        for _ in range(10):
            cluster.run(work)
        assert (descriptors(), threading.active_count()) == (before, threads)
    finally:
        gc.enable()
