"""The four ways to run a function on ranks: real time, a link, a machine, and `ddpkit run`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ddpkit import Cluster, Run
from ddpkit.commands.run import launched

SCRIPT = Path(__file__).parent / "commands" / "scripts" / "calls_a_function.py"
LINK = "1 Gbit/s, 20 us"
WAYS: dict[str, dict[str, Any]] = {
    "real": {},
    "link": {"link": LINK},
    "machine": {"machine": "1 TFLOP/s", "link": LINK},
    "ddpkit run": {},
}


def run(
    way: str,
    ranks: int,
    function: Callable[..., Any],
    backend: str = "gloo",
    **settings: Any,
) -> Run[Any]:
    """Run a function of a test's module, without arguments, in one of the `WAYS`.

    A script has no result, so the function itself has the assertions. `settings` are further
    arguments of the Cluster.
    """
    cluster = Cluster(ranks, device="cpu", **WAYS[way], **settings)
    if way != "ddpkit run":
        return cluster.run(function)
    words = (function.__module__, function.__name__, backend)
    return cluster.run(launched(str(SCRIPT), words, False, cluster))


def words(captured: Any, way: str) -> str:
    """Return the printed words of a run on one line; `captured` is pytest's capfd or capsys."""
    out, err = captured.readouterr()
    return " ".join((err if way == "ddpkit run" else out).split())
