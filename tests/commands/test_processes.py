"""Scripts with a launcher: the ranks of the run take the places of the processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpkit import RankError
from tests.commands.test_run import ddpkit_run, on

pytestmark = pytest.mark.processes


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DDPKIT_DEVICE", "cpu")


@pytest.mark.parametrize("kind", ["start_processes", "spawn", "fork", "run"])
def test_the_ranks_take_the_places_of_the_processes(kind: str, tmp_path: Path) -> None:
    run = on(2, "processes.py", kind, "")
    assert run.traffic.collectives(1)["all_reduce"].times == 1
    assert (tmp_path / "prepared").read_text() == "xx"  # each rank starts `prepare`


def test_a_process_may_leave_by_an_exit() -> None:
    assert on(2, "processes.py", "spawn", "leaves").traffic.collectives(1)["all_reduce"].times == 1


@pytest.mark.parametrize("kind", ["start_processes", "spawn", "fork"])
def test_an_error_has_its_line_and_its_rank(kind: str) -> None:
    with pytest.raises(RankError) as raised:
        on(2, "processes.py", kind, "raises")
    said = str(raised.value)
    assert said.startswith("rank 1 raised ValueError: a bad batch")
    assert 'raise ValueError("a bad batch")' in said


def test_a_queue_of_the_processes_is_refused() -> None:
    with pytest.raises(RankError, match="share a Queue.*dist.gather_object"):
        on(2, "processes.py", "queue", "")


def test_a_spawned_process_sees_the_gpus_of_its_rank() -> None:
    """The process imported the script again, without GPUs, and the rank waited for ever."""
    run = on(2, "spawned.py", machine="A100", link="100 Gbit/s, 10 us")
    assert run.traffic.collectives(0)["all_reduce"].times == 1


def test_a_spawned_process_of_a_module_sees_the_gpus() -> None:
    """The command `ddpkit run -m spawned` finds the module in the present folder."""
    done = ddpkit_run(
        "-n", "2", "--machine", "A100", "--link", "100 Gbit/s, 10 us", "-m", "spawned"
    )
    assert done.returncode == 0, done.stderr
