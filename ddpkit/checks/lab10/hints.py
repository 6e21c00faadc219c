"""Lab 10: sentences about mistakes, a table for each exercise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import inf, isclose, sqrt
from typing import Any

from ddpkit.checks.lab10.unequal import Rule, StepSums, whole
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.faults import CAUSES


def first_wrong(s: Seen) -> tuple[object, int]:
    """Return (answer, slow rank) for the first trace with a wrong answer."""
    rows = zip(s.ranks, s.expect["ranks"], s.slow_ranks, strict=True)
    return next((got, slow) for got, right, slow in rows if got != right)


def named_slow(s: Seen) -> bool:
    got, slow = first_wrong(s)
    return got is not None and got == slow


def named_none(s: Seen) -> bool:
    return first_wrong(s)[0] is None


def named_another(s: Seen) -> bool:
    got, slow = first_wrong(s)
    return type(got) is int and got != slow


def _only_rank_0(s: Seen) -> bool:
    """True if the answer returns None for stragglers with number 0, and is right otherwise."""
    right = s.expect["ranks"]
    return any(right) and s.wrong("ranks") and s.ranks == [each or None for each in right]


# fmt: off
STRAGGLER = (
    Hint("no rank", lambda s: any(type(got) not in (int, type(None)) for got in s.ranks),
         "Return the number of a rank, an int, or None."),
    Hint("rank 0", _only_rank_0,
         "Rank 0 is the straggler of one of these traces, and you return None; every other "
         "straggler is right. In Python, 0 is false: compare with None."),
    Hint("always somebody", lambda s: s.why == "" and s.factor == 1.0 and not named_none(s),
         "The four ranks work equally long here, but you name a rank. Return None."),
    Hint("a little slower", lambda s: s.factor == 1.1 and named_slow(s),
         "A rank with a tenth more work is not yet a straggler. A straggler works a fifth longer "
         "than the median rank."),
    Hint("warm-up", lambda s: s.why == "warm-up",
         "Step 0 is the warm-up, and one rank took long in step 0. Look at all later steps "
         "together."),
    Hint("one step", lambda s: s.why == "good step" and named_none(s),
         "A slow rank may have good steps. Look at all steps except the first, together."),
    Hint("median of others", lambda s: s.why == "unlike" and named_slow(s),
         lambda s: f"Rank {first_wrong(s)[1]} takes only 16 % longer than the median of the three "
         "ranks, and a straggler takes at least 20 % longer."),
    Hint("step by step", lambda s: s.why == "at times",
         lambda s: "In four of the five steps, a different rank takes longest, but in all five "
         f"steps together rank {first_wrong(s)[1]} does."),
    Hint("who waits", lambda s: s.factor > 1.0 and named_another(s),
         "You name a rank that waits, not the rank for which it waits. A rank that works long "
         "waits least."),
    Hint("to the end", lambda s: s.why == "end" and named_none(s),
         lambda s: f"Rank {first_wrong(s)[1]} is slow in the last three of the five steps that "
         "count: its work takes 23 % longer in all, and 19 % longer without the last step."),
    Hint("overlapped", lambda s: s.why == "overlap" and named_none(s),
         lambda s: f"Rank {first_wrong(s)[1]} computes while its all_reduce is under way, and this "
         "computing is work too: compute_ns includes it, compute_only_ns does not."),
    Hint("median", lambda s: s.n == 2 and named_none(s),
         lambda s: f"Rank {first_wrong(s)[1]} works 1.4 times as long as the second rank. The "
         "median of two ranks is the faster rank's time (statistics.median_low), and 1.2 times "
         "this time is less."),
    Hint("waiting is no work", lambda s: s.factor > 1.2 and named_none(s),
         lambda s: f"Rank {first_wrong(s)[1]} works {s.factor:g} times as long as the rest, but "
         "you name no rank. The ranks wait for each other, within backward too. Compare "
         "compute_ns, which does not include waiting."),
    Hint("slow link", lambda s: s.why == "link" and not named_none(s),
         lambda s: f"Rank {first_wrong(s)[0]} works as long as the rest, but its communication "
         "takes longer. The cause is its network."),
)


def makespan(taken: Sequence[int], speeds: Sequence[float]) -> float:
    """Return the time at which the last rank is done, in s."""
    return max(share / speed for share, speed in zip(taken, speeds, strict=True))


def _ends_as(rule: Callable[[int, Sequence[float]], list[int]]) -> Callable[[Seen], object]:
    """Return a condition: the answer's shares need the same time as the shares by `rule`."""
    return lambda s: s.images == s.batch and isclose(
        s.done_after, makespan(rule(s.batch, s.speeds), s.speeds), rel_tol=1e-9)


