"""The known ways in which a run fails, as data: functions to run, and expected texts.

A line that the message must name is marked `# <-`. In the texts, `{3}` stands for the name of a
function's third line (the `def` is the first), and `{#3}` for the line's number in its file.

All launchers use this table. A script's Cluster meets all faults (test_faults.py), and so does an
emulated cluster (tests/emulation/test_faults_table.py). A notebook's Cluster
(tests/notebook/test_errors.py), torchrun (test_torchrun.py) and torchrun on two hosts
(test_hosts.py) meet the faults that name these launchers. `benchmarks.soak` reads the table too.
"""

from __future__ import annotations

import ctypes
import inspect
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddpkit.errors import Deadlock, Mismatch, RankDied, RankError, RunFailed, RunTimeout


@dataclass(frozen=True)
class Fault:
    """A function that fails on `world_size` ranks, the expected error, and texts of its message.

    `why` is the cause that the error's fields must name: the `cause` of a Deadlock, the `kind` of a
    Mismatch, the `cause` of a RankDied's deaths, or the exception type of the first rank at fault.
    `elsewhere` maps further launchers to the texts expected there; an empty value stands for the
    texts of a script and the marked lines. A text with " or " is a choice: the message must contain
    one part.
    """

    function: Callable[..., Any]
    error: type[RunFailed]
    words: tuple[str, ...]
    why: str = ""
    world_size: int = 2
    timeout: float | None = None
    elsewhere: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def slower(self) -> Fault:
        """Return the fault with twice the timeout, for a machine on which ranks begin late."""
        assert self.timeout
        now, then = (f"timeout of {seconds:g} s" for seconds in (self.timeout, 2 * self.timeout))
        words = tuple(text.replace(now, then) for text in self.words)
        return replace(self, timeout=2 * self.timeout, words=words)

    @property
    def name(self) -> str:
        return self.function.__name__

    def says(self, launcher: str, line: Callable[[int], str]) -> list[str]:
        """Return the texts that the message must contain under a launcher.

        `line` names a line of the function, by its number.
        """

        def named(alone: str, number: str) -> str:
            name = line(int(number))
            return name.rpartition(" ")[2] if alone else name

        marked = [f"{{{n}}}" for n, text in enumerate(self._lines, 1) if text.endswith("# <-")]
        words = self.elsewhere.get(launcher) or (*self.words, *marked)
        return [re.sub(r"\{(#?)(\d+)\}", lambda at: named(*at.groups()), text) for text in words]

    def missing(self, message: str, launcher: str = "script") -> list[str]:
        """Return the texts that the message of a script's run should contain, and does not."""
        # the message quotes the marked lines with their marks
        message = re.sub("  #.*?<-", "", message)
        wanted = self.says(launcher, self._line)
        return [each for each in wanted if not any(one in message for one in each.split(" or "))]

    def source(self) -> str:
        """Return the function as a reader would write it, without decorators and comments."""
        return "".join(f"{re.sub('  #.*', '', text)}\n" for text in self._lines)

    @property
    def _lines(self) -> list[str]:
        lines, _ = inspect.getsourcelines(self.function)
        return [text.rstrip("\n") for text in lines[self._def :]]

    @property
    def _def(self) -> int:
        """The number of decorator lines above the function's `def`."""
        lines, _ = inspect.getsourcelines(self.function)
        return next(n for n, text in enumerate(lines) if text.startswith("def "))

    def _line(self, number: int) -> str:
        """Return "faults.py, line 12" for a line of the function.

        Python takes the line of the decorator for the line of the whole function.
        """
        _, first = inspect.getsourcelines(self.function)
        return f"faults.py, line {first + (number > 1) * (self._def + number - 1)}"

    def wrong_fields(self, error: RunFailed) -> list[str]:
        """Return the names of the error's fields that have wrong values."""
        everyone = set(range(self.world_size))
        told = {"why": said_why(error) == self.why}
        match error:
            case Deadlock():
                told["waiting"] = (
                    set(error.waiting) == set(error.needs) == everyone - error.returned
                )
                told["ranks"] = set(error.ranks) == set(error.waiting)
            case Mismatch():
                told["calls"] = set(error.calls) == set(error.ranks) == everyone
            case RankDied():
                told["deaths"] = set(error.deaths) == set(error.ranks)
            case RankError():
                told["raised"] = set(error.ranks) <= set(error.raised)
            case RunTimeout():
                told["seconds"] = error.seconds == self.timeout
                told["doing"] = set(error.doing) == everyone - error.returned
        return [field for field, right in told.items() if not right]


