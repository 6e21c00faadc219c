"""Three ways to run ranks, each in a fresh process that carries out a plan.

A plan is a list of steps, (name of a function in `_jobs`, number of ranks). The benchmark decides
the order of the measurements, and a world only carries out the plan and measures the time.

    python -m benchmarks._worlds ddpkit '[["nothing", 4], ["nothing", 4]]'

prints a JSON list with `{"job", "ranks", "seconds", "cpu", "values", "failed"}` for each step.
"cpu" is the processor time, in seconds, of this process and all its descendants.
"""

from __future__ import annotations

import time

BEGUN = time.perf_counter()  # before a world imports anything

import contextlib  # noqa: E402
import importlib  # noqa: E402
import io  # noqa: E402
import json  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
from collections.abc import Callable  # noqa: E402
from typing import Any, Protocol  # noqa: E402


class World(Protocol):
    """A way to run ranks."""

    def call(self, ranks: int, job: str, arguments: tuple[Any, ...]) -> list[Any]:
        """Run a job on all ranks inside a default process group; return the results by rank."""

    def close(self) -> None:
        """End all processes, and leave nothing behind."""


class Ddpkit:
    def call(self, ranks: int, job: str, arguments: tuple[Any, ...]) -> list[Any]:
        from ddpkit import Cluster

        with contextlib.redirect_stdout(io.StringIO()):
            return Cluster(ranks).run(getattr(_jobs(), job), *arguments).results

    def close(self) -> None:
        pass


class Spawn:
    """Ranks by torch.multiprocessing.spawn; results are sent through torch's own queue."""

    def call(self, ranks: int, job: str, arguments: tuple[Any, ...]) -> list[Any]:
        import torch.multiprocessing as mp

        context = mp.get_context("spawn")
        replies, received = context.Queue(), context.Event()
        with tempfile.TemporaryDirectory() as folder:
            started = mp.start_processes(  # type: ignore[attr-defined,no-untyped-call]
                _spawned,
                args=(ranks, f"{folder}/store", job, arguments, replies, received),
                nprocs=ranks,
                join=False,
            )
            assert started is not None
            results: dict[int, Any] = {}
            while len(results) < ranks:
                if replies.empty():
                    started.join(timeout=0.005)  # raises the exception of a rank
                else:
                    rank, value = replies.get()
                    results[rank] = value
            received.set()
            while not started.join():
                pass
        return [results[rank] for rank in range(ranks)]

    def close(self) -> None:
        pass


def _spawned(
    rank: int, ranks: int, store: str, job: str, arguments: Any, replies: Any, received: Any
) -> None:
    from benchmarks._jobs import in_group

    replies.put((rank, in_group(rank, ranks, store, job, arguments)))
    received.wait()  # until a tensor has arrived, its memory belongs to the sending process


class Ipyparallel:
    """Engines that live from call to call; each call makes its own process group."""

    def __init__(self) -> None:
        self.cluster: Any = None
        self.engines: Any = None

    def call(self, ranks: int, job: str, arguments: tuple[Any, ...]) -> list[Any]:
        if self.engines is not None and len(self.engines) != ranks:
            self.close()
        if self.engines is None:
            import ipyparallel

            self.cluster = ipyparallel.Cluster(n=ranks, log_level=40)
            self.engines = self.cluster.start_and_connect_sync(activate=False)
        from benchmarks._jobs import in_group

        with tempfile.TemporaryDirectory() as folder:
            pending = [
                self.engines[rank].apply_async(
                    in_group, rank, ranks, f"{folder}/store", job, arguments
                )
                for rank in range(ranks)
            ]
            try:
                pending[min(1, ranks - 1)].get()  # if a rank fails, it is rank 1
                return [reply.get() for reply in pending]
            except Exception:
                self.close()  # the peers of a failed rank would hang forever
                raise

    def close(self) -> None:
        if self.engines is not None:
            self.engines.close()
            self.cluster.stop_cluster_sync()
            self.cluster = self.engines = None


def _jobs() -> Any:
    return importlib.import_module("benchmarks._jobs")


class Bare:
    """No ranks at all: one `import torch`, for comparison."""

    def call(self, ranks: int, job: str, arguments: tuple[Any, ...]) -> list[Any]:
        import torch  # noqa: F401

        return []

    def close(self) -> None:
        pass


WORLDS: dict[str, Callable[[], World]] = {
    "import": Bare,
    "ddpkit": Ddpkit,
    "spawn": Spawn,
    "ipyparallel": Ipyparallel,
}


def carry_out(world: World, plan: list[tuple[str, int]]) -> list[dict[str, Any]]:
    done: list[dict[str, Any]] = []
    begun = BEGUN  # the first step pays for its imports
    for job, ranks in plan:
        arguments: tuple[Any, ...] = ()
        if job == "takes":
            import torch

            arguments = (torch.ones(_jobs().TENSOR),)
        begun = time.perf_counter() if done or arguments else begun
        used = processor_time() if done else 0.0
        failed, results = "", []
        try:
            results = world.call(ranks, job, arguments)
        except Exception as error:
            failed = type(error).__name__
        ended = time.perf_counter()
        cpu = processor_time() - used
        step = {"job": job, "ranks": ranks, "seconds": ended - begun, "cpu": cpu, "failed": failed}
        done.append(step | _read(job, results, begun, ended))
    return done


def processor_time() -> float:
    """Return the CPU seconds of this process and of all descendants, ended ones included."""
    import psutil  # not at the top: the first step is timed from the start of the process

    me, used = psutil.Process(), 0.0
    for each in [me, *me.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):  # the process has just ended
            used += sum(each.cpu_times()[:4])  # user and system time, of its ended children too
    return used


def _read(job: str, results: list[Any], begun: float, ended: float) -> dict[str, Any]:
    """Return further entries of a step that follow from its job's results."""
    if job == "gives" and results:  # begins when the first tensor is ready to leave
        return {"seconds": ended - min(stamp for stamp, _ in results) / 1e9}
    if job == "takes" and results:  # to the time at which the last rank had its tensor
        return {"seconds": max(results) / 1e9 - begun}
    return {"values": results} if job == "memory" else {}


def main() -> None:
    world = WORLDS[sys.argv[1]]()
    try:
        print(json.dumps(carry_out(world, json.loads(sys.argv[2]))))
    finally:
        world.close()


if __name__ == "__main__":
    main()
