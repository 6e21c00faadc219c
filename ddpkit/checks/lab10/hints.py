"""Lab 10: what to say of which mistake, a table for each exercise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import inf, isclose, sqrt
from typing import Any

from ddpkit.checks.lab10.unequal import Rule, StepSums, whole
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.faults import CAUSES


def first_wrong(s: Seen) -> tuple[Any, int]:
    """Return the answer and the slow rank of the first trace with a wrong answer."""
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


# fmt: off
STRAGGLER = (
    Hint("no rank", lambda s: any(type(got) not in (int, type(None)) for got in s.ranks),
         "Return the number of a rank, an int, or None."),
    Hint("always somebody", lambda s: s.why == "" and s.factor == 1.0 and not named_none(s),
         "The four ranks work equally long here, and you name one: None."),
    Hint("a little slower", lambda s: s.factor == 1.1 and named_slow(s),
         "A tenth more is not yet a straggler: it takes a fifth more than the median rank's work."),
    Hint("warm-up", lambda s: s.why == "warm-up",
         "Step 0 warms up, and one rank took long there: look at all later steps together."),
    Hint("one step", lambda s: s.why == "good step" and named_none(s),
         "A slow rank may have good steps: look at all steps but the first, together."),
    Hint("median of others", lambda s: s.why == "unlike" and named_slow(s),
         lambda s: f"Rank {first_wrong(s)[1]} takes 16 % longer than the median of all "
         "three ranks."),
    Hint("step by step", lambda s: s.why == "at times",
         lambda s: f"In four of five steps others take longest; in all five together "
         f"rank {first_wrong(s)[1]} does."),
    Hint("who waits", lambda s: s.factor > 1.0 and named_another(s),
         "That is who waits, not who is waited for: a rank that works long waits least."),
    Hint("to the end", lambda s: s.why == "end" and named_none(s),
         lambda s: f"Rank {first_wrong(s)[1]} is slow in the last three of the five steps that "
         "count: its work takes 23 % longer in all, and 19 % longer without the last step."),
    Hint("overlapped", lambda s: s.why == "overlap" and named_none(s),
         lambda s: f"Rank {first_wrong(s)[1]} computes while its all_reduce is under way, and that "
         "is work too: compute_ns has it, compute_only_ns has not."),
    Hint("median", lambda s: s.n == 2 and named_none(s),
         lambda s: f"Rank {first_wrong(s)[1]} works 1.4 times as long as the other. Of two ranks "
         "the median is the faster one's time (statistics.median_low), and 1.2 times that is "
         "less."),
    Hint("waiting is no work", lambda s: s.factor > 1.2 and named_none(s),
         lambda s: f"Rank {first_wrong(s)[1]} works {s.factor:g} times as long as the others, and "
         "you name none. The ranks wait for each other, within backward too: compare compute_ns, "
         "which has no waiting."),
    Hint("slow link", lambda s: s.why == "link" and not named_none(s),
         lambda s: f"Rank {first_wrong(s)[0]} works as long as the others: its communication takes "
         "longer. That is its network."),
)


def makespan(taken: Sequence[int], speeds: Sequence[float]) -> float:
    """When the last rank is done, in s."""
    return max(share / speed for share, speed in zip(taken, speeds, strict=True))


def _ends_as(rule: Callable[[int, Sequence[float]], list[int]]) -> Callable[[Seen], object]:
    """Whether the shares are done when this rule's are, and not when they should be."""
    return lambda s: s.images == s.batch and isclose(
        s.done_after, makespan(rule(s.batch, s.speeds), s.speeds), rel_tol=1e-9)


def _floors(batch: int, speeds: Sequence[float]) -> list[int]:
    return [int(batch * speed / sum(speeds)) for speed in speeds]


def rest_to_rank_0(batch: int, speeds: Sequence[float]) -> list[int]:
    """Shares by speed, rounded down, and what is left to rank 0."""
    first, *others = _floors(batch, speeds)
    return [batch - sum(others) if others else first, *others]


