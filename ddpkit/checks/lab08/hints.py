"""Lab 08: sentences about mistakes in messages, a table for each exercise."""

from __future__ import annotations

import itertools
from functools import partial

from ddpkit.checks.lab08.rounds import OTHERS, by
from ddpkit.checks.shared.messages import MESSAGES
from ddpkit.exercises.compare import same
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.exercises.values import Close


def near(got: object, wanted: object) -> bool:
    """True if the value is a number equal to `wanted`, up to rounding."""
    return same(got, Close(wanted))


def is_case(s: Seen, word: str) -> bool:
    """True if the title of the case contains `word`."""
    return word in s.about


def early(s: Seen) -> list[str]:
    """Return, as a list, the answer's first call that differs from the right call there."""
    pairs = itertools.zip_longest(s.calls.split(), s.expect["calls"].split(), fillvalue="")
    return [got for got, wanted in pairs if got != wanted][:1]


def before(s: Seen, call: str) -> bool:
    """True if the answer made this call earlier than a right answer does."""
    return bool(s.calls.split().index(call) < s.expect["calls"].split().index(call))


def odd(s: Seen) -> bool:
    """True if the servers are not ranks 0, 1, 2, ... in this order."""
    return bool(s.servers != list(range(len(s.servers))))


def by_another(s: Seen, name: str) -> bool:
    """True if the wrong formula `name` gives the answer's seconds."""
    return near(s.seconds, by(OTHERS[name], s.numbers))


