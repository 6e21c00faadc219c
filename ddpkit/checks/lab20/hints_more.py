"""Lab 20: sentences for wrong answers about limits, profiles and plans."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ddpkit.checks.lab20.limits import close, exact
from ddpkit.exercises.hint import Hint, Seen

# hidden_from


def _is_by(*ideas: str) -> Callable[[Seen], bool]:
    """Return a condition: the answer's number of tokens is that of a mistake in `ideas`."""

    def fits(s: Seen) -> bool:
        numbers = [number for idea in ideas for number in s.ideas[idea]]
        return any(close(s.tokens, number) for number in numbers)

    return fits


def _at(s: Seen) -> str:
    """Return a text with the exposed time of the run with more tokens than the answer."""
    tokens, ms = s.exposed[-1]
    return f"With {tokens:,} tokens, {ms:.2g} ms of a step are exposed"


def _of_shards(s: Seen) -> bool:
    return bool(s.ask.way == "shards")


def _grows(s: Seen) -> bool:
    """True if a wrong answer should be inf, or takes the bytes of slices as constant."""
    if s.number != "wrong":
        return False
    return math.isinf(s.due) or (s.ask.way == "slices" and _is_by("fixed bytes")(s))


def _never(s: Seen) -> str | None:
    if not math.isinf(s.due):
        return (
            "The bytes of slices grow with the tokens: twice as many tokens send twice as many "
            "bytes."
        )
    return (
        "With twice as many tokens, a rank sends twice as many bytes and computes twice as long, "
        "so no number of tokens hides these messages. Hidden size, ranks and F / B decide. Return "
        "math.inf."
    )


def _hidden_else(s: Seen) -> str:
    if s.exposed:
        (few, before), (many, after) = s.exposed
        if after > 0.0005:
            return (
                f"With {many:,} tokens, more than your {s.tokens:,}, {after:.2g} ms are still "
                "exposed."
            )
        if before <= 0.0005:
            return (
                f"With {few:,} tokens, fewer than your {s.tokens:,}, nothing is exposed any more."
            )
    if not math.isinf(s.due) and s.due == 0:
        return (
            "Without latency, messages take less time than arithmetic for any number of tokens, "
            "so the answer is 0."
        )
    return (
        f"With your {s.tokens} tokens, compare the seconds of messages with the seconds of "
        "arithmetic."
    )


# fmt: off
HIDDEN = (
    Hint("no number", lambda s: s.number.startswith("a number"),
         lambda s: f"Return {s.number.replace(', not', ' or math.inf, not')}."),
    Hint("never", _grows, _never),
    Hint("backward too", lambda s: _of_shards(s) and _is_by("backward too")(s),
         lambda s: _at(s) + ", in backward: parameters come, and gradients with twice as many "
         "bytes leave, one after the other."),
    Hint("two bytes", lambda s: s.ask.way != "slices" and _is_by("two bytes")(s),
         "Here gradients travel in float32, with 4 bytes."),
    Hint("half a ring", lambda s: not _of_shards(s) and _is_by("half a ring")(s),
         lambda s: _at(s) + ": an all-reduce is a reduce-scatter and an all-gather."),
    Hint("halves", lambda s: s.ask.way == "slices" and close(s.tokens, s.due / 2),
         "Your number is half of the right number. A rank has the tokens of both halves."),
    Hint("no latency", _is_by("no latency"),
         lambda s: f"Your number is right for a latency of 0. But {s.ask.n - 1} hops of {s.ask.us} "
         f"us take {(s.ask.n - 1) * s.ask.us} us."),
    Hint("not rounded up", lambda s: s.number == "not rounded up",
         lambda s: f"The exact limit is {exact(s.ask):,.2f} tokens. Return the next whole "
         "number."),
    Hint("other number", lambda s: s.number == "wrong", _hidden_else),
)
# fmt: on

# read_profile


def _reads(*ideas: str) -> Callable[[Seen], bool]:
    """Return a condition: a mistake in `ideas` gives the names and gains of all traces."""

    def fits(s: Seen) -> bool:
        found = list(zip(s["limits"], s["ns"], strict=True))
        return any(
            all(got == name and abs(ns - due) <= 0.001 * due + 1
                for (got, ns), (name, due) in zip(found, s.ideas[idea], strict=True))
            for idea in ideas
        )  # fmt: skip

    return fits


def _place(s: Seen, name: str) -> int:
    """Return the index of the trace with the limit `name`."""
    return int(s.expect["limits"].index(name))


def _profile_else(s: Seen) -> str:
    for at, (name, due) in enumerate(s.right):
        got, ns = s["limits"][at], s["ns"][at]
        if got != name or abs(ns - due) > 0.001 * due:
            return (
                f"In trace {at}, the limit is {name} with {due:,} ns, but you return {got} with "
                f"{ns:,.0f} ns."
            )
    return "Compare name and number of each trace."


