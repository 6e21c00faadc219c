"""Tensors that the network owns between a post and its wait: every exercise refuses changes to
them."""

import threading
import time
import weakref

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work

from ddpkit.exercises.exercise import Case, Exercise
from ddpkit.exercises.judge import judge
from ddpkit.exercises.ranks import asked
from ddpkit.protocol.call import Call
from ddpkit.rank.group.in_flight import InFlight, TouchedInFlight

REAL: dict[str, str] = {}
EMULATED = {"link": "1 Gbit/s, 20 us"}
COUNTED = {"machine": "1 TFLOP/s", "link": "1 Gbit/s, 20 us"}
in_every_time = pytest.mark.parametrize(
    "time_of", [REAL, EMULATED, COUNTED], ids=["real", "link", "machine"]
)


def swapping(time_of: dict[str, str]) -> Exercise:
    """Return an exercise in which two ranks exchange a tensor."""

    def cases(answer, rng):
        x = torch.tensor([1.0, 2.0])
        told = asked(answer, x, world_size=2, see={"y": "returned"}, **time_of)
        yield Case("2 ranks", told, {"y": [x, x]})

    return Exercise("toy_swap", "99", 1, "", cases)


def other():
    return 1 - dist.get_rank()


def changes_what_it_sends(x):
    y = torch.empty_like(x)
    sending = dist.isend(x, other())
    dist.recv(y, other())
    x += 1
    sending.wait()
    return y


def changes_a_part_of_it(x):
    y = torch.empty_like(x)
    sending = dist.isend(x, other())
    x[1:].zero_()
    dist.recv(y, other())
    sending.wait()
    return y


def reads_what_has_not_come(x):
    y = torch.empty_like(x)
    receiving = dist.irecv(y, other())
    dist.send(x, other())
    total = y + 0
    receiving.wait()
    return total


def receives_into_what_it_sends(x):
    sending = dist.isend(x, other())
    dist.recv(x, other())
    sending.wait()
    return x


def two_into_one(x):
    y = torch.empty_like(x)
    works = [dist.irecv(y, other(), tag=tag) for tag in (1, 2)]
    for tag in (1, 2):
        dist.send(x, other(), tag=tag)
    for work in works:
        work.wait()
    return y


def divides_an_all_reduce(x):
    y = x.clone()
    work = dist.all_reduce(y, async_op=True)
    y /= 2
    work.wait()
    return y


@pytest.mark.processes("some")
@in_every_time
@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (changes_what_it_sends, "the code changes a tensor in flight: the isend in line "),
        (changes_a_part_of_it, "the code changes a tensor in flight: the isend in line "),
        (reads_what_has_not_come, "the code reads a tensor in flight: the irecv in line "),
        (receives_into_what_it_sends, "receives into a tensor in flight: the isend in line "),
        (two_into_one, "the code receives into a tensor in flight: the irecv in line "),
        (divides_an_all_reduce, "the code changes a tensor in flight: the all_reduce in line "),
    ],
)
def test_a_tensor_in_flight_is_not_to_be_touched(answer, says, time_of):
    verdict = judge(swapping(time_of), answer)
    assert verdict.hint_name == "in flight"
    assert says in verdict.cases[0].got


def drops_its_work(x):
    y = torch.empty_like(x)
    dist.isend(x, other())
    dist.recv(y, other())
    return y


def waits_for_no_all_reduce(x):
    y = x / 2
    dist.all_reduce(y, async_op=True)
    return y


def reads_what_it_dropped(x):
    y = torch.empty_like(x)
    dist.irecv(y, other())
    dist.send(x, other())
    return y + 0


@pytest.mark.processes("some")
@in_every_time
@pytest.mark.parametrize("answer", [drops_its_work, waits_for_no_all_reduce, reads_what_it_dropped])
def test_a_work_that_nobody_waits_for_is_told(answer, time_of):
    verdict = judge(swapping(time_of), answer)
    assert verdict.hint_name == "never waited for"
    assert "was never waited for" in verdict.cases[0].got