def largest_remainder(batch: int, speeds: Sequence[float]) -> list[int]:
    """Shares by speed, rounded down, and one more to those that lost most by it."""
    taken = _floors(batch, speeds)
    lost = [batch * speed / sum(speeds) - share for speed, share in zip(speeds, taken, strict=True)]
    for rank in sorted(range(len(speeds)), key=lambda r: -lost[r])[: batch - sum(taken)]:
        taken[rank] += 1
    return taken


def equal(batch: int, speeds: Sequence[float]) -> list[int]:
    """Equal shares, and one of the rest to each of the first."""
    each, rest = divmod(batch, len(speeds))
    return [each + (rank < rest) for rank in range(len(speeds))]


def one_at_least(batch: int, speeds: Sequence[float]) -> list[int]:
    """One for everybody, the others to whom is done first."""
    taken = [1] * len(speeds)
    for _ in range(batch - len(speeds)):
        taken[min(range(len(speeds)), key=lambda r: (taken[r] + 1) / speeds[r])] += 1
    return taken


def by_time(batch: int, speeds: Sequence[float]) -> list[int]:
    """Shares by the time that an image takes: the wrong way round."""
    return largest_remainder(batch, [1 / speed for speed in speeds])


SHARES = (
    Hint("whole images", lambda s: isinstance(s.images, str),
         "Images come whole: one int for each rank, 0 or more."),
    Hint("do not add up", lambda s: s.images != s.batch,
         lambda s: f"The shares add up to {s.images} images, and there are {s.batch}: the rest of "
         "a rounding is somebody's."),
    Hint("rounding", _ends_as(largest_remainder),
         lambda s: f"{s.batch} images, speeds {[round(v, 1) for v in s.speeds]}: yours are done "
         f"after {s.done_after:.3g} s, and {s.expect['done after'].value:.3g} s can be had. It is "
         "not the largest rest that decides, but who would be done first with one more."),
    Hint("nobody is left out", _ends_as(one_at_least),
         "One rank is 100 times slower: everybody waits for its one image. It may get none."),
    Hint("the wrong way round", _ends_as(by_time), "A fast rank gets more images, not fewer."),
    Hint("equal", _ends_as(equal),
         lambda s: f"As many for each rank: they are done after {s.done_after:.3g} s, when the "
         "slowest is."),
    Hint("rest to rank 0", _ends_as(rest_to_rank_0),
         "The rest of the rounding all goes to one rank: who would be done first with one more?"),
    Hint("too late", say="Give out one image after the other, each to the rank that would be done "
         "first with it."),
)


def _leads_there(s: Seen, rule: Rule) -> bool:
    """Whether the models are those to which a rule of steps leads."""
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
    """Idle ranks add what they have in .grad: the mean of the step before."""
    idle = sum(each is None for each in step.sums)
    return whole(step) + step.before * idle / step.n


def _unchanged(s: Seen) -> bool:
    """Whether the first model seen is the last that any rank sees before it ends."""
    return all(bool((found[:-1] == found[0]).all()) for found in s.models)


UNEQUAL = (
    Hint("no gradient", lambda s: s.kind == "None",
         "A rank without a batch has no gradients, None: it sends zeros in their place."),
    Hint("left alone", lambda s: s.stuck or s.mismatch,
         "One rank has gone, or does something else, and the others wait for it: a rank without a "
         "batch takes part in every collective until nobody has one."),
    Hint("an empty batch", lambda s: s.wrong("steps") and any(0 in mine for mine in s.lengths),
         "A batch without images is not the end: ask who has a batch, apart from how many images."),
    Hint("steps", lambda s: s.wrong("steps"),
         lambda s: f"{s.most} steps were to be taken, as many as the rank with the most batches "
         f"has. The ranks returned {s.steps}: idle ranks step too."),
    Hint("not a number", lambda s: any(bool(found.isnan().any()) for found in s.models),
         "After a step in which no rank has an image the model is no number: 0 / 0."),
    Hint("too much", lambda s: not s.wrong("models") and s.wrong("exchanged"),
         "Besides the gradients, each once, a step needs one message of a few bytes."),
    Hint("asked ahead", lambda s: _unchanged(s) and s.most > 1,
         "All batches were asked for before the first step: ask for the next one when this step "
         "is done."),
    Hint("mean of means", lambda s: _leads_there(s, _mean_of_means),
         "This is the mean of the ranks' means: an image of a short batch counts more than the "
         "others. Divide by all images of the step."),
    Hint("the sum", lambda s: _leads_there(s, _summed),
         "That is the sum over the images, and not their mean."),
    Hint("n times", lambda s: _leads_there(s, _n_times),
         "Each step is the number of ranks too long: is something summed that was averaged?"),
    Hint("divided twice", lambda s: _leads_there(s, _by_n),
         "Each step is too short: average_flat divides by the number of ranks as well."),
    Hint("old gradients", lambda s: _leads_there(s, _again),
         "A rank without a batch has sent the gradient of its last step again: zero_grad() comes "
         "in every step, with a batch or without."),
    Hint("ranks differ", lambda s: s.wrong("ranks"),
         "The ranks end with different models: a rank without a batch makes the step all the "
         "same."),
    Hint("other steps", say="One process takes the mean over all images that the ranks have in "
         "this step, and makes one step of SGD."),
)


