"""Lab 19: the hints for steps_between, the outer optimizer and the stream of fragments."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ddpkit.checks.lab19.plans import first_of
from ddpkit.exercises.compare import same
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.exercises.values import Between, Close


def is_model(found: Sequence[object], model: Sequence[object]) -> bool:
    """True if each rank's value equals the value that a mistake gives, up to rounding."""
    return all(same(one, Close(other)) for one, other in zip(found, model, strict=True))


def right_but(s: Seen, *names: str) -> bool:
    """True if at least one of these values is wrong, and no other value."""
    return s.wrong(*names) and not s.wrong(*(name for name in s.expect if name not in names))


def too_much(s: Seen, name: str) -> tuple[int, int]:
    """Return (sent bytes, allowed bytes) for the first rank that sends too much."""
    pairs = ((got, due.most) for got, due in zip(s[name], s.expect[name], strict=True))
    return next(pair for pair in pairs if pair[0] > pair[1])


def gave_more(s: Seen) -> bool:
    """True if only bytes or exchanges are wrong, and some rank sends more bytes than allowed."""
    return right_but(s, "handed in", "exchanges") and any(
        isinstance(due, Between) and got > due.most
        for got, due in zip(s["handed in"], s.expect["handed in"], strict=True)
    )


# steps_between


def _as(name: str) -> Callable[[Seen], object]:
    return lambda s: s.steps == max(1, math.ceil(s.ideas[name]))


# fmt: off
STEPS = (
    Hint("no whole number", lambda s: type(s.steps) is not int,
         "Return an int, a number of whole steps."),
    Hint("zero", lambda s: s.steps == 0,
         "With 0 steps there is no training. Return at least 1, even if an exchange takes no "
         "time."),
    Hint("one latency", _as("one latency"),
         lambda s: f"A ring of {s.n} ranks has {2 * (s.n - 1)} rounds, and each round waits for "
         "the link."),
    Hint("half a ring", _as("half a ring"),
         lambda s: f"A ring all-reduce goes round twice: {2 * (s.n - 1)} rounds, and not "
         f"{s.n - 1}."),
    Hint("whole line", _as("whole line"),
         lambda s: f"In each round a rank sends one part of {s.n}, and not all bytes."),
    Hint("n rounds", _as("n rounds"),
         lambda s: f"{2 * (s.n - 1)} rounds are enough for {s.n} ranks: a rank sends its part to "
         "the other ranks, not to itself."),
    Hint("bits", _as("bits"), "A link of 1 Gbit/s carries a billion bits a second: 8 bits are a "
         "byte."),
    Hint("share of time", lambda s: _as("share of what")(s) or _as("share of the step")(s),
         "The share is a part of all time, and all time is the steps and the exchange together."),
    Hint("a step short", lambda s: s.steps == math.floor(s.ideas["right"]),
         "One step is missing, and the exchanges take more than the share: round up."),
    Hint("a step too many", lambda s: s.steps == s.ideas["right"] + 1,
         lambda s: f"Exactly {s.ideas['right']:.0f} steps are enough: round up only if there is a "
         "fraction."),
    Hint("other steps", say=lambda s: "An exchange of this case takes "
         f"{s.exchange_ms:.4g} ms. Compare your time of an exchange first, then the share."),
)

# Outer


def _went(name: str) -> Callable[[Seen], object]:
    return lambda s: s.wrong("after") and is_model(s.after, s.models[name])


def _went_one_of(*names: str) -> Callable[[Seen], object]:
    return lambda s: any(_went(name)(s) for name in names)