def _floors(batch: int, speeds: Sequence[float]) -> list[int]:
    return [int(batch * speed / sum(speeds)) for speed in speeds]


def rest_to_rank_0(batch: int, speeds: Sequence[float]) -> list[int]:
    """Return shares in proportion to speed, rounded down; rank 0 gets the remainder."""
    first, *others = _floors(batch, speeds)
    return [batch - sum(others) if others else first, *others]


def largest_remainder(batch: int, speeds: Sequence[float]) -> list[int]:
    """Return shares by speed, rounded down, with one more image for the largest fractions."""
    taken = _floors(batch, speeds)
    lost = [batch * speed / sum(speeds) - share for speed, share in zip(speeds, taken, strict=True)]
    for rank in sorted(range(len(speeds)), key=lambda r: -lost[r])[: batch - sum(taken)]:
        taken[rank] += 1
    return taken


def equal(batch: int, speeds: Sequence[float]) -> list[int]:
    """Return equal shares; each of the first ranks gets one image of the remainder."""
    each, rest = divmod(batch, len(speeds))
    return [each + (rank < rest) for rank in range(len(speeds))]


def one_at_least(batch: int, speeds: Sequence[float]) -> list[int]:
    """Return one image for each rank, and each further image for the rank that is done first."""
    taken = [1] * len(speeds)
    for _ in range(batch - len(speeds)):
        taken[min(range(len(speeds)), key=lambda r: (taken[r] + 1) / speeds[r])] += 1
    return taken


def by_time(batch: int, speeds: Sequence[float]) -> list[int]:
    """Return shares in proportion to the time per image, the inverse of the right rule."""
    return largest_remainder(batch, [1 / speed for speed in speeds])


SHARES = (
    Hint("whole images", lambda s: isinstance(s.images, str),
         "Images are whole: one int for each rank, 0 or more."),
    Hint("do not add up", lambda s: s.images != s.batch,
         lambda s: f"The shares add up to {s.images} images, but there are {s.batch}. The "
         "remainder of the rounding must go to some rank."),
    Hint("rounding", _ends_as(largest_remainder),
         lambda s: f"With {s.batch} images and the speeds {[round(v, 1) for v in s.speeds]}, your "
         f"shares are done after {s.done_after:.3g} s, but {s.expect['done after'].value:.3g} s is "
         "possible. Give the next image to the rank that would be done with it first, not to the "
         "rank with the largest remainder."),
    Hint("nobody is left out", _ends_as(one_at_least),
         "One rank is 100 times slower, and all ranks wait for its one image. This rank may get no "
         "image."),
    Hint("the wrong way round", _ends_as(by_time), "A fast rank must get more images, not fewer."),
    Hint("equal", _ends_as(equal),
         lambda s: f"All ranks have equal shares, which are done after {s.done_after:.3g} s, when "
         "the slowest rank is done."),
    Hint("rest to rank 0", _ends_as(rest_to_rank_0),
         "The whole remainder of the rounding goes to one rank. Which rank would be done first "
         "with one more image?"),
    Hint("too late", say="Give out the images one by one, each to the rank that would be done "
         "first with it."),
)


