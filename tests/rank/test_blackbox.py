"""The black box: nothing lost that could be kept, and nothing believed that is torn."""

import multiprocessing
import os
import signal
import threading

import pytest

from ddpkit.rank.blackbox import SIZE, SLOT, SLOTS, BlackBox


@pytest.fixture
def box(tmp_path):
    with_box = BlackBox.create(tmp_path / "rank0")
    yield with_box
    with_box.close()


def reader(tmp_path):
    return BlackBox(tmp_path / "rank0")


def test_calls_are_read_once_and_in_order(box, tmp_path):
    other = reader(tmp_path)
    assert other.new_calls() == ([], 0)
    assert other.status() is None
    for i in range(5):
        box.write_call({"i": i})
    assert [call["i"] for call in other.new_calls()[0]] == [0, 1, 2, 3, 4]
    assert other.new_calls() == ([], 0)
    box.write_call({"i": 5})
    assert other.new_calls() == ([{"i": 5}], 0)


@pytest.mark.parametrize("count", [SLOTS - 2, SLOTS - 1, SLOTS, SLOTS + 1, 3 * SLOTS + 7])
def test_what_is_overwritten_unread_is_counted(box, tmp_path, count):
    other = reader(tmp_path)
    for i in range(count):
        box.write_call({"i": i})
    calls, lost = other.new_calls()
    assert lost == max(0, count - SLOTS + 1)
    assert [call["i"] for call in calls] == list(range(lost, count))
    assert other.new_calls() == ([], 0)


def test_a_call_that_does_not_fit_is_counted_as_lost(box, tmp_path):
    other = reader(tmp_path)
    box.write_call({"where": "x" * SLOT})
    box.write_call({"i": 1})
    assert other.new_calls() == ([{"i": 1}], 1)


def test_a_torn_status_is_no_news(box, tmp_path):
    other = reader(tmp_path)
    box.write_status({"beat": 1})
    box.write_status({"beat": 2})
    assert other.status() == {"beat": 2}
    data = bytearray((tmp_path / "rank0").read_bytes())
    assert len(data) == SIZE
    place = data.index(b'{"beat": 2}')
    with (tmp_path / "rank0").open("r+b") as file:
        file.seek(place)
        file.write(b'{"beat')
        file.seek(place + 6)
        file.write(b"\xff\xfe")
    assert other.status() is None
    box.write_status({"beat": 3})
    assert other.status() == {"beat": 3}


def test_it_outlives_its_writer(box, tmp_path):
    def writes():
        mine = BlackBox(tmp_path / "rank0")
        mine.write_call({"op": "send"})
        mine.write_status({"beat": 1})
        os.kill(os.getpid(), signal.SIGKILL)

    process = multiprocessing.get_context("fork").Process(target=writes)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert box.new_calls() == ([{"op": "send"}], 0)
    assert box.status() == {"beat": 1}


def test_calls_and_statuses_have_a_thread_each(box, tmp_path):
    """A status written in the middle of a call must not take the call back."""
    other, stop, seen = reader(tmp_path), threading.Event(), []

    def statuses():
        while not stop.is_set():
            box.write_status({"beat": 1})

    thread = threading.Thread(target=statuses)
    thread.start()
    for i in range(20_000):
        box.write_call({"i": i})
        if i % 100 == 0:
            seen += other.new_calls()[0]
    stop.set()
    thread.join()
    seen += other.new_calls()[0]
    assert [call["i"] for call in seen] == list(range(20_000))
