"""Functions and arguments that cannot be sent: an error names them before any process starts."""

import functools
import threading
import warnings

import pytest
import torch
import torch.distributed as dist
from torch.utils.flop_counter import flop_registry

from ddpkit import Cluster, ClusterError, PerRank, torchrun
from ddpkit.exercises.ranks import call
from ddpkit.protocol.ship import pack_call

pytestmark = pytest.mark.processes

guard = threading.Lock()


def uses_global():
    return guard


def uses_helper():
    return uses_global()


def takes_default(x=1, token=guard):
    return x


class Trainer:
    def __init__(self):
        self.learning_rate = 0.1
        self.guard = threading.Lock()

    def step(self):
        return self.learning_rate


def uses_closure():
    inner = threading.Lock()

    def closure():
        return inner

    return closure


class Holder:
    """A class with a lock, which cannot be sent."""

    lock = threading.Lock()

    @property
    def size(self):
        return 1


class UsesGlobal:
    def forward(self):
        return guard


def with_a_class():
    return Holder().lock


class Subclass(Holder):
    pass


def with_a_subclass():
    return Subclass()


part = Subclass()


def with_an_object_of_a_subclass():
    return part


def with_a_method():
    return UsesGlobal().forward()


trainer = Trainer()


def with_an_object():
    return trainer.step()


def add(x, y, *, z=0):
    return x + y + z


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (uses_global, "uses_global uses the variable 'guard', a _thread.lock"),
        (uses_helper, "uses_helper calls uses_global, which uses the variable 'guard'"),
        (uses_closure(), "closure uses the variable 'inner', a _thread.lock"),
        (lambda: guard, "<lambda> uses the variable 'guard'"),
        (takes_default, "takes_default uses the variable 'token', a _thread.lock"),
        (Trainer().step, "step uses the variable 'self.guard', a _thread.lock"),
        (functools.partial(add, guard), "uses the variable 'argument 0', a _thread.lock"),
    ],
)
def test_the_variable_that_cannot_be_sent_is_named(cluster, function, words):
    with pytest.raises(ClusterError) as caught:
        cluster.run(function) if "partial" not in repr(function) else cluster.run(function, 1)
    assert words in str(caught.value)
    assert "process" in str(caught.value)


PRODUCTS = torch.ops.aten.mm, torch.ops.aten.addmm.default, torch.ops.higher_order.flex_attention


def knows_operations():
    return all(each in (torch.ops.aten.mm, torch.ops.aten.addmm.default) for each in PRODUCTS[:2])


def knows_formulas():
    return [each in flop_registry for each in (*PRODUCTS[::2], torch.ops.aten.add)]


def test_operations_of_torch_are_sent_by_name(cluster):
    """A checkpoint policy of torch keeps operations in a variable of the notebook."""
    assert cluster.run(knows_operations).results == [True, True]
    assert cluster.run(knows_formulas).results == [[True, True, False]] * 2


def _of_the_kit(answer):
    return answer()


@pytest.mark.parametrize("answer", [uses_global, functools.partial(_of_the_kit, uses_global)])
def test_a_check_names_the_variable_of_the_student(answer):
    with pytest.raises(ClusterError) as caught:
        call(answer, world_size=2)
    assert str(caught.value).endswith(
        "uses_global uses the variable 'guard', a _thread.lock, which cannot be sent to another "
        "process. Make it inside uses_global instead."
    )


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (
            with_a_class,
            "with_a_class uses the class Holder, which has the attribute 'lock', a _thread.lock, "
            "which cannot be sent to another process. Make it inside a method of Holder instead.",
        ),
        (
            with_a_subclass,
            "with_a_subclass uses the class Subclass, which uses the class Holder, which has the "
            "attribute 'lock', a _thread.lock",
        ),
        (
            with_an_object_of_a_subclass,
            "uses the variable 'part', which uses the class Subclass, which uses the class Holder, "
            "which has the attribute 'lock', a _thread.lock",
        ),
        (
            with_a_method,
            "with_a_method uses the class UsesGlobal, which has forward, which uses the variable "
            "'guard', a _thread.lock, which cannot be sent to another process. Make it inside "
            "forward instead.",
        ),
        (
            with_an_object,
            "with_an_object uses the variable 'trainer', which has the attribute 'guard', a "
            "_thread.lock, which cannot be sent to another process. Make it inside with_an_object "
            "instead.",
        ),
    ],
)
def test_the_attribute_that_cannot_be_sent_is_named(function, words):
    """The classes of this module are sent by value, like classes of a cell."""
    with pytest.raises(ClusterError) as caught:
        pack_call(function, (), {})
    assert words in str(caught.value)


def test_the_argument_that_cannot_be_sent_is_named(cluster):
    with pytest.raises(ClusterError, match="argument 1 of add is a _thread.lock"):
        cluster.run(add, 1, guard)
    with pytest.raises(ClusterError, match="argument 'z' of add is a list.*cannot pickle"):
        cluster.run(add, 1, 2, z=[guard])
    assert cluster.run(add, 1, 2, z=3).results == [6, 6]


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((1,), {}, "missing a required argument: 'y'"),
        ((1, 2, 3), {}, "too many positional arguments"),
        ((1, 2), {"w": 1}, "unexpected keyword argument 'w'"),
    ],
)
def test_wrong_arguments(cluster, args, kwargs, words):
    with pytest.raises(TypeError) as caught:
        cluster.run(add, *args, **kwargs)
    assert "add(x, y, *, z=0)" in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize("thing", [3, None, "train", [1]])
def test_what_is_not_callable(cluster, thing):
    with pytest.raises(TypeError, match=r"If you wrote run\(f\(1, 2\)\), write run\(f, 1, 2\)"):
        cluster.run(thing)


def test_per_rank_of_the_wrong_length(cluster):
    with pytest.raises(ClusterError, match="argument 0 of add: PerRank has 3 items for 2 ranks"):
        cluster.run(add, PerRank([1, 2, 3]), 1)
    with pytest.raises(ClusterError, match="argument 'z' of add: PerRank has 0 items"):
        cluster.run(add, 1, 2, z=PerRank([]))
    with pytest.raises(ClusterError, match="PerRank has 1 item for 2 ranks"):
        cluster.run(add, PerRank([1]), 1)


@pytest.mark.parametrize("timeout", ["x", "1", 0, -1, float("nan"), [1]])
def test_a_timeout_that_cannot_be(cluster, timeout):
    with pytest.raises(ClusterError, match=r"^run\(timeout=.*\): a timeout is a number of seconds"):
        cluster.run(add, 1, 2, timeout=timeout)
    with pytest.raises(ClusterError, match=r"^torchrun\(timeout=.*\): a timeout is a number of"):
        torchrun(__file__, ranks=1, timeout=timeout)


@pytest.mark.parametrize("count", [0, -1, 257, True, 2.5, "2", None])
def test_a_number_of_ranks_that_cannot_be(count):
    with pytest.raises(ClusterError, match=r"Cluster\("):
        Cluster(count)


def test_many_ranks_are_warned_of_at_the_line_that_asks_for_them():
    with pytest.warns(UserWarning, match="17 processes with 136 connections") as caught:
        Cluster(17)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Cluster(16)


def test_a_closed_cluster_refuses():
    with Cluster(2) as cluster:
        assert cluster.run(dist.get_rank).results == [0, 1]
    with pytest.raises(ClusterError, match="closed"):
        cluster.run(dist.get_rank)


def test_a_cluster_stays_in_the_notebook(cluster):
    other = Cluster(2)
    with pytest.raises(ClusterError, match="uses the variable 'other', a ddpkit"):
        cluster.run(lambda: other)