def _leads_there(s: Seen, rule: Rule) -> bool:
    """True if training by the rule of a mistake gives the observed models."""
    import torch

    after = s.given.as_seen(s.given.trained(rule))
    return all(torch.allclose(a, b) for a, b in zip(s.models, after, strict=True))


def _mean_of_means(step: StepSums) -> Any:
    return sum(step.means) / max(1, len(step.means))


def _summed(step: StepSums) -> Any:
    return whole(step) * sum(step.images)


def _n_times(step: StepSums) -> Any:
    return whole(step) * step.n


def _by_n(step: StepSums) -> Any:
    return whole(step) / step.n


def _again(step: StepSums) -> Any:
    """Return the gradient if each idle rank adds its old .grad, the mean of the previous step."""
    idle = sum(each is None for each in step.sums)
    return whole(step) + step.before * idle / step.n


def _unchanged(s: Seen) -> bool:
    """True if each rank's model is still the initial model whenever the rank reads a batch."""
    return all(bool((found[:-1] == found[0]).all()) for found in s.models)


UNEQUAL = (
    Hint("no gradient", lambda s: s.kind == "None",
         "A rank without a batch has no gradients (None). It must send zeros."),
    Hint("left alone", lambda s: s.stuck or s.mismatch,
         "One rank has returned or does something different, and the rest wait for this rank. A "
         "rank without a batch takes part in every collective until no rank has a batch."),
    Hint("an empty batch", lambda s: s.wrong("steps") and any(0 in mine for mine in s.lengths),
         "A batch without images is not the end. Ask which ranks have a batch, separately from the "
         "number of images."),
    Hint("steps", lambda s: s.wrong("steps"),
         lambda s: f"The longest list has {s.most} batches, so every rank must take {s.most} "
         f"steps. The ranks returned {s.steps}: idle ranks step too."),
    Hint("not a number", lambda s: any(bool(found.isnan().any()) for found in s.models),
         "After a step in which no rank has an image, the model holds NaN: 0 / 0."),
    Hint("too much", lambda s: not s.wrong("models") and s.wrong("exchanged"),
         "In addition to the gradients, each sent once, a step needs one message of a few bytes."),
    Hint("asked ahead", lambda s: _unchanged(s) and s.most > 1,
         "Your code reads all batches before the first step. Read the next batch when this step is "
         "done."),
    Hint("mean of means", lambda s: _leads_there(s, _mean_of_means),
         "Your gradient is the mean of the ranks' means, so an image of a short batch counts more "
         "than the rest. Divide by all images of the step."),
    Hint("the sum", lambda s: _leads_there(s, _summed),
         "Your gradient is the sum over the images, not their mean."),
    Hint("n times", lambda s: _leads_there(s, _n_times),
         "Each step is too long by the number of ranks. Do you sum gradients that are already "
         "averages?"),
    Hint("divided twice", lambda s: _leads_there(s, _by_n),
         "Each step is too short: average_flat also divides by the number of ranks."),
    Hint("old gradients", lambda s: _leads_there(s, _again),
         "A rank without a batch has sent the gradient of its last step again. Call zero_grad() in "
         "every step, with or without a batch."),
    Hint("ranks differ", lambda s: s.wrong("ranks"),
         "The ranks end with different models. A rank without a batch must make the step too."),
    Hint("other steps", say="One process takes the mean over all images that the ranks have in "
         "this step, and makes one step of SGD."),
)


def lost(every: float, save: float, failure: float) -> float:
    """Return the share of time lost by saving and by repeated work, to first order."""
    return save / every + every / (2 * failure)


def _every(rule: Callable[[float, float], float]) -> Callable[[Seen], object]:
    return lambda s: isclose(
        s.lost, lost(rule(s.save, s.failure), s.save, s.failure), rel_tol=1e-6)


