"""Lab 19: the hints for means by bytes and by steps, for a quorum, and for catching up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ddpkit.checks.lab19.hints import gave_more, is_model, right_but, too_much
from ddpkit.exercises.compare import same
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.exercises.ranks import who
from ddpkit.exercises.values import Close
from ddpkit.text import size

CHANGED = "Your code changed an argument. Return new tensors, and leave the arguments unchanged."


def _as_either(s: Seen, name: str) -> bool:
    mean, error = s.models[name]
    return is_model(s.mean, mean) and is_model(s["error"], error)


def _as(*names: str) -> Callable[[Seen], object]:
    return lambda s: s.wrong("mean", "error") and any(_as_either(s, name) for name in names)


def _more_bytes(s: Seen) -> str:
    got, enough = too_much(s, "handed in")
    return (f"The values are right, but a rank gives {size(got)} to its collectives, and "
            f"{size(enough)} are enough: ")  # fmt: skip


def _exchanges(s: Seen) -> bool:
    return right_but(s, "exchanges", "handed in") and any(
        got > due for got, due in zip(s.exchanges, s.expect["exchanges"], strict=True)
    )


def _first_error(s: Seen) -> bool:
    """True if the means of round 0 are right, but the rounding errors of round 0 are wrong."""
    pairs = zip(s.mean, s.expect["mean"], strict=True)
    return all(same(got[0], Close(due.value[0])) for got, due in pairs) and not all(
        same(got[0], Close(due.value[0], digits=3))
        for got, due in zip(s["error"], s.expect["error"], strict=True)
    )


# fmt: off
BYTES = (
    Hint("changed", lambda s: s.wrong("left alone"), CHANGED),
    Hint("old error lost", _as("old error lost"),
         "Round 0 is right. After that, the part that rounding removed in the previous round never "
         "arrives. Exchange x + error."),
    Hint("forgets", _as("forgets"),
         "The new error must count from x + error: your code forgets the old error."),
    Hint("whose error", _as("of the mean"),
         "The error compares a rank's own numbers with the numbers that it has sent. You return "
         "the distance to the mean."),
    Hint("counted twice", _as("counted twice"),
         "x + error contains the old error already. If you add the old error once more, it is sent "
         "twice."),
    Hint("sign", _as("sign"),
         "The error has the wrong sign: the part still owed is the wanted number minus the sent "
         "number."),
    Hint("no error", _as("no error"),
         "The means of round 0 are right, but the new error is 0. Return the part that rounding "
         "has removed."),
    Hint("not rounded", _as("truncated", "floored"),
         "Your numbers are off by up to a whole level. Round to the nearest level."),
    Hint("overflow", _as("128", "no abs"),
         "A number left the range of int8 and came back with the opposite sign. The largest "
         "absolute value is level 127."),
    Hint("scales of others", _as("own scale"),
         "A rank's levels count in units of the rank's own scale. Multiply levels by the scale of "
         "the sender."),
    Hint("unsigned", _as("unsigned"),
         "Negative levels came back as 128 and more: read the bytes as int8."),
    Hint("not a mean", _as("sum"), "You return the sum over the ranks. Divide by the number of "
         "ranks."),
    Hint("nan", lambda s: any(each.isnan().any() for each in s.mean + s["error"]),
         "A line of zeros has the scale 0, and 0 / 0 is nan: keep the scale above 0."),
    Hint("own mean", lambda s: right_but(s, "mean", "handed in", "exchanges")
         and sum(s.exchanges) == 0,
         "Each rank has a mean of its own numbers alone: no number was sent."),
    Hint("two collectives", _exchanges,
         lambda s: f"Your code makes {max(s.exchanges)} collectives in {s.rounds} rounds. A rank's "
         "scale can travel with its levels, in one all-gather."),
    Hint("more bytes", gave_more, lambda s: _more_bytes(s) + "a number needs one byte, and a line "
         "4 bytes for its scale."),
    Hint("other error", _first_error,
         "The means of round 0 are right, but the new error is not x + error minus the numbers "
         "that the rank has sent."),
    Hint("other mean", lambda s: s.wrong("mean"),
         "Your mean is not the mean of all ranks' rounded numbers. A rounded number is a level "
         "times the rank's scale, and the scale is the largest absolute value / 127."),
)

# mean_of


def _meant(name: str) -> Callable[[Seen], object]:
    return lambda s: s.wrong("mean") and is_model(s.mean, s.models[name])


def _is_nan(s: Seen) -> bool:
    return s.wrong("mean") and any(not each.isfinite().all() for each in s.mean)


MEAN = (
    Hint("other group", lambda s: len(s.ranks) < s.n and (s.stuck or s.mismatch or
                                                              _meant("all ranks")(s)),
         lambda s: f"The group consists only of {who(s.ranks)}. Each exchange must be in `group`."),
    Hint("must take part", lambda s: s.stuck,
         lambda s: f"{who(s.idle).capitalize()} took no step, and the ranks wait for each other. A "
         "rank with 0 steps must take part in the all-reduce too."
         if s.idle else "The ranks wait for each other: every rank of the group makes the same "
         "all-reduce."),
    Hint("changed", lambda s: s.wrong("left alone"), CHANGED),
    Hint("length", lambda s: any(each.numel() != s.numbers for each in s.mean),
         lambda s: f"A difference has {s.numbers} numbers, but your mean has {s.mean[0].numel()}. "
         "A weight that travels behind the difference is not a part of the mean."),
    Hint("nobody", lambda s: not any(s.taken) and _is_nan(s),
         "No rank has taken a step, and your result is nan. Return 0."),
    Hint("nan", lambda s: len(s.idle) and _is_nan(s),
         lambda s: f"{who(s.idle).capitalize()} took no step, and a nan is in your mean, because "
         "nan * 0 is nan. Replace such a difference by zeros."),
    Hint("unweighted", lambda s: _meant("unweighted")(s) or _meant("unweighted by all")(s),
         lambda s: f"In your mean, a rank with {max(s.taken)} steps has the same weight as a rank "
         f"with {min(t for t in s.taken if t)} steps."),
    Hint("by all", _meant("by all"),
         lambda s: f"Your code divides the sum by {len(s.ranks)}, but the weights add up to "
         f"{sum(s.taken)}."),
    Hint("not divided", _meant("summed"), "You return the weighted sum. Divide the sum by the "
         "number of all steps."),
    Hint("own weight", _meant("own weight"),
         "Each rank divides by its own steps. Divide by the steps of all ranks of the group."),
    Hint("own mean", _meant("own"), "Each rank returns its own difference: exchange them."),
    Hint("rounded", lambda s: s.wrong("mean") and all(
        same(one, Close(other, digits=1)) for one, other in zip(s.mean, s.right, strict=True)),
         "The mean is nearly right: some numbers were rounded on the way. Stay in float32."),
    Hint("two collectives", _exchanges,
         lambda s: f"The values are right, but a rank makes {max(s.exchanges)} collectives, and "
         "each collective costs its latencies. Append the weight to the difference."),
    Hint("more bytes", gave_more, lambda s: _more_bytes(s) + "the all-reduce needs only one number "
         "more than the difference."),
    Hint("other mean", lambda s: s.wrong("mean"),
         "The mean is not the sum of steps * difference divided by the sum of the steps."),
)

# quorum


def _at(s: Seen) -> tuple[int, int, Any, Any]:
    rank, at = s["wrong at"][0]
    return rank, at, s.lists[rank][at], s.expect["lists"][rank][at]


def _of(kind: Any, wanted: Any) -> Any:
    def fits(s: Seen) -> bool:
        _, _, got, due = _at(s)
        return isinstance(got, kind) and isinstance(due, wanted)

    return fits


def _no_exception(s: Seen) -> bool:
    """True if the first wrong result is a returned value where an exception was right."""
    if not s["wrong at"]:
        return False
    _, _, got, due = _at(s)
    return due == "RuntimeError" and (isinstance(got, list) or got.startswith("a "))


def _later(s: Seen) -> str:
    rank, _, took, due, _ = s.slow[0]
    return f"Rank {rank} waited {took:.1f} s, but {due:.1f} s were right: "


def _waits_long(s: Seen) -> bool:
    _, _, took, due, _ = s.slow[0]
    return bool(took > due)


def _whole(s: Seen) -> bool:
    """True if each rank visits at least one round."""
    return all(s.plans)


def _early(s: Seen) -> bool:
    """True if some visit ended before the right moment."""
    return any(took < due for _, _, took, due, _ in s.slow)


def _several(s: Seen) -> bool:
    """True if two ranks received different lists in the same round."""
    rounds = max(map(len, s.lists))
    for k in range(rounds):
        found = [each[k] for each in s.lists if k < len(each) and isinstance(each[k], list)]
        if any(each != found[0] for each in found):
            return True
    return False


def _different(s: Seen) -> str:
    for k in range(max(map(len, s.lists))):
        told = [(r, each[k]) for r, each in enumerate(s.lists)
                if k < len(each) and isinstance(each[k], list)]
        other = [pair for pair in told if pair[1] != told[0][1]]
        if other:
            (a, one), (b, two) = told[0], other[0]
            return (f"Rank {a} has the list {one}, and rank {b} has the list {two}. One of the "
                    "ranks would wait in a group that the other rank has not made. Let one rank "
                    "decide, and let all ranks read the decision.")
    return ""


QUORUM = (
    Hint("looks forever", lambda s: any("looks forever" in each for each in s.lists),
         "A rank looks at the store again and again without a pause, so no time passes. Wait, or "
         "sleep between two looks."),
    Hint("too few", _no_exception,
         lambda s: f"When the time of rank {_at(s)[0]} is over, fewer than {s.least} ranks have "
         "asked. Raise a RuntimeError then."),
    Hint("no list", lambda s: any(isinstance(end, str) and end.startswith("a ")
                                  for each in s.lists for end in each),
         "Return a list of ints."),
    Hint("rank 0 is away", lambda s: s.plans[0] == [] and s.slow[0][2] > 3 * s.seconds,
         lambda s: _later(s) + "rank 0 does not come here, so every rank must be able to decide."),
    Hint("wants all", lambda s: _of(str, list)(s) and _at(s)[2] == "RuntimeError"
         and len(_at(s)[3]) < s.n,
         lambda s: f"Rank {_at(s)[0]} raises an error, but {len(_at(s)[3])} ranks have asked, and "
         f"{s.least} are enough. The round goes on without the missing ranks."),
    Hint("raises", lambda s: _of(str, list)(s) and _at(s)[2] == "RuntimeError",
         lambda s: f"Rank {_at(s)[0]} raises RuntimeError, but the list {_at(s)[3]} is right. A "
         f"rank raises only if its time is over while fewer than {s.least} ranks have asked."),
    Hint("another exception", _of(str, list | str),
         lambda s: f"Rank {_at(s)[0]} ends with {_at(s)[2]}. Raise RuntimeError, and only if the "
         f"rank's time is over while fewer than {s.least} ranks have asked."),
    Hint("old round", lambda s: _at(s)[1] > 0 and not _several(s)
         and _at(s)[2] == s.lists[_at(s)[0]][0],
         "A later round returns the list of the first round. Begin each key with the name of the "
         "round."),
    Hint("adds itself", lambda s: s.late is not None and _at(s)[1] == 0
         and s.late in s.lists[s.late][0],
         lambda s: f"Rank {s.late} asked after the decision, but it is in its list "
         f"{s.lists[s.late][0]}. A late rank gets the list that was decided, without itself."),
    Hint("lists differ", _several, _different),
    Hint("unsorted", lambda s: sorted(_at(s)[2]) == _at(s)[3] and _at(s)[2] != _at(s)[3],
         "The list has the right ranks, but is not sorted."),
    Hint("twice", lambda s: len(set(_at(s)[2])) < len(_at(s)[2]),
         lambda s: f"The list {_at(s)[2]} has a rank twice."),
    Hint("not there", lambda s: not _early(s) and _of(list, list)(s)
         and set(_at(s)[2]) < set(_at(s)[3]),
         lambda s: f"{who(sorted(set(_at(s)[3]) - set(_at(s)[2]))).capitalize()} had asked before "
         f"the decision, but the list is {_at(s)[2]}. A rank must mark itself in the store before "
         "it waits."),
    Hint("away", lambda s: _of(list, list)(s) and set(_at(s)[2]) > set(_at(s)[3]),
         lambda s: f"The list {_at(s)[2]} has ranks that had not asked by the decision."),
    Hint("other list", lambda s: s.wrong("lists") and not _early(s),
         lambda s: f"Rank {_at(s)[0]} returned {_at(s)[2]}, but {_at(s)[3]} is right."),
    Hint("waits for nothing", lambda s: _whole(s) and s.late is None and _waits_long(s),
         lambda s: _later(s) + "all ranks had asked by then."),
    Hint("does not hear", lambda s: _waits_long(s) and s.slow[0][4],
         lambda s: _later(s) + "the decision was in the store already. Wait for the decision, not "
         "for the ranks."),
    Hint("late decision", _waits_long,
         lambda s: _later(s) + "the first rank whose time is over decides for all."),
    Hint("impatient", lambda s: s.slow,
         lambda s: _later(s) + "the round is open until all ranks have asked, or until one rank "
         f"has waited for {s.seconds:g} s."),
)


def _apart(s: Seen) -> str:
    found = [each[s.apart[0]] for each in s.lists]
    return (
        "Each message to the store takes 10 ms here. The time of ranks 0 and 1 is over nearly at "
        f"once, and rank 2 asks at this moment. Ranks 0, 1 and 2 return {found[0]}, {found[1]} and "
        f"{found[2]}. Only the first writer may decide (store.compare_set), and all ranks return "
        "the stored list."
    )


RACES = (
    Hint("two decisions", lambda s: s.apart and all(
        isinstance(each[s.apart[0]], list) for each in s.lists), _apart),
)

# catch_up


def _still_old(s: Seen) -> bool:
    return all(
        all(same(one, old) for one, old in zip(s.values[rank], s.before[rank], strict=True))
        for rank in s.lack
    )


def _first_alone(s: Seen) -> bool:
    return all(
        same(s.values[rank][0], s.expect["values"][rank][0])
        and same(s.values[rank][-1], s.before[rank][-1])
        for rank in s.lack
    )


def _again(s: Seen) -> int | None:
    """Return a rank that already had the tensors but still received bytes; otherwise None."""
    return next((r for r in s.have if s.received[r]), None)


CATCH_UP = (
    Hint("from itself", lambda s: s.kind == "to itself",
         "A rank sends to itself. Choose the sender among the ranks in `have`."),
    Hint("away takes part", lambda s: (len(s.have) + len(s.lack) < s.n and s.stuck)
         or s.collectives == ["barrier"],
         "Ranks in neither list are away, and do nothing: no collective of all ranks."),
    Hint("one each", lambda s: s.stuck in ("send", "receive", "returned", "cycle"),
         "A rank waits for a message that no rank sends, or sends a message that no rank receives. "
         "Each rank in lack receives from one rank in have: all ranks must compute the same "
         "pairs."),
    Hint("to all", lambda s: s.wrong("collectives"),
         lambda s: f"{', '.join(s.collectives)} sends to every rank, but {who(s.have)} "
         "should not get the tensors again."),
    Hint("sent again", lambda s: _again(s) is not None,
         lambda s: f"Rank {_again(s)} has the tensors already, but your code sends bytes to it."),
    Hint("not filled", lambda s: s.wrong("values") and _still_old(s) and sum(s.received),
         "The tensors arrived, but the rank's own tensors have not changed. Receive into these "
         "tensors, or copy into them."),
    Hint("nothing sent", lambda s: s.wrong("values") and _still_old(s) and not sum(s.received),
         lambda s: f"Nothing was sent: the tensors of {who(s.lack)} are the old ones."),
    Hint("parameters alone", lambda s: s.wrong("values") and _first_alone(s),
         "The first tensor arrived, but the last did not. Without the velocity and the count, "
         "the rank's steps differ from those of the other replicas."),
    Hint("lacking source", lambda s: s.wrong("values") and any(
        same(s.values[rank], s.before[other]) for rank in s.lack for other in s.lack),
         "A rank got the old tensors of another rank in `lack`. Choose the sender among the ranks "
         "in `have`."),
    Hint("other values", lambda s: s.wrong("values"),
         "A rank's tensors are not equal, bit for bit, to the tensors of the ranks in `have`."),
    Hint("one does it all", lambda s: right_but(s, "sent by have") and not s.passed_on,
         lambda s: f"The ranks {s.have} send to {s.shares} ranks. Let them share the sending "
         "equally, so that it is done earlier."),
    Hint("passes on", lambda s: s.wrong("sent by have") and s.passed_on,
         "A rank in `lack` sends on: the ranks in `have` share the sending."),
    Hint("twice", lambda s: right_but(s, "received", "sent by have"),
         "A rank was sent more bytes than the tensors have."),
)
# fmt: on
