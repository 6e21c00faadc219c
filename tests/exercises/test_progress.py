import json
import multiprocessing
import os
import subprocess

import pytest

from ddpkit.exercises.progress import Progress, folder, read, record, write
from ddpkit.exercises.verdict import Verdict


def result(name="ring", passed=True, earned=2.0):
    return Verdict(name, passed, points=2.0, earned=earned)


def test_results_are_kept(tmp_path):
    assert record(result()) is None
    assert record(result("tree", passed=False, earned=0.5)) is None
    assert read() == (
        {"ring": Progress("ring", True, 2.0, 2.0), "tree": Progress("tree", False, 0.5, 2.0)},
        [],
    )
    assert sorted(os.listdir(tmp_path / ".ddpkit" / "progress")) == ["ring.json", "tree.json"]


def test_the_best_result_stays():
    for each in (result(passed=False, earned=1.0), result(), result(passed=False, earned=0.0)):
        record(each)
    assert read()[0]["ring"].passed


def test_another_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DDPKIT_PROGRESS", str(tmp_path / "elsewhere"))
    record(result())
    assert (tmp_path / "elsewhere" / "progress" / "ring.json").exists()
    assert not (tmp_path / ".ddpkit").exists()


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "{",
        "[]",
        "null",
        '{"format": 1}',
        '{"format": 99, "exercise": "ring"}',
        "\xff\x00",
        '"x"',
    ],
)
def test_a_damaged_file_is_kept_aside_and_said(damage):
    record(result())
    path = folder() / "progress" / "ring.json"
    for number in (1, 2):
        path.write_bytes(damage.encode("latin-1"))
        note = record(result())
        assert note == (
            f"{path} was damaged: it is renamed ring.broken{number}, and a new file begins."
        )
        assert path.with_suffix(f".broken{number}").read_bytes() == damage.encode("latin-1")
        assert read() == ({"ring": Progress("ring", True, 2.0, 2.0)}, [])


def test_reading_sets_a_damaged_file_aside_too():
    record(result())
    (folder() / "progress" / "tree.json").write_text("{")
    results, notes = read()
    assert list(results) == ["ring"]
    assert len(notes) == 1
    assert read() == (results, [])


def test_a_folder_that_cannot_be_written_is_said_and_no_more(folder):
    (folder / ".ddpkit").write_text("in the way")
    note = record(result())
    assert note.startswith("Progress is not kept: .ddpkit/progress/ring.json: ")
    assert read() == ({}, [])


def test_a_failed_write_leaves_the_old_file_and_nothing_else(folder, monkeypatch):
    record(result())
    path = folder / ".ddpkit" / "progress" / "ring.json"
    before = path.read_text()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert record(result()).endswith("No space left on device.")
    assert path.read_text() == before
    assert os.listdir(path.parent) == ["ring.json"]


def record_many(place, names):
    os.environ["DDPKIT_PROGRESS"] = place
    for name in names:
        record(result(name))


@pytest.mark.processes
def test_notebooks_that_write_at_the_same_time_lose_nothing(tmp_path, monkeypatch):
    place = str(tmp_path / "shared")
    names = [[f"e{writer}_{n}" for n in range(10)] for writer in range(4)]
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=record_many, args=(place, own)) for own in names]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    monkeypatch.setenv("DDPKIT_PROGRESS", place)
    assert set(read()[0]) == {name for own in names for name in own}


def test_git_ignores_it(folder):
    subprocess.run(["git", "init", "-q"], check=True)
    record(result())
    write(folder / ".ddpkit" / "answers" / "ring.py", "x = 1\n")
    status = subprocess.run(
        ["git", "status", "--porcelain"], capture_output=True, text=True, check=True
    )
    assert status.stdout == ""


def test_the_file_can_be_read_by_a_person(folder):
    record(result())
    data = json.loads((folder / ".ddpkit/progress/ring.json").read_text())
    assert data == {"format": 1, "exercise": "ring", "passed": True, "earned": 2.0, "points": 2.0}
