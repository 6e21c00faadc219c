"""The records of a rank about itself, without any process: calls, spans, and its present line."""

import gc
import json
import os
import sys
import threading
import time
from pathlib import Path

import pytest

from ddpkit.protocol.blackbox import MAKING
from ddpkit.protocol.call import Call
from ddpkit.rank.agent import Agent, _in_compiled_wait
from ddpkit.rank.record.call import RecordedCall
from ddpkit.rank.record.log import Log
from ddpkit.rank.record.marks import span, step
from ddpkit.rank.record.recorder import Recorder, activate
from ddpkit.rank.where import user_call
from tests.cluster.processes import becomes_true

HERE = str(Path(__file__))


class Box:
    def __init__(self):
        self.calls, self.statuses = [], []

    @property
    def calls_written(self):
        return len(self.calls)

    def write_call(self, text, number):
        self.calls.append(json.loads(text) | {"seq": number & ~MAKING})

    def write_status(self, status):
        self.statuses.append(json.loads(json.dumps(status.to_json())))


@pytest.fixture
def recorder():
    return Recorder(0, Box())


def test_numbers_of_calls(recorder):
    """A collective counts within its group, a message within its peer, direction and tag."""
    numbers = [
        recorder.posted(*call, **details).seq
        for call, details in [
            (("all_reduce", ""), {}),
            (("barrier", ""), {}),
            (("all_reduce", "pair"), {}),
            (("send", ""), {"peer": 1}),
            (("recv", ""), {"peer": 1}),
            (("send", ""), {"peer": 2}),
            (("send", ""), {"peer": 1, "tag": 3}),
            (("send", ""), {"peer": 1}),
            (("all_reduce", ""), {}),
        ]
    ]
    assert numbers == [1, 2, 1, 1, 1, 1, 1, 2, 3]


def test_many_threads_post_without_losing_a_number(recorder):
    def posts():
        for _ in range(2000):
            recorder.posted("all_reduce", "")

    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=posts) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(0.005)
    assert [call["seq"] for call in recorder.box.calls] == list(range(1, 8001))


def test_a_run_ends_when_a_call_that_another_thread_ends_is_in_the_log(recorder):
    """gloo's thread reports the end of a call while the rank's function returns."""
    ending, go_on = threading.Event(), threading.Event()

    class SlowLog(Log):
        def add(self, entry):
            ending.set()
            go_on.wait(60)
            super().add(entry)

    recorder.log = SlowLog()
    call = recorder.posted("all_reduce", "")
    gloo = threading.Thread(target=recorder.done, args=[call])
    gloo.start()
    assert ending.wait(60)
    threading.Timer(0.2, go_on.set).start()
    recorder.finish()
    assert [span.name for span in recorder.spans()] == ["all_reduce"]
    gloo.join()


def test_a_call_is_done_once(recorder):
    call = recorder.posted("send", "", peer=3, bytes=8, tag=2)
    recorder.done(call)
    recorder.done(call)
    (done,) = recorder.spans()
    assert (done.name, done.kind, done.peer, done.bytes, done.seq) == ("send", "comm", 3, 8, 1)
    assert done.start_ns <= done.end_ns
    assert recorder.moved == 2
    recorder.posted("recv", "", peer=1)
    recorder.finish()
    assert [s.name for s in recorder.spans()] == ["send", "recv"]
    assert not recorder.pending


def test_what_gloo_says_has_ended_is_written_down_when_somebody_looks(recorder):
    first, second = recorder.posted("all_reduce", ""), recorder.posted("all_reduce", "")
    recorder.ended(first)
    at = first.done
    recorder.ended(first)
    assert (first.done, recorder.moved, len(recorder.pending)) == (at, 2, 2)
    assert recorder.under_way() == [second]
    assert recorder.moved == 3
    recorder.ended(second)
    recorder.done(second)  # the wait for the call returns too
    assert [span.end_ns for span in recorder.spans()] == [at, second.done]
    recorder.ended(recorder.posted("broadcast", ""))
    # the calls of a failed run
    assert [span.name for span in recorder.spans()][2:] == ["broadcast"]


