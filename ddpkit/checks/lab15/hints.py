"""Hints for lab 15."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

from ddpkit.capstone.task import RATE
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
    Hint("another rank", lambda s: "of one rank" in s.about,
         "Each of the six times is one of the rank with the least exposed_ns, which is neither the "
         "rank that computes longest nor a sum of all ranks. Only the usual compute is the middle "
         "of all."),
    Hint("counted twice", lambda s: "counted" in s.about and wrong_words(s)[1] == "latency",
         "Latency counts the all_reduces that this rank waited for, of no other name, and none "
         "with blocked_ns None."),
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
         "breakdown() counts every span as compute, those called input too: take them out. The "
         "time of input is that of the rank that waits least, not a mean of all."),
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
    Hint("too little work", lambda s: s.time == "too little",
         lambda s: f"The ranks have computed {s.share:.0%} of the matrix products that the "
         "gradients of all stretches take. Each stretch of each step goes through forward and "
         "backward once, by torch, in the main thread."),
    Hint("diverged", lambda s: not (isfinite(s.apart) and isfinite(s.loss)),
         "After training, parameters are no finite numbers: the training has diverged. Do the "
         "ranks average the gradients, and does the optimizer step at the given rate?"),
    Hint("drift", lambda s: s.replicas != s.expect["replicas"],
         lambda s: f"After training, parameters of the ranks differ by up to {s.apart:.2g}: they "
         "are four models. Average the gradients of every step, on all ranks."),
    Hint("one shard", lambda s: s.model != s.expect["model"] and s.loss > s.entropy + 0.6,
         lambda s: f"The held-out loss over all four dialects is {s.loss:.2f} nats a letter, and "
         f"the language's entropy is {s.entropy:.2f}: the model has learned too little of some "
         "rank's dialect. The gradient of each step is the mean over all ranks' letters."),
    Hint("not the same steps", lambda s: s.model != s.expect["model"],
         lambda s: f"The model is {s.off:.2f} from the given script's model, where its start is 1 "
         f"away. Take the given steps: AdamW with a rate of {RATE}, one for each list of "
         "stretches, with the mean gradient of all letters of all ranks."),
    Hint("as given", lambda s: s.wrong("speed") and s.ms > s.given_ms / 1.1,
         lambda s: f"It takes {s.ms:,.0f} ms; the given script takes {s.given_ms:,.0f}. Mend what "
         "your bottlenecks were."),
    Hint("slow", lambda s: s.wrong("speed"),
         lambda s: f"{s.given_ms / s.ms:.2f} times as fast as the given script. Where does a step "
         "wait now? show() a run of a few steps."),
    Hint("memory", lambda s: s.wrong("memory"),
         lambda s: f"A rank holds up to {s.peak / 1e6:.2f} MB. Smaller micro-batches hold fewer "
         "activations; an optimizer's state can be shared out."),
)
# fmt: on