MORE_BYTES = Hint(
    "more bytes",
    lambda s: s.wrong("bytes"),
    "A worker sends one header of 8 bytes to each server, and each number once.",
)
TWO_DTYPES = next(hint for hint in MESSAGES if hint.name == "two dtypes")
UNTOUCHED = -1.0  # each element of `flat` before a pull
# fmt: off
TALK = (
    Hint("header dtype", lambda s: s.mismatch == "message" and "int64" in s.dtypes,
         "A header is an int64 tensor with one number, like torch.tensor([PUSH])."),
    TWO_DTYPES,
    Hint("whole tensor", lambda s: s.mismatch == "message",
         lambda s: "A message has a different length than the server expects. A header is one "
         f"number, and server i of {len(s.servers)} has chunk i of "
         f"tensor_split({len(s.servers)})."),
    Hint("torch.chunk", lambda s: s.stuck and s.length == 4 and len(s.servers) == 3,
         "tensor_split(3) makes 3 chunks of 4 numbers, but chunk(3) makes only 2. The last server "
         "waits forever."),
    Hint("other ranks", lambda s: s.error and odd(s)
         and (s.stuck or s.kind in ("to itself", "no such rank")),
         lambda s: f"Here the servers are the ranks {s.servers}, in this order. Chunk i goes to "
         "servers[i]."),
    Hint("no such message", lambda s: s.stuck and len(s.servers) == 1,
         "Even with one server, the run hangs. Send first the request with tag=HEADER, then the "
         "data with tag=DATA."),
    Hint("no empty chunk", lambda s: s.stuck and s.length < len(s.servers),
         lambda s: f"With {s.length} numbers for {len(s.servers)} servers, a chunk is empty. Treat "
         "its server like all servers."),
    Hint("server after server", lambda s: s.stuck,
         lambda s: f"With {len(s.servers)} servers, the run hangs, because a rank waits for a "
         "message that has not been started. Start the messages to and from all servers (isend, "
         "irecv), and only then wait."),
    Hint("another request", lambda s: s.wrong("requests"),
         "The server got the wrong request. The header of a push is PUSH, and the header of a pull "
         "is PULL."),
)
PUSHED = (
    Hint("header waited for", lambda s: s.stuck and s.data_first,
         "The server takes the chunk first. Start header and chunk by isend, then wait."),
    *TALK,
    Hint("gradient changed", lambda s: s.gradient != "kept",
         "The gradient that you were given has changed."),
    Hint("other chunks", lambda s: s.wrong("chunks"),
         "A server got numbers that are not its chunk. Chunk i of tensor_split(len(servers)) "
         "belongs to servers[i]."),
    MORE_BYTES,
)
PULLED = (
    *TALK,
    Hint("flat unchanged", lambda s: all(bool((each == UNTOUCHED).all()) for each in s.flat),
         "`flat` has not changed. Receive into `flat`: the chunks of tensor_split are views of "
         "`flat`."),
    Hint("another order", lambda s: s.wrong("flat") and all(
         sorted(got.tolist()) == sorted(right.tolist())
         for got, right in zip(s.flat, s.expect["flat"], strict=True)),
         "The parameters are at the wrong places. servers[i] has chunk i."),
    Hint("other parameters", lambda s: s.wrong("flat"),
         "`flat` holds numbers that the servers did not send, or lacks numbers that they sent. Put "
         "each chunk in its place, over the old numbers."),
    MORE_BYTES,
)
SERVED = (
    TWO_DTYPES,
    Hint("spins", lambda s: s.raised == "Spinning",
         "The server calls may_pull again and again for one worker. It serves no worker meanwhile, "
         "so nothing changes. Put the worker on a list, and continue."),
    Hint("answered twice", lambda s: s.stuck == "send",
         "The server answers a worker twice, but the worker no longer listens. Take the worker off "
         "the list."),
    Hint("never ends", lambda s: s.stuck and is_case(s, "1 worker"),
         "The worker is DONE, or waits for an answer, but the server waits for a message that "
         "never comes."),
    Hint("first DONE", lambda s: s.stuck == "returned" and is_case(s, "in turn"),
         "The server ends with the first DONE. It must end when every worker is DONE."),
    Hint("in turn", lambda s: s.stuck and (is_case(s, "three times") or is_case(s, "in turn")),
         "The server waits for a particular worker, while a different worker has sent. Receive "
         "from any worker: dist.recv(header, tag=HEADER) returns the rank of the sender."),
    Hint("asks once", lambda s: s.stuck and is_case(s, "held back"),
         "A worker was told to wait, and never gets an answer. After each push, call may_pull "
         "again for all waiting workers."),
    Hint("not after DONE", lambda s: s.stuck and is_case(s, "DONE frees"),
         "A DONE may free a waiting worker. Check the waiting workers after a DONE too."),
    Hint("stuck", lambda s: s.stuck, "A worker waits for a message that the server never sends."),
    Hint("answers at once", lambda s: is_case(s, "held back") and early(s),
         "The server answers a pull that may_pull forbids. Call may_pull first, and put the worker "
         "on a list."),
    Hint("one at a time", lambda s: is_case(s, "one is freed") and before(s, "d2"),
         "A push has freed two workers, but one of them gets its answer only after the next "
         "request. After every request, call may_pull for all waiting workers."),
    Hint("answers all", lambda s: is_case(s, "one is freed") and early(s),
         "Two workers wait, and only one of them may continue. Call may_pull for each worker."),
    Hint("data from anybody", lambda s: is_case(s, "two at once") and s.wrong("gradients"),
         "The gradients of two workers are mixed up. The header may come from any worker, but the "
         "data comes from the sender of the header."),
    Hint("one buffer", lambda s: s.wrong("gradients") and not s.wrong("calls")
         and len(set(map(str, s.gradients))) < len(s.gradients),
         "A gradient that the server keeps has changed. Receive each gradient into a new tensor."),
    Hint("other gradients", lambda s: not s.wrong("calls") and s.wrong("gradients"),
         "The rule got a gradient that the worker did not send."),
    Hint("other calls", lambda s: s.wrong("calls"),
         "PUSH calls rule.push(worker, gradient), PULL calls rule.pull(worker), DONE calls "
         "rule.done(worker): each once, in the order of the requests."),
    Hint("old parameters", lambda s: s.wrong("got"),
         "A worker got parameters that rule.pull did not give at that time."),
    Hint("caller's list", lambda s: not s["list as it was"],
         "`workers` is the caller's list, and you have changed it. Work on a copy, set(workers)."),
)
SECONDS = (
    *(Hint(name, partial(by_another, name=name), says)
      for name, says in (
        ("all wait", "Your formula is 2 W t/k: all pulls, and then all pushes. But while the third "
         "worker waits for its parameters, the first worker already computes, and it comes back "
         "first."),
        ("own link", "A worker's own link carries all of its S bytes, from all servers together: t "
         "in each direction, for any number of servers."),
        ("average worker", "A round is over when the push of the last worker arrives. Your formula "
         "ends with the push of an average worker."),
        ("first worker", "Your formula is right for the first worker. The last worker gets its "
         "parameters later, because a server sends its answers one after another."),
        ("one server", "k servers send at the same time, each server its own chunk. A worker waits "
         "for (W - 1) answers of t/k."),
        ("latency of each worker", "The latencies of the workers pass at the same time."),
        ("latency of each server", "All servers are asked at once, so their latencies pass at the "
         "same time."),
        ("two latencies", "Three messages follow each other: the request, the answer, the push."),
        ("half duplex", "The link carries both directions at once. A push does not wait for the "
         "answers to further workers."),
        ("compute shared", "Each worker computes its own gradient, which takes C, not C/W."),
      )),
    Hint("no number", lambda s: type(s.seconds) is not float,
         "The result must be a number of seconds, a float."),
    Hint("another formula", lambda s: s.wrong("seconds"),
         "Draw the round for 3 workers and 1 server. When does the last worker have its "
         "parameters, when does the worker push, and when does the push arrive?"),
)
# fmt: on
