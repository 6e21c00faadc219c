"""Lab 08: what to say of which mistake in what is sent, a table for each exercise."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

from ddpkit.checks.lab08.rounds import OTHERS, by
from ddpkit.checks.shared.messages import MESSAGES
from ddpkit.exercises.compare import same
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.exercises.values import Close


def near(got: Any, wanted: Any) -> bool:
    """Whether this is the number, up to rounding."""
    return same(got, Close(wanted))


def is_case(s: Seen, word: str) -> bool:
    """Whether the case is about this."""
    return word in s.about


def early(s: Seen) -> list[str]:
    """Pulls that are answered before others, and should not be."""
    pairs = itertools.zip_longest(s.calls.split(), s.expect["calls"].split(), fillvalue="")
    return [got for got, wanted in pairs if got != wanted][:1]


def before(s: Seen, call: str) -> bool:
    """Whether a call came before pulls that should have been answered by then."""
    return bool(s.calls.split().index(call) < s.expect["calls"].split().index(call))


def odd(s: Seen) -> bool:
    """Whether the servers are other ranks than the first ones, or in another order."""
    return bool(s.servers != list(range(len(s.servers))))


def by_another(s: Seen, name: str) -> bool:
    """Whether these are the seconds by another formula."""
    return near(s.seconds, by(OTHERS[name], s.numbers))


MORE_BYTES = Hint(
    "more bytes",
    lambda s: s.wrong("bytes"),
    "A worker sends one header of 8 bytes to each server, and each number once.",
)
TWO_DTYPES = next(hint for hint in MESSAGES if hint.name == "two dtypes")
# fmt: off
TALK = (
    Hint("header dtype", lambda s: s.mismatch == "message" and "int64" in s.dtypes,
         "A header is an int64 tensor of one number, as torch.tensor([PUSH]) is."),
    TWO_DTYPES,
    Hint("whole tensor", lambda s: s.mismatch == "message",
         lambda s: "A message has another length than the server expects: a header is one number, "
         f"and server i of {len(s.servers)} has chunk i of tensor_split({len(s.servers)})."),
    Hint("torch.chunk", lambda s: s.stuck and s.length == 4 and len(s.servers) == 3,
         "4 numbers make 3 chunks by tensor_split(3), and only 2 by chunk(3): the last server "
         "waits for ever."),
    Hint("other ranks", lambda s: s.error and odd(s)
         and (s.stuck or s.kind in ("to itself", "no such rank")),
         lambda s: f"Here the servers are the ranks {s.servers}, in this order: chunk i goes to "
         "servers[i]."),
    Hint("no such message", lambda s: s.stuck and len(s.servers) == 1,
         "Even with one server it hangs: first the request with tag=HEADER, then the data with "
         "tag=DATA."),
    Hint("server after server", lambda s: s.stuck,
         "It has done with one server before it turns to the next: start all (isend, irecv), and "
         "wait when all are on their way."),
    Hint("another request", lambda s: s.wrong("requests"),
         "The server was asked for something else: the header of a push is PUSH, of a pull PULL."),
)
PUSHED = (
    Hint("header waited for", lambda s: s.stuck and s.data_first,
         "The server takes the chunk first: start header and chunk by isend, then wait."),
    *TALK,
    Hint("gradient changed", lambda s: s.gradient != "kept",
         "The gradient that you were given has changed."),
    Hint("other chunks", lambda s: s.wrong("chunks"),
         "A server got numbers that are not its own: chunk i of tensor_split(len(servers)) belongs "
         "to servers[i]."),
    MORE_BYTES,
)
PULLED = (
    *TALK,
    Hint("flat unchanged", lambda s: not any(each.any() for each in s.flat),
         "`flat` is as it was: receive into it. The chunks of tensor_split are views of it."),
    Hint("another order", lambda s: s.wrong("flat"),
         "The parameters are not where they belong: servers[i] has chunk i."),
    MORE_BYTES,
)
SERVED = (
    TWO_DTYPES,
    Hint("spins", lambda s: s.raised == "Spinning",
         "It asks may_pull again and again. While it waits for one worker it serves nobody, so "
         "nothing changes: put the worker on a list, and go on."),
    Hint("answered twice", lambda s: s.stuck == "send",
         "A worker is answered twice, and does not listen any more: take it off the list."),
    Hint("never ends", lambda s: s.stuck and is_case(s, "1 worker"),
         "The worker is DONE, or waits for an answer, and the server waits for a message that "
         "never comes."),
    Hint("first DONE", lambda s: s.stuck == "returned" and is_case(s, "in turn"),
         "It ends with the first DONE: it ends when every worker is DONE."),
    Hint("in turn", lambda s: s.stuck and (is_case(s, "three times") or is_case(s, "in turn")),
         "It waits for one certain worker, while another has come: receive from anybody, "
         "dist.recv(header, tag=HEADER), which returns the rank that has sent."),
    Hint("asks once", lambda s: s.stuck and is_case(s, "held back"),
         "A worker was told to wait, and is never answered: after each push, ask may_pull again "
         "for all who wait."),
    Hint("not after DONE", lambda s: s.stuck and is_case(s, "DONE frees"),
         "A DONE may free one who waits: look at them after it too."),
    Hint("stuck", lambda s: s.stuck, "Somebody waits for a message that the server never sends."),
    Hint("answers at once", lambda s: is_case(s, "held back") and early(s),
         "It answers a pull that may_pull forbids: ask first, and put the worker on a list."),
    Hint("one at a time", lambda s: is_case(s, "one is freed") and before(s, "d2"),
         "A push has freed two workers, and one of them is answered only after the next request: "
         "ask may_pull for all who wait, after every request."),
    Hint("answers all", lambda s: is_case(s, "one is freed") and early(s),
         "Two wait, and only one of them may go on: ask may_pull for each."),
    Hint("data from anybody", lambda s: is_case(s, "two at once") and s.wrong("gradients"),
         "The gradients of two workers are mixed up: the header may come from anybody, but the "
         "data comes from the worker who sent that header."),
    Hint("one buffer", lambda s: s.wrong("gradients") and not s.wrong("calls")
         and len(set(map(str, s.gradients))) < len(s.gradients),
         "A gradient that the server keeps has changed: receive each into a new tensor."),
    Hint("other gradients", lambda s: not s.wrong("calls") and s.wrong("gradients"),
         "The rule was given another gradient than the worker sent."),
    Hint("other calls", lambda s: s.wrong("calls"),
         "PUSH calls rule.push(worker, gradient), PULL rule.pull(worker), DONE "
         "rule.done(worker): each once, as the requests come."),
    Hint("old parameters", lambda s: s.wrong("got"),
         "A worker got other parameters than rule.pull gave at that time."),
    Hint("caller's list", lambda s: not s["list as it was"],
         "`workers` is the caller's list, and you have changed it: go by a copy, set(workers)."),
)
SECONDS = (
    *(Hint(name, partial(by_another, name=name), says)
      for name, says in (
        ("all wait", "That is 2 W t/k: all pulls, and after them all pushes. But while the third "
         "worker waits for its parameters the first computes already, and it comes back first."),
        ("own link", "A worker's own link carries all of its S bytes, from all servers together: "
         "t each way, however many servers there are."),
        ("average worker", "A round is over when the last worker's push is in, not the average "
         "worker's."),
        ("first worker", "That is the first worker. The last one gets its parameters later, for a "
         "server sends one answer after the other."),
        ("one server", "k servers send at the same time, each its chunk: a worker waits for "
         "(W - 1) answers of t/k."),
        ("latency of each worker", "The latencies of the workers pass at the same time."),
        ("latency of each server", "All servers are asked at once: their latencies pass at the "
         "same time."),
        ("two latencies", "Three messages one after the other: the request, the answer, the push."),
        ("half duplex", "The link carries both directions at once: a push does not wait for the "
         "answers to the others."),
        ("compute shared", "Each worker computes its own gradient: C, not C/W."),
      )),
    Hint("no number", lambda s: type(s.seconds) is not float,
         "The result is a number of seconds, a float."),
    Hint("another formula", lambda s: s.wrong("seconds"),
         "Draw it for 3 workers and 1 server: when has the last worker its parameters, when does "
         "it push, and when is the push in?"),
)
# fmt: on
