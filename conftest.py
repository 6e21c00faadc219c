"""For the tests and for nbval on solutions/: nothing of a run is left in the tree."""

import gc
import os
import shutil
import tempfile

pytest_plugins = ["tests.quick", "tests.walk"]

# Several workers and kernels share few cores: without this, each takes all of them for its torch.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# What checks in solutions/ keep is carried into later lessons from there: tests/walk.py.
_KEPT = os.environ["DDPKIT_PROGRESS"] = tempfile.mkdtemp(prefix="ddpkit-progress-")

# What is collected stays to the end: to look through it for garbage, again and again, is a fifth of
# the time that collecting takes in each worker.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    shutil.rmtree(_KEPT, ignore_errors=True)