def another_part(x):
    """Change one half of a tensor while the other half is on its way."""
    room = torch.cat([x, x])
    sending = dist.isend(room[:2], other())
    y = torch.empty_like(room[2:])
    room[2:] += 1
    dist.recv(y, other())
    sending.wait()
    room += 1
    return y


def asks_whether_it_is_done(x):
    y = x / 2
    work = dist.all_reduce(y, async_op=True)
    while not work.is_completed():
        time.sleep(0.001)
    return y + 0


def by_a_future(x):
    y = x / 2
    return dist.all_reduce(y, async_op=True).get_future().wait()[0] + 0


def looks_at_its_shape(x):
    y = torch.empty_like(x)
    receiving = dist.irecv(y, other())
    room = torch.empty_like(y), y.new_zeros(2), y.view(-1, 1).shape, y.numel()
    dist.send(x, other())
    receiving.wait()
    return y + room[1]


def sends_twice_at_once(x):
    rooms = [torch.empty_like(x), torch.empty_like(x)]
    works = [dist.isend(x, other(), tag=tag) for tag in (1, 2)]
    works += [dist.irecv(room, other(), tag=tag) for tag, room in enumerate(rooms, 1)]
    total = x + x
    for work in works:
        work.wait()
    return total - rooms[1]


@pytest.mark.processes("some")
@in_every_time
@pytest.mark.parametrize(
    "answer",
    [another_part, asks_whether_it_is_done, by_a_future, looks_at_its_shape, sends_twice_at_once],
)
def test_what_is_right_is_not_refused(answer, time_of):
    verdict = judge(swapping(time_of), answer)
    assert verdict.passed, verdict.cases


def over_a_group_by_hand(x):
    from datetime import timedelta

    from torch.distributed.distributed_c10d import _get_default_store

    store = dist.PrefixStore("mine", _get_default_store())
    group = dist.ProcessGroupGloo(store, dist.get_rank(), 2, timedelta(seconds=20))
    y = x / 2
    group.allreduce([y]).wait()
    return y


@pytest.mark.processes("some")
@in_every_time
@pytest.mark.parametrize("answer", [over_a_group_by_hand])
def test_a_process_group_that_nobody_records_is_refused(answer, time_of):
    verdict = judge(swapping(time_of), answer)
    assert verdict.hint_name == "hidden group"


def over_a_new_group(x):
    y = x / 2
    dist.all_reduce(y, group=dist.new_group([0, 1]))
    return y


def over_another_backend(x):
    y = x / 2
    dist.all_reduce(y, group=dist.new_group(backend="gloo"))
    return y


@pytest.mark.processes("some")
@pytest.mark.parametrize("answer", [over_a_new_group, over_another_backend])
def test_a_new_group_of_the_kit_is_not(answer):
    assert judge(swapping(REAL), answer).passed


def test_the_networks_own_threads_may_touch_what_it_owns():
    """gloo's threads run torch under the modes of the thread that posted.

    An error there cannot surface.
    """
    mode, x = InFlight(0), torch.ones(2)
    what = Call("all_reduce", where=("cell", 3))
    with mode:
        mode.posted(work := Work(), what, [[x]])
        with pytest.raises(TouchedInFlight):
            x.add_(1)
        touched = []

        def of_gloo():
            with mode:
                touched.append(x.add_(1))

        thread = threading.Thread(target=of_gloo)
        thread.start()
        thread.join()
        mode.over(work)
    assert torch.equal(touched[0], torch.full((2,), 2.0))


def test_threads_that_post_at_the_same_time_each_end_their_own_work():
    """The second post begins and ends inside the first post, as posts of two threads may."""
    mode, first, second = InFlight(0), Work(), Work()
    mode.posted(warm := Work(), Call("barrier"), [])
    mode.over(warm)

    class Interrupted(weakref.WeakKeyDictionary):
        def __setitem__(self, work, number):
            super().__setitem__(work, number)
            if work is first:
                mode.posted(second, Call("recv", where=("cell", 4)), [[torch.ones(2)]])

    mode._numbers = Interrupted()
    mode.posted(first, Call("send", where=("cell", 3)), [[torch.ones(2)]])
    mode.over(first)
    assert [what.op for what in mode.left()] == ["recv"]
    mode.over(second)
    assert mode.left() == []
