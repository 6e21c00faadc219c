"""Records that outlive a killed rank: times of its calls and its compute, and no torn record."""

import multiprocessing
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from ddpkit.cluster.local.unsent import Unsent
from ddpkit.protocol.blackbox import SLOTS, BlackBox
from ddpkit.protocol.call import Call
from ddpkit.protocol.past import NAMES, UNKNOWN, WRITERS, Past, Times
from ddpkit.rank.record.clock import Later
from ddpkit.rank.record.recorder import Recorder
from ddpkit.trace import UNENDED


@pytest.fixture
def past(tmp_path):
    with_file = Past.create(tmp_path / "past0")
    yield with_file
    with_file.close()


@pytest.fixture
def recorder(tmp_path, past):
    """Yield a recorder with a clock that says 1, 2, 3, …; readers know only its two files."""
    box = BlackBox.create(tmp_path / "rank0")
    moments = iter(range(1, 1_000_000))
    yield Recorder(0, box, past, host_now=lambda: next(moments))
    box.close()


def unsent(recorder, until_ns=0, world_size=2):
    return Unsent(0, world_size, recorder.box, recorder.past, until_ns)


def spans(recorder, until_ns=0):
    return unsent(recorder, until_ns).record()[0]


def test_times_come_one_by_one(past):
    past.posted(7, 10)
    assert past.times(7) == Times(10, UNKNOWN, UNKNOWN, UNKNOWN)
    past.note(7, 11, 0, None)  # no operation is done at 0, before it was posted
    assert past.times(7) == Times(10, 11, UNKNOWN, UNKNOWN)
    past.note(7, 11, 12, 13)
    assert past.times(7) == Times(10, 11, 12, 13)
    assert past.times(6) is past.times(7 + SLOTS) is None


def test_a_place_taken_again_holds_nothing_of_its_owner_before(past):
    past.posted(7, 10)
    past.note(7, 11, 12, 13)
    past.posted(7 + SLOTS, 20)
    past.note(7, 11, 12, 13)  # the thread of the first call is late
    assert past.times(7) is None
    assert past.times(7 + SLOTS) == Times(20, UNKNOWN, UNKNOWN, UNKNOWN)


def test_what_is_no_number_is_left_out(past):
    """Only the rank can read a GPU's moments, and times that depend on work which is not done."""
    past.posted(1, Later(()))
    past.stretch("forward", "Linear", 1, Later(()))
    past.posted(2, 5)
    past.note(2, Later(()), Later(()), Later(()))
    assert past.times(1) is None
    assert past.stretches() == []
    assert past.times(2) == Times(5, UNKNOWN, UNKNOWN, UNKNOWN)


@pytest.mark.parametrize("written", [1, SLOTS - WRITERS, SLOTS, 3 * SLOTS + 5])
def test_the_newest_stretches_are_kept_in_order(past, written):
    for n in range(1, written + 1):
        past.stretch("forward", "Linear", n, n + 1)
    kept = past.stretches()
    assert [each.number for each in kept] == [each.start for each in kept]
    assert kept[-1].number == written
    assert len(kept) == min(written, SLOTS - WRITERS)


def test_long_and_many_names(past):
    past.stretch("span", "x" * 500, 1, 2)
    past.stretch("span", "déjà vu", 2, 3)
    assert past.stretches()[0].name == "x" * 115
    assert past.stretches()[1].name == "déjà vu"
    for n in range(2 * NAMES):
        past.stretch("span", f"epoch {n}", n, n + 1)
    named = [each.name for each in past.stretches()]
    assert named[-NAMES:] == [f"epoch {n}" for n in range(NAMES, 2 * NAMES)]
    assert set(named[: -NAMES - 1]) == {""}, "never another's name"


def test_a_write_that_is_cut_anywhere_leaves_what_was_there(past, monkeypatch):
    """Each store in turn is the last one before the rank is killed."""
    for n in range(1, SLOTS + 1):
        past.stretch("forward", "Linear", n, n + 1)
        past.posted(n, n)
    calls = {n: past.times(n) for n in range(2, SLOTS + 1)}
    stretches = [each for each in past.stretches() if each.number > 2]
    whole = past._numbers

    class Cut:
        def __init__(self, stores):
            self.stores = stores

        def __getitem__(self, at):
            return whole[at]

        def __setitem__(self, at, value):
            if not self.stores:
                raise KeyboardInterrupt
            self.stores -= 1
            whole[at] = value

    writes = [
        lambda: past.stretch("backward", "Linear", 9_999, 9_999),
        lambda: past.posted(SLOTS + 1, 9_999),
    ]
    for write in writes:
        for stores in range(5):
            past._numbers = Cut(stores)
            with suppress(KeyboardInterrupt):
                write()
            past._numbers = whole
            found = [each for each in past.stretches() if 2 < each.number <= SLOTS]
            assert set(stretches[WRITERS:]) <= set(found)
            assert {each.end for each in set(found) - set(stretches)} <= {9_999}
            assert {n: past.times(n) for n in range(2, SLOTS + 1)} == calls
            assert past.times(SLOTS + 1) in (None, Times(9_999, UNKNOWN, UNKNOWN, UNKNOWN))


