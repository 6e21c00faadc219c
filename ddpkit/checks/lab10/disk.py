"""Lab 10: checkpoints saved and loaded on ranks, on disks that are whole, full, or pulled out."""

from __future__ import annotations

import io
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ddpkit.exercises.exercise import Observed

Answer = Callable[..., Any]
Trained = tuple[int, Any, Any]  # steps, model, optimizer
State = dict[str, Any]  # what a checkpoint holds: "step", "model", "optimizer"

LR, MOMENTUM = 0.05, 0.9
SLOW = 0.2  # seconds, in which a rank that does not wait has long returned
ROOM = 2000  # bytes that fit on the full disk; a checkpoint has more


class Killed(BaseException):
    """The end of a process, in the middle of what it does: no `except Exception` sees it."""


def trained(seed: int, steps: int) -> tuple[Any, Any]:
    """A model and its optimizer after some steps, with momentum: the same wherever it is made."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model, optimizer = untrained()
    for number in range(steps):
        go_on(model, optimizer, seed + number)
    return model, optimizer


def state(seed: int, steps: int) -> Trained:
    """Return steps, and a model and an optimizer after these steps."""
    return steps, *trained(seed, steps)


def untrained() -> tuple[Any, Any]:
    """Return a new model and a new optimizer."""
    import torch

    model = torch.nn.Sequential(
        torch.nn.Linear(3, 40), torch.nn.BatchNorm1d(40), torch.nn.Linear(40, 2)
    ).double()
    return model, torch.optim.SGD(model.parameters(), LR, MOMENTUM)


def go_on(model: Any, optimizer: Any, seed: int) -> None:
    """One step more, on a batch that the seed draws."""
    import torch

    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


def numbers(model: Any) -> Any:
    """All of a model in one vector, its buffers too."""
    import torch

    return torch.cat([tensor.double().flatten() for tensor in model.state_dict().values()])


def nbytes() -> int:
    """Return the bytes of a checkpoint's tensors: model and momentum."""
    model, _ = untrained()
    tensors = [*model.state_dict().values(), *model.parameters()]
    return sum(int(each.nbytes) for each in tensors)


def after(step: int, model: Any, optimizer: Any) -> list[Any]:
    """What can be told of a checkpoint: its step, its model, and its model a step later.

    The last tells whether the momentum was there.
    """
    here = numbers(model)
    go_on(model, optimizer, 7)
    return [step, here, numbers(model)]


def as_written(seed: int, steps: int) -> list[Any]:
    """`after`, of a checkpoint taken after so many steps and read again."""
    return after(steps, *trained(seed, steps))


def written(seed: int, steps: int) -> bytes:
    """Return the file of a checkpoint."""
    import torch

    model, optimizer = trained(seed, steps)
    state = {"step": steps, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, file := io.BytesIO())
    return file.getvalue()


def held(path: Path) -> list[Any] | str:
    """What can be told of the checkpoint at `path`, or in a word why it is none."""
    import torch

    if not path.exists():
        return "no file"
    try:
        state = torch.load(path)
    except Exception:
        return "a broken file"
    if not isinstance(state, dict) or not {"step", "model"} <= set(state):
        return "no dict with step, model and optimizer"
    model, optimizer = untrained()
    model.load_state_dict(state["model"])
    if state.get("optimizer"):
        optimizer.load_state_dict(state["optimizer"])
    return after(state["step"], model, optimizer)


# Saving


def saved(answer: Answer, states: Sequence[Trained], own_disks: bool) -> Observed:
    """Let the answer save each state on this rank; return the files that are there at once.

    With `own_disks` each rank has a folder of its own, as hosts without a shared disk have.
    """
    with _folder(own_disks) as folder, _renames() as renames:
        path, there = folder / "run.pt", True
        for steps, model, optimizer in states:
            optimizer.register_state_dict_pre_hook(lambda _: time.sleep(SLOW))
            answer(str(path), steps, model, optimizer)
            there = there and path.exists()
        found = held(path)
        _together()
        return {
            "there": there,
            "holds": found,
            "besides": sorted({p.name for p in folder.iterdir()} - {"run.pt"}),
            "moved": [os.path.dirname(a) == os.path.dirname(b) for a, b in renames],
        }


