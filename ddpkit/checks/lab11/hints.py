"""Lab 11: what to say of wrong answers, a table for each exercise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ddpkit.checks.shared.messages import MESSAGES
from ddpkit.exercises.compare import same
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.exercises.values import Close, plain
from ddpkit.simulate.step.pipeline import Op


def works(s: Seen) -> list[tuple[int, int]]:
    """All pairs of ticks, in order."""
    return [pair for tick in s.ticks for pair in tick]


def twice(s: Seen) -> tuple[int, int] | None:
    """A pair that is there more than once."""
    return next((pair for pair, times in Counter(works(s)).items() if times > 1), None)


def crossed(s: Seen) -> list[list[tuple[int, int]]]:
    """The right ticks, with (piece, stage) in place of (stage, piece)."""
    return [sorted((i, stage) for stage, i in tick) for tick in s.expect["ticks"]]


def near(got: Any, wanted: Any) -> bool:
    """Whether these are the values, up to rounding."""
    return same(got, Close(wanted))


# fmt: off
TICKS = (
    Hint("pairs swapped", lambda s: s.stages != s.pieces and s.ticks == crossed(s),
         lambda s: f"A pair is (stage, piece), and there are {s.stages} stages."),
    Hint("no such stage", lambda s: any(stage >= s.stages for stage, _ in works(s)),
         lambda s: f"Somebody works on stage {max(works(s))[0]} of {s.stages}."),
    Hint("no such piece", lambda s: any(not 0 <= i < s.pieces for _, i in works(s)),
         lambda s: f"There are {s.pieces} pieces, and they are numbered from 0."),
    Hint("an empty tick", lambda s: [] in s.ticks,
         "In one tick nobody works. How many ticks does the last piece need, after the first?"),
    Hint("twice", twice, lambda s: f"{twice(s)} is there twice: a piece passes a stage once."),
    Hint("never leaves", lambda s: len({*works(s)}) < s.stages * s.pieces,
         lambda s: f"Each of {s.pieces} pieces passes each of {s.stages} stages: that makes "
         f"{s.stages * s.pieces} pairs, and some are missing."),
    Hint("one after the other", lambda s: len(s.ticks) > len(s.expect["ticks"]),
         "Somebody waits without need: piece 1 can enter when stage 0 has passed piece 0 on."),
    Hint("two at once", lambda s: any(len({*tick}) > len({stage for stage, _ in tick})
         for tick in s.ticks), "A stage has two pieces in one tick: it takes one at a time."),
    Hint("other order", lambda s: any(pieces != sorted(pieces) for pieces in (
         [i for at, i in works(s) if at == stage] for stage in range(s.stages))),
         "Each stage takes the pieces in order: 0 first."),
    Hint("too early", lambda s: s.ticks,
         "A piece is at a stage before the stage in front of it has passed it on."),
)
THREAD = Hint("a thread", lambda s: s["ms"] == "not counted",
    "Operations in a thread of your own are not counted. No thread is needed: isend starts a "
    "message and returns at once.")
RNN_LAYER = (
    *MESSAGES[1:],
    Hint("has returned", lambda s: s.stuck == "returned",
         "Count: a rank waits for a message that nobody sends, or sends one that nobody takes. The "
         "last rank has nobody behind it, and rank 0 nobody before it."),
    Hint("to nobody", lambda s: s.kind in ("no such rank", "to itself"),
         "There is nobody behind the last rank, and nobody before rank 0."),
    Hint("stuck", lambda s: s.stuck,
         "Draw for three ranks who receives from whom, and when: each output goes one rank on."),
    Hint("all at the end", lambda s: s.n > 1 and "ff" in s.order[0],
         "An output waits here until later ones are there, so the next rank cannot begin. Start to "
         "send it as soon as it is there."),
    Hint("one message", lambda s: s.wrong("bytes"),
         "Each output is a message of its own, as it is, to the next rank alone."),
    Hint("all received first", lambda s: s.wrong("waits ahead"),
         "A rank waits here for later inputs while it has one that it could begin with: no wave "
         "goes through the ranks."),
    Hint("None for []", lambda s: isinstance(s.outputs[-1], list) and None in s.outputs[:-1],
         "The last rank returns its outputs. The other ranks return None here: return an empty "
         "list, []."),
    Hint("no list", lambda s: not all(isinstance(each, list) for each in s.outputs),
         "Return a list, on every rank: of the outputs, or an empty one."),
    THREAD,
    Hint("late on a link", lambda s: s.wrong("ms") and not s.wrong("outputs"),
         lambda s: f"Right, but with a link of {s.link} it takes {s['ms']} ms, and "
         f"{s.expect['ms'].least} would do. Does a rank wait until a message has arrived (send, or "
         "wait() in the loop) before it computes the next step?"),
    Hint("everywhere", lambda s: any(s.outputs[:-1]),
         "Only the last rank returns outputs: the others an empty list."),
    Hint("hidden not carried on", lambda s: near(s.outputs[-1][0], s.expect_first),
         "The first output is right, later ones are not: what the cell returns is the next step's "
         "hidden."),
    Hint("all the last one", lambda s: len(s.outputs[-1]) > 1
         and all(near(one, s.outputs[-1][-1]) for one in s.outputs[-1]),
         "All outputs are the last one: a tensor in a list is no copy. Each step needs one of its "
         "own."),
    Hint("its own input", say="The values differ: what the cell of a rank gets is what the rank "
         "before it has sent, and the rank's own hidden."),
)
PLAN = (
    Hint("not pairs", lambda s: s.flaw.endswith(("no list", "no pair")),
         lambda s: f'A plan is a list of pairs, such as [("F", 0), ("B", 0)] ({s.flaw}).'),
    Hint("no operation", lambda s: s.flaw.endswith(("nor B", "no int")),
         lambda s: f'A pair is ("F", i) or ("B", i), and i is an int ({s.flaw}).'),
    Hint("no such micro-batch", lambda s: " of " in s.flaw,
         lambda s: f"There is no such micro-batch ({s.flaw}): the first is 0."),
    Hint("missing", lambda s: ": no " in s.flaw,
         lambda s: f"Every micro-batch goes once forward and once backward: {s.flaw}."),
    Hint("twice", lambda s: "twice" in s.flaw,
         lambda s: f"Every micro-batch goes once forward and once backward: {s.flaw}."),
    Hint("backward first", lambda s: "before" in s.flaw,
         lambda s: f"Nothing can go back that has not gone forward: {s.flaw}."),
)
GPIPE = (
    *PLAN,
    Hint("backward too early", lambda s: s.held != s.least,
         "First all forwards, then all backwards."),
    Hint("other order", say="The stages take the micro-batches in one order, or they wait."),
)
ONE_F_ONE_B = (
    *PLAN,
    Hint("waits for ever", lambda s: s.flaw == "waits for ever",
         lambda s: f"Stage {s.stage} waits for ever for {s.awaited} of its neighbour: the first "
         "stage goes ahead furthest, the last not at all."),
    Hint("newest first", lambda s: any(going(plan, "B") != going(plan, "F") for plan in s.plans),
         "Take the oldest micro-batch back first, at the end too: its gradient comes first."),
    Hint("too many first", lambda s: sum(s.held) > sum(s.least),
         lambda s: f"Stages hold {s.held} micro-batches, and {s.least} are enough: the last stage "
         "can go back at once."),
    Hint("too few first", lambda s: s.held,
         lambda s: f"{s.ms:.0f} ms, and {s.shortest:.0f} are possible: a stage waits for a "
         "backward where it could do a forward."),
)
BUBBLE = (
    Hint("no float", lambda s: type(plain(s.bubble)) not in (int, float), "Return a float."),
    Hint("of the ideal", lambda s: near(s.bubble, (s.stages - 1) / s.micro),
         "That is the share of the ideal time, as Megatron-LM's paper counts it; of the step it is "
         "less."),
    Hint("busy", lambda s: near(s.bubble, s.micro / (s.micro + s.stages - 1)),
         "That is the share in which a rank works. The bubble is the rest."),
    Hint("all stages", lambda s: near(s.bubble, s.stages / (s.micro + s.stages - 1)),
         "A rank waits while the batch passes the other stages: one less than there are."),
    Hint("one slot too many", lambda s: near(s.bubble, (s.stages - 1) / (s.micro + s.stages)),
         lambda s: f"Count the slots: {s.micro} for the micro-batches, and one for each of the "
         "other stages."),
    Hint("percent", lambda s: near(s.bubble, 100 * s.expect_bubble), "A share is between 0 and 1."),
    Hint("without micro-batches", lambda s: near(s.bubble, (s.stages - 1) / s.stages),
         "That is the bubble of one micro-batch: where are the others?"),
    Hint("another share", say=lambda s: f"With {s.stages} stages and {s.micro} micro-batches a "
         f"step has {s.micro + s.stages - 1} slots of F + B, and a stage works in {s.micro}."),
)
PIPELINE_STEP = (
    *MESSAGES[1:],
    Hint("returns without", lambda s: s.stuck == "returned",
         "A rank has returned, and another still waits for it: count the messages of each pair. "
         "Rank 0 has nobody before it, and the last rank nobody behind."),
    Hint("waits for its send", lambda s: s.stuck in ("send", "cycle"),
         "Ranks wait in a send until a neighbour receives, and the neighbour does so too. Start "
         "the send (isend), go on with the plan, and wait at the end."),
    Hint("nobody sends", lambda s: s.stuck == "receive",
         "All wait for a message that nobody sends: a message and its receive have one tag, "
         "and a forward goes before the backward that answers it."),
    Hint("to nobody", lambda s: s.kind in ("no such rank", "to itself"),
         "Rank 0 has nobody before it, and the last rank nobody behind."),
    Hint("needs no gradient", lambda s: s.kind in ("None", "no graph"),
         "Nothing goes back: what arrives must require a gradient before it goes through the "
         "stage, and then x.grad is what to send."),
    Hint("no length", lambda s: s.once and s.kind == "iterator",
         "The plan may be a generator, which gives one operation after the other: it has no "
         "length and no index. `targets` and `inputs` are lists."),
    Hint("walked once", lambda s: s.once and not any(s.order),
         "No operation is carried out. The plan may be a generator: after the first loop over it, "
         "nothing is left for a second one."),
    Hint("own order", lambda s: s.wrong("order"),
         lambda s: f"A rank does {first_wrong(s)}: take what the plan says, in its order."),
    Hint("outputs kept", lambda s: any(s.observed["too long"]),
         "Outputs live on after their backward: take them out of what you hold (pop), and send "
         "y.detach(), for a Work keeps what it sends."),
    Hint("graph kept", lambda s: any(s["graphs kept"]),
         "A micro-batch's graph lives on after its backward. Does a sum of losses, or what you "
         "return, hold it? Add numbers: y.item(), or y.detach()."),
    Hint("zeroed", lambda s: s.gradient is not None and near(
        s.gradient, [g - s.before for g in s.expect_gradients]),
         "What was in .grad before is gone: a step adds to it, as backward() does."),
    Hint("the sum", lambda s: near(grown(s), [s.micro * g for g in wanted(s)]),
         lambda s: f"The gradients are {s.micro} times too large: that of the mean over "
         f"{s.micro} micro-batches is asked for."),
    Hint("target first", lambda s: near(grown(s), s.turned),
         "These are gradients of loss(target, output): the output comes first."),
    Hint("divided again", lambda s: s.n > 1 and near(grown(s)[-1], wanted(s)[-1])
         and near(grown(s)[-2], wanted(s)[-2] / s.micro),
         lambda s: f"Stages before the last have 1/{s.micro} of their gradient: the gradient that "
         "arrives is divided already."),
    Hint("loss not of the mean", lambda s: s.wrong("loss") and not s.wrong("gradient"),
         "The gradients are right. The last rank returns the mean of the losses, the others None."),
    Hint("collective", lambda s: s.collectives,
         lambda s: f"Messages between neighbours are enough: with {s.collectives[0]} all wait for "
         "all."),
    Hint("messages", lambda s: s.wrong("messages"),
         "Each forward sends one message on, each backward one back."),
    THREAD,
    Hint("late on a link", lambda s: s.link and s.wrong("ms") and not s.wrong("gradient"),
         lambda s: f"The gradients are right, but with a link of {s.link} the step takes "
         f"{s['ms']} ms, and the simulator predicts {s.expect['ms'].least}. Does a rank wait "
         "until a message has arrived (send, or wait() in the loop) before its next operation?"),
    Hint("more than gradients", lambda s: s.wrong("module") and not s.wrong("gradient"),
         lambda s: f"The gradients are right, but the module is left {s.module[-1]}: a worker "
         "makes gradients, and changes nothing else of it."),
    Hint("another's input", lambda s: near(grown(s)[0], wanted(s)[0]),
         "A backward has used another micro-batch's tensors: each needs what its own forward had, "
         "and a message a tensor of its own."),
    Hint("other gradients", say="Follow micro-batch 0 through the ranks, forward and back."),
)
SPLIT_BACKWARD = (
    Hint("graph is gone", lambda s: s.kind == "graph freed",
         "The first of the two passes has freed the graph: it keeps it for the second by "
         "retain_graph=True."),
    Hint("unused parameter", lambda s: s.kind == "not in the graph",
         "A parameter that this stage does not use has no gradient, and that is no error: "
         "autograd.grad gives None for it with allow_unused=True."),
    Hint("no function", lambda s: s.kind == "not callable",
         "The second part is for later: return a function, which does it when it is called."),
    Hint("both at once", lambda s: s.early,
         "The gradients of the parameters are computed before the function is called: nothing is "
         "left to fill the bubble with."),
    Hint("x twice", lambda s: same(s.of_x, [Close(2 * each.value) for each in s.expect["of x"]]),
         "The gradient of x doubles when the function is called: both parts add to x.grad, which "
         "you have returned. autograd.grad() makes it apart, and inputs= names the parameters."),
    Hint("another gradient", lambda s: s.wrong("of x"),
         "The gradient of x is not right: begin with the gradient of y that is given."),
    Hint("overwritten", lambda s: same(s.grads, [Close(s.expect_alone[0]), Close(s.expect_alone[1]),
         None]) and s.wrong("grads"),
         "What was in .grad before is gone: micro-batches before this one are lost. Add."),
    Hint("in x too", lambda s: not s.wrong("grads") and s.wrong("x.grad"),
         "The parameters alone have a .grad afterwards: name them as inputs of the backward."),
    Hint("with a graph", lambda s: not s.wrong("grads", "of x") and s["with a graph"],
         "The gradients are right, but they have a graph of their own, which keeps the "
         "activations alive: create_graph=True is for gradients of gradients."),
    Hint("never freed", lambda s: not s.wrong("grads") and not s.freed,
         "The graph lives on when both parts are done: the second pass need not retain it."),
    Hint("other gradients", say="Afterwards each parameter has grown by its own gradient, once."),
)
# fmt: on


def going(plan: Sequence[Op], way: str) -> list[int]:
    """The micro-batches of a plan's forwards or backwards, in its order."""
    return [op[1] for op in plan if op[0] == way]


def first_wrong(s: Seen) -> str:
    """ "F3 where the plan has B0"."""
    pairs = zip(s.order, s.expect["order"], strict=True)
    got, want = next((a.split(), b.split()) for a, b in pairs if a != b)
    at = next((k for k, (a, b) in enumerate(zip(got, want, strict=False)) if a != b), -1)
    if at < 0:
        return f"{len(got)} operations of {len(want)}"
    return f"{got[at]} where its plan has {want[at]}"


def wanted(s: Seen) -> list[Any]:
    """What the gradients should have grown by, by rank."""
    return [g - s.before for g in s.expect_gradients]


def grown(s: Seen) -> list[Any]:
    """What the gradients have grown by, by rank."""
    return [g - s.before for g in s.gradient]