def said_why(error: RunFailed) -> str:
    """Return the cause that an error's fields name."""
    match error:
        case Deadlock():
            return error.cause
        case Mismatch():
            return error.kind
        case RankDied():
            return error.deaths[error.ranks[0]].cause
        case RankError():
            return error.raised[error.ranks[0]].type
    return ""


FAULTS: list[Fault] = []
NOTEBOOK: dict[str, tuple[str, ...]] = {"notebook": ()}
TORCHRUN: dict[str, tuple[str, ...]] = {"torchrun": ()}
HOSTS: dict[str, tuple[str, ...]] = {"hosts": ()}


def met_by(launcher: str) -> dict[str, Fault]:
    """Return the faults that another launcher meets too, by name."""
    return {each.name: each for each in FAULTS if launcher in each.elsewhere}


def write(script: Path, fault: Fault, launcher: str, before: str = "") -> list[str]:
    """Write a script that runs a fault after some lines; return the expected texts of its error."""
    head = f"{imports()}from ddpkit import Cluster\n{before}\n\n"
    run = f"Cluster({fault.world_size}).run({fault.name}, timeout={fault.timeout})"
    script.write_text(f"{head}{fault.source()}\n{run}\nprint('never said')\n")
    first = head.count("\n") + 1
    return fault.says(launcher, lambda n: f"{script.name}, line {first + n - 1}")


def imports() -> str:
    """Return the imports that the fault functions need in a cell or a script."""
    lines = Path(__file__).read_text("utf-8").splitlines()
    wanted = r"import |from torch"
    return "".join(f"{text}\n" for text in lines if re.match(wanted, text))


def fault(error: type[RunFailed], *words: str, **more: Any) -> Callable[[Any], Any]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        FAULTS.append(Fault(function, error, words, **more))
        return function

    return add


# Exceptions


class OwnError(Exception):
    """An exception that cannot be pickled: pickle does not know the constructor's arguments."""

    def __init__(self, code: int, lock: Any) -> None:
        super().__init__(f"code {code}")
        self.lock = lock


@fault(RankError, "rank 1 raised ValueError: no", why="ValueError", elsewhere=NOTEBOOK)
def one_raises():
    if dist.get_rank() == 1:
        raise ValueError("no")  # <-
    dist.barrier()


@fault(RankError, "ranks 0, 1 raised KeyError: 'weight'", why="KeyError")
def all_raise():
    return {}["weight"]  # <-


@fault(
    RankError, "rank 0 raised ValueError: left", "rank 1 raised TypeError: right", why="ValueError"
)
def two_types():
    if dist.get_rank() == 0:
        raise ValueError("left")  # <-
    raise TypeError("right")  # <-


@fault(RankError, "rank 1 raised OwnError: code 7", why="OwnError")
def unpicklable_exception():
    if dist.get_rank() == 1:
        raise OwnError(7, threading.Lock())  # <-
    dist.recv(torch.ones(1), 1)


@fault(RankError, "ranks 0, 1 raised MemoryError", why="MemoryError")
def memory_error():
    bytearray(1 << 62)  # <-


@fault(
    RankError,
    "rank 1 raised IndexError: list index out of range",
    "  {6}: helper([])  (in in_a_helper)",
    "  {3}: return items[9]  (in helper)",
    why="IndexError",
    elsewhere=NOTEBOOK,
)
def in_a_helper():
    def helper(items):
        return items[9]  # <-

    if dist.get_rank() == 1:
        helper([])  # <-
    dist.all_reduce(torch.ones(2))


@fault(
    RankError,
    "ranks 0, 1 raised RuntimeError: ",
    "  {2}: torch.ones(2) @ torch.ones(3)  (in below_python)",
    why="RuntimeError",
    elsewhere=NOTEBOOK,
)
def below_python():
    torch.ones(2) @ torch.ones(3)  # <-


