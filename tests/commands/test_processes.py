"""Scripts with a launcher: the ranks of the run take the places of the processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpkit import RankError
from tests.commands.test_run import on

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
