"""Lab 04: what to say of wrong answers."""

from __future__ import annotations

from typing import Any

from ddpkit.checks.lab04 import gradients as problem
from ddpkit.errors import Deadlock, Mismatch
from ddpkit.exercises.exercise import Observed

MAKES = {
    "average_by_gather": "one gather and one scatter for each parameter",
    "average_per_parameter": "one all_reduce for each parameter",
    "average_flat": "one all_reduce for all gradients of a dtype",
}


def start_hint(seen: Observed, src: int) -> str | None:
    if "error" in seen:
        if isinstance(seen["error"], Mismatch | Deadlock):
            return "All ranks call dist.broadcast for the same tensors in the same order."
        if "leaf" in str(seen["error"]):
            return "Copying into a parameter is not to be differentiated: torch.no_grad()."
        return None
    differ = seen[f"like rank {src}"]
    if not seen["in place"]:
        return "The module has other Parameters now: an optimizer would go on with the old ones."
    if seen["frozen"] != "as before":
        return "requires_grad has changed: a frozen parameter is sent, and stays frozen."
    if differ.startswith(f"rank {src} itself") and "mean" in differ:
        return f"Rank {src} itself has changed: its values are the ones to send, in src={src}."
    if "weight" in differ and "mean" in differ:
        return f"Every rank still has its own values, or another rank's than {src}'s: use src."
    if "scale" in differ and "tracked" in differ and "mean" not in differ:
        return "Some values have lost their last digits: send each tensor in its own dtype."
    if "scale" in differ:
        return "A frozen parameter is part of the model, though nobody trains it."
    if "mean" in differ:
        return "The buffers differ: a BatchNorm's running mean is part of the model too."
    if "mask" in differ:
        return "state_dict() leaves some buffers out: module.buffers() has them all."
    return None


def shard_hint(seen: Observed, n: int, world_size: int) -> str | None:
    if "error" in seen:
        if isinstance(seen["error"], IndexError):
            return "torch.chunk may make fewer parts than there are ranks; tensor_split makes all."
        return None
    if isinstance(seen["batches"], str):
        if "type" in seen["batches"]:
            return "A part is a tensor of int64, which says which images to take: x[part]."
        return (
            "The ranks make different numbers of steps, and the one with most would wait for ever: "
            "an empty part belongs in the list."
        )
    samples, total = seen["samples"], sum(seen["batches"])
    if total == n * world_size and samples.startswith("0 missing"):
        return "Every rank gets the whole batch: all would do the same work. Cut it, take one part."
    if samples.startswith("0 missing"):
        return "Some numbers are handed out twice: let the parts of a short batch differ by 1."
    if samples.endswith(" 0 too many"):
        return "Some numbers are left out: what does not divide by the ranks still counts."
    if samples != "each once":
        return (
            "Some numbers are missing and others twice: the ranks cut different permutations. "
            "The seed is the epoch, on every rank."
        )
    if seen["parts"] != "even":
        return "One rank has much more work than the others, who wait: lengths differ by 1 at most."
    if seen.get("order") == "as they come":
        return "The numbers are not shuffled: lab 01's minibatches does that."
    if seen.get("next epoch") == "the same":
        return "Every epoch has the same order: let its seed be the epoch."
    if total == n:
        return "A batch is batch_size for all ranks together, not for each."
    return None


def list_hint(seen: Observed, wanted: problem.Gradients) -> str | None:
    if "error" in seen:
        if "assign a gradient" in str(seen["error"]):
            return "A gradient has the shape and the dtype of its parameter: torch.zeros_like(p)."
        if "None" in str(seen["error"]):
            return "Where p.grad is None there is no tensor yet: put zeros there first."
        return None
    count = len(wanted)
    got = seen["gradients"]
    if seen["frozen .grad"] != "None":
        return "A frozen parameter (requires_grad is False) has no gradient, and needs none."
    if any(g is None for g in got):
        return "A None is left in the list: make it zeros, of the shape and dtype of the parameter."
    if len(got) < count:
        return f"{len(got)} of {count} gradients: a missing one must be in the list too, as zeros."
    if len(got) > count:
        return f"{len(got)} gradients for {count} parameters: name a shared one once."
    if not any(bool(g.any()) for g in got):
        return "The gradients that were there are gone: zeros are for those that are None."
    if [g.shape for g in got] != [g.shape for g in wanted]:
        return "The gradients come in the order of module.parameters()."
    if not seen["the very .grad"]:
        return "These are copies: put the zeros into p.grad, and return the p.grad themselves."
    return None


def average_hint(seen: Observed, name: str, task: problem.Task) -> str | None:
    if "error" in seen:
        return _average_error_hint(seen["error"], task)
    got, expected = seen["means"], task.expected()
    for hint, wrong in task.wrong_values():
        if problem.near(got, wrong):
            return hint
    if problem.near(got, expected):
        return _calls_hint(name, seen["calls"], problem.calls_of(name, task.kind))
    pairs = [pair for rank in zip(got, expected, strict=True) for pair in zip(*rank, strict=True)]
    if any(g is not None and mean is None for g, mean in pairs):
        return "A frozen parameter has got a gradient: leave it out."
    if any(g is None and mean is not None for g, mean in pairs):
        return "A gradient that was None still is: it counts as zeros, and has the mean afterwards."
    if any(not problem.near([one], got[:1]) for one in got[1:]):
        return "The ranks differ: all of them have to add up, and all to divide."
    if problem.near(problem.ordered(got), problem.ordered(expected)):
        return (
            "The right means in the wrong places. A gradient may have strides of its own: flatten "
            "and view_as go by rows, whatever these are."
        )
    return (
        "A mean is the sum over all ranks, of zeros where a rank has none, divided by the number "
        "of ranks: dist.get_world_size()."
    )


def _calls_hint(name: str, got: str, wanted: str) -> str:
    if name == "average_flat" and got.startswith("all_reduce ×1,"):
        return (
            f"torch.cat made one dtype of two: {got} where {wanted} would do. Take one vector "
            "for each dtype."
        )
    return f"The means are right, by other calls: {got}. Here it is {MAKES[name]}: {wanted}."


def _average_error_hint(error: Any, task: problem.Task) -> str | None:
    text = " ".join(str(error).split())
    if isinstance(error, Deadlock | Mismatch) and task.missing:
        return "Go through the same list of gradients on all ranks: gradients_of(module)."
    if isinstance(error, Deadlock | Mismatch):
        return "All ranks must make the same calls, in the same order."
    if "view size is not compatible" in text:
        return "A gradient may have strides of its own, which view() cannot flatten: g.flatten()."
    if "NoneType" in text:
        return "A gradient may be None on some rank: take them from gradients_of(module)."
    if "dtype" in text or "different type" in text:
        return "A gradient has its parameter's dtype: make one vector for each dtype."
    return None
