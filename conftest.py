"""Settings of the tests and of nbval on solutions/: a run leaves nothing in the tree."""

import gc
import os
import shutil
import tempfile

pytest_plugins = ["tests.quick", "tests.walk"]

# Several workers and kernels share few cores: without this, each takes all of them for its torch.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Checks in solutions/ keep answers there, and later lessons take the answers: tests/walk.py.
_KEPT = os.environ["DDPKIT_PROGRESS"] = tempfile.mkdtemp(prefix="ddpkit-progress-")

# Collected tests stay to the end. Python would look through them for garbage again and again, a
# fifth of the time that collecting takes in each worker.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    shutil.rmtree(_KEPT, ignore_errors=True)
