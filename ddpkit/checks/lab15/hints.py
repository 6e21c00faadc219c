"""Lab 15: hints about wrong bottlenecks and wrong trainings."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

from ddpkit.capstone.task import RATE
from ddpkit.exercises.hint import Hint, Seen

WORDS = ("compute", "latency", "bandwidth", "straggler", "idle", "input")
MOVING = ("latency", "bandwidth")


def wrong_words(s: Seen) -> tuple[str, str]:
    """Return (right word, answer's word) for the first trace with a wrong answer."""
    rows = zip(s.expect["bottlenecks"], s.bottlenecks, strict=True)
    return next((right, given) for right, given in rows if right != given)


def taken_for(right: str, *given: str) -> Callable[[Seen], bool]:
    """Return a condition about the first trace with a wrong answer.

    The condition is true if the right word is `right`, and the answer's word is one of `given`. If
    `given` is empty, the answer's word does not matter.
    """
    return lambda s: wrong_words(s)[0] == right and (not given or wrong_words(s)[1] in given)


# fmt: off
BOTTLENECK = (
    Hint("nothing moves", lambda s: s.raised == "ValueError",
         "The ranks of this trace never communicate. Without an all_reduce, there is no shortest "
         "all_reduce, and the latency is 0."),
    Hint("no such word", lambda s: any(each not in WORDS for each in s.bottlenecks),
         f"The answer must be one of six words: {', '.join(WORDS)}."),
    Hint("another rank", lambda s: "of one rank" in s.about,
         "Each of the six times is a time of the rank with the least exposed_ns. This rank is "
         "neither the rank that computes longest nor a sum of all ranks. Only the usual compute is "
         "the middle of all ranks."),
    Hint("counted twice", lambda s: "counted" in s.about and wrong_words(s)[1] == "latency",
         "Latency counts only the all_reduces for which this rank waited. Leave out calls of a "
         "different name, and calls with blocked_ns None."),
    Hint("usual", lambda s: "unlike" in s.about,
         "The usual compute is the lower median of all ranks' times. A different middle leads to a "
         "different word here."),
    Hint("hidden counts", taken_for("compute", *MOVING),
         "A step does not wait for communication that is hidden below compute. Count only the "
         "exposed communication."),
    Hint("waits move nothing", lambda s: wrong_words(s)[0] in ("straggler", "input")
         and wrong_words(s)[1] in MOVING,
         "From start_ns to ready_ns, an all_reduce waits for the last rank, and no byte moves. "
         "Look at the rank with the least exposed_ns, because all other ranks wait for this rank."),
    Hint("all are slow", taken_for("straggler", "compute"),
         "One rank computes far longer than the other ranks: the bottleneck is a straggler. The "
         "bottleneck is compute only if all ranks compute equally long."),
    Hint("input waits", taken_for("input", "straggler"),
         "One rank waits for its data, and all ranks wait for this rank. The rank with the least "
         "exposed_ns has its time in spans called input."),
    Hint("input computes", taken_for("input", "compute"),
         "breakdown() counts every span as compute, even the spans called input: take these spans "
         "out. The time of input is a time of the rank with the least exposed_ns, not a mean of "
         "all ranks."),
    Hint("idle", taken_for("idle"),
         "These ranks have no span for most of a step. breakdown() counts this time as idle_ns."),
    Hint("few bytes", taken_for("latency", "bandwidth"),
         "These are many all_reduces of few bytes. The shortest all_reduce shows the cost of an "
         "all_reduce without data: multiply this cost."),
    Hint("many bytes", taken_for("bandwidth", "latency"),
         "These are few all_reduces of many bytes. Most of their time is more than the time of the "
         "shortest all_reduce."),
    Hint("a little later", taken_for("bandwidth", "straggler", "compute"),
         "Add up the six times of a step, and take the largest. One rank is a little slower here, "
         "but moving bytes takes longer."),
)
TRAIN = (
    Hint("left behind", lambda s: s.stuck,
         "A rank has returned or does something different, and the rest wait for this rank. All "
         "four ranks must take the same number of steps, and call the same collectives in the same "
         "order."),
    Hint("another model", lambda s: s.parameters != s.expect["parameters"],
         "Train the whole given model, in place. Afterwards the model must have the same "
         "parameters, by name and shape."),
    Hint("not the same work", lambda s: s.time == "cannot be recomputed",
         "torch's DistributedDataParallel, its hooks and callbacks of futures wait and compute in "
         "places where the check cannot compute their time again. Use your own class from lab 06, "
         "or all_reduce."),
    Hint("the clock", lambda s: s.time == "not that of the clock",
         lambda s: f"The ranks' clocks show {s.clock_ms:,.0f} ms, but the work of the ranks takes "
         f"{s.ms:,.0f} ms. The check does not use the clocks, so do not change them."),
    Hint("too little work", lambda s: s.time == "too little",
         lambda s: f"The ranks have computed {s.share:.0%} of the matrix products that the "
         "gradients of all stretches need. Each stretch of each step must go through forward and "
         "backward once, by torch, in the main thread."),
    Hint("diverged", lambda s: not (isfinite(s.apart) and isfinite(s.loss)),
         "After training, some parameters are not finite numbers: the training has diverged. Do "
         "the ranks average the gradients, and does the optimizer step at the given rate?"),
    Hint("drift", lambda s: s.replicas != s.expect["replicas"],
         lambda s: f"After training, parameters of the ranks differ by up to {s.apart:.2g}, so "
         "there are four models. Average the gradients of every step, on all ranks."),
    Hint("one shard", lambda s: s.model != s.expect["model"] and s.loss > s.entropy + 0.6,
         lambda s: f"The held-out loss over all four dialects is {s.loss:.2f} nats a letter, but "
         f"the language's entropy is {s.entropy:.2f}. The model has learned too little of some "
         "rank's dialect. The gradient of each step must be the mean over all ranks' letters."),
    Hint("not the same steps", lambda s: s.model != s.expect["model"],
         lambda s: f"The model's distance from the given script's model is {s.off:.2f}, where the "
         f"start is 1 away. Take the given steps: AdamW with a rate of {RATE}, one step for each "
         "list of stretches, with the mean gradient of all letters of all ranks."),
    Hint("as given", lambda s: s.wrong("speed") and s.ms > s.given_ms / 1.1,
         lambda s: f"Your training takes {s.ms:,.0f} ms, and the given script takes "
         f"{s.given_ms:,.0f} ms. Remove the bottlenecks that you have found."),
    Hint("slow", lambda s: s.wrong("speed"),
         lambda s: f"Your training is {s.given_ms / s.ms:.2f} times as fast as the given script. "
         "For what does a step wait now? show() a run of a few steps."),
    Hint("memory", lambda s: s.wrong("memory"),
         lambda s: f"A rank holds up to {s.peak / 1e6:.2f} MB. Smaller micro-batches hold fewer "
         "activations, and ranks can share out an optimizer's state."),
)
# fmt: on
