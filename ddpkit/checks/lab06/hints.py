"""Lab 06: sentences about wrong answers, a table for each exercise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING

from ddpkit.exercises.compare import same
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.exercises.values import Close

if TYPE_CHECKING:
    from torch import Tensor

PARAMETERS = 7  # enough that a table cannot hold all orders of the parameters


def have(s: Seen, *buffers: object) -> bool:
    """True if the buffers of `average` are wrong, and close to `buffers` on the first ranks."""
    return s.wrong("buffers") and same(s.buffers[: len(buffers)], list(map(Close, buffers)))


def events(text: str, kinds: str = "gsw|") -> list[str]:
    """Return the events in a text of `reducer.Notes` that begin with a letter in `kinds`."""
    return [each for each in text.split() if each[0] in kinds]


def starts(text: str) -> list[str]:
    """Return the events at which a bucket starts, in order, such as "s0"."""
    return events(text, "s")


def orders(s: Seen) -> list[list[int | str]]:
    """Return, for each rank, the parameters in the order of its rebuilt buckets."""
    return [[i for bucket in buckets for i in bucket] for buckets in s.buckets]


def inverse(ready: list[int]) -> list[list[int]]:
    """Return the order, forward and back, of an answer that takes ready[i] for a place in time."""
    by_place = sorted(range(len(ready)), key=ready.__getitem__)
    return [by_place, by_place[::-1]]


def in_float16(places: list[int]) -> list[int]:
    import torch

    return torch.tensor(places).half().long().tolist()


def near(got: object, wanted: Tensor) -> bool:
    """True if the gradients are close to `wanted`."""
    return same(got, Close(wanted))


def left(s: Seen, failing: bool) -> bool:
    """True if, in one of the tries, `no_sync` leaves the flag False that was True before.

    With `failing`, only tries that raise an exception count; otherwise only tries that do not.
    """
    return any(
        before and not after
        for (before, fails), after in zip(s.tries, s.after, strict=True)
        if bool(fails) is failing
    )


def used(s: Seen) -> list[int]:
    """Return the numbers of the used parameters that the answer calls unused."""
    return sorted(each for each in s.unused if type(each) is int and each not in s.expect["unused"])


def divisor(s: Seen) -> int:
    """Return the whole number by which all ranks have divided the sum.

    Raises ValueError if there is no such number.
    """
    total = sum(s.flats)
    found = round(float(total.sum() / s.buffers[0].sum()))
    if not have(s, *[total / found] * s.n):
        raise ValueError("the buffers are not the sum divided by a whole number")
    return found


ROUNDED: tuple[Callable[[Seen], object], ...] = (  # means with lost digits, each in a different way
    lambda s: sum(each // s.n for each in s.flats),
    lambda s: sum(s.flats) // s.n,
    lambda s: sum((each / s.n).half() for each in s.flats).to(s.flats[0].dtype),
    lambda s: sum((each / s.n).bfloat16() for each in s.flats).to(s.flats[0].dtype),
    lambda s: sum((each / s.n).half().to(each.dtype) for each in s.flats),
    lambda s: sum((each / s.n).bfloat16().to(each.dtype) for each in s.flats),
)


# fmt: off
AVERAGE = (
    Hint("waits", lambda s: s.stuck,
         "average waits for all ranks before it returns. Use async_op=True, and no wait()."),
    Hint("not started", lambda s: s["all-reduces"] == 0,
         "When average returns, no all_reduce has started. Starting in wait() is too late, and a "
         "reduce gives its result to rank 0 alone."),
    Hint("several", lambda s: s["all-reduces"] > 1,
         lambda s: f"The answer has started {s['all-reduces']} all_reduces for a single bucket. "
         "Start a single all_reduce, of bucket.buffer(), which holds all gradients."),
    Hint("too large", lambda s: not all(each.isfinite().all() for each in s.buffers),
         "The sum is too large for float16. Divide first, then sum."),
    Hint("rounded", lambda s: s.wrong("buffers")
         and any(same(s.buffers, [made(s)] * s.n) for made in ROUNDED),
         "The mean has lost digits. Divide in the buffer's own dtype, with fractions."),
    Hint("a copy", lambda s: have(s, *s.flats),
         "The buffer has not changed. Change bucket.buffer() in place, not a copy of the buffer."),
    Hint("the sum", lambda s: have(s, *[sum(s.flats)] * s.n),
         "The result is the sum. Divide by the number of ranks."),
    Hint("divided twice", lambda s: have(s, *[sum(s.flats) / s.n**2] * s.n),
         "The result is divided by the number of ranks twice."),
    Hint("rank 0 alone", lambda s: have(s, s.expect["buffers"][0])
         and not have(s, *s.expect["buffers"]),
         "Rank 0 has the mean, but some ranks do not."),
    Hint("another number", divisor, lambda s:
         f"The sum is divided by {divisor(s)}. With {s.n} ranks, divide by {s.n}: "
         "dist.get_world_size()."),
    Hint("no mean", lambda s: s.wrong("buffers"),
         "After wait(), the buffer is not the mean over the ranks: the sum over all ranks, divided "
         "by the number of ranks."),
)
REDUCER = (
    Hint("no ranks", lambda s: s.kind == "no ranks",
         "The answer has called torch.distributed, but this check has no ranks. A reducer starts "
         "each average with self.start."),
    Hint("no bucket", lambda s: s.attribute in ("buffer", "index"),
         "start gets bucket i in the form that a hook gets: grad_bucket(self.buckets, i)."),
    Hint("waits in the hook", lambda s: "w" in s.events.partition("|")[0],
         "The answer waits inside the hook. Backward stops meanwhile, and nothing overlaps. Wait "
         "only in wait()."),
    Hint("starts nothing", lambda s: not events(s.events, "s"),
         "No bucket was started. Start a bucket when the last of its gradients is ready."),
    Hint("after backward", lambda s: "s" not in s.events.partition("|")[0],
         "All buckets start after backward, so nothing overlaps. Start a bucket in ready(), with "
         "its last gradient."),
    Hint("as they are complete",
         lambda s: starts(s.events) != starts(s.expect["events"])
         and sorted(starts(s.events)) == sorted(starts(s.expect["events"])),
         lambda s: "The buckets start in the order in which they are complete "
         f"({' '.join(starts(s.events))}). This order may differ by rank: bucket 1 must wait for "
         "bucket 0."),
    Hint("incomplete", lambda s: set(starts(s.events)) > set(starts(s.expect["events"])),
         "A bucket was started although one of its gradients was never ready. Start only complete "
         "buckets, and wait only for started buckets."),
    Hint("started twice", lambda s: Counter(starts(s.events)) > Counter(starts(s.expect["events"]))
         and set(starts(s.events)) == set(starts(s.expect["events"])),
         "A bucket was started twice."),
    Hint("another bucket", lambda s: sorted(starts(s.events)) != sorted(starts(s.expect["events"]))
         and len(starts(s.events)) == len(starts(s.expect["events"])),
         lambda s: f"Each bucket starts once, but the starts are {' '.join(starts(s.events))}. The "
         "argument of start for bucket i is grad_bucket(self.buckets, i)."),
    Hint("never starts", lambda s: len(starts(s.events)) < len(starts(s.expect["events"])),
         "A bucket never starts. One ready gradient may complete a bucket while later buckets are "
         "complete already: continue as long as the next bucket can start."),
    Hint("at another time", lambda s: events(s.events, "gs|") != events(s.expect["events"], "gs|"),
         "A bucket starts with its last gradient, neither earlier nor later."),
    Hint("not waited for", lambda s: events(s.events, "w") != events(s.expect["events"], "w"),
         "After backward, wait once for each started bucket."),
    Hint("collected late",
         lambda s: s.flat[::2] == s.own[::2] and {*chain(*s.flat[::2])} != {1},
         "At the end, flat[0] holds this rank's own gradients. A collect after the start of the "
         "average overwrites the mean."),
    Hint("not collected", lambda s: not any(map(any, s.flat)),
         "Call collect(i) before you start bucket i. The average has only gradients that are "
         "collected."),
    Hint("copies True",
         lambda s: {*chain(*s.flat[::2])} == {1} and s.flat[::2] != s.own[::2],
         "A Work's wait() returns True, not a tensor. Copy the result only if it is a tensor."),
    Hint("result dropped", lambda s: s.flat[1::2] == s.own[1::2],
         "A hook's wait() may return a new tensor. Copy the tensor into flat[i] of its bucket."),
    Hint("other values", lambda s: s.wrong("flat"),
         "After wait(), flat[i] must hold only the average. A Work has already put the average "
         "there; copy a tensor that wait() returns."),
    Hint("no order", lambda s: s.wrong("order"),
         "self.order lists the parameters in the order in which their gradients became ready. Add "
         "each parameter."),
    Hint("touched", lambda s: s.wrong("collected in flight"),
         lambda s: f"Bucket {s['collected in flight'][0]} was collected between start and wait, "
         "while the network uses its memory. Collect only bucket i, before its start."),
)
REBUILT = (
    Hint("no parameter", lambda s: any("no parameter" in order for order in orders(s)),
         "A bucket is a list of the parameters themselves: parameters[place]."),
    Hint("its own order", lambda s: orders(s) == s.ready != s.ready[:1] * len(s.ready),
         "Each rank keeps the order that it saw itself, but all ranks have to agree on rank 0's "
         "order."),
    Hint("no agreement", lambda s: any(each != s.buckets[0] for each in s.buckets),
         "The ranks have different buckets. All ranks must take rank 0's order."),
    Hint("another rank's", lambda s: orders(s)[0] in s.ready[1:] and orders(s)[0] != s.ready[0],
         lambda s: f"The order is rank {s.ready.index(orders(s)[0])}'s. Broadcast rank 0's "
         "order."),
    Hint("back to front", lambda s: orders(s)[0] == s.ready[0][::-1],
         "The buckets are in reverse order. assign_buckets goes from the last parameter to the "
         "first, so pass the reverse of the order of readiness."),
    Hint("the old order", lambda s: orders(s)[0] == sorted(s.ready[0], reverse=True),
         "The buckets still have the old order. `ready` gives the order in which the gradients "
         "came."),
    Hint("other caps", lambda s: orders(s)[0] == s.ready[0]
         and s.buckets[0] != s.expect["buckets"][0],
         "The order is right, but the cut is not. Pass both caps on to assign_buckets."),
    Hint("places by number", lambda s: orders(s)[0] in inverse(s.ready[0]),
         "Take rank 0's `ready`: ready[0] is the place of the parameter with the first gradient."),
    Hint("rounded", lambda s: orders(s)[0] == in_float16(s.ready[0]),
         "The order has lost digits on its way: float16 cannot hold 2,049."),
    Hint("another order", say="The buckets do not follow rank 0's `ready`. Compare the order of "
         "the buckets, and the order of the parameters within each bucket."),
)
UNUSED = (
    Hint("each path", lambda s: s.raised == "RunTimeout",
         "The answer walks each path separately, and there are 2**60 paths. Note the nodes that "
         "you have seen."),
    Hint("no list", lambda s: s.kind == "not a list",
         "Return a list: a generator is empty when it is read a second time."),
    Hint("a backward", lambda s: s.kind == "no graph" or isinstance(s.unused, str),
         "The model's backward comes later. Only look at the graph, and run no backward."),
    Hint("recursion", lambda s: s.raised == "RecursionError",
         "A deep model has more nodes than Python allows nested calls. Keep a list of nodes "
         "instead."),
    Hint("by value", lambda s: s.kind == "ambiguous",
         "`in` compares tensors element by element. Compare their id()."),
    Hint("no tensor", lambda s: s.attribute == "grad_fn",
         "Only tensors have a grad_fn. Take the tensors among tree_leaves(output)."),
    Hint("None", lambda s: s.kind == "None" or s.attribute == "next_functions",
         "A tensor without a graph has no grad_fn, and next_functions may hold None. Skip both."),
    Hint("no parameter", lambda s: "no parameter" in s.unused,
         "Return the parameters themselves."),
    Hint("the used ones",
         lambda s: s.unused == [i for i in range(PARAMETERS) if i not in s.expect["unused"]],
         "These are the used parameters, but the unused parameters are asked for."),
    Hint("in another order", lambda s: sorted(s.unused) == s.expect["unused"],
         "Return the parameters in the order of `parameters`."),
    Hint("used", used,
         lambda s: f"Parameter {used(s)[0]} is used. Begin at every tensor of the output, and "
         "follow all nodes before each node. A tensor of the output may be a parameter itself."),
    Hint("unused", lambda s: set(s.expect["unused"]) - set(s.unused),
         "A parameter counts as used only if a node of the graph has the parameter as its "
         "`variable`."),
)
NO_SYNC = (
    Hint("not for with", lambda s: s.kind in ("no context manager", "iterator", "None"),
         "no_sync is for `with`. Keep @contextmanager above the function, and yield in between."),
    Hint("no gradients", lambda s: s.kind == "no graph",
         "Inside, backward makes gradients as usual, and they stay on this rank. Do not use "
         "torch.no_grad()."),
    Hint("not False", lambda s: s.wrong("inside"),
         "Inside, ddp.require_backward_grad_sync must be False."),
    Hint("swallows", lambda s: s.wrong("raised"),
         "The exception has vanished. `finally:` sets the flag back and lets the exception pass."),
    Hint("no finally", lambda s: left(s, True) and not left(s, False),
         "After an exception, the flag stays False. Set the flag back in a `finally:`."),
    Hint("not set back", lambda s: left(s, True) or left(s, False),
         "Afterwards, the flag must have the value from before."),
    Hint("always True", lambda s: s.wrong("after") and all(s.after),
         "Inside an outer no_sync, the flag was False before, and must be False afterwards."),
)
DDP = (
    Hint("torch's own", lambda s: s.raised == "TorchsOwn",
         "You return torch's class. Build your own class here."),
    Hint("unused are missing", lambda s: s.case == "unused parameters"
         and (s.stuck or s.kind == "not ready"),
         "Unused parameters are ready from the start. Report them to the reducer at the first "
         "hook."),
    Hint("waits in a hook", lambda s: s.case == "rank 1 is late" and s.stuck,
         "A hook waits, so rank 0's backward stops until rank 1 arrives. Wait in `finish`, when "
         "backward is over."),
    Hint("no_sync too", lambda s: s.wrong("no_sync adds") and not s.error
         and not s.wrong("gradients", "a third adds"),
         "A forward had no backward. A later backward inside no_sync should add the rank's own "
         "gradients, and added other numbers. Is `expected` 0 after a forward inside no_sync?"),
    Hint("one average each", lambda s: s.case == "2 forwards, 3 backwards"
         and (s.kind == "ready twice" or not s.error),
         "Each forward asks for one average: `finish` lowers `expected` by 1 and begins a new "
         "backward. A backward that is not expected stays silent."),
    Hint("ready twice", lambda s: s.kind == "ready twice",
         "The reducer was told twice about one gradient in one backward. Each parameter has one "
         "hook, which reports the gradient once."),
    Hint("no parameters", lambda s: s.raised == "KeyError",
         "Pass the parameters themselves: ready() gets a parameter, and first_order lists "
         "parameters."),
    Hint("frozen hooked", lambda s: s.kind == "no hook",
         "A hook is only for a parameter that requires a gradient: self.trained."),
    Hint("some are not ready", lambda s: s.kind == "not ready",
         "`finish` runs while some parameters in the buckets are not ready. The first hook of a "
         "backward queues `finish` once. The buckets hold self.trained, and each of these "
         "parameters has a hook that informs the reducer."),
    Hint("own start", lambda s: s.wrong("rank 0's start"),
         "Every rank must begin with rank 0's parameters and buffers, including frozen parameters: "
         "broadcast_parameters."),
    Hint("all at the end", lambda s: s.on_their_way == "all after the last gradient",
         "All buckets leave after the last gradient. Report each gradient to the reducer with "
         "ready()."),
    Hint("none leaves", lambda s: s.on_their_way == 0,
         "No bucket leaves during backward. The hook has to call the reducer's ready()."),
    Hint("too few leave", lambda s: s.on_their_way < s.expect["on their way"],
         lambda s: f"{s.on_their_way} all-reduces leave during backward, not "
         f"{s.expect['on their way']}. Are the caps passed to assign_buckets?"),
    Hint("own gradients", lambda s: near(s.gradients, s.own),
         "Each rank still has its own gradients. The average has to change the bucket's buffer."),
    Hint("not yet averaged", lambda s: s.wrong("ranks agree"),
         "When backward() returned, the ranks had different gradients. Is `finish` queued? Does "
         "`finish` wait for every started bucket? Is p.grad set when the hook runs "
         "(register_post_accumulate_grad_hook)?"),
    Hint("the sum", lambda s: near(s.gradients, s.n * s.mean),
         "The result is the sum over the ranks. `average` divides by the number of ranks."),
    Hint("divided twice", lambda s: near(s.gradients, s.mean / s.n),
         lambda s: f"The gradients are {s.n} times too small: your code divides twice."),
    Hint("no mean", lambda s: s.wrong("gradients") and s.mean is not None,
         "The gradients are not the mean over the ranks."),
    Hint("other memory", lambda s: s.wrong("storages"),
         lambda s: f"The gradients are not in {s.expect['storages']} buckets. Are the caps passed "
         "to assign_buckets, are the gradients views, and is first_order the order of "
         "readiness?"),
    Hint("later steps", lambda s: s.storages and s.wrong("as torch's", "steps"),
         "Later steps, or steps after no_sync, differ from torch's. Inside no_sync, the hook does "
         "nothing. After each backward, `expected` falls by 1 and a new backward begins."),
    Hint("one cap", lambda s: len(s["all-reduces"]) < 2,
         "Both caps are for assign_buckets. By default, the first bucket closes at 1 MB."),
    Hint("more than the buckets", lambda s: s.wrong("all-reduces"),
         "You reduce more than the buckets. share_unused is only for find_unused_parameters."),
    Hint("rebuilt each time", lambda s: len(s.after) > len(s.before),
         lambda s: f"A later step takes {len(s.after)} collectives, but {len(s.before)} buckets "
         "need one each. Share the order once, and the parameters only at the start."),
    Hint("never rebuilt", lambda s: s.after == s.before,
         "The buckets are never rebuilt. Keep the first backward's order in first_order."),
    Hint("another order", lambda s: s.wrong("after"),
         "first_order holds the parameters in the order in which they became ready in the first "
         "whole backward."),
    Hint("None stays", lambda s: len(s["None"]) < len(s.expect["None"]),
         "A gradient that no rank has made must stay None. An optimizer would still decay and move "
         "a parameter with zeros."),
    Hint("not shared", lambda s: s.wrong("as torch's", "None"),
         "If only some ranks make a gradient, its mean must still arrive on every rank: "
         "share_unused."),
    Hint("incomplete", lambda s: s.buckets_sent > s.expect["buckets sent"],
         lambda s: f"{s.buckets_sent} buckets were sent, but only {s.expect['buckets sent']} were "
         "complete, with all earlier buckets. `finish` must not start a bucket."),
    Hint("says nothing", lambda s: s.said == "nothing",
         "A gradient never came, but backward() raised no error about it. Raise "
         "missing_gradients()."),
)
# fmt: on