@fault(RankError, "ranks 0, 1 raised SyntaxError", why="SyntaxError", elsewhere=NOTEBOOK)
def wrong_syntax():
    exec("1 +")


@fault(
    RankError,
    "ranks 0, 1",
    "the function returned a generator that cannot be sent back",
    why="UnsendableResultError",
    elsewhere={"notebook": ("the function returned a generator that cannot be sent back",)},
)
def unpicklable_result():  # <-
    return (i for i in range(3))


@fault(RankError, "rank 1 raised RecursionError", why="RecursionError")
def recursion():
    def deeper(n):
        return deeper(n + 1)  # <-

    if dist.get_rank() == 1:
        deeper(0)  # <-
    dist.barrier()


# Deadlocks: messages


@fault(
    Deadlock,
    "rank 0 waits in recv(src=1)\n      {3}: dist.recv(torch.ones(2), peer)",
    "rank 1 waits in recv(src=0)\n      {3}: dist.recv(torch.ones(2), peer)",
    "Why: ranks 0, 1 each wait to receive before they send",
    "nobody sends",
    why="receive",
    elsewhere=NOTEBOOK,
)
def recv_recv():
    peer = 1 - dist.get_rank()
    dist.recv(torch.ones(2), peer)  # <-
    dist.send(torch.ones(2), peer)


@fault(
    Deadlock,
    "rank 0 waits in send(dst=1)",
    "rank 1 waits in send(dst=0)",
    "nobody receives",
    why="send",
)
def send_send_small():
    peer = 1 - dist.get_rank()
    dist.send(torch.ones(2), peer)  # <-
    dist.recv(torch.ones(2), peer)


@fault(
    Deadlock,
    "rank 0 waits in send(dst=1)",
    "rank 1 waits in send(dst=0)",
    "nobody receives",
    why="send",
)
def send_send_large():
    peer = 1 - dist.get_rank()
    dist.send(torch.ones(5_000_000), peer)  # <-
    dist.recv(torch.ones(5_000_000), peer)


@fault(
    Deadlock,
    "rank 0 waits in send(dst=1)",
    "rank 1 waits in send(dst=2)",
    "rank 2 waits in send(dst=0)",
    "ranks 0, 1, 2 each wait in send",
    world_size=3,
    why="send",
)
def ring_of_sends():
    rank, size = dist.get_rank(), dist.get_world_size()
    dist.send(torch.ones(4), (rank + 1) % size)  # <-
    dist.recv(torch.ones(4), (rank - 1) % size)


@fault(
    Deadlock,
    "rank 0 waits in wait() for the irecv(src=1) of line {#3}\n      {5}: work.wait()",
    "rank 1 returned already",
    why="returned",
    elsewhere=NOTEBOOK,
)
def unserved_irecv():
    if dist.get_rank() == 0:
        work = dist.irecv(torch.ones(4), 1)
        time.sleep(0.1)
        work.wait()  # <-


@fault(
    Deadlock,
    "rank 0 waits in wait() for the isend(dst=1)",
    "rank 1 returned already",
    why="returned",
)
def unserved_isend():
    if dist.get_rank() == 0:
        work = dist.isend(torch.ones(4), 1)
        work.wait()  # <-


@fault(Deadlock, "rank 0 waits in recv(src=any)", "rank 1 returned already", why="returned")
def recv_from_anybody():
    if dist.get_rank() == 0:
        dist.recv(torch.ones(1))  # <-


@fault(Deadlock, "rank 1 waits in recv(src=0, tag=6)", "rank 0 returned already", why="returned")
def wrong_tag():
    if dist.get_rank() == 0:
        dist.isend(torch.ones(1), 1, tag=5)
    else:
        dist.recv(torch.ones(1), 0, tag=6)  # <-


@fault(
    Deadlock,
    "rank 0 waits in send(dst=1, tag=1)",
    "rank 1 waits in recv(src=0, tag=2)",
    "Why: rank 0 sends with tag 1, rank 1 receives with tag 2.",
    why="cycle",
)
def tags_that_differ():
    if dist.get_rank() == 0:
        dist.send(torch.ones(1), 1, tag=1)  # <-
    else:
        dist.recv(torch.ones(1), 0, tag=2)  # <-


