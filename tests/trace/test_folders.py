"""A folder of `tensorboard_trace_handler`, and recordings without steps."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from ddpkit.commands.main import main
from ddpkit.errors import TraceError
from ddpkit.trace import Trace
from tests.trace.recordings import event, gpu_step, of_rank, write


def folder(path: Path, *ranks: int) -> Path:
    """Return a folder with a file of each rank, as the handler names files, and another file."""
    path.mkdir()
    for rank in ranks:
        (made,) = write(path, of_rank(rank, 2, *gpu_step(0), *gpu_step(1), backend="nccl"))
        made.rename(path / f"node{rank}_71.1790857026{rank}.pt.trace.json")
    (path / "events.out.tfevents.17").write_text("no trace")
    return path


def test_a_folder_is_the_files_in_it(tmp_path: Path) -> None:
    made = folder(tmp_path / "log", 0, 1)
    assert Trace.load(made) == Trace.load(*made.glob("*.json"))
    ran = CliRunner().invoke(main, ["trace", str(made)])
    assert ran.exit_code == 0, ran.output
    assert ran.output.startswith("Run on 2 ranks, ")


@pytest.mark.parametrize(("ranks", "says"), [((), "has no trace file"), ((0, 0), "both come from")])
def test_a_folder_without_a_run_is_refused(
    tmp_path: Path, ranks: tuple[int, ...], says: str
) -> None:
    made = folder(tmp_path / "log", *ranks)
    if ranks:
        (first,) = made.glob("*.json")
        first.with_name("later.pt.trace.json").write_bytes(first.read_bytes())
    with pytest.raises(TraceError, match=says):
        Trace.load(made)


@pytest.mark.parametrize("command", ["trace", "predict", "tune"])
def test_without_steps_it_is_said_what_makes_a_step(tmp_path: Path, command: str) -> None:
    (path,) = write(tmp_path, of_rank(0, 1, event("cpu_op", "aten::mm", 10, 5)))
    text = CliRunner().invoke(main, [command, str(path)]).output
    assert "`profiler.step()` or an optimizer's step mark the steps" in text


def test_with_steps_nothing_is_said(tmp_path: Path) -> None:
    (path,) = write(tmp_path, of_rank(0, 1, *gpu_step(0)))
    text = CliRunner().invoke(main, ["trace", str(path)]).output
    assert "mark the steps" not in text
