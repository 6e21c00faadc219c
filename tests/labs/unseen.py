"""Send an answer's messages nowhere, through files, or past the record.

On each rank the group's methods are replaced for calls from an answer's lines. The calls of the
check around the answer go on as usual.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from ddpkit.exercises import ranks as on_ranks
from ddpkit.rank import side_channels
from ddpkit.rank.group.emulated import EmulatedGroup
from ddpkit.rank.group.methods import COLLECTIVES, PAIRWISE, RENAMED
from ddpkit.rank.group.recorded import RecordedGroup

ANSWERS = (
    "answers/lab",
    "right_answers",
    "patient_",
    "<answer>",
)  # parts of the names of answers' files
METHODS = (*COLLECTIVES, *PAIRWISE, "send", "recv", "recv_anysource")
PATIENCE = 5.0  # seconds for which a rank waits for a file
WAYS = ("nowhere", "files", "unrecorded")
CALLS = "calls"  # the beginning of the names of files with a byte for each call of an answer


class Done(dist.Work):
    """The Work of an operation: the first wait calls `finish`."""

    def __init__(self, finish: Callable[[], Any], tensors: Any) -> None:
        super().__init__()
        self.finish: Callable[[], Any] | None = finish
        self.tensors = tensors

    def wait(self, timeout: Any = None) -> bool:
        if self.finish is not None:
            finish, self.finish = self.finish, None
            finish()
        return True

    def is_completed(self) -> bool:
        return self.wait()

    def get_future(self) -> Any:
        self.wait()
        future: Any = torch.futures.Future()
        future.set_result(self.tensors)
        return future


class Nowhere:
    """Every operation ends at once, without bytes."""

    def __init__(self, folder: str) -> None:
        pass

    def __call__(self, group: Any, method: str, args: Sequence[Any]) -> Done:
        return Done(lambda: None, args[0] if args else [])


class Unrecorded:
    """Every operation goes to the group within, of which no record tells."""

    def __init__(self, folder: str) -> None:
        pass

    def __call__(self, group: Any, method: str, args: Sequence[Any]) -> Any:
        found = getattr(group._inner, method, None) or getattr(group._inner, RENAMED[method])
        return found(*args)


class Files:
    """Every operation writes the rank's tensors into a file, and reads the other ranks' files."""

    def __init__(self, folder: str) -> None:
        self.folder, self.count = Path(folder), Counter[str]()

    def __call__(self, group: Any, method: str, args: Sequence[Any]) -> Done:
        members, me = group._members, group.rank()
        if method == "send":
            self._write(self._next(f"{members[me]}-{members[args[1]]}-{args[2:]}"), args[0][0])
            return Done(lambda: None, args[0])
        if method == "recv":
            name = self._next(f"{members[args[1]]}-{members[me]}-{args[2:]}")
            return Done(lambda: args[0][0].copy_(self._read(name)), args[0])
        if method == "recv_anysource":
            raise NotImplementedError(method)
        shared = partial(self._shared, self._next(f"{group._name} {members}".replace("/", "-")))
        with torch.no_grad():
            _together(method, args, me, group.size(), partial(shared, me, group.size()))
        return Done(lambda: None, args[0] if args else [])

    def _next(self, key: str) -> str:
        self.count[key] += 1
        return f"{key} {self.count[key]}"

    def _shared(self, name: str, me: int, n: int, mine: Any) -> list[Any]:
        self._write(f"{name} of {me}", mine)
        return [self._read(f"{name} of {rank}") for rank in range(n)]

    def _write(self, name: str, mine: Any) -> None:
        path = self.folder / f"{name}.{os.getpid()}"
        path.write_bytes(pickle.dumps(mine))
        path.rename(self.folder / name)

    def _read(self, name: str) -> Any:
        end = time.monotonic() + PATIENCE
        while not (self.folder / name).exists():
            if time.monotonic() > end:
                raise TimeoutError(name)
            time.sleep(0.001)
        return pickle.loads((self.folder / name).read_bytes())


def _together(
    method: str, args: Sequence[Any], me: int, n: int, shared: Callable[[Any], list[Any]]
) -> None:
    """Do a collective by `shared`, which returns the inputs of all ranks."""
    options = args[-1] if args else None
    root = getattr(options, "rootRank", 0)
    match method.removeprefix("_"):
        case "allreduce" | "allreduce_coalesced" | "reduce":
            everyone = shared([each.clone() for each in args[0]])
            if method != "reduce" or me == root:
                for at, mine in enumerate(args[0]):
                    mine.copy_(_reduced([each[at] for each in everyone], options))
        case "broadcast":
            args[0][0].copy_(shared(args[0][0] if me == root else None)[root])
        case "gather":
            everyone = shared(args[1][0])
            if me == root:
                _copied(args[0][0], everyone)
        case "scatter":
            args[0][0].copy_(shared(args[1][0] if me == root else None)[root][me])
        case "allgather":
            _copied(args[0][0], shared(args[1][0]))
        case "allgather_base" | "all_gather_single":
            _copied(args[0].view(n, -1), [each.flatten() for each in shared(args[1])])
        case "reduce_scatter":
            args[0][0].copy_(_reduced([each[me] for each in shared(args[1][0])], options))
        case "reduce_scatter_base" | "reduce_scatter_single":
            parts = [each.chunk(n)[me] for each in shared(args[1])]
            args[0].copy_(_reduced(parts, options).view_as(args[0]))
        case "alltoall":
            _copied(args[0], [each[me] for each in shared(list(args[1]))])
        case "alltoall_base" | "all_to_all_single":
            parts = args[1].split(list(args[3])) if args[3] else args[1].chunk(n)
            args[0].copy_(torch.cat([each[me] for each in shared(list(parts))]))
        case "barrier":
            shared(None)
        case _:
            raise NotImplementedError(method)


def _copied(outputs: Any, inputs: Sequence[Any]) -> None:
    for output, each in zip(outputs, inputs, strict=True):
        output.copy_(each)


def _reduced(parts: Sequence[Any], options: Any) -> Any:
    stacked, op = torch.stack(list(parts)), options.reduceOp
    if op == dist.ReduceOp.MAX:
        return stacked.amax(0)
    if op == dist.ReduceOp.MIN:
        return stacked.amin(0)
    if op == dist.ReduceOp.PRODUCT:
        return stacked.prod(0)
    total = stacked[0].clone()
    for part in stacked[1:]:
        total += part
    return total / len(parts) if op == dist.ReduceOp.AVG else total


def _is_answers() -> bool:
    """Return True if the call comes from a line of an answer."""
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if any(each in name for each in ANSWERS):
            return True
        if "ddpkit/checks" in name:
            return False
        frame = frame.f_back  # type: ignore[assignment]
    return False


@contextmanager
def another_way(way: str, folder: str) -> Iterator[None]:
    """Redirect answers' calls in the block, and count the calls in `folder`."""
    kinds: dict[str, Any] = {"nowhere": Nowhere, "files": Files, "unrecorded": Unrecorded}
    with mock.patch.object(side_channels.watch, "depth", 0):  # the count is no part of the answer
        calls = os.open(Path(folder) / f"{CALLS}{os.getpid()}", os.O_CREAT | os.O_WRONLY)
    transport = partial(_counted, kinds[way](folder), calls)
    with (
        mock.patch.multiple(RecordedGroup, **_all(RecordedGroup, transport)),
        mock.patch.multiple(EmulatedGroup, **_all(EmulatedGroup, transport)),
    ):
        yield