def _numbers(s: Seen) -> str:
    if not s.lost < inf:
        return ""
    return (f"Every {sqrt(2 * s.save * s.failure) / 60:.3g} min would lose "
            f"{s.expect['lost'].value:.1%} of the time, yours loses {s.lost:.1%}. ")


EVERY = (
    Hint("no root", _every(lambda save, failure: save * failure),
         lambda s: _numbers(s) + "The product s · s is not a time: take a square root."),
    Hint("minutes", _every(lambda save, failure: sqrt(2 * save * failure) / 60),
         lambda s: _numbers(s) + "All times are seconds."),
    Hint("the 2", _every(lambda save, failure: sqrt(save * failure)),
         lambda s: _numbers(s) + "On average, a failure loses half of an interval, so the formula "
         "has a 2."),
    Hint("half", _every(lambda save, failure: sqrt(save * failure / 2)),
         lambda s: _numbers(s) + "The 2 is in the wrong place."),
    Hint("a ratio", lambda s: any(_every(rule)(s) for rule in (
         lambda save, failure: failure / save, lambda save, failure: save / failure,
         lambda save, failure: sqrt(2 * failure / save))),
         lambda s: _numbers(s) + "A ratio of two times is not a time."),
    Hint("another", say=lambda s: _numbers(s) + "Where is save/T + T/(2·failure) smallest?"),
)


def _attempts(s: Seen) -> list[int]:
    return [attempt for _, attempt in s.started]


SUPERVISE = (
    Hint("not counted", lambda s: len(s.started) > 1 and len(set(_attempts(s))) == 1,
         lambda s: f"start got the attempts {_attempts(s)}. The second attempt is attempt 1."),
    Hint("another count", lambda s: _attempts(s) != [*range(len(s.started))],
         lambda s: f"start got the attempts {_attempts(s)}. Attempts count up from 0, one by "
         "one."),
    Hint("for ever", lambda s: s.ended == "never",
         lambda s: f"There were {len(s.started)} starts and more, but only {s.arguments[1]} "
         "restarts are allowed."),
    Hint("one too few", lambda s: len(s.started) == len(s.expect["started"]) - 1
         and s.ended != "run 0",
         lambda s: f"After the first attempt, {s.arguments[1]} restarts are allowed, but you made "
         f"{len(s.started) - 1}. `least` is {(s.arguments[2:] or (1,))[0]}."),
    Hint("one too many", lambda s: len(s.started) > s.arguments[1] + 1,
         lambda s: f"{s.arguments[1]} restarts are allowed, but you made {len(s.started) - 1}. The "
         "first attempt is not a restart."),
    Hint("nobody died", lambda s: "raised" in s.ends
         and any(after[0] < before[0] for before, after in pairwise(s.started)),
         "No rank died: a RankError is an exception, and the same ranks can start again. Only "
         "RankDied takes its `ranks` away."),
    Hint("too few", lambda s: len(s.started) > len(s.expect["started"])
         and s.started[-1][0] < (s.arguments[2:] or (1,))[0],
         lambda s: f"You started {s.started[-1][0]} ranks, but the least is "
         f"{(s.arguments[2:] or (1,))[0]}."),
    Hint("nobody comes back", lambda s: len(s.started) > len(s.expect["started"]),
         lambda s: f"Ranks and attempts were {s.started}: you started more ranks than were left. "
         "If fewer than `least` are left, make no further attempt, and raise the error."),
    Hint("dead ranks", lambda s: s.wrong("started"),
         lambda s: f"Ranks and attempts were {s.started}. The failed run names its dead ranks in "
         "run.error.ranks; the next start has fewer ranks by their number."),
    Hint("a failed run", lambda s: s.expect["ended"].startswith("the error")
         and s.ended.startswith("run"),
         "The returned run has failed. Raise its error, so that the caller learns of the "
         "failure."),
    Hint("another end", lambda s: s.wrong("ended"),
         lambda s: f"Your supervisor ended with {s.ended}, but the right end is "
         f"{s.expect['ended']}."),
)