@fault(
    Deadlock, "rank 0 waits in recv(src=1)", "rank 1 waits in all_reduce(float32[2])", why="cycle"
)
def recv_against_all_reduce():
    if dist.get_rank() == 0:
        dist.recv(torch.ones(2), 1)  # <-
    else:
        dist.all_reduce(torch.ones(2))  # <-


# Deadlocks: collectives


@fault(
    Deadlock,
    "rank 0 waits in all_reduce(float32[2])\n      {3}: dist.all_reduce(torch.ones(2))",
    "rank 1 returned already",
    "Why: rank 0 waits for rank 1, which has returned without calling all_reduce.",
    why="returned",
    elsewhere=NOTEBOOK,
)
def missing_collective():
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(2))  # <-


@fault(
    Deadlock,
    "ranks 0, 2 wait in barrier()",
    "rank 1 returned already",
    world_size=3,
    why="returned",
)
def returned_early():
    if dist.get_rank() == 1:
        return
    dist.barrier()  # <-


@fault(
    Deadlock,
    "rank 0 waits in wait() for the all_reduce(float32[2])",
    "rank 1 returned",
    why="returned",
)
def unserved_future():
    if dist.get_rank() == 0:
        future = dist.all_reduce(torch.ones(2), async_op=True).get_future()
        future.wait()  # <-


@fault(Deadlock, "group=[0, 1]", "rank 0 waits in", "rank 1 waits in", why="cycle")
def crossed_groups():
    pair = dist.new_group([0, 1])
    groups = [pair, None] if dist.get_rank() == 0 else [None, pair]
    for group in groups:
        dist.all_reduce(torch.ones(2), group=group)  # <-


@fault(
    Deadlock,
    "rank 0 waits in all_reduce(float32[2], group=[0, 2])",
    "ranks 1, 2 returned already",
    world_size=3,
    why="returned",
)
def missing_in_a_group():
    group = dist.new_group([0, 2])
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(2), group=group)  # <-


@fault(
    Deadlock,
    "ranks 0, 1, 2 wait in new_group()",
    "Why: including the group [0, 1, 2], ranks 0, 2 have made 3 groups, rank 1 has",
    world_size=3,
    why="cycle",
)
def groups_not_made_by_all():
    dist.new_group([0, 1])
    if dist.get_rank() != 1:
        dist.new_group([1])
    dist.new_group()  # <-


@fault(Deadlock, "rank 0 waits in new_group()", "rank 1 returned already", why="returned")
def group_made_by_one():
    if dist.get_rank() == 0:
        dist.new_group([0, 1])  # <-


@fault(
    Deadlock,
    "rank 0 waits in all_reduce(float32[20]) inside backward()",
    "rank 1 returned",
    why="returned",
)
def skipped_backward():
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    loss = model(torch.ones(2, 4)).sum()
    if dist.get_rank() == 0:
        loss.backward()  # <-


@fault(Deadlock, "rank 0 waits in", "recv(src=1)", "rank 1 waits in", "recv(src=0)", why="receive")
def in_a_thread():
    peer = 1 - dist.get_rank()

    def communicate():
        for _ in range(100):  # the ranks communicate at first, and then stop
            dist.all_reduce(torch.ones(2))
        dist.recv(torch.ones(2), peer)

    thread = threading.Thread(target=communicate)
    thread.start()
    thread.join()  # <-


# Ranks that disagree


@fault(
    Mismatch,
    "rank 0 calls broadcast(float32[4], src=0)\n      {4}: dist.broadcast(tensor, 0)",
    "rank 1 calls all_reduce(float32[4])\n      {7}: dist.all_reduce(tensor)",
    "same order",
    why="operation",
    elsewhere=NOTEBOOK,
)
def different_order():
    tensor = torch.ones(4)
    if dist.get_rank() == 0:
        dist.broadcast(tensor, 0)  # <-
        dist.all_reduce(tensor)
    else:
        dist.all_reduce(tensor)  # <-
        dist.broadcast(tensor, 0)