def unlucky(answer: Answer, before: bytes, states: Sequence[Trained], how: str) -> Observed:
    """Run on one rank: a save that goes wrong, what the disk holds then, and the next save.

    `before` is the old file; the answer saves both `states`. `how`: the disk is "full",
    or the rank is "killed" while it writes, or as it puts the file in its place.
    """
    with _folder(True) as folder:
        path = folder / "run.pt"
        path.write_bytes(before)
        steps, model, optimizer = states[0]
        if how == "killed while it writes":
            optimizer.register_state_dict_post_hook(_bomb)
        ended = "returned"
        with {"full": _full_disk, "killed at the end": _killed_at_the_end}.get(how, _as_it_is)():
            try:
                answer(str(path), steps, model, optimizer)
            except Killed:
                ended = "killed"
            except Exception:
                ended = "raised"
        holds = held(path)
        besides = sorted({p.name for p in folder.iterdir()} - {"run.pt"})
        steps, model, optimizer = states[1]
        with suppress(Exception):
            answer(str(path), steps, model, optimizer)
        return {"ended": ended, "holds": holds, "besides": besides, "the next": held(path)}


# Loading


def loaded(answer: Answer, file: bytes | None, own: Trained) -> list[Any]:
    """Return the state that the answer loads on this rank from a file of rank 0's alone.

    `own` is this rank's model before. `file` is None where there is no file.
    """
    with _folder(True) as folder:
        path = folder / "run.pt"
        if file is not None:
            path.write_bytes(file)
        _, model, optimizer = own
        return after(answer(str(path), model, optimizer), model, optimizer)


def of_a_cut_file(answer: Answer, half: bytes, own: Trained) -> Observed:
    """Run on one rank: what the answer does with a checkpoint of which the end is missing."""
    with _folder(True) as folder:
        path = folder / "run.pt"
        path.write_bytes(half)
        _, model, optimizer = own
        try:
            answer(str(path), model, optimizer)
        except Exception:
            ended = "raised"
        else:
            ended = "returned"
        kept = path.exists() and path.read_bytes() == half
        return {"ended": ended, "file": "as it was" if kept else "changed"}


# Disks


def _together() -> None:
    import torch.distributed as dist

    if dist.get_world_size() > 1:
        dist.barrier()


@contextmanager
def _folder(own: bool) -> Iterator[Path]:
    """A folder: this rank's own, or one that all ranks have.

    If this rank is ended in the block, the next `Cluster` removes it, by the rank's pid in its
    name: `ddpkit.cluster.local.launch.sweep`.
    """
    import torch.distributed as dist

    prefix = f"ddpkit-{os.getpid()}-"
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
        names = [name]
        if not own and dist.get_world_size() > 1:
            dist.broadcast_object_list(names, src=0)
        yield Path(names[0])
        if not own:
            _together()


@contextmanager
def _renames() -> Iterator[list[tuple[str, str]]]:
    """Pairs of paths, from where to where a file was put."""
    found: list[tuple[str, str]] = []
    with _hearing(lambda event, args: found.append((str(args[0]), str(args[1])))):
        yield found


@contextmanager
def _killed_at_the_end() -> Iterator[None]:
    """A block that is over when a file is to be put in another's place."""

    def kill(event: str, args: tuple[Any, ...]) -> None:
        raise Killed

    with _hearing(kill):
        yield


@contextmanager
def _hearing(listener: Callable[[str, tuple[Any, ...]], None]) -> Iterator[None]:
    """A block in which `listener` hears of each rename. The audit hook itself stays for ever."""
    listening = True

    def hear(event: str, args: tuple[Any, ...]) -> None:
        if listening and event == "os.rename":
            listener(event, args)

    sys.addaudithook(hear)
    try:
        yield
    finally:
        listening = False


@contextmanager
def _as_it_is() -> Iterator[None]:
    yield


@contextmanager
def _full_disk() -> Iterator[None]:
    from ddpkit.faults import full_disk

    with full_disk(ROOM):
        yield


class _Bomb:
    def __reduce__(self) -> Any:
        raise Killed


def _bomb(_: object, state: State) -> State:
    """An optimizer's state at which the process is killed when it is written."""
    return {**state, "bomb": _Bomb()}
