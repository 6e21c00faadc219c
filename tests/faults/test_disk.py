"""`full_disk`: a write fails half-way, and the bytes written by then stay."""

import resource

import pytest
import torch

from ddpkit.faults import full_disk

pytestmark = pytest.mark.processes("some")  # not "none", although the limit is in this process only


def test_a_file_ends_where_the_disk_is_full(tmp_path):
    path = tmp_path / "file"
    with full_disk(100), path.open("wb", 0) as file:
        assert [file.write(bytes(60)), file.write(bytes(60))] == [60, 40]
        with pytest.raises(OSError, match="File too large"):
            file.write(b"x")
    assert path.stat().st_size == 100


def test_a_checkpoint_written_over_is_lost(tmp_path):
    path = tmp_path / "run.pt"
    torch.save(torch.ones(1000), path)
    with pytest.raises(RuntimeError), full_disk(1000):
        torch.save(torch.zeros(1000), path)
    with pytest.raises(RuntimeError, match="failed finding central directory"):
        torch.load(path)


def test_it_is_over_with_the_block(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.raises(KeyError), full_disk(10):
        raise KeyError
    assert resource.getrlimit(resource.RLIMIT_FSIZE) == before
    (tmp_path / "file").write_bytes(bytes(1000))