@fault(
    Mismatch,
    "rank 0 calls all_reduce(float32[4])",
    "rank 1 calls all_reduce(float32[5])",
    why="shape",
)
def different_shapes():
    dist.all_reduce(torch.ones(4 + dist.get_rank()))  # <-


@fault(
    Mismatch,
    "rank 0 sends 4 numbers to rank 1\n      {4}: dist.all_to_all_single(",
    "rank 1 takes 2 from rank 0",
    "input_split_sizes",
    why="splits",
)
def different_splits():
    sends = [1, 2] if dist.get_rank() == 0 else [1, 1]
    mine = torch.ones(sum(sends), 2)
    dist.all_to_all_single(torch.zeros(2, 2), mine, [1, 1], sends)  # <-


@fault(
    Mismatch,
    "rank 0 calls all_reduce(float32[2])\n      {3}: dist.all_reduce(mine)",
    "rank 1 calls all_reduce(float32[3])\n      {3}: dist.all_reduce(mine)",
    "Every rank must pass a tensor of the same shape.",
    why="shape",
    elsewhere=NOTEBOOK | TORCHRUN,
)
def uneven_shapes():
    mine = torch.zeros(2 + dist.get_rank())
    dist.all_reduce(mine)  # <-


@fault(
    Mismatch,
    "rank 0 calls all_reduce(float32[4])",
    "rank 1 calls all_reduce(float64[4])",
    why="dtype",
)
def different_dtypes():
    dtype = [torch.float32, torch.float64][dist.get_rank()]
    dist.all_reduce(torch.ones(4, dtype=dtype))  # <-


@fault(
    Mismatch,
    "rank 0 calls all_reduce(float32[4])",
    "rank 1 calls all_reduce(float32[4], MAX)",
    why="reduction",
)
def different_reductions():
    op = [dist.ReduceOp.SUM, dist.ReduceOp.MAX][dist.get_rank()]
    dist.all_reduce(torch.ones(4), op)  # <-


@fault(Mismatch, "rank 0 calls broadcast(float32[4], src=0)", "src=1", "the same src", why="root")
def different_roots():
    dist.broadcast(torch.ones(4), dist.get_rank())  # <-


@fault(Mismatch, "rank 0 calls barrier()", "rank 1 calls all_reduce(float32[4])", why="operation")
def barrier_against_all_reduce():
    if dist.get_rank() == 0:
        dist.barrier()  # <-
    else:
        dist.all_reduce(torch.ones(4))  # <-


@fault(
    Mismatch, "rank 0 sends float32[8] to rank 1", "rank 1 receives into float32[4]", why="message"
)
def longer_message():
    if dist.get_rank() == 0:
        dist.send(torch.ones(8), 1)  # <-
    else:
        dist.recv(torch.ones(4), 0)  # <-


@fault(
    Mismatch, "rank 0 sends float32[4] to rank 1", "rank 1 receives into float32[8]", why="message"
)
def shorter_message():
    if dist.get_rank() == 0:
        dist.send(torch.ones(4), 1)  # <-
    else:
        dist.recv(torch.ones(8), 0)  # <-


# Processes that end


@fault(
    RankDied,
    "rank 1 was killed by SIGKILL",
    "SIGKILL comes from outside",
    why="signal",
    elsewhere={
        "torchrun": ("rank 1 is gone", "last seen in faults.py", "SIGKILL"),
        # The second in `time.sleep` takes no real time, so the emulated rank is last seen in that
        # line only if it loses its core there.
        "emulated": ("was killed by SIGKILL", "somewhere in killed, {1} or last seen in {3}"),
        **NOTEBOOK,
    },
)
def killed():
    if dist.get_rank() == 1:
        time.sleep(1)  # seen at least once in this line  # <-
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


@fault(RankDied, "rank 1 was killed by SIGKILL", why="signal")
def killed_at_once():
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


@fault(
    RankDied,
    "rank 1 was killed by SIGSEGV",
    "in {3}: ctypes.string_at(0)",
    why="signal",
    elsewhere=NOTEBOOK,
)
def segfault():
    if dist.get_rank() == 1:
        ctypes.string_at(0)  # <-
    dist.barrier()


