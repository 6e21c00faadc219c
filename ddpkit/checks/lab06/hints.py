"""Lab 06: what to say of wrong answers that ran on ranks."""

from __future__ import annotations

from typing import Any

from ddpkit.checks.lab06 import steps
from ddpkit.errors import Deadlock
from ddpkit.exercises.exercise import Observed

TWO_FORWARDS = (
    "Each forward asks for one average: `finish` makes `expected` less by 1 and begins a new "
    "backward, and one that is not expected stays silent."
)


def average_hint(flats: list[Any], seen: Observed) -> str | None:
    import torch

    n = len(flats)
    if "error" in seen:
        if isinstance(seen["error"], Deadlock):
            return "It waits for the other ranks before it returns: async_op=True, and no wait()."
        if "NoneType" in str(seen["error"]):
            return "Return the Work that all_reduce gives with async_op=True."
        return None
    total = sum(flats)
    assert isinstance(total, torch.Tensor)
    if seen["all-reduces"] == 0:
        return (
            "It has started no all_reduce when it returns. In wait() that is too late, and a "
            "reduce tells rank 0 alone."
        )
    buffers = seen["buffers"]
    if any(not bool(torch.isfinite(buffer).all()) for buffer in buffers):
        return "The sum is too large for float16. Divide first, then sum."
    if n > 1 and all(torch.equal(b, flat) for b, flat in zip(buffers, flats, strict=True)):
        return "The buffer is as before: change bucket.buffer() in place, not a copy of it."
    if n > 1 and all(torch.equal(buffer, total) for buffer in buffers):
        return "That is the sum: divide by the number of ranks."
    if n > 1 and all(torch.allclose(buffer, total / n / n) for buffer in buffers):
        return "That is divided twice."
    if n > 1 and torch.equal(buffers[0], total / n):
        return "Rank 0 has the mean, and others have not."
    if all(torch.equal(buffer, buffers[0]) for buffer in buffers):
        return f"With {n} ranks, divide by {n}: dist.get_world_size()."
    return None


def order_hint(orders: list[list[int]], rule: list[list[int]], seen: Observed) -> str | None:
    if "error" in seen:
        return None
    found = seen["buckets"]
    flat = [[place for bucket in buckets for place in bucket] for buckets in found]
    if len(orders) > 1 and flat == orders and orders[0] != orders[1]:
        return "Each rank keeps the order that it saw itself: they have to agree on rank 0's."
    if any(buckets != found[0] for buckets in found):
        return "The ranks have different buckets: all take rank 0's order."
    if len(orders) > 1 and flat[0] == orders[-1] and orders[0] != orders[-1]:
        return "That is the last rank's order: broadcast rank 0's."
    if flat[0] == orders[0][::-1]:
        return (
            "The buckets are back to front. assign_buckets goes from the last parameter to the "
            "first: hand it the reverse of the order of readiness."
        )
    if flat[0] == list(range(len(orders[0])))[::-1]:
        return "That is the old order. `ready` says in which order the gradients came."
    if flat[0] == orders[0]:
        return "The order is right, and the cut is not: pass both caps on to assign_buckets."
    return "Take rank 0's `ready`: ready[0] is the place of the one whose gradient came first."


def sync_hint(seen: Observed, fails: bool = False) -> str | None:
    if "error" in seen:
        if "context manager" in str(seen["error"]) or "iterator" in str(seen["error"]):
            return "It is for `with`: keep @contextmanager above it, and yield in between."
        if "require_backward_grad_sync" in str(seen["error"]):
            return "Afterwards the flag must be what it was before."
        return None
    if "all-reduces" in seen:
        if seen["all-reduces"] > 1:
            return "There is an all-reduce for each backward: set the flag to False inside."
        if seen["all-reduces"] == 0:
            return "The last backward was silent too: the flag must be set back."
        return None
    if seen["inside"] is not False:
        return "Inside, ddp.require_backward_grad_sync must be False."
    if fails and seen["raised"] == "nothing":
        return "The exception has vanished: `finally:` sets the flag back, and lets it pass."
    if seen["raised"] == "nothing" and seen["after"] is False:
        return "Afterwards the flag must be what it was before."
    if seen["raised"] == "KeyError" and seen["after"] is False:
        return "After an exception the flag stays False: set it back in a `finally:`."
    if seen["after"] is True and not fails:
        return "Inside another no_sync the flag was False before, and must stay so afterwards."
    return None


