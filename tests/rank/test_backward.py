"""A running backward: its pieces, and the wait at its end, which no Python code sees."""

import threading

import pytest
import torch
import torch.distributed as dist

from ddpkit import Cluster
from ddpkit.protocol.call import Call
from ddpkit.rank.record.backward import Backward
from ddpkit.rank.record.call import RecordedCall
from ddpkit.rank.record.clock import HOST
from ddpkit.rank.record.recorder import Recorder


@pytest.fixture(autouse=True, scope="module")
def by_value(request):
    import cloudpickle

    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)


def a_call(posted, done=0, blocked=None):
    return RecordedCall(Call("all_reduce"), posted=posted, done=done, blocked=blocked)


LINE = (("f.py", 3), "backward")


def test_a_piece_for_each_gradient_and_one_for_the_rest():
    """Two threads of autograd's engine may report their gradients in either order."""
    backward = Backward(LINE, 10, ready=[(40, 8), (20, 4)], end=50)
    spans = list(backward.spans(1, HOST.ns))
    assert [(span.start_ns, span.end_ns, span.bytes) for span in spans] == [
        (10, 20, 4),
        (20, 40, 8),
        (40, 50, 0),
    ]
    assert {(span.rank, span.kind) for span in spans} == {(1, "backward")}
    assert backward.pieces == len(spans)
    (only,) = Backward(LINE, 10, end=30).spans(0, HOST.ns)
    assert (only.start_ns, only.end_ns) == (10, 30)


@pytest.mark.parametrize(
    ("ready", "calls", "blocked"),
    [
        pytest.param([20, 40], [a_call(25, done=60)], [40], id="it waits from the last gradient"),
        pytest.param([20, 40], [a_call(45, done=60)], [45], id="or from the last bucket"),
        pytest.param([20, 40], [a_call(25, done=30), a_call(41, done=70)], [None, 41], id="hidden"),
        pytest.param([20, 40], [a_call(25)], [None], id="not waited for: it has not ended"),
        pytest.param([20], [a_call(15, done=60, blocked=30)], [30], id="a wait that was seen"),
        pytest.param([], [a_call(15, done=60)], [15], id="no gradients"),
    ],
)
def test_the_wait_at_its_end(ready, calls, blocked):
    recorder = Recorder(0)
    recorder.backward = Backward(LINE, 10, ready=[(at, 4) for at in ready], posted=calls, end=99)
    recorder.pending = {id(call): call for call in calls}
    recorder.backward_ends()
    for call in calls:
        recorder.ended(call)  # later than the backward: nobody waited for the call in the backward
    spans = [span for span in recorder.spans() if span.is_comm]
    assert recorder.pending == {}
    assert [span.blocked_ns for span in spans] == blocked
    assert recorder.backward is None


def test_what_is_posted_too_late_is_not_in_it():
    """Another thread may still hold the list of the backward's calls when the backward ends."""
    recorder = Recorder(0)
    recorder.backward = backward = Backward(LINE, 10, posted=[a_call(15, done=60)], end=70)
    posted = backward.posted
    recorder.backward_ends()
    posted.append(a_call(80, done=90))
    backward.find_hidden_wait(HOST.ns)
    assert [call.blocked for call in posted] == [15, None]


@pytest.mark.processes
def test_gloos_threads_keep_their_python_state():
    """Thread-local data of a gloo thread must still exist when the thread calls Python again."""

    def f():
        local, seen = threading.local(), []

        def callback(_):
            seen.append(getattr(local, "times", 0))
            local.times = seen[-1] + 1

        for _ in range(40):
            work = dist.all_reduce(torch.ones(2), async_op=True)
            work.get_future().add_done_callback(callback)
            work.wait()
        while len(seen) < 40:
            pass
        return max(seen)

    for most in Cluster(2).run(f).results:
        assert most >= 5
