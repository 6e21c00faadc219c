"""Lab 10: checkpoints saved and loaded on ranks, on disks that work, are full, or are lost."""

from __future__ import annotations

import io
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddpkit.exercises.exercise import Observed

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from ddpkit.exercises.guard import Answer

Trained = tuple[int, "nn.Module", "Optimizer"]  # steps, model, optimizer
State = dict[str, Any]  # a checkpoint's content: "step", "model", "optimizer"

LR, MOMENTUM = 0.05, 0.9
SLOW = 0.2  # seconds added to a save, so that a rank that does not wait returns too early
ROOM = 2000  # bytes of space on the full disk; a checkpoint is larger


class Killed(BaseException):
    """The simulated kill of a process; no `except Exception` catches this error."""


def trained(seed: int, steps: int) -> tuple[nn.Module, Optimizer]:
    """Return a model and its optimizer after steps with momentum; equal seeds give equal models."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model, optimizer = untrained()
    for number in range(steps):
        go_on(model, optimizer, seed + number)
    return model, optimizer


def state(seed: int, steps: int) -> Trained:
    """Return `steps`, and the model and the optimizer after this number of steps."""
    return steps, *trained(seed, steps)


def untrained() -> tuple[nn.Module, Optimizer]:
    """Return a new model and a new optimizer."""
    import torch

    model = torch.nn.Sequential(
        torch.nn.Linear(3, 40), torch.nn.BatchNorm1d(40), torch.nn.Linear(40, 2)
    ).double()
    return model, torch.optim.SGD(model.parameters(), LR, MOMENTUM)


def go_on(model: nn.Module, optimizer: Optimizer, seed: int) -> None:
    """Make one more step, on a batch drawn from the seed."""
    import torch

    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


def numbers(model: nn.Module) -> Tensor:
    """Return a model's parameters and buffers in one vector."""
    import torch

    return torch.cat([tensor.double().flatten() for tensor in model.state_dict().values()])


def nbytes() -> int:
    """Return the bytes of a checkpoint's tensors: model and momentum."""
    model, _ = untrained()
    tensors = [*model.state_dict().values(), *model.parameters()]
    return sum(int(each.nbytes) for each in tensors)


def after(step: int, model: nn.Module, optimizer: Optimizer) -> list[Any]:
    """Return the comparable content of a checkpoint: its step, its model, and the next model.

    The next model is the model after one more step. Without the momentum in the checkpoint, the
    next model differs.
    """
    here = numbers(model)
    go_on(model, optimizer, 7)
    return [step, here, numbers(model)]


def as_written(seed: int, steps: int) -> list[Any]:
    """Return the result of `after` for the training with this seed after `steps` steps."""
    return after(steps, *trained(seed, steps))


def written(seed: int, steps: int) -> bytes:
    """Return the bytes of a checkpoint file that is written after `steps` steps."""
    import torch

    model, optimizer = trained(seed, steps)
    state = {"step": steps, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, file := io.BytesIO())
    return file.getvalue()


def held(path: Path) -> list[Any] | str:
    """Return the result of `after` for the checkpoint at `path`, or a text if it cannot be read."""
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
    """Save each state on this rank by the answer; observe the file, the folder and the renames.

    With `own_disks`, each rank has its own folder, like hosts without a shared disk.
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
    """Run on one rank: a save of the answer fails; observe the disk, then save once more.

    `before` is the content of the old file. `how` says how the first save fails: "full" is a full
    disk, "killed while it writes" ends the process during the save, and "killed at the end" ends
    the process when the file is renamed.
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


def loaded(answer: Answer, file: bytes | None, own: Trained) -> list[object]:
    """Return the state that the answer loads on this rank, from a file that only rank 0 has.

    `own` is this rank's state before the load. `file` is None if there is no file.
    """
    with _folder(True) as folder:
        path = folder / "run.pt"
        if file is not None:
            path.write_bytes(file)
        _, model, optimizer = own
        return after(answer(str(path), model, optimizer), model, optimizer)


def of_a_cut_file(answer: Answer, half: bytes, own: Trained) -> Observed:
    """Run on one rank: observe how the answer loads a checkpoint that lacks its second half."""
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
    """Make a temporary folder: this rank's own folder, or one folder for all ranks.

    If this rank is killed inside the block, the next `Cluster` removes the folder. The function
    `ddpkit.cluster.local.launch.sweep` finds the folder by the rank's pid in the folder's name.
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
    """Collect all renames of files inside the block, as pairs of old and new path."""
    found: list[tuple[str, str]] = []
    with _hearing(lambda event, args: found.append((str(args[0]), str(args[1])))):
        yield found


@contextmanager
def _killed_at_the_end() -> Iterator[None]:
    """Simulate the kill of the process (`Killed`) when the block renames a file."""

    def kill(event: str, args: tuple[object, ...]) -> None:
        raise Killed

    with _hearing(kill):
        yield


@contextmanager
def _hearing(listener: Callable[[str, tuple[object, ...]], None]) -> Iterator[None]:
    """Call `listener` for each rename inside the block.

    Python cannot remove the audit hook again.
    """
    listening = True

    def hear(event: str, args: tuple[object, ...]) -> None:
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
    """Return an optimizer's state that simulates a kill when the state is written to a file."""
    return {**state, "bomb": _Bomb()}
