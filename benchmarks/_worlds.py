"""Three ways to have ranks, each in a fresh process of its own that carries out a plan.

A plan is a list of steps, (name of a function in `_jobs`, number of ranks): plain data, so that the
benchmark decides what is measured in turns with what, and a world only does it and keeps the time.

    python -m benchmarks._worlds ddpkit '[["nothing", 4], ["nothing", 4]]'

prints one JSON line of `{"job", "ranks", "seconds", "cpu", "values", "failed"}` a step. "cpu"
is the processor time, in seconds, of this process and all below it.
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
    """Something that has ranks."""

    def call(self, ranks: int, job: str, arguments: tuple[Any, ...]) -> list[Any]:
        """Run a job on all ranks inside a default process group; their results in rank order."""

    def close(self) -> None:
        """Leave nothing behind."""


class Ddpkit:
    def call(self, ranks: int, job: str, arguments: tuple[Any, ...]) -> list[Any]:
        from ddpkit import Cluster

        with contextlib.redirect_stdout(io.StringIO()):
            return Cluster(ranks).run(getattr(_jobs(), job), *arguments).results

    def close(self) -> None:
        pass


class Spawn:
    """torch.multiprocessing.spawn, the results sent through torch's own queue."""

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
                    started.join(timeout=0.005)  # raises what a rank raised
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
    received.wait()  # a tensor's memory is its sender's until it has arrived


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
                pending[min(1, ranks - 1)].get()  # the rank that fails, where one does
                return [reply.get() for reply in pending]
            except Exception:
                self.close()  # its peers hang, for good
                raise

    def close(self) -> None:
        if self.engines is not None:
            self.engines.close()
            self.cluster.stop_cluster_sync()
            self.cluster = self.engines = None


def _jobs() -> Any:
    return importlib.import_module("benchmarks._jobs")


class Bare:
    """No ranks at all: the yardstick, one `import torch`."""

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
    """Seconds that this process, those below it and those that these have seen end have used."""
    import psutil  # here: the first step's time is that of a fresh process

    me, used = psutil.Process(), 0.0
    for each in [me, *me.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):  # it has just ended
            used += sum(each.cpu_times()[:4])  # user, system, and the same of its ended children
    return used


def _read(job: str, results: list[Any], begun: float, ended: float) -> dict[str, Any]:
    """What a job's results say beside its length, or instead of it."""
    if job == "gives" and results:  # from the moment the first of them was ready to leave
        return {"seconds": ended - min(stamp for stamp, _ in results) / 1e9}
    if job == "takes" and results:  # to the moment the last of them was inside
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
