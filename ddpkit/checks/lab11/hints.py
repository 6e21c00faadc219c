"""Lab 11: sentences about wrong answers, a table for each exercise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ddpkit.checks.shared.messages import MESSAGES
from ddpkit.exercises.compare import same
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.exercises.values import Close, plain
from ddpkit.simulate.step.pipeline import Op

if TYPE_CHECKING:
    from torch import Tensor


def works(s: Seen) -> list[tuple[int, int]]:
    """Return the (stage, piece) pairs of all ticks, in order."""
    return [pair for tick in s.ticks for pair in tick]


def twice(s: Seen) -> tuple[int, int] | None:
    """Return a pair that occurs more than once, or None."""
    return next((pair for pair, times in Counter(works(s)).items() if times > 1), None)


def crossed(s: Seen) -> list[list[tuple[int, int]]]:
    """Return the right ticks with each pair reversed: (piece, stage)."""
    return [sorted((i, stage) for stage, i in tick) for tick in s.expect["ticks"]]


def near(got: object, wanted: object) -> bool:
    """True if the values are equal up to rounding."""
    return same(got, Close(wanted))


# fmt: off
TICKS = (
    Hint("no ticks", lambda s: not all(isinstance(tick, list) for tick in s.ticks),
         "Return a list of ticks. A tick is a list too: the pairs that are at work in this tick."),
    Hint("pairs swapped", lambda s: s.stages != s.pieces and s.ticks == crossed(s),
         lambda s: f"A pair is (stage, piece), and there are {s.stages} stages."),
    Hint("no such stage", lambda s: any(stage >= s.stages for stage, _ in works(s)),
         lambda s: f"You use stage {max(works(s))[0]}, but there are only {s.stages} stages, "
         "counted from 0."),
    Hint("no such piece", lambda s: any(not 0 <= i < s.pieces for _, i in works(s)),
         lambda s: f"There are {s.pieces} pieces, numbered from 0."),
    Hint("an empty tick", lambda s: [] in s.ticks,
         "In one tick, no stage works. How many ticks does the last piece need after the first?"),
    Hint("twice", twice, lambda s: f"{twice(s)} occurs twice, but a piece passes a stage only "
    "once."),
    Hint("never leaves", lambda s: len({*works(s)}) < s.stages * s.pieces,
         lambda s: f"Each of {s.pieces} pieces passes each of {s.stages} stages. This makes "
         f"{s.stages * s.pieces} pairs, and some are missing."),
    Hint("one after the other", lambda s: len(s.ticks) > len(s.expect["ticks"]),
         "A stage waits without need: piece 1 can enter stage 0 as soon as piece 0 has left it."),
    Hint("two at once", lambda s: any(len({*tick}) > len({stage for stage, _ in tick})
         for tick in s.ticks), "A stage has two pieces in one tick, but a stage takes one piece at "
         "a time."),
    Hint("other order", lambda s: any(pieces != sorted(pieces) for pieces in (
         [i for at, i in works(s) if at == stage] for stage in range(s.stages))),
         "Each stage takes the pieces in order, piece 0 first."),
    Hint("too early", lambda s: s.ticks,
         "A piece is at a stage before the previous stage has passed the piece on."),
)
THREAD = Hint("a thread", lambda s: s["ms"] == "not counted",
    "Operations in a thread of your own are not counted. You need no thread: isend starts a "
    "message and returns at once.")
RNN_LAYER = (
    *MESSAGES[1:],
    Hint("has returned", lambda s: s.stuck == "returned",
         "Count the messages: a rank waits for a message that no rank sends, or sends a message "
         "that no rank receives. The last rank sends to no next rank, and rank 0 receives from no "
         "previous rank."),
    Hint("to nobody", lambda s: s.kind in ("no such rank", "to itself"),
         "The last rank has no next rank, and rank 0 has no previous rank."),
    Hint("stuck", lambda s: s.stuck,
         "Draw sender, receiver and time of each message for three ranks: each output goes to the "
         "next rank."),
    Hint("all at the end", lambda s: s.n > 1 and "ff" in s.order[0],
         "An output waits here until later outputs are ready, so the next rank cannot begin. Start "
         "to send an output as soon as it is ready."),
    Hint("one message", lambda s: s.wrong("bytes"),
         "Send each output unchanged, as its own message, and only to the next rank."),
    Hint("all received first", lambda s: s.wrong("waits ahead"),
         "A rank waits here for later inputs, although it already has an input for its next step. "
         "So no wave goes through the ranks."),
    Hint("None for []", lambda s: isinstance(s.outputs[-1], list) and None in s.outputs[:-1],
         "The last rank returns its outputs, but further ranks return None here. Return an empty "
         "list, []."),
    Hint("no list", lambda s: not all(isinstance(each, list) for each in s.outputs),
         "Return a list on every rank: the outputs, or an empty list."),
    THREAD,
    Hint("late on a link", lambda s: s.wrong("ms") and not s.wrong("outputs"),
         lambda s: f"The outputs are right, but with a link of {s.link} the run takes {s['ms']} "
         f"ms, where {s.expect['ms'].least} ms are possible. Does a rank wait for the arrival of a "
         "message (send, or wait() in the loop) before it computes the next step?"),
    Hint("everywhere", lambda s: any(s.outputs[:-1]),
         "Only the last rank returns outputs. All further ranks return an empty list."),
    Hint("not all outputs", lambda s: len(s.outputs[-1]) != len(s.expect["outputs"][-1].value),
         lambda s: f"Rank {s.n - 1} is the last rank, and returns {len(s.outputs[-1])} outputs for "
         f"{len(s.expect['outputs'][-1].value)} inputs. Return an output for each input."),
    Hint("hidden not carried on", lambda s: near(s.outputs[-1][0], s.expect_first),
         "The first output is right, but later outputs are not. The result of the cell is the "
         "hidden state of the next step."),
    Hint("all the last one", lambda s: len(s.outputs[-1]) > 1
         and all(near(one, s.outputs[-1][-1]) for one in s.outputs[-1]),
         "All outputs are the last output, because a tensor in a list is not a copy. Use a new "
         "tensor for each step."),
    Hint("its own input", say="The values differ. The cell of a rank needs the tensor from the "
         "previous rank, and the rank's own hidden state. The cell's result is the output: send it "
         "to the next rank, or return it on the last rank."),
)
PLAN = (
    Hint("not pairs", lambda s: s.flaw.endswith(("no list", "no pair")),
         lambda s: f'A plan is a list of pairs, for example [("F", 0), ("B", 0)] ({s.flaw}).'),
    Hint("no operation", lambda s: s.flaw.endswith(("nor B", "no int")),
         lambda s: f'A pair is ("F", i) or ("B", i), and i is an int ({s.flaw}).'),
    Hint("no such micro-batch", lambda s: " of " in s.flaw,
         lambda s: f"This micro-batch does not exist ({s.flaw}): the first micro-batch is 0."),
    Hint("missing", lambda s: ": no " in s.flaw,
         lambda s: f"Every micro-batch goes forward once and backward once: {s.flaw}."),
    Hint("twice", lambda s: "twice" in s.flaw,
         lambda s: f"Every micro-batch goes forward once and backward once: {s.flaw}."),
    Hint("backward first", lambda s: "before" in s.flaw,
         lambda s: f"A micro-batch can go backward only after it has gone forward: {s.flaw}."),
)
GPIPE = (
    *PLAN,
    Hint("backward too early", lambda s: s.held != s.least,
         "Run first all forwards, then all backwards."),
    Hint("other order", say="All stages must take the micro-batches in the same order. Otherwise "
    "they wait."),
)
ONE_F_ONE_B = (
    *PLAN,
    Hint("waits for ever", lambda s: s.flaw == "waits for ever",
         lambda s: f"Stage {s.stage} waits forever for {s.awaited} of its neighbour. The first "
         "stage does most forwards ahead, and the last stage none."),
    Hint("newest first", lambda s: any(going(plan, "B") != going(plan, "F") for plan in s.plans),
         "Run the backward of the oldest micro-batch first, at the end too, because its gradient "
         "arrives first."),
    Hint("too many first", lambda s: sum(s.held) > sum(s.least),
         lambda s: f"The stages hold {s.held} micro-batches, but {s.least} are enough: the last "
         "stage can run a backward at once."),
    Hint("too few first", lambda s: s.held,
         lambda s: f"The step takes {s.ms:.0f} ms, but {s.shortest:.0f} ms are possible: a stage "
         "waits for a backward when it could run a forward."),
)
BUBBLE = (
    Hint("no float", lambda s: type(plain(s.bubble)) not in (int, float), "Return a float."),
    Hint("of the ideal", lambda s: near(s.bubble, (s.stages - 1) / s.micro),
         "Your result is the share of the ideal time, as Megatron-LM's paper counts it. The share "
         "of the step is smaller."),
    Hint("busy", lambda s: near(s.bubble, s.micro / (s.micro + s.stages - 1)),
         "Your result is the share in which a rank works. The bubble is the rest."),
    Hint("all stages", lambda s: near(s.bubble, s.stages / (s.micro + s.stages - 1)),
         "A rank waits while the batch passes the other stages: their number is one less than the "
         "number of all stages."),
    Hint("one slot too many", lambda s: near(s.bubble, (s.stages - 1) / (s.micro + s.stages)),
         lambda s: f"Count the slots: {s.micro} for the micro-batches, and one for each of the "
         "remaining stages."),
    Hint("percent", lambda s: near(s.bubble, 100 * s.expect_bubble), "A share is between 0 and 1."),
    Hint("without micro-batches", lambda s: near(s.bubble, (s.stages - 1) / s.stages),
         "Your result is the bubble of one micro-batch. How many micro-batches are there?"),
    Hint("another share", say=lambda s: f"With {s.stages} stages and {s.micro} micro-batches, a "
         f"step has {s.micro + s.stages - 1} slots of F + B, and a stage works in {s.micro} of "
         "them."),
)
PIPELINE_STEP = (
    *MESSAGES[1:],
    Hint("returns without", lambda s: s.stuck == "returned",
         "A rank has returned while a second rank still waits for a message. Count the messages of "
         "each pair of ranks. Rank 0 has no previous rank, and the last rank has no next rank."),
    Hint("waits for its send", lambda s: s.stuck in ("send", "cycle"),
         "Ranks wait in a send until a neighbour receives, but the neighbour waits in a send too. "
         "Start the send (isend), continue with the plan, and wait at the end."),
    Hint("nobody sends", lambda s: s.stuck == "receive",
         "All ranks wait for a message that no rank sends. A message and its receive need the same "
         "tag, and a forward comes before the backward that answers it."),
    Hint("to nobody", lambda s: s.kind in ("no such rank", "to itself"),
         "Rank 0 has no rank before it, and the last rank has no rank behind it."),
    Hint("needs no gradient", lambda s: s.kind in ("None", "no graph"),
         "x has no gradient here. The received tensor must require a gradient before it goes "
         "through the stage. After y.backward(), x.grad is the tensor to send. Rank 0 has received "
         "no tensor, and sends no gradient."),
    Hint("inputs marked", lambda s: s.kind == "no floats",
         "The inputs of rank 0 need no gradient, and may be whole numbers, such as letters. Only a "
         "received tensor must require a gradient."),
    Hint("no length", lambda s: s.once and s.kind == "iterator",
         "The plan may be a generator, which gives one operation after the next, but has no length "
         "and no index. `targets` and `inputs` are lists."),
    Hint("walked once", lambda s: s.once and not any(s.order),
         "No operation is carried out. The plan may be a generator, which is empty for a second "
         "loop."),
    Hint("own order", lambda s: s.wrong("order"),
         lambda s: f"A rank does {first_wrong(s)}. Carry out the operations in the order of the "
         "plan."),
    Hint("outputs kept", lambda s: any(s.observed["too long"]),
         "Outputs live on after their backward. Remove them from your lists and dicts (pop), and "
         "send y.detach(), because a Work keeps its tensor."),
    Hint("graph kept", lambda s: any(s["graphs kept"]),
         "A micro-batch's graph lives on after its backward. Does a sum of losses, or the returned "
         "value, keep the graph? Add numbers: y.item(), or y.detach()."),
    Hint("zeroed", lambda s: s.gradient is not None and near(
        s.gradient, [g - s.before for g in s.expect_gradients]),
         "The earlier content of .grad is gone. A step adds to .grad, like backward()."),
    Hint("the sum", lambda s: near(grown(s), [s.micro * g for g in wanted(s)]),
         lambda s: f"The gradients are {s.micro} times too large. Return the gradient of the mean "
         f"over {s.micro} micro-batches."),
    Hint("target first", lambda s: near(grown(s), s.turned),
         "Your gradients are those of loss(target, output). Pass the output first."),
    Hint("by arrival", lambda s: s.wrong("gradient") and any(near(grown(s), g) for g in s.mixed),
         "An input meets the target of a different micro-batch. The plan names the micro-batches, "
         "and need not begin with micro-batch 0: use inputs[i] and targets[i]."),
    Hint("divided again", lambda s: s.n > 1 and near(grown(s)[-1], wanted(s)[-1])
         and near(grown(s)[-2], wanted(s)[-2] / s.micro),
         lambda s: f"Stages before the last have 1/{s.micro} of their gradient. The received "
         "gradient is already divided."),
    Hint("loss not of the mean", lambda s: s.wrong("loss") and not s.wrong("gradient"),
         "The gradients are right. The last rank must return the mean of the losses, and all "
         "further ranks None."),
    Hint("collective", lambda s: s.collectives,
         lambda s: f"Messages between neighbours are enough. With {s.collectives[0]}, all ranks "
         "wait for all ranks."),
    Hint("messages", lambda s: s.wrong("messages"),
         "Each forward sends one message to the next rank, and each backward one message to the "
         "previous rank."),
    THREAD,
    Hint("late on a link", lambda s: s.link and s.wrong("ms") and not s.wrong("gradient"),
         lambda s: f"The gradients are right, but with a link of {s.link} the step takes {s['ms']} "
         f"ms, where the simulator predicts {s.expect['ms'].least}. Does a rank wait for the "
         "arrival of a message (send, or wait() in the loop) before its next operation?"),
    Hint("more than gradients", lambda s: s.wrong("module") and not s.wrong("gradient"),
         lambda s: f"The gradients are right, but the module is left {s.module[-1]}. A worker only "
         "makes gradients, and must not change the module."),
    Hint("another's input", lambda s: near(grown(s)[0], wanted(s)[0]),
         "A backward has used a different micro-batch's tensors. Each backward needs the tensors "
         "of its own forward, and each message needs its own tensor."),
    Hint("other gradients", say="The gradients are wrong. Follow micro-batch 0 through the ranks, "
    "forward and backward."),
)
SPLIT_BACKWARD = (
    Hint("graph is gone", lambda s: s.kind == "graph freed",
         "The first of the two passes has freed the graph. retain_graph=True keeps the graph for "
         "the second pass."),
    Hint("unused parameter", lambda s: s.kind == "not in the graph"
         or (s.grads[-1] is not None and same(s.grads[:-1], s.expect["grads"][:-1])),
         "A parameter that this stage does not use has no gradient, and this is not an error: with "
         "allow_unused=True, autograd.grad gives None. Then leave the parameter's .grad as it "
         "was."),
    Hint("no function", lambda s: s.kind == "not callable",
         "The second part runs later. Return a function that computes the second part when it is "
         "called."),
    Hint("both at once", lambda s: s.early,
         "The gradients of the parameters are computed before the function is called, so no work "
         "is left for the bubble."),
    Hint("x twice", lambda s: same(s.of_x, [Close(2 * each.value) for each in s.expect["of x"]]),
         "The gradient of x doubles when the function is called: both parts add to x.grad, which "
         "you have returned. autograd.grad() returns a separate gradient, and inputs= names the "
         "parameters."),
    Hint("a tuple", lambda s: any(isinstance(each, tuple | list) for each in s.of_x),
         "autograd.grad returns a tuple with a gradient for each input, also for a single input. "
         "Return the gradient itself."),
    Hint("another gradient", lambda s: s.wrong("of x"),
         "The gradient of x is wrong. Begin with the given gradient of y."),
    Hint("overwritten", lambda s: same(s.grads, [Close(s.expect_alone[0]), Close(s.expect_alone[1]),
         None]) and s.wrong("grads"),
         "The earlier content of .grad is gone, and with it the gradients of earlier "
         "micro-batches. Add to .grad."),
    Hint("in x too", lambda s: not s.wrong("grads") and s.wrong("x.grad"),
         "Only the parameters may have a .grad afterwards. Name the parameters as inputs of the "
         "backward."),
    Hint("with a graph", lambda s: not s.wrong("grads", "of x") and s["with a graph"],
         "The gradients are right, but each has a graph of its own, which keeps the activations "
         "alive. create_graph=True is for gradients of gradients."),
    Hint("never freed", lambda s: not s.wrong("grads") and not s.freed,
         "The graph lives on after both parts. The second pass need not retain the graph."),
    Hint("other gradients", say="Afterwards, each parameter's .grad must have grown by the "
    "parameter's own gradient, once."),
)
# fmt: on


def going(plan: Sequence[Op], way: str) -> list[int]:
    """Return the micro-batches of a plan's operations of the kind `way`, in order: "F" or "B"."""
    return [op[1] for op in plan if op[0] == way]


def first_wrong(s: Seen) -> str:
    """Return a text about the first wrong operation, like "F3 where its plan has B0"."""
    pairs = zip(s.order, s.expect["order"], strict=True)
    got, want = next((a.split(), b.split()) for a, b in pairs if a != b)
    at = next((k for k, (a, b) in enumerate(zip(got, want, strict=False)) if a != b), -1)
    if at < 0:
        return f"{len(got)} operations of {len(want)}"
    return f"{got[at]} where its plan has {want[at]}"


def wanted(s: Seen) -> list[Any]:
    """Return, for each rank, the right change of the gradients in the step."""
    return [g - s.before for g in s.expect_gradients]


def grown(s: Seen) -> list[Tensor]:
    """Return, for each rank, the observed change of the gradients in the step."""
    return [g - s.before for g in s.gradient]