def lost(every: float, save: float, failure: float) -> float:
    """The share of the time that is lost, to first order: to saving, and to what is redone."""
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
         lambda s: _numbers(s) + "s · s is no time: a root is missing."),
    Hint("minutes", _every(lambda save, failure: sqrt(2 * save * failure) / 60),
         lambda s: _numbers(s) + "All times are seconds."),
    Hint("the 2", _every(lambda save, failure: sqrt(save * failure)),
         lambda s: _numbers(s) + "On average half of an interval is lost in a failure: there is a "
         "2 in it."),
    Hint("half", _every(lambda save, failure: sqrt(save * failure / 2)),
         lambda s: _numbers(s) + "The 2 stands in the other place."),
    Hint("a ratio", lambda s: any(_every(rule)(s) for rule in (
         lambda save, failure: failure / save, lambda save, failure: save / failure,
         lambda save, failure: sqrt(2 * failure / save))),
         lambda s: _numbers(s) + "A ratio of two times is no time."),
    Hint("another", say=lambda s: _numbers(s) + "Where is save/T + T/(2·failure) smallest?"),
)


def _attempts(s: Seen) -> list[int]:
    return [attempt for _, attempt in s.started]


SUPERVISE = (
    Hint("not counted", lambda s: len(s.started) > 1 and len(set(_attempts(s))) == 1,
         lambda s: f"start was told of attempts {_attempts(s)}: the second one is attempt 1."),
    Hint("another count", lambda s: _attempts(s) != [*range(len(s.started))],
         lambda s: f"start was told of attempts {_attempts(s)}: they count from 0, one by one."),
    Hint("for ever", lambda s: s.ended == "never",
         lambda s: f"It was started {len(s.started)} times and more: {s.arguments[1]} restarts."),
    Hint("one too few", lambda s: len(s.started) == len(s.expect["started"]) - 1
         and s.ended != "run 0",
         lambda s: f"Restarts allowed after the first attempt: {s.arguments[1]}, made: "
         f"{len(s.started) - 1}. `least` is {(s.arguments[2:] or (1,))[0]}."),
    Hint("one too many", lambda s: len(s.started) > s.arguments[1] + 1,
         lambda s: f"Restarts allowed: {s.arguments[1]}, made: {len(s.started) - 1}. The first "
         "attempt is none."),
    Hint("nobody died", lambda s: "raised" in s.ends
         and any(after[0] < before[0] for before, after in pairwise(s.started)),
         "Nobody died: a RankError is an exception, and the same ranks can start again. Only "
         "RankDied takes its `ranks` away."),
    Hint("too few", lambda s: len(s.started) > len(s.expect["started"])
         and s.started[-1][0] < (s.arguments[2:] or (1,))[0],
         lambda s: f"{s.started[-1][0]} ranks were started, and {(s.arguments[2:] or (1,))[0]} "
         "are the least."),
    Hint("nobody comes back", lambda s: len(s.started) > len(s.expect["started"]),
         lambda s: f"Ranks and attempts were {s.started}: more ranks than were left. Where fewer "
         "than `least` are, there is no attempt more: raise the error."),
    Hint("dead ranks", lambda s: s.wrong("started"),
         lambda s: f"Ranks and attempts were {s.started}: the run that failed tells who died, in "
         "run.error.ranks, and as many ranks fewer start next."),
    Hint("a failed run", lambda s: s.expect["ended"].startswith("the error")
         and s.ended.startswith("run"),
         "The run that was returned has failed: raise its error, or nobody learns of it."),
    Hint("another end", lambda s: s.wrong("ended"),
         lambda s: f"It should end with {s.expect['ended']}, and not with {s.ended}."),
)

