"""The black box: no record is lost that could be kept, and no torn record is believed."""

import multiprocessing
import os
import signal
import threading

import pytest

from ddpkit.protocol.blackbox import SIZE, SLOT, SLOTS, TEXTS, BlackBox, encode
from ddpkit.protocol.call import Call
from ddpkit.protocol.status import RankStatus


@pytest.fixture
def box(tmp_path):
    with_box = BlackBox.create(tmp_path / "rank0")
    yield with_box
    with_box.close()


def reader(tmp_path):
    return BlackBox(tmp_path / "rank0")


def numbers(calls):
    return [call.seq for call in calls]


def status(beat):
    return RankStatus(beat, "running", ("f.py", 3), "", None, 0, 0, 0, 0)


SEND, RECV = encode(Call("send")), encode(Call("recv"))


def test_calls_are_read_once_and_in_order(box, tmp_path):
    other = reader(tmp_path)
    assert other.new_calls() == ([], 0)
    assert other.status() is None
    for i in range(5):
        box.write_call(SEND, i)
    assert numbers(other.new_calls()[0]) == [0, 1, 2, 3, 4]
    assert other.new_calls() == ([], 0)
    box.write_call(RECV, 5)
    assert other.new_calls() == ([Call("recv", seq=5)], 0)


def test_two_calls_of_one_text_are_two(box, tmp_path):
    """The text of a call is read once, but each call is an object of its own."""
    other = reader(tmp_path)
    box.write_call(SEND, 1)
    box.write_call(SEND, 2)
    assert other.new_calls() == ([Call("send", seq=1), Call("send", seq=2)], 0)
    box.write_call(SEND, 3)
    assert other.new_calls() == ([Call("send", seq=3)], 0)


@pytest.mark.parametrize("count", [SLOTS - 2, SLOTS - 1, SLOTS, SLOTS + 1, 3 * SLOTS + 7])
def test_what_is_overwritten_unread_is_counted(box, tmp_path, count):
    other = reader(tmp_path)
    for i in range(count):
        box.write_call(SEND, i)
    calls, lost = other.new_calls()
    assert lost == max(0, count - SLOTS + 1)
    assert numbers(calls) == list(range(lost, count))
    assert other.new_calls() == ([], 0)


def test_a_call_that_does_not_fit_is_counted_as_lost(box, tmp_path):
    other = reader(tmp_path)
    box.write_call(encode(Call("send", where=("x" * SLOT, 3))), 1)
    box.write_call(SEND, 2)
    assert other.new_calls() == ([Call("send", seq=2)], 1)


def test_what_is_overwritten_while_it_is_read_is_counted(box, tmp_path, monkeypatch):
    """The number of one call with the text of another would be a call that no rank made."""
    other = reader(tmp_path)
    for i in range(SLOTS - 1):
        box.write_call(SEND, i)
    read = BlackBox._call

    def slow(self, index):
        if index == 0:  # the writer comes around and overtakes the reader
            for i in range(10):
                box.write_call(SEND, SLOTS - 1 + i)
        return read(self, index)

    monkeypatch.setattr(BlackBox, "_call", slow)
    calls, lost = other.new_calls()
    assert lost == 10
    assert numbers(calls) == list(range(10, SLOTS - 1))
    assert numbers(other.new_calls()[0]) == list(range(SLOTS - 1, SLOTS + 9))


def test_a_torn_call_is_counted_as_lost(box, tmp_path):
    other = reader(tmp_path)
    box.write_call(SEND, 1)
    data = bytearray((tmp_path / "rank0").read_bytes())
    with (tmp_path / "rank0").open("r+b") as file:
        file.seek(data.index(SEND))
        file.write(b'{"group": ')
    assert other.new_calls() == ([], 1)


@pytest.mark.parametrize("count", [TEXTS - 1, TEXTS, TEXTS + 1, 2 * TEXTS + 5])
def test_a_text_that_is_overwritten_unread_takes_its_calls_with_it(box, tmp_path, count):
    """A loop that gives each message another tag writes new texts all the time."""
    other = reader(tmp_path)
    for i in range(count):
        box.write_call(encode(Call("send", tag=i)), 7)
    calls, lost = other.new_calls()
    assert [call.tag for call in calls] == list(range(lost, count))
    assert lost == max(0, count - TEXTS + 1)
    box.write_call(encode(Call("send")), 8)  # the text may be overwritten
    assert other.new_calls() == ([Call("send", seq=8)], 0)


def test_a_text_that_is_overwritten_while_it_is_read_is_counted(box, tmp_path, monkeypatch):
    other = reader(tmp_path)
    for i in range(TEXTS - 1):
        box.write_call(encode(Call("send", tag=i)), 7)
    read = BlackBox._call

    def slow(self, index):
        if index == 0:  # the writer comes around and overtakes the reader
            for i in range(10):
                box.write_call(encode(Call("send", tag=TEXTS - 1 + i)), 7)
        return read(self, index)

    monkeypatch.setattr(BlackBox, "_call", slow)
    calls, lost = other.new_calls()
    assert lost == 10
    assert [call.tag for call in calls] == list(range(10, TEXTS - 1))


def test_a_second_writer_goes_on_where_the_first_stopped(box, tmp_path):
    other = reader(tmp_path)
    box.write_call(SEND, 1)
    second = BlackBox(tmp_path / "rank0")
    second.write_call(RECV, 2)
    assert [call.op for call in other.new_calls()[0]] == ["send", "recv"]


def test_a_torn_status_is_no_news(box, tmp_path):
    other = reader(tmp_path)
    box.write_status(status(1))
    box.write_status(status(2))
    assert other.status() == status(2)
    data = bytearray((tmp_path / "rank0").read_bytes())
    assert len(data) == SIZE
    place = data.index(b'{"beat": 2')
    with (tmp_path / "rank0").open("r+b") as file:
        file.seek(place)
        file.write(b'{"beat')
        file.seek(place + 6)
        file.write(b"\xff\xfe")
    assert other.status() is None
    box.write_status(status(3))
    assert other.status() == status(3)


@pytest.mark.processes
def test_it_outlives_its_writer(box, tmp_path):
    def writes():
        mine = BlackBox(tmp_path / "rank0")
        mine.write_call(SEND, 7)
        mine.write_status(status(1))
        os.kill(os.getpid(), signal.SIGKILL)

    process = multiprocessing.get_context("fork").Process(target=writes)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert box.new_calls() == ([Call("send", seq=7)], 0)
    assert box.status() == status(1)


def test_calls_and_statuses_have_a_thread_each(box, tmp_path):
    """A status that is written during a call must not undo the call."""
    other, stop, seen = reader(tmp_path), threading.Event(), []

    def statuses():
        while not stop.is_set():
            box.write_status(status(1))

    thread = threading.Thread(target=statuses)
    thread.start()
    for i in range(20_000):
        box.write_call(SEND, i)
        if i % 100 == 0:
            seen += other.new_calls()[0]
    stop.set()
    thread.join()
    seen += other.new_calls()[0]
    assert numbers(seen) == list(range(20_000))
