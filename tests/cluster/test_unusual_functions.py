"""Functions that do things which are legal in a script, and once broke a rank's process."""

import os

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from ddpkit import Cluster, Deadlock, Mismatch, RankError

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def cluster():
    return Cluster(2)


def classes_of_a_cell():
    """Return classes that no process can import, like the classes of a cell."""
    cell = {"__name__": "__main__", "torch": torch, "dist": dist}
    exec(
        """
class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, i):
        return torch.tensor(i * i)

class Handle(dist.Work):
    def wait(self, timeout=None):
        return True

class Ring(dist.ProcessGroup):
    def size(self):
        return 17
""",
        cell,
    )
    return cell["Squares"], cell["Handle"], cell["Ring"]


Squares, Handle, Ring = classes_of_a_cell()


def test_a_loaders_workers_have_a_dataset_of_a_cell(cluster):
    def batches():
        loader = DataLoader(Squares(), batch_size=4, num_workers=2)
        return [batch.tolist() for batch in loader]

    assert cluster.run(batches).results == [[[0, 1, 4, 9], [16, 25]]] * 2


def test_classes_of_a_cell_may_be_made_from_those_of_c10d(cluster):
    def made():
        return Handle().wait(), issubclass(Ring, dist.ProcessGroup), Ring(0, 1).size()

    assert cluster.run(made).results == [(True, True, 17)] * 2


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (
            lambda: input("how many? "),
            "EOFError: A rank has no keyboard: call input() in the notebook",
        ),
        (lambda: breakpoint(), "RuntimeError: A rank has no keyboard and therefore no debugger"),
        (
            lambda: __import__("pdb").set_trace(),
            "BdbQuit: A rank has no keyboard and therefore no debugger",
        ),
    ],
    ids=["input", "breakpoint", "pdb"],
)
def test_a_rank_has_no_keyboard(cluster, ask, said):
    with pytest.raises(RankError) as caught:
        cluster.run(ask)
    assert said in str(caught.value)


def test_what_an_exception_was_raised_from_is_told(cluster):
    def inner():
        raise KeyError("the key")

    def outer():
        try:
            inner()
        except KeyError as error:
            raise ValueError("no value") from error

    with pytest.raises(RankError) as caught:
        cluster.run(outer)
    lines = str(caught.value).splitlines()
    assert lines[0] == "ranks 0, 1 raised ValueError: no value"
    assert lines[2] == "because of KeyError: 'the key'"
    assert lines[-1].endswith("(in inner)")
    assert caught.value.raised[0].cause.type == "KeyError"


def test_parts_of_a_group_of_exceptions_are_told(cluster):
    def both():
        raise ExceptionGroup("two", [ValueError("a"), TypeError("b")])

    with pytest.raises(RankError) as caught:
        cluster.run(both)
    assert str(caught.value).splitlines()[-2:] == ["with ValueError: a", "with TypeError: b"]


def test_an_endless_chain_of_causes_has_an_end(cluster):
    def deep():
        error = ValueError("last")
        for number in range(50):
            above = ValueError(str(number))
            above.__cause__, error = error, above
        raise error

    with pytest.raises(RankError) as caught:
        cluster.run(deep)
    assert str(caught.value).count("because of") == 5


def test_a_child_that_comes_back_from_the_function_is_not_the_rank(cluster):
    def forks():
        child = os.fork()
        if child == 0:
            return "child"
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status)

    def fails():
        child = os.fork()
        if child == 0:
            raise ValueError("of the child")
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status)

    run = cluster.run(forks)
    assert (run.results, run.output) == ([0, 0], "")
    run = cluster.run(fails)
    assert run.results == [1, 1]
    assert run.output.count("ValueError: of the child") == 2
    assert "send_reply" not in run.output


def test_a_rank_may_close_its_output(cluster):
    def closes():
        os.close(1)
        return "well"

    assert cluster.run(closes).results == ["well", "well"]


def test_some_ranks_make_a_group_more():
    """Ranks 2 and 3 may find the group of ranks 0 and 1, or no group: both ends are right."""

    def some():
        if dist.get_rank() < 2:
            dist.new_group([0, 1])
        dist.new_group([0, 1, 2, 3])

    with pytest.raises((Deadlock, Mismatch)) as caught:
        Cluster(4).run(some)
    said = " ".join(str(caught.value).split())
    assert "Every rank must call new_group for every group, in the same order" in said
    assert "without calling new_group" not in said
