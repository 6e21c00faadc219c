"""The properties of a rank's process, seen from inside the process."""

import os
import subprocess
import sys

import pytest

ASKED = """
import os
from ddpkit import Cluster

def policies():
    import torch.distributed as dist
    dist.barrier()
    return {os.sched_getscheduler(int(thread)) for thread in os.listdir("/proc/self/task")}

print(os.sched_getscheduler(0), *Cluster(2).run(policies).results)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="no batch jobs but on Linux")
def test_all_threads_of_a_rank_are_batch_jobs_and_its_launcher_is_none() -> None:
    def usual() -> None:  # the scheduling policy of the process that started pytest
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))

    asked = subprocess.run(
        [sys.executable, "-c", ASKED], preexec_fn=usual, capture_output=True, text=True, check=True
    )
    batch = f"{{{os.SCHED_BATCH}}}"
    assert asked.stdout.split() == [str(os.SCHED_OTHER), batch, batch]
