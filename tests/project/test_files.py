"""A file is written whole, or the old file stays."""

import os
import stat

import pytest

from ddpkit.files import write_whole


def test_a_file_is_as_readable_as_usual(tmp_path):
    path = tmp_path / "file"
    write_whole(path, b"new")
    usual = tmp_path / "usual"
    usual.write_bytes(b"")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(usual.stat().st_mode)


@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_if_it_fails_the_old_one_stays_and_nothing_else(tmp_path, monkeypatch, name):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, name, full)
    with pytest.raises(OSError, match="no space"):
        write_whole(path, b"new")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() == b"old"