@fault(RankDied, "rank 1 was killed by SIGABRT", why="signal")
def abort():
    if dist.get_rank() == 1:
        os.abort()  # <-
    dist.barrier()


@fault(RankDied, "rank 1 left with exit code 0 before its function returned", why="exit")
def os_exit():
    if dist.get_rank() == 1:
        os._exit(0)  # <-
    dist.barrier()


@fault(
    RankDied,
    "rank 0 left with exit code 3",
    "rank 1 left with exit code 3",
    "{2}: os._exit(3)",
    why="exit",
    elsewhere=NOTEBOOK,
)
def both_os_exit():
    os._exit(3)  # <-


@fault(RankDied, "rank 1 called sys.exit(3)", why="sys.exit", elsewhere=TORCHRUN)
def sys_exit():
    if dist.get_rank() == 1:
        sys.exit(3)  # <-
    dist.barrier()


@fault(
    RankDied,
    "ranks 0, 1 called sys.exit(enough)",
    '{2}: sys.exit("enough")',
    why="sys.exit",
    elsewhere=NOTEBOOK,
)
def sys_exit_with_a_word():
    sys.exit("enough")  # <-


@fault(RankDied, "ranks 0, 1 called sys.exit()", why="sys.exit")
def sys_exit_without_code():
    sys.exit()  # <-


# Ranks that do not come back


@fault(
    RunTimeout,
    "The run took longer than its timeout of 1 s.",
    "rank 0 was in",
    "rank 1 was in",
    timeout=1,
    elsewhere=TORCHRUN,
)
def endless_loop():
    while True: ...  # fmt: skip  # <-


@fault(
    RunTimeout,
    "The run took longer than its timeout of 2 s.",
    "rank 0 waits in recv(src=1)\n      {3}: dist.recv(torch.ones(1), src=1)",
    "rank 1 was in {4}: while True:",
    timeout=2,
    elsewhere=NOTEBOOK,
)
def waits_for_an_endless_loop():
    if dist.get_rank() == 0:
        dist.recv(torch.ones(1), src=1)  # <-
    while True: ...  # fmt: skip  # <-


@fault(RunTimeout, "rank 0 was in", "rank 1 was in", timeout=1)
def endless_loop_over_the_world_size():
    while dist.get_world_size() > 0: ...  # fmt: skip  # <-


@fault(RunTimeout, "rank 0 was in", "rank 1 waits in barrier()", timeout=1)
def holds_the_gil():
    if dist.get_rank() == 0:
        ctypes.PyDLL(None).sleep(600)  # PyDLL keeps the GIL  # <-
    dist.barrier()  # <-


@fault(RunTimeout, "rank 0 was in", "rank 1 was in", timeout=1)
def endless_regex():
    return re.match("(a+)+$", "a" * 60 + "b")  # <-


@fault(RunTimeout, "timeout of 1 s", timeout=1)
def endless_output():
    while True:
        os.write(1, b"spam\n" * 10_000)


# Faults of four ranks on two hosts: the last rank is on the second host


@fault(
    RankError,
    "rank 3 raised ValueError: no such thing",
    why="ValueError",
    world_size=4,
    elsewhere=HOSTS,
)
def last_of_four_raises():
    if dist.get_rank() == 3:
        raise ValueError("no such thing")  # <-
    dist.barrier()


@fault(
    RankDied,
    "rank 3 was killed by SIGKILL",
    why="signal",
    world_size=4,
    elsewhere={"hosts": ("rank 3 on host node2 is gone", "last seen in faults.py")},
)
def last_of_four_is_killed():
    dist.barrier()
    time.sleep(1)  # long enough for the monitor to look at the ranks
    if dist.get_rank() == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


@fault(
    Deadlock,
    "The ranks wait for each other",
    "rank 3 waits in recv(src=1)",
    why="receive",
    world_size=4,
    elsewhere=HOSTS,
)
def two_pairs_receive():
    dist.recv(torch.zeros(1), src=(dist.get_rank() + 2) % 4)  # <-