def ddp_hint(ask: Any, seen: Observed) -> str | None:
    if "error" in seen:
        return _of_error(ask, seen["error"])
    if ask is steps.start:
        return (
            "Every rank must begin with rank 0's parameters and buffers, frozen ones too: "
            "broadcast_parameters."
        )
    if ask is steps.one_backward:
        return "The gradients are not the mean over the ranks: is each parameter's hook set?"
    if ask is steps.two_forwards:
        return TWO_FORWARDS
    if ask is steps.beside_torchs:
        return _beside_torchs(seen)
    if ask is steps.gated:
        return _gated(seen["on their way"])
    if ask is steps.default_caps and len(seen["all-reduces"]) < 2:
        return "Both caps are for assign_buckets: by default the first bucket closes at 1 MB."
    if ask is steps.default_caps or (ask is steps.sizes and len(seen["before"]) > len(steps.SIZES)):
        return "More is reduced than the buckets: share_unused is for find_unused_parameters only."
    if ask is steps.sizes:
        if isinstance(seen["after"], str):
            return "The buckets are rebuilt again and again: only the first order counts."
        if seen["before"] == seen["after"]:
            return "The buckets are never rebuilt: keep the first backward's order in first_order."
        return "first_order holds the parameters as they became ready in the first whole backward."
    if ask is steps.partly_used:
        return "A gradient that another rank has made must arrive here too: share_unused."
    if ask is steps.said_of_missing:
        return (
            "A gradient never came, and backward() said nothing of it: raise missing_gradients()."
        )
    return None


def _gated(on_their_way: Any) -> str:
    if on_their_way == "all after the last gradient":
        return "All buckets leave after the last gradient: tell the reducer of each, with ready()."
    if isinstance(on_their_way, str):
        return (
            "A hook waits: rank 0's backward stands still until rank 1 comes. Wait in `finish`, "
            "when backward is over."
        )
    if on_their_way == 0:
        return "No bucket leaves during backward. The hook has to tell the reducer: ready()."
    if on_their_way < steps.BUCKETS:
        return (
            f"{on_their_way} all-reduces leave during backward, not {steps.BUCKETS}. Do the caps "
            "reach assign_buckets?"
        )
    return (
        "backward() returned before the averages were there: queue `finish`, and wait in it. Or a "
        "hook came before p.grad was there: register_post_accumulate_grad_hook comes after."
    )


def _beside_torchs(seen: Observed) -> str:
    if seen["storages"] != steps.BUCKETS:
        return (
            f"The gradients do not lie in {steps.BUCKETS} buckets. Do the caps reach "
            "assign_buckets, are the gradients views, and is first_order as they became ready?"
        )
    return (
        "Later steps, or those after no_sync, differ from torch's. Inside no_sync the hook does "
        "nothing; after each backward one less is expected, and a new one begins."
    )


def _of_error(ask: Any, error: Any) -> str | None:
    if ask is steps.partly_used and (isinstance(error, Deadlock) or "no gradient" in str(error)):
        return "Unused parameters are ready from the start: tell the reducer at the first hook."
    if ask is steps.two_forwards and "ready twice" in str(error):
        return TWO_FORWARDS
    if "KeyError" in str(error):
        return "The parameters themselves: ready() gets one, and first_order lists them."
    if "cannot register a hook" in str(error):
        return "A hook is for the parameters that require a gradient: self.trained."
    if "no gradient for" in str(error):
        return (
            "`finish` runs, and some in the buckets are not ready: it is queued once, by the first "
            "hook of a backward, and the buckets hold self.trained, each with a hook."
        )
    return None
