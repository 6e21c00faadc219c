"""For the tests and for nbval on solutions/: nothing of a run is left in the tree."""

import os
import shutil
import tempfile

pytest_plugins = ["tests.quick"]

# Several workers and kernels share few cores: without this, each takes all of them for its torch.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A version kept by a check in solutions/ would be carried into later lessons instead of the kit's.
_KEPT = os.environ["DDPKIT_PROGRESS"] = tempfile.mkdtemp(prefix="ddpkit-progress-")


def pytest_unconfigure() -> None:
    shutil.rmtree(_KEPT, ignore_errors=True)
