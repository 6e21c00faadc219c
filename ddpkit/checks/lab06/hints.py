"""Lab 06: what to say of wrong answers, a table for each exercise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Any

from ddpkit.exercises.compare import same
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.exercises.values import Close

if TYPE_CHECKING:
    from torch import Tensor

PARAMETERS = 7  # no table of seen answers holds all orders of so many


def have(s: Seen, *buffers: object) -> bool:
    """Whether the wrong buffers of `average` are these, on the first ranks."""
    return s.wrong("buffers") and same(s.buffers[: len(buffers)], list(map(Close, buffers)))


def events(text: str, kinds: str = "gsw|") -> list[str]:
    """Events of backwards played by hand, of these kinds."""
    return [each for each in text.split() if each[0] in kinds]


def starts(text: str) -> list[str]:
    """Starts of buckets, in order."""
    return events(text, "s")


def orders(s: Seen) -> list[list[Any]]:
    """The parameters as they lie in rebuilt buckets, by rank."""
    return [[i for bucket in buckets for i in bucket] for buckets in s.buckets]


def near(got: Any, wanted: Tensor) -> bool:
    """Whether these are the gradients, up to rounding."""
    return same(got, Close(wanted))


def left(s: Seen, failing: bool) -> bool:
    """Whether the flag, True before, is False after tries in which something failed, or nothing."""
    return any(
        before and not after
        for (before, fails), after in zip(s.tries, s.after, strict=True)
        if bool(fails) is failing
    )


def used(s: Seen) -> list[int]:
    """Parameters that are called unused, and are used."""
    return sorted(each for each in s.unused if type(each) is int and each not in s.expect["unused"])


def divisor(s: Seen) -> int:
    """Return the whole number by which all ranks have divided the sum.

    ValueError: there is none.
    """
    total = sum(s.flats)
    found = round(float(total.sum() / s.buffers[0].sum()))
    if not have(s, *[total / found] * s.n):
        raise ValueError("the buffers are not the sum divided by a whole number")
    return found


ROUNDED: tuple[Callable[[Seen], Any], ...] = (  # means of those who divide with fewer digits
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
         "It waits for the other ranks before it returns: async_op=True, and no wait()."),
    Hint("not started", lambda s: s["all-reduces"] == 0,
         "It has started no all_reduce when it returns. In wait() that is too late, and a reduce "
         "tells rank 0 alone."),
    Hint("several", lambda s: s["all-reduces"] > 1,
         lambda s: f"The answer has started {s['all-reduces']} all_reduces for a single bucket: "
         "start a single all_reduce, of bucket.buffer(), which holds all gradients."),
    Hint("too large", lambda s: not all(each.isfinite().all() for each in s.buffers),
         "The sum is too large for float16. Divide first, then sum."),
    Hint("rounded", lambda s: s.wrong("buffers")
         and any(same(s.buffers, [made(s)] * s.n) for made in ROUNDED),
         "The mean has lost digits: divide in the buffer's own dtype, with its fractions."),
    Hint("a copy", lambda s: have(s, *s.flats),
         "The buffer is as before: change bucket.buffer() in place, not a copy of it."),
    Hint("the sum", lambda s: have(s, *[sum(s.flats)] * s.n),
         "That is the sum: divide by the number of ranks."),
    Hint("divided twice", lambda s: have(s, *[sum(s.flats) / s.n**2] * s.n),
         "That is divided twice."),
    Hint("rank 0 alone", lambda s: have(s, s.expect["buffers"][0])
         and not have(s, *s.expect["buffers"]),
         "Rank 0 has the mean, and others have not."),
    Hint("another number", divisor, lambda s:
         f"The sum is divided by {divisor(s)}. With {s.n} ranks, divide by {s.n}: "
         "dist.get_world_size()."),
    Hint("no mean", lambda s: s.wrong("buffers"),
         "When wait() is over, the buffer is not the mean over the ranks: the sum over all "
         "ranks, divided by the number of ranks."),
)
REDUCER = (
    Hint("no ranks", lambda s: s.kind == "no ranks",
         "The answer has called torch.distributed, and the check has no ranks: a reducer starts "
         "each average with self.start."),
    Hint("no bucket", lambda s: s.attribute in ("buffer", "index"),
         "start gets bucket i as a hook sees it: grad_bucket(self.buckets, i)."),
    Hint("waits in the hook", lambda s: "w" in s.events.partition("|")[0],
         "It waits inside the hook: backward stands still meanwhile, and nothing overlaps. Wait in "
         "wait() alone."),
    Hint("starts nothing", lambda s: not events(s.events, "s"),
         "No bucket was started: start it when the last of its gradients is ready."),
    Hint("after backward", lambda s: "s" not in s.events.partition("|")[0],
         "All is started after backward, so nothing overlaps. Start a bucket in ready(), with its "
         "last gradient."),
    Hint("as they are complete",
         lambda s: starts(s.events) != starts(s.expect["events"])
         and sorted(starts(s.events)) == sorted(starts(s.expect["events"])),
         lambda s: "The buckets start in the order in which they are complete "
         f"({' '.join(starts(s.events))}). Another rank may see another order: bucket 1 must wait "
         "for bucket 0."),
    Hint("incomplete", lambda s: set(starts(s.events)) > set(starts(s.expect["events"])),
         "A bucket was started, and a gradient in the bucket was never ready. Start complete "
         "buckets only, and wait for the started buckets."),
    Hint("started twice", lambda s: Counter(starts(s.events)) > Counter(starts(s.expect["events"]))
         and set(starts(s.events)) == set(starts(s.expect["events"])),
         "A bucket was started twice."),
    Hint("never starts", lambda s: len(starts(s.events)) < len(starts(s.expect["events"])),
         "A bucket never starts. One ready gradient may complete a bucket while later ones are "
         "complete already: go on as long as the next one can start."),
    Hint("at another time", lambda s: events(s.events, "gs|") != events(s.expect["events"], "gs|"),
         "A bucket starts with its last gradient: not earlier, and not later."),
    Hint("not waited for", lambda s: events(s.events, "w") != events(s.expect["events"], "w"),
         "After backward wait once for each bucket that was started."),
    Hint("collected late",
         lambda s: s.flat[::2] == s.own[::2] and {*chain(*s.flat[::2])} != {1},
         "flat[0] holds this rank's own gradients when all is over: who collects after the average "
         "has started puts them over the mean."),
    Hint("not collected", lambda s: not any(map(any, s.flat)),
         "collect(i) before you start bucket i: what is not collected is not averaged."),
    Hint("copies True",
         lambda s: {*chain(*s.flat[::2])} == {1} and s.flat[::2] != s.own[::2],
         "What a Work's wait() returns is True, and no tensor: copy a tensor only."),
    Hint("result dropped", lambda s: s.flat[1::2] == s.own[1::2],
         "A hook's wait() may return a new tensor: copy it into flat[i] of its bucket."),
    Hint("other values", lambda s: s.wrong("flat"),
         "After wait(), flat[i] holds the average alone: a Work has put the average there already; "
         "copy a tensor from wait() there."),
    Hint("no order", lambda s: s.wrong("order"),
         "self.order lists the parameters as their gradients became ready: add each."),
    Hint("touched", lambda s: s.wrong("collected in flight"),
         lambda s: f"Bucket {s['collected in flight'][0]} was collected between start and "
         "wait, while the memory belongs to the network: collect bucket i alone, before the "
         "start."),
)
REBUILT = (
    Hint("no parameter", lambda s: any("no parameter" in order for order in orders(s)),
         "A bucket is a list of the parameters themselves: parameters[place]."),
    Hint("its own order", lambda s: orders(s) == s.ready != s.ready[:1] * len(s.ready),
         "Each rank keeps the order that it saw itself: they have to agree on rank 0's."),
    Hint("no agreement", lambda s: any(each != s.buckets[0] for each in s.buckets),
         "The ranks have different buckets: all take rank 0's order."),
    Hint("another rank's", lambda s: orders(s)[0] in s.ready[1:] and orders(s)[0] != s.ready[0],
         lambda s: f"That is rank {s.ready.index(orders(s)[0])}'s order: broadcast rank 0's."),
    Hint("back to front", lambda s: orders(s)[0] == s.ready[0][::-1],
         "The buckets are back to front. assign_buckets goes from the last parameter to the first: "
         "hand it the reverse of the order of readiness."),
    Hint("the old order", lambda s: orders(s)[0] == sorted(s.ready[0], reverse=True),
         "That is the old order. `ready` says in which order the gradients came."),
    Hint("other caps", lambda s: orders(s)[0] == s.ready[0]
         and s.buckets[0] != s.expect["buckets"][0],
         "The order is right, and the cut is not: pass both caps on to assign_buckets."),
    Hint("places by number", say="Take rank 0's `ready`: ready[0] is the place of the one whose "
         "gradient came first."),
)
UNUSED = (
    Hint("each path", lambda s: s.raised == "RunTimeout",
         "It walks each path for itself, and there are 2**60. Note which nodes you have seen."),
    Hint("no list", lambda s: s.kind == "not a list",
         "Give back a list: a generator is empty for who goes over it again."),
    Hint("a backward", lambda s: s.kind == "no graph" or isinstance(s.unused, str),
         "The model's backward comes later: look at the graph, and run none."),
    Hint("recursion", lambda s: s.raised == "RecursionError",
         "A deep model has more nodes than Python has room for calls: keep a list of nodes."),
    Hint("by value", lambda s: s.kind == "ambiguous",
         "`in` compares tensors element by element: compare their id()."),
    Hint("no tensor", lambda s: s.attribute == "grad_fn",
         "Tensors alone have a grad_fn: take those among tree_leaves(output)."),
    Hint("None", lambda s: s.kind == "None" or s.attribute == "next_functions",
         "A tensor without a graph has no grad_fn, and next_functions may hold None: skip it."),
    Hint("no parameter", lambda s: "no parameter" in s.unused,
         "Give back the parameters themselves."),
    Hint("the used ones",
         lambda s: s.unused == [i for i in range(PARAMETERS) if i not in s.expect["unused"]],
         "These are the parameters that are used: the others were asked for."),
    Hint("in another order", lambda s: sorted(s.unused) == s.expect["unused"],
         "Give them back in the order of `parameters`."),
    Hint("used", used,
         lambda s: f"Parameter {used(s)[0]} is used. Begin at every tensor of the output, look "
         "through all nodes before a node, and theirs; a tensor may be a parameter itself."),
    Hint("unused", lambda s: set(s.expect["unused"]) - set(s.unused),
         "A parameter counts as used only if a node of the graph has it as its `variable`."),
)
NO_SYNC = (
    Hint("not for with", lambda s: s.kind in ("no context manager", "iterator", "None"),
         "It is for `with`: keep @contextmanager above it, and yield in between."),
    Hint("no gradients", lambda s: s.kind == "no graph",
         "Inside, backward makes gradients as ever, which stay on this rank: no torch.no_grad()."),
    Hint("not False", lambda s: s.wrong("inside"),
         "Inside, ddp.require_backward_grad_sync must be False."),
    Hint("swallows", lambda s: s.wrong("raised"),
         "The exception has vanished: `finally:` sets the flag back, and lets it pass."),
    Hint("no finally", lambda s: left(s, True) and not left(s, False),
         "After an exception the flag stays False: set it back in a `finally:`."),
    Hint("not set back", lambda s: left(s, True) or left(s, False),
         "Afterwards the flag must be what it was before."),
    Hint("always True", lambda s: s.wrong("after") and all(s.after),
         "Inside another no_sync the flag was False before, and must stay so afterwards."),
)
DDP = (
    Hint("torch's own", lambda s: s.raised == "TorchsOwn",
         "That is torch's class: here you build your own."),
    Hint("unused are missing", lambda s: s.case == "unused parameters"
         and (s.stuck or s.kind == "not ready"),
         "Unused parameters are ready from the start: tell the reducer at the first hook."),
    Hint("waits in a hook", lambda s: s.case == "rank 1 is late" and s.stuck,
         "A hook waits: rank 0's backward stands still until rank 1 comes. Wait in `finish`, when "
         "backward is over."),
    Hint("one average each", lambda s: s.case == "2 forwards, 3 backwards"
         and (s.kind == "ready twice" or not s.error),
         "Each forward asks for one average: `finish` makes `expected` less by 1 and begins a new "
         "backward, and one that is not expected stays silent."),
    Hint("ready twice", lambda s: s.kind == "ready twice",
         "The reducer was told twice of one gradient in one backward: each parameter has one hook, "
         "which tells of it once."),
    Hint("no parameters", lambda s: s.raised == "KeyError",
         "The parameters themselves: ready() gets one, and first_order lists them."),
    Hint("frozen hooked", lambda s: s.kind == "no hook",
         "A hook is for the parameters that require a gradient: self.trained."),
    Hint("some are not ready", lambda s: s.kind == "not ready",
         "`finish` runs, and some in the buckets are not ready: the first hook of a backward "
         "queues `finish` once; the buckets hold self.trained, each with a hook that tells the "
         "reducer."),
    Hint("own start", lambda s: s.wrong("rank 0's start"),
         "Every rank must begin with rank 0's parameters and buffers, frozen ones too: "
         "broadcast_parameters."),
    Hint("all at the end", lambda s: s.on_their_way == "all after the last gradient",
         "All buckets leave after the last gradient: tell the reducer of each, with ready()."),
    Hint("none leaves", lambda s: s.on_their_way == 0,
         "No bucket leaves during backward. The hook has to tell the reducer: ready()."),
    Hint("too few leave", lambda s: s.on_their_way < s.expect["on their way"],
         lambda s: f"{s.on_their_way} all-reduces leave during backward, not "
         f"{s.expect['on their way']}. Do the caps reach assign_buckets?"),
    Hint("own gradients", lambda s: near(s.gradients, s.own),
         "Each rank has its own gradients still: the average has to change the bucket's buffer."),
    Hint("not yet averaged", lambda s: s.wrong("ranks agree"),
         "When backward() returned, the ranks had different gradients. Is `finish` queued, does it "
         "wait for all that was started, and is p.grad there when the hook is called "
         "(register_post_accumulate_grad_hook)?"),
    Hint("the sum", lambda s: near(s.gradients, s.n * s.mean),
         "That is the sum over the ranks: `average` divides by their number."),
    Hint("divided twice", lambda s: near(s.gradients, s.mean / s.n),
         lambda s: f"The gradients are {s.n} times too small: they are divided twice."),
    Hint("no mean", lambda s: s.wrong("gradients") and s.mean is not None,
         "The gradients are not the mean over the ranks."),
    Hint("other memory", lambda s: s.wrong("storages"),
         lambda s: f"The gradients do not lie in {s.expect['storages']} buckets. Do the caps reach "
         "assign_buckets, are the gradients views, and is first_order as they became ready?"),
    Hint("later steps", lambda s: s.storages and s.wrong("as torch's", "steps"),
         "Later steps, or those after no_sync, differ from torch's. Inside no_sync the hook does "
         "nothing; after each backward one less is expected, and a new one begins."),
    Hint("one cap", lambda s: len(s["all-reduces"]) < 2,
         "Both caps are for assign_buckets: by default the first bucket closes at 1 MB."),
    Hint("more than the buckets", lambda s: s.wrong("all-reduces"),
         "More is reduced than the buckets: share_unused is for find_unused_parameters only."),
    Hint("rebuilt each time", lambda s: len(s.after) > len(s.before),
         lambda s: f"A later step takes {len(s.after)} collectives, where {len(s.before)} buckets "
         "need one each: the order is shared once, and parameters at the start."),
    Hint("never rebuilt", lambda s: s.after == s.before,
         "The buckets are never rebuilt: keep the first backward's order in first_order."),
    Hint("another order", lambda s: s.wrong("after"),
         "first_order holds the parameters as they became ready in the first whole backward."),
    Hint("None stays", lambda s: len(s["None"]) < len(s.expect["None"]),
         "A gradient that no rank has made stays None: zeros would still decay and move it."),
    Hint("not shared", lambda s: s.wrong("as torch's", "None"),
         "A gradient that another rank has made must arrive here too: share_unused."),
    Hint("incomplete", lambda s: s.buckets_sent > s.expect["buckets sent"],
         lambda s: f"{s.buckets_sent} buckets were sent, and only {s.expect['buckets sent']} "
         "were complete, with all buckets before: `finish` starts no bucket."),
    Hint("says nothing", lambda s: s.said == "nothing",
         "A gradient never came, and backward() said nothing of it: raise missing_gradients()."),
)
# fmt: on