def _counted(transport: Any, calls: int, *call: Any) -> Any:
    os.write(calls, b".")
    return transport(*call)


def _all(kind: Any, transport: Any) -> dict[str, Any]:
    found = {name: kind.__dict__[name] for name in METHODS if name in kind.__dict__}
    return {name: _either(usual, name, transport) for name, usual in found.items()}


def _either(usual: Any, method: str, transport: Any) -> Any:
    def call(self: Any, *args: Any, **named: Any) -> Any:
        if _is_answers():
            return transport(self, method, args)
        return usual(self, *args, **named)

    return call


def carried(way: str, folder: str, answer: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Call the answer with messages redirected."""
    with another_way(way, folder):
        return answer(*args, **named)


def calls_in(folder: Path) -> int:
    """Return the number of answers' calls in the runs of `unseen`."""
    return sum(path.stat().st_size for path in folder.glob(f"*/{CALLS}*"))


@contextmanager
def unseen(way: str, folder: Path) -> Iterator[None]:
    """Redirect answers' calls on ranks in the block."""
    runs: list[int] = []
    usual = on_ranks._Shared._start

    def start(shared: Any) -> Any:
        runs.append(len(shared.calls[0]))
        own = folder / str(len(runs))
        own.mkdir(parents=True)
        shared.answer = partial(carried, way, str(own), shared.answer)
        return usual(shared)

    with mock.patch.object(on_ranks._Shared, "_start", start):
        yield
