"""Hints for lab 15."""

from __future__ import annotations

from collections.abc import Callable

from ddpkit.capstone.task import FEWEST, TARGET
from ddpkit.exercises.hint import Hint, Seen

WORDS = ("compute", "latency", "bandwidth", "straggler", "idle", "input")
MOVING = ("latency", "bandwidth")


def wrong_words(s: Seen) -> tuple[str, str]:
    """What the first trace with a wrong answer has for a bottleneck, and what was answered."""
    rows = zip(s.expect["bottlenecks"], s.bottlenecks, strict=True)
    return next((right, given) for right, given in rows if right != given)


def taken_for(right: str, *given: str) -> Callable[[Seen], bool]:
    """A condition: the first wrong answer takes `right` for one of `given`."""
    return lambda s: wrong_words(s)[0] == right and (not given or wrong_words(s)[1] in given)


# fmt: off
BOTTLENECK = (
    Hint("nothing moves", lambda s: s.raised == "ValueError",
         "The ranks of this trace never communicate: no all_reduce is the shortest one, and its "
         "latency is 0."),
    Hint("no such word", lambda s: any(each not in WORDS for each in s.bottlenecks),
         f"The answer is one of six words: {', '.join(WORDS)}."),
    Hint("usual", lambda s: "unlike" in s.about,
         "What ranks usually compute is the lower median of all their times: another middle leads "
         "to another word here."),
    Hint("hidden counts", taken_for("compute", *MOVING),
         "A step does not wait for communication that is hidden below compute: count what is "
         "exposed."),
    Hint("waits move nothing", lambda s: wrong_words(s)[0] in ("straggler", "input")
         and wrong_words(s)[1] in MOVING,
         "From start_ns to ready_ns an all_reduce waits for the last rank, and no byte moves. Look "
         "at the rank that waits least: all others wait for it."),
    Hint("all are slow", taken_for("straggler", "compute"),
         "One rank computes far longer than the others: that is a straggler. What all ranks "
         "compute alike is compute."),
    Hint("input waits", taken_for("input", "straggler"),
         "One rank waits for its data, and all others for that rank. The rank that waits least "
         "for its peers has its time in spans called input."),
    Hint("input computes", taken_for("input", "compute"),
         "breakdown() counts every span as compute, those called input too: take them out."),
    Hint("idle", taken_for("idle"),
         "These ranks have no span at all for most of a step: breakdown() has that as idle_ns."),
    Hint("few bytes", taken_for("latency", "bandwidth"),
         "These are many all_reduces of few bytes. The shortest one shows what an all_reduce costs "
         "that carries nothing: multiply it."),
    Hint("many bytes", taken_for("bandwidth", "latency"),
         "These are few all_reduces of many bytes: most of their time is beyond that of the "
         "shortest one."),
    Hint("a little later", taken_for("bandwidth", "straggler", "compute"),
         "Add up the six times of a step, and take the largest. One rank is a little slower here, "
         "but moving bytes takes longer."),
)
TRAIN = (
    Hint("left behind", lambda s: s.stuck,
         "A rank has left, or does something else, and the others wait for it: all four take as "
         "many steps, and call the same collectives in the same order."),
    Hint("another model", lambda s: s.parameters != s.expect["parameters"],
         "Train the model that is given, all of it, in place: afterwards it has the same "
         "parameters, by name and shape."),
    Hint("not the same work", lambda s: s.time == "cannot be recomputed",
         "torch's DistributedDataParallel, its hooks and callbacks of futures wait and compute "
         "where nobody can compute their time again. Use your own of lab 06, or all_reduce."),
    Hint("the clock", lambda s: s.time == "not that of the clock",
         lambda s: f"The ranks' clocks say {s.clock_ms:,.0f} ms, and what they did takes "
         f"{s.ms:,.0f} ms. Clocks are not believed here: leave them alone."),
    Hint("below the floor", lambda s: s.time == "below the floor",
         f"The products of {FEWEST} windows alone take longer, and from so few nobody learns to "
         "come below the target. Train by gradients, which torch computes on the ranks, in their "
         "main thread: letters that are counted into the weights are no training."),
    Hint("other weights", lambda s: s.start != s.expect["start"],
         lambda s: f"The tables of letters and places have a cosine of {s.alike:.2f} with the "
         "given tables. A training by gradients changes the tables little (0.9 and more). Start "
         "from the given weights."),
    Hint("a rank rests", lambda s: s.ranks == "one rests",
         lambda s: f"Rank {s.shares.index(min(s.shares))} computes {min(s.shares):.0%} of all "
         "that is computed. Let all four train."),
    Hint("drift", lambda s: s.replicas != s.expect["replicas"],
         lambda s: f"After training, parameters of the ranks differ by up to {s.apart:.2g}: they "
         "are four models. Average the gradients of every step, on all ranks."),
    Hint("not trained", lambda s: s.held_out_loss != s.expect["held out loss"]
         and abs(s.loss - s.before) < 0.05,
         "The model is as it came. What train() returns counts for nothing: the loss is computed "
         "of the model, which you train in place."),
    Hint("another text", lambda s: s.held_out_loss != s.expect["held out loss"]
         and s.loss > s.before - 0.3,
         lambda s: f"The held-out loss is {s.loss:.2f}, and was {s.before:.2f}: this model has "
         "learned another text. Each check exchanges the letters: train on the text given."),
    Hint("a rank is silent", lambda s: s.ranks == "one is silent",
         "A rank gives torch.distributed less than a bit for each parameter: no gradient of the "
         "rank reached another rank. Average the gradients, or the models."),
    Hint("above the target", lambda s: s.held_out_loss != s.expect["held out loss"],
         lambda s: f"The held-out loss is {s.loss:.2f}, and {TARGET} is asked for. The loss of one "
         "batch says little. Take more steps, or a better learning rate; and leave a margin."),
    Hint("as given", lambda s: s.wrong("speed") and s.ms > s.given_ms / 1.1,
         lambda s: f"It takes {s.ms:,.0f} ms; the given script takes {s.given_ms:,.0f}. Mend what "
         "your bottlenecks were."),
    Hint("slow", lambda s: s.wrong("speed"),
         lambda s: f"{s.given_ms / s.ms:.2f} times as fast as the given script. Where does a step "
         "wait now? show() a run of a few steps."),
)
# fmt: on