CAUSED = {  # by patient: where to look
    "A": "Read what each rank waits in, and for whom.",
    "B": "One line of the program is called by one rank alone.",
    "C": "Which of the collectives does each rank call first?",
    "D": "Compare the shapes in the message, and then those of the parts.",
    "E": "Nobody is missing in the step that fails: who has returned too early, and what did it "
         "leave out on its way?",
    "F": "broadcast inside call(): the forward of a DistributedDataParallel sends buffers.",
    "G": "Nothing fails. Which images did each rank take?",
    "H": "Nothing fails. Since when do the models differ?",
    "I": "Nothing fails. How far have the parameters moved, compared with one process?",
    "J": "new_group() is a collective too, also for ranks that are not in it: which line "
         "does each rank call next?",
    "K": "Nothing fails. Which of the rows that rank 0 has sent has come, and how often?",
    "L": "Nothing fails. Which row is not there, and since when could it be?",
    "M": "Nothing fails. Since when do the models differ? All numbers have one shape here, so none "
         "is seen to be in another's place.",
    "N": "Nothing fails. Which of the four batches does the job take after its restart?",
    "O": "Nothing fails. How far have the parameters moved, compared with one process?",
}
DIAGNOSIS = (
    Hint("form", lambda s: s.error, "Return three things: a cause of CAUSES, a rank or None, and "
         "a mend {line: new text}."),
    Hint("no such cause", lambda s: s.illness not in CAUSES,
         lambda s: f"{s.illness!r} is none of CAUSES."),
    Hint("another cause", lambda s: s.wrong("illness"), lambda s: CAUSED[s.patient]),
    Hint("all of them", lambda s: s.expect["rank"] is None,
         "No one rank is at fault here, for others do the same: None is the rank."),
    Hint("another rank", say="The cause is right, the rank is another: which one does what the "
         "others do not?"),
)
MEND = (
    Hint("no mend", lambda s: s.raised == "LessonError" or (s.raised in ("TypeError", "ValueError")
         and not s.observed and s.kind == ""),
         "A mend is a dict: the numbers of lines, each with the text that stands there instead."),
    Hint("still stuck", lambda s: s.stuck or s.mismatch,
         "Mended so, the ranks still wait for each other, or disagree: the run's last words "
         "say where."),
    Hint("indentation", lambda s: s.raised == "IndentationError",
         "Each text begins where the old line began, whatever blanks it has: what is below an `if` "
         "stands in the same text, after \\n and four blanks."),
    Hint("fails", lambda s: s.error, "Mended so, the program fails."),
    Hint("silent ranks", lambda s: s.ranks == "are silent",
         "The program ends, but a rank no longer talks, and works alone."),
    Hint("uneven groups", lambda s: s.patient == "J" and s.wrong("groups"),
         lambda s: f"It ends, and groups were made: {s.groups}. The job's next new_group() would "
         "wait for ever, or find other members: every rank makes every group."),
    Hint("symptom only", lambda s: s.wrong("it has"),
         lambda s: f"It ends, and has {s.it_has}: the symptom is gone, the fault is not."),
    Hint("other bytes", lambda s: s.wrong("ranks"),
         lambda s: f"The results are right, but {s.ranks}, unlike in a healthy program. "
         "A mend leaves the ranks' messages as they were meant."),
    Hint("another program", lambda s: s.wrong("mend"),
         lambda s: f"The program works, but has {s.mend}: a new program. A mend is small: "
         "find the line with the fault, and change only that."),
)
# fmt: on