OUTER = (
    Hint("no such attribute", lambda s: s.attribute,
         lambda s: f"There is no attribute {s.attribute}: begin makes attributes, end reads them."),
    Hint("uphill", _went("uphill"),
         "The first step goes the wrong way: the gradient is start - parameters."),
    Hint("not divided", _went("summed"),
         lambda s: f"Your step is {s.n} times too long, because your code adds up the differences. "
         "Divide the sum by the number of ranks."),
    Hint("own step", _went("own"),
         "Each rank steps by its own difference. Take the mean over the ranks."),
    Hint("no outer step", _went("averages"),
         "Your code averages the parameters, which is right only for lr 1 and momentum 0."),
    Hint("heavy ball", _went("heavy"),
         "Your step is the velocity alone. Nesterov's step is mean + momentum * velocity, with the "
         "new velocity."),
    Hint("old velocity", _went("old velocity"),
         "Your step uses the velocity of the previous round. Update the velocity first."),
    Hint("damped", _went("damped"),
         lambda s: f"The first step must be {s.lr * (1 + s.momentum):.2f} of the mean difference, "
         f"but yours is {s.lr * (1 + s.momentum * (1 - s.momentum)):.2f}: the velocity must take "
         "the whole mean."),
    Hint("no velocity", _went_one_of("forgets", "no momentum"),
         "Your steps do not depend on the earlier steps. The new velocity contains momentum times "
         "the old velocity."),
    Hint("no lr", _went("no lr"), "Your steps are as long as with lr 1. Multiply the step by lr."),
    Hint("first start", _went("first start"),
         "From the second round on, your code takes the difference from the very first start. Take "
         "it from the last start."),
    Hint("not put back", _went("not put back"),
         "The ranks still have different parameters: copy the new start into the parameters."),
    Hint("one memory", _went("one memory"),
         "Round 0 is right, and then nothing is learned: the parameters are views of start, so "
         "every inner step moves start too. Copy."),
    Hint("late difference", _went("late difference"),
         "Your difference also contains the inner steps after begin. Take the difference in "
         "begin."),
    Hint("keep", lambda s: s.keep and _went_one_of("keep ignored", "keep turned",
                                                   "keeps the old")(s),
         lambda s: f"With keep = {s.keep:g}, a parameter's current value has the weight "
         f"{s.keep:g}, and its value in the new start has the weight {1 - s.keep:g}."),
    Hint("other step", lambda s: s.wrong("after") and s.n != 1,
         "SGD with Nesterov's momentum on the mean difference leads to other parameters. "
         "Compare the first round by hand: a step of lr * (1 + momentum) times the mean."),
    Hint("step", lambda s: s.wrong("after"),
         "step(mean) does not take the right outer step. step gets the mean difference, and "
         "sends nothing."),
    Hint("start", lambda s: right_but(s, "start"),
         "The parameters are right, but `start` is not the line of the parameters that all "
         "replicas had in common last."),
    Hint("ranks differ", lambda s: right_but(s, "ranks agree"),
         "The parameters of two ranks differ in their last bits. Compute the parameters only from "
         "numbers that are equal on all ranks."),
    Hint("one by one", lambda s: right_but(s, "exchanges", "handed in")
         and max(s.exchanges) > s.rounds,
         lambda s: f"Your code makes {max(s.exchanges)} exchanges, but {s.rounds} are enough: each "
         f"exchange waits {2 * (s.n - 1)} times for a latency."),
    Hint("more bytes", gave_more,
         lambda s: "The values are right, but a rank gives {:,} bytes to its collectives, "
         "and {:,} are enough.".format(*too_much(s, "handed in"))),
    Hint("no overlap", lambda s: s["ns"] > s.expect["ns"].most,
         lambda s: f"The values are right, but the step takes {s['ns'] / 1e6:.1f} ms, and 2.5 ms "
         "are enough. Start the exchange in begin, and wait in end."),
)

# stream


def _begins_as(name: str) -> Callable[[Seen], object]:
    return lambda s: s.wrong("begin") and s.begin == s.models[name]


def _at(s: Seen, which: str, verb: str) -> str | None:
    step, got, due = s[f"{which}s at"]
    if not isinstance(got, list):
        return "Return two lists: fragments that begin, and fragments that end."
    more = first_of([k for k in got if k not in due])
    if more is not None:
        return f"Fragment {more} {verb} after step {step}, but it must not."
    missing = first_of([k for k in due if k not in got])
    return f"After step {step}, fragment {missing} must {which}, but it does not."


STREAM = (
    Hint("no lists", lambda s: any(not isinstance(each, list) for each in s.begin + s.end),
         "Return two lists: fragments that begin, and fragments that end."),
    Hint("all at once", lambda s: s.fragments > 1 and _begins_as("all at once")(s),
         lambda s: f"After step {s.every}, all {s.fragments} fragments begin at once. Then the "
         "link must carry all fragments at the same time, and fragments gain nothing."),
    Hint("exchanged", lambda s: s.delay and s.begin == s.models["end"]
         and s.end == s.models["begin"],
         "The first list is for fragments that begin, the second list for fragments that end."),
    Hint("drifts", lambda s: s.every % s.fragments and _begins_as("by turns")(s),
         lambda s: f"{s.fragments} does not divide {s.every}. If a fragment begins every "
         f"{s.every // s.fragments} steps, the fragments begin earlier in each period. Each "
         f"fragment has a period of {s.every} steps."),
    Hint("other fragment", lambda s: s.fragments > 1 and _begins_as("reversed")(s),
         lambda s: f"Fragment {s.fragments - 1} begins at the step at which fragment 0 must "
         "begin."),
    Hint("first time", lambda s: s.wrong("begin"), lambda s: _at(s, "begin", "begins")),
    Hint("ends first", lambda s: s["ends first"],
         lambda s: f"Fragment {s['ends first'][1]} ends after step {s['ends first'][0]}, but this "
         "fragment has not begun."),
    Hint("delay", lambda s: s.wrong("end"), lambda s: _at(s, "end", "ends")),
)
# fmt: on
