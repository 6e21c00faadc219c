"""The disk of a check, if a rank is killed while it uses the disk."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import torch.distributed as dist

from ddpkit import Cluster, RankError
from ddpkit.checks.lab10 import disk

pytestmark = pytest.mark.processes


def on_a_disk_while_another_raises(temporary: str) -> None:
    tempfile.tempdir = temporary
    with disk._folder(True) as folder:
        (folder / "run.pt").write_bytes(b"half of it")
        dist.barrier()
        if dist.get_rank() == 1:
            raise ValueError("no")
        dist.barrier()  # rank 0 is killed here


def test_a_disk_goes_with_its_rank_or_with_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(RankError, match="rank 1 raised"):
        Cluster(2).run(on_a_disk_while_another_raises, str(tmp_path))
    Cluster(1)
    assert [path.name for path in tmp_path.glob("ddpkit-*")] == []
