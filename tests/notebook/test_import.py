"""The first cell is quick: importing ddpkit loads nothing heavy and starts no process."""

import pytest

from tests.notebook.kernel import Notebook, gone

pytestmark = pytest.mark.processes

HEAVY = ("torch", "matplotlib.pyplot", "numpy", "jupytext", "nbformat", "nbclient", "ipywidgets")


def loaded(notebook: Notebook) -> str:
    cell = notebook.ok(f"import sys\nprint(*(n for n in {HEAVY!r} if n in sys.modules))")
    return cell.stream().strip()


def test_import_is_light_and_the_cluster_warms_up(fresh: Notebook):
    before = loaded(fresh)
    fresh.ok("import ddpkit")
    assert loaded(fresh) == before
    fresh.ok("from ddpkit import Cluster, check, carry, span")
    assert loaded(fresh) == before
    assert fresh.processes() == []

    fresh.ok("cluster = Cluster(2)")
    assert any("forkserver" in " ".join(p.cmdline()) for p in fresh.processes())
    assert loaded(fresh) == before

    # The ranks have torch, even if the notebook has not imported it.
    cell = fresh.ok("cluster.run(lambda: 'torch' in sys.modules).results")
    assert cell.result == "[True, True]"
    assert "torch" not in loaded(fresh).split()

    assert fresh.ok("cluster").result == "2 ranks · gloo · cpu"
    assert gone(fresh.ranks()) == []