def test_gloos_thread_and_a_wait_may_both_tell_the_end(recorder):
    """The first report counts, because a thread that waited for the GIL comes late."""
    late, first = recorder.posted("all_reduce", ""), recorder.posted("all_reduce", "")
    tells = [recorder.teller(late), recorder.teller(first)]

    def gloo():  # in a new thread, with its own state
        tells[1](None)

    thread = threading.Thread(target=gloo)
    thread.start()
    thread.join()
    ends = [first.done]
    assert late.done == 0 < first.posted <= first.done
    for call in (late, first):
        recorder.ended(call)
    ends.append(late.done)
    for tell in tells:
        tell(None)
    assert [first.done, late.done] == ends


def test_a_rank_in_a_wait_moves_when_another_call_ends(recorder):
    """Monitors consider a rank stuck while its `moved` does not change."""
    waits, ends = recorder.posted("recv", "", peer=1), recorder.posted("all_reduce", "")
    recorder.waits[threading.get_ident()] = waits
    agent = Agent(recorder, recorder.box)
    before = agent.status().moved
    recorder.ended(ends)
    status = agent.status()
    assert status.waiting == waits.what._replace(seq=1)
    assert status.moved == before + 1


def test_what_is_empty_is_left_out():
    call = RecordedCall(Call("send", "", ("f.py", 3), peer=0, members=(0, 1)), seq=1).numbered()
    plain = call.to_json()
    assert plain == {
        "op": "send",
        "where": ("f.py", 3),
        "peer": 0,
        "seq": 1,
        "tag": 0,
        "bytes": 0,
    }
    assert Call("barrier", "7", ("f.py", 3), members=(0, 2)).to_json()["members"] == (0, 2)


def test_a_call_of_many_ranks_fits_its_slot(tmp_path):
    from ddpkit.protocol.blackbox import BlackBox, encode

    box = BlackBox.create(tmp_path / "rank0")
    what = Call("all_reduce", "", ("/a/long/path" * 15, 3), members=tuple(range(256)))
    box.write_call(encode(what), 1)
    assert BlackBox(tmp_path / "rank0").new_calls()[1] == 0
    box.close()


def test_span_outside_a_run_does_nothing():
    with span("mine"):
        pass


def test_span_is_recorded_even_if_it_fails(recorder):
    activate(recorder)
    try:
        with pytest.raises(KeyError), span("mine"):
            raise KeyError
    finally:
        activate(None)
    (mine,) = recorder.spans()
    assert (mine.name, mine.kind, mine.lane) == ("mine", "span", "compute")


def test_a_step_is_marked_even_if_it_fails(recorder):
    with step():
        pass
    activate(recorder)
    try:
        with pytest.raises(KeyError), step():
            raise KeyError
    finally:
        activate(None)
    (marked,) = recorder.spans()
    assert (marked.name, marked.kind, marked.lane) == ("step", "step", "step")


def test_the_line_and_the_function_it_called():
    where, via = user_call(sys._getframe())
    assert where == (HERE, sys._getframe().f_lineno - 1)
    assert user_call(None) == (("", 0), "wrapper")
    assert user_call(sys._getframe(), "grad")[1] == "grad"
    assert via == "wrapper"


# The agent looks at the frames of the main thread; here another thread is the main thread


def status_of(recorder, main):
    """Return the agent's status of a thread that runs `main`, after the thread is ready."""
    ready = threading.Event()
    thread = threading.Thread(target=main, args=(ready,), daemon=True)
    agent = Agent(recorder, recorder.box)
    thread.start()
    ready.wait()
    time.sleep(0.2)  # until the thread waits
    agent._main = thread.ident
    return agent.status()