CAUSED = {  # patient -> a hint about the cause
    "A": "Read the call in which each rank waits, and the rank for which it waits.",
    "B": "Only one rank calls one line of the program.",
    "C": "Which of the collectives does each rank call first?",
    "D": "Compare the shapes in the message, and then the shapes of the parts.",
    "E": "No rank is missing in the step that fails. Which rank has returned too early, and which "
         "call did it skip on its way?",
    "F": "broadcast inside call(): the forward of a DistributedDataParallel sends buffers.",
    "G": "Nothing fails. Which images did each rank take?",
    "H": "Nothing fails. At which step do the models begin to differ?",
    "I": "Nothing fails. How far have the parameters moved, compared with one process?",
    "J": "new_group() is a collective too, even for ranks outside the group. Which line does each "
         "rank call next?",
    "K": "Nothing fails. Which of the rows from rank 0 has arrived, and how often?",
    "L": "Nothing fails. Which row is missing, and from which line on could it be there?",
    "M": "Nothing fails. At which step do the models begin to differ? All tensors have one shape "
         "here, so a swap raises no error.",
    "N": "Nothing fails. Which of the four batches does the job take after its restart?",
    "O": "Nothing fails. How far have the parameters moved, compared with one process?",
}
DIAGNOSIS = (
    Hint("form", lambda s: s.error, "Return three things: a cause of CAUSES, a rank or None, and "
         "a mend {line: new text}."),
    Hint("no such cause", lambda s: s.illness not in CAUSES,
         lambda s: f"{s.illness!r} is not in CAUSES."),
    Hint("another cause", lambda s: s.wrong("illness"), lambda s: CAUSED[s.patient]),
    Hint("all of them", lambda s: s.expect["rank"] is None,
         "No single rank is at fault here, because several ranks do the same. Return None as the "
         "rank."),
    Hint("another rank", say="The cause is right, but the rank is not. Which rank does something "
         "different from the rest?"),
)
MEND = (
    Hint("no mend", lambda s: s.raised == "LessonError" or (s.raised in ("TypeError", "ValueError")
         and not s.observed and s.kind == ""),
         "A mend is a dict: line numbers, each with the new text of the line."),
    Hint("still stuck", lambda s: s.stuck or s.mismatch,
         "With your mend, the ranks still wait for each other, or disagree. The last lines of the "
         "run say where."),
    Hint("indentation", lambda s: s.raised == "IndentationError",
         "Each text begins where the old line began, whatever its indentation. A line below an "
         "`if` belongs to the same text, after \\n and four blanks."),
    Hint("fails", lambda s: s.error, "With your mend, the program fails."),
    Hint("silent ranks", lambda s: s.ranks == "are silent",
         "The program ends, but a rank sends no messages any more, and works alone."),
    Hint("uneven groups", lambda s: s.patient == "J" and s.wrong("groups"),
         lambda s: f"The program ends, but the ranks made different numbers of groups: {s.groups}. "
         "The job's next new_group() would wait forever, or find wrong members. Every rank must "
         "make every group."),
    Hint("symptom only", lambda s: s.wrong("it has"),
         lambda s: f"The program ends, but it has {s.it_has}. The symptom is gone, but the fault "
         "is not."),
    Hint("other bytes", lambda s: s.wrong("ranks"),
         lambda s: "The results are right, but "
         + ("the ranks send more bytes than" if s.ranks == "talk too much"
            else f"{s.ranks} that it sends")
         + " in a healthy program. A mend must keep the intended messages of the ranks."),
    Hint("another program", lambda s: s.wrong("mend"),
         lambda s: f"The program works, but has {s.mend}, which is a new program. A mend is small: "
         "find the line with the fault, and change only this line."),
)
# fmt: on