def test_a_damaged_file_is_no_error(recorder):
    recorder.posted("send", "", peer=1)
    whole = memoryview(recorder.past._memory)
    for byte in (b"\xff", b"\x01", b"A"):
        whole[:] = byte * len(whole)
        unsent(recorder, 10).record()


def test_a_call_that_has_ended_and_one_that_has_not(recorder):
    sent = recorder.posted("send", "", peer=1, bytes=4, tag=7)
    recorder.done(sent)
    recorder.posted("all_reduce", "", bytes=8, members=(0, 1), reduce="SUM")
    first, second = spans(recorder, until_ns=50)
    assert (first.name, first.start_ns, first.end_ns, first.peer, first.bytes) == (
        *("send", 1, 2, 1, 4),
    )
    assert UNENDED not in first.args
    assert (second.name, second.start_ns, second.end_ns, second.seq) == ("all_reduce", 3, 50, 1)
    assert second.args[UNENDED] == 1
    assert second.args["group_size"] == 2
    assert second.args["reduce"] == "SUM"


def test_the_spans_are_those_that_the_rank_would_have_sent(recorder):
    for n in range(3):
        recorder.log.add(("forward", "Linear", 100 * n + 10, 100 * n + 20, 0))
        call = recorder.posted("all_reduce", "", bytes=8, members=(0, 1))
        call.blocked = recorder.host_now()
        recorder.done(call)
        recorder.log.end_step("optimizer", "SGD", 100 * n + 50, 100 * n + 60)
    by_start = sorted(recorder.spans(), key=lambda span: (span.start_ns, span.lane))
    assert sorted(spans(recorder), key=lambda span: (span.start_ns, span.lane)) == by_start


def test_a_message_from_anybody_is_there_once_with_its_sender(recorder):
    call = recorder.posted("recv", "", members=(0, 1))
    recorder.came_from(call, 1)
    recorder.done(call)
    (span,) = spans(recorder)
    assert (span.name, span.peer, span.start_ns, span.end_ns) == ("recv", 1, 1, 2)


def test_of_a_long_run_the_last_steps_are_kept_and_the_rest_counted(recorder):
    for n in range(SLOTS):
        recorder.log.add(("forward", "Linear", 100 * n + 10, 100 * n + 20, 0))
        recorder.log.end_step("optimizer", "SGD", 100 * n + 50, 100 * n + 60)
    kept, dropped = unsent(recorder).record()
    assert len(kept) + dropped.spans == 2 * SLOTS
    steps = [span for span in kept if span.kind == "optimizer"]
    assert dropped.steps == SLOTS - len(steps)
    assert steps[0].start_ns == 100 * dropped.steps + 50


def test_a_child_of_the_rank_writes_nothing(recorder, past):
    recorder.keep_no_more()
    recorder.done(recorder.posted("send", "", peer=1))
    recorder.log.add(("forward", "Linear", 1, 2, 0))
    assert Unsent(0, 2, recorder.box, past).record()[0] == []


@pytest.mark.processes
def test_it_outlives_its_writer(tmp_path, past):
    def writes():
        mine = Past(Path(tmp_path / "past0"))
        mine.posted(0, 10)
        mine.stretch("forward", "Linear", 10, 20)
        os.kill(os.getpid(), signal.SIGKILL)

    process = multiprocessing.get_context("fork").Process(target=writes)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert past.times(0) == Times(10, UNKNOWN, UNKNOWN, UNKNOWN)
    assert [each[1:5] for each in past.stretches()] == [("forward", "Linear", 10, 20)]


def test_a_call_without_members_is_everybodys(recorder):
    """The black box omits the members of the default group."""
    what = Call("barrier", members=(0, 1))
    recorder.done(recorder.post(recorder.know(what)))
    (span,) = spans(recorder)
    assert span.args["group_size"] == 2