@pytest.mark.parametrize("collects", [True, False])
def test_no_garbage_is_collected_while_a_thread_is_looked_at(recorder, monkeypatch, collects):
    """A collection may let the observed frame return; Python 3.11 then reads freed memory."""
    seen, frames = [], sys._current_frames
    monkeypatch.setattr(sys, "_current_frames", lambda: seen.append(gc.isenabled()) or frames())
    try:
        if not collects:
            gc.disable()
        Agent(recorder, recorder.box).status()
        assert gc.isenabled() is collects
    finally:
        gc.enable()
    assert seen == [False]


def test_a_thread_that_sleeps_waits_for_nothing(recorder):
    recorder.posted("all_reduce", "")

    seen, ended = threading.Event(), threading.Event()

    def main(ready):
        ready.set()
        while not seen.is_set():
            time.sleep(0.05)
        ended.set()

    status = status_of(recorder, main)
    assert status.waiting is None
    assert status.where[0] == HERE
    seen.set()
    ended.wait()  # a remaining thread would delay the wait of a later test


def test_a_thread_in_wait_waits_for_that_call(recorder):
    call = recorder.posted("recv", "", peer=1)
    end = threading.Event()

    def main(ready):
        recorder.waits[threading.get_ident()] = call
        ready.set()
        end.wait()

    # the test's own thread belongs to the user and is busy, so the rank does not wait
    assert status_of(recorder, main).waiting is None
    end.set()


TORCHS = os.path.join(os.sep, "site-packages", "torch", "distributed", "made_up.py")
INSIDE = """
def get_rank(loop): loop()
def get_model_state_dict(loop): loop()
def dispatch(loop): loop()
def computes():
    while going: pass
def waits():
    lock.acquire()
"""


@pytest.mark.parametrize(
    ("called", "inside", "seen"),
    [
        ("dispatch", "waits", "dispatch"),
        ("get_model_state_dict", "waits", "get_model_state_dict"),  # a misleading name
        ("dispatch", "computes", None),  # DTensor does this, and a hook of DDP
        ("get_rank", "computes", None),
        # get_rank cannot wait: it only seems to wait between two instructions
        ("get_rank", "waits", None),
    ],
)
def test_what_only_computes_in_torch_distributed_waits_for_nothing(recorder, called, inside, seen):
    import torch.distributed  # noqa: F401  # has the names of calls that return at once

    going, lock = [True], threading.Lock()
    names = {"going": going, "lock": lock}
    exec(compile(INSIDE, TORCHS, "exec"), names)
    lock.acquire()
    # the test's thread is not busy
    recorder.waits[threading.get_ident()] = recorder.posted("recv", "")
    thread = threading.Thread(target=lambda: names[called](names[inside]), daemon=True)
    thread.start()
    agent = Agent(recorder, recorder.box)
    agent._main = thread.ident
    try:
        agent.status()
        time.sleep(0.2)
        # on a busy machine the thread may not have run yet
        assert becomes_true(lambda: getattr(agent.status().waiting, "op", None) == seen)
    finally:
        going.clear()
        lock.release()


def test_a_compiled_wait_is_seen_in_the_bytecode(recorder):
    import torch

    future = torch._C.Future([])
    frames = []

    def main(ready):
        frames.append(sys._getframe())
        ready.set()
        future.wait()

    thread = threading.Thread(target=main, args=(threading.Event(),), daemon=True)
    thread.start()
    assert becomes_true(lambda: frames and _in_compiled_wait(frames[0]))
    assert not _in_compiled_wait(sys._getframe())
    future.set_result(1)
    thread.join(5)
    assert not thread.is_alive()


def test_a_step_without_with_is_no_step_and_says_so():
    with pytest.warns(UserWarning, match=r"step\(\.\.\.\) alone marks nothing: write `with"):
        step(tokens=64)
    with pytest.warns(UserWarning, match="with ddpkit.span"):
        span("sum")


def test_a_marked_block_warns_of_nothing(recwarn: pytest.WarningsRecorder):
    with step(tokens=64), span("sum"):
        pass
    with pytest.raises(ValueError, match="give a number"), step(tokens=-1):
        pass
    assert [*recwarn] == []