# fmt: off
PROFILE = (
    Hint("a name and a number", lambda s: s["malformed"],
         "Return a name and a number of nanoseconds for each trace."),
    Hint("waiting is not moving", _reads("waiting is not moving"),
         lambda s: f"You take the time from start_ns to end_ns. In trace {_place(s, 'straggler')}, "
         "one rank computes twice as long as the others, and no byte moves before ready_ns."),
    Hint("idle", _reads("idle"),
         lambda s: f"In trace {_place(s, 'bubble')}, the last stage is done early, and its host "
         "launches nothing. Idle time belongs to the launches only if it ends with a launch."),
    Hint("who is waited for", _reads("no bubble", "bubble as straggler"),
         lambda s: f"In trace {_place(s, 'bubble')}, all ranks compute equally long. No rank is "
         "slow: each stage waits for a message."),
    Hint("all of it", _reads("all of it"),
         lambda s: "Your answer is right except for memory, which is "
         f"{s['ns'][_place(s, 'memory')] / s.due['memory']:.1f} times too large. Even with "
         "infinite bandwidth, these kernels would need the time of their arithmetic."),
    Hint("hidden too", _reads("hidden too"),
         lambda s: f"Messages take {s['ns'][_place(s, 'network')] / 1e3:.0f} us, but kernels hide "
         f"{(s['ns'][_place(s, 'network')] - s.due['network']) / 1e3:.0f} us of them: mending the "
         "hidden part gains nothing."),
    Hint("of one rank", _reads("of one rank, sum", "of one rank, mean"),
         lambda s: f"Your numbers are the {'sum' if _reads('of one rank, sum')(s) else 'mean'} "
         "over the ranks, but the ranks wait at the same time. Take the largest number of any "
         "rank."),
    Hint("other limit", lambda s: s.wrong(), _profile_else),
)
# fmt: on

# choose


def _plan(key: Any) -> str:
    replicas, stages, slices, again, micro = key
    return f"Plan({replicas}, {stages}, {slices}, {again!r}, {micro})"


def _too_large(s: Seen) -> str:
    nbytes = s.search.costs[tuple(s.bad)][0]
    return (
        f"{_plan(s.bad)} needs {nbytes / 1e9:.1f} GB, but a GPU has only "
        f"{s.search.memory / 1e9:.1f} GB."
    )


def _undivided(s: Seen) -> str:
    replicas, stages, slices, _, micro = s.bad
    search = s.search
    if search.shape.layers % stages:
        return f"{stages} stages do not divide {search.shape.layers} layers."
    if search.shape.kv_heads % slices:
        return f"{slices} slices do not divide {search.shape.kv_heads} key heads."
    if search.batch % (replicas * micro):
        return f"{replicas} replicas of {micro} sequences do not divide {search.batch}."
    if replicas * stages * slices not in search.gpus:
        return (
            f"{_plan(s.bad)} uses {replicas * stages * slices} GPUs, but you can rent only one "
            f"of these numbers of GPUs: {search.gpus}."
        )
    return f"{slices} slices do not divide the {search.host} GPUs of a host."


def _slower(s: Seen) -> str:
    fast = s.best[0]
    nbytes, seconds = s.search.costs[fast]
    all_of_it = " It needs exactly the memory of a GPU." if nbytes == s.search.memory else ""
    return (
        f"{_plan(fast)} fits and takes {seconds:.3f} s, but your plan takes "
        f"{s['fastest']:.3f} s.{all_of_it}"
    )


def _dearer(s: Seen) -> str:
    cheap, mine = s.best[1], tuple(s["keys"][1])
    gpus, seconds = math.prod(mine[:3]), s.search.costs[mine][1]
    return (
        f"Your plan takes {gpus} GPUs for {seconds:.3f} s, which are {gpus * seconds:.2f} GPU "
        f"seconds; {_plan(cheap)} takes only {s.expect['cheapest'].value:.2f}."
    )


def _slower_of_equals(s: Seen) -> str:
    mine, cheap = tuple(s["keys"][1]), s.best[1]
    return (
        f"{_plan(mine)} and {_plan(cheap)} take the same {s['cheapest']:.2f} GPU seconds. Of equal "
        "plans, return the faster one."
    )


# fmt: off
CHOOSE = (
    Hint("nothing fits", lambda s: s.best is None and (s.error or s.wrong("plans")),
         "No plan fits here. Raise a ValueError with a sentence that says so."),
    Hint("gave up", lambda s: s.best is not None and s["plans"] == "ValueError",
         lambda s: f"You raise ValueError, but {s['fit']} plans fit."),
    Hint("two plans", lambda s: s.best is not None and "plan" not in s["plans"].split()[-1:]
         and s["plans"] not in ("two that fit", "does not fit", "does not divide"),
         lambda s: f"Return two plans, the fastest and the cheapest. You return {s['plans']}."),
    Hint("does not fit", lambda s: s["plans"] == "does not fit", _too_large),
    Hint("does not divide", lambda s: s["plans"] == "does not divide", _undivided),
    Hint("slower", lambda s: s.wrong("fastest"), _slower),
    Hint("more expensive", lambda s: s.wrong("cheapest"), _dearer),
    Hint("slower of equals", lambda s: s.wrong("cheapest takes"), _slower_of_equals),
    Hint("asks too many", lambda s: s.wrong("seconds asked"),
         lambda s: f"You call seconds for {s['asked']} plans, but only {s['fit']} fit. At real "
         "sizes, each call takes minutes."),
)
# fmt: on
