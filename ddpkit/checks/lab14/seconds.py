"""Seconds of a step under a plan: questions about one term at a time, and mistakes in each term.

If all terms except one take no time, a mistake in this term multiplies the result by a factor.
Therefore the hint is right no matter how the answer computes the other terms.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ddpkit.exercises.exercise import Observed
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.link import Link
from ddpkit.simulate.mesh.plan_time import plan_time
from ddpkit.simulate.mesh.plans import NUMBER, MeshMachine, MeshModel, MeshPlan

NEAR = 0.1  # relative distance from the simulator's time
CLOSER = 0.05  # relative distance from a wrong idea's time
ALL_HIDDEN = 0.74  # an all-reduce in units of a backward: of 4 blocks, only the last is exposed
NO_TIME = 1e21  # FLOP/s at which computing takes no time
RIGHT = "within 10 %"
NEARLY = "as simulated"

Question = tuple[MeshPlan, MeshModel, MeshMachine]


@dataclass(frozen=True)
class Term:
    """Questions about one term of a step's time, and the hints about them."""

    title: str
    questions: list[Question]
    hints: Sequence[Hint]


def simulated(question: Question) -> float:
    """Return the seconds of the step, by the event-by-event simulator."""
    return plan_time(*question).end_ns / 1e9


def within(rights: Sequence[float], observed: Observed) -> Observed:
    """Compare each answer with the simulator's time; if any answer is far off, add all answers."""
    found = [float(each) for each in observed["seconds"]]
    said = [_beside(got, right) for got, right in zip(found, rights, strict=True)]
    return {RIGHT: said} if set(said) == {NEARLY} else {RIGHT: said, "seconds": found}


def _beside(got: float, right: float) -> str:
    if abs(got - right) <= NEAR * right:
        return NEARLY
    return f"{1e3 * got:.3g} ms, and {1e3 * right:.3g} ms simulated"


def _is(wrong: Callable[[Question, float], float], s: Seen) -> bool:
    """True if the first answer is near the result of a mistake, `wrong(question, right answer)`."""
    (question, *_), (right, *_) = s.questions, s.rights
    wanted = wrong(question, right)
    return bool(abs(s.seconds[0] - wanted) <= CLOSER * max(abs(wanted), 1e-9))


def _ratio(s: Seen, number: int) -> float:
    """Return answer number `number` divided by the right one; 0 if an earlier answer is wrong."""
    found = [got / right for got, right in zip(s.seconds, s.rights, strict=True)]
    good = all(abs(each - 1) <= NEAR for each in found[:number])
    return float(found[number]) if good else 0.0


def _second(s: Seen) -> float:
    return _ratio(s, 1)


def _then(name: str, factor: Callable[[MeshPlan], float], says: str) -> Hint:
    """Return a hint about a mistake that multiplies only the second answer, by `factor(plan)`."""
    return Hint(name, lambda s: abs(_second(s) - factor(s.questions[1][0])) <= NEAR, says)


def _turns(plan: MeshPlan) -> int:
    return plan.micro + plan.stages - 1


def _idea(name: str, wrong: Callable[[Question, float], float], says: str) -> Hint:
    return Hint(name, partial(_is, wrong), says)


def _times(factor: Callable[[MeshPlan], float]) -> Callable[[Question, float], float]:
    return lambda question, right: right * factor(question[0])


def _sums(question: Question, right: float) -> float:
    """Return the time of the all-reduces of slices if all slices were on one host."""
    plan, model, machine = question
    one = replace(machine, per_host=plan.ranks)
    rows = model.batch // (plan.replicas * plan.micro)
    each = one.all_reduce(NUMBER * rows * model.width, plan.slices, 1)
    return 2 * plan.micro * model.blocks * each


def _less_than_nothing(question: Question, right: float) -> float:
    """Return the compute time minus the compute time that could hide the gradients' all-reduces."""
    plan, model, _ = question
    hides = (model.blocks - 1) / model.blocks * 2 / 3 / plan.micro  # share of the compute time
    return right * (1 - hides)


def _hiding(known: float, exposed: float) -> Callable[[Question, float], float]:
    """Return a wrong time of compute and gradients, as a function of question and right time.

    `known` is the right time and `exposed` the wrong time, in units of a block's backward.
    """
    return lambda question, right: right * exposed / known


# fmt: off
UNITS = (
    _idea("milliseconds", lambda q, right: 1000 * right, "Your result is a thousand times too "
          "large. Return seconds."),
)
COMPUTE = (
    *UNITS,
    _idea("as forward", _times(lambda p: 2 / 3), "A backward multiplies twice as much as a "
          "forward: it computes the gradient of the input and the gradient of the weights."),
    _idea("forward alone", _times(lambda p: 1 / 3), "Your result has only the forward."),
    _idea("half", _times(lambda p: 1 / 2), "Each weight takes two operations for each row: a "
          "multiplication and an addition."),
    _idea("one micro-batch", _times(lambda p: 1 / p.micro), "Your result is one micro-batch, but a "
          "step has several."),
    _idea("a whole batch each", _times(lambda p: p.micro), "A micro-batch has only a part of the "
          "rows: all micro-batches together are the batch."),
    _idea("one turn more", _times(lambda p: 1 + 1 / p.micro), "The number of turns is micro + "
          "stages - 1: a single rank has one turn for each micro-batch."),
    _idea("less than nothing", _less_than_nothing, "The compute time is right, but you subtract "
          "from it. A single rank waits for no gradients, and a wait is never below 0: the formula "
          "has a max."),
    Hint("other", say="There is one rank and no network. Each row and weight takes 2 operations "
         "forward, and 4 backward."),
)
SHARED = (
    *UNITS,
    _idea("batch not shared", _times(lambda p: p.replicas), "Each replica takes only its part of "
          "the batch."),
    _idea("slices not shared", _times(lambda p: p.slices), "A slice has only its part of each "
          "block's weights, and multiplies by no more weights."),
    Hint("other", say="Replicas share the rows, and slices share the weights of a block. A rank "
         "computes 1 / (replicas × slices) of the whole."),
)
BUBBLE = (
    *UNITS,
    _idea("no bubble", _times(lambda p: p.micro / (p.micro + p.stages - 1)), "The pipeline has to "
          "fill and to empty. It takes micro + stages - 1 turns, not micro."),
    _idea("all blocks", _times(lambda p: p.stages), "A stage has only a part of the blocks."),
    _idea("one turn more", _times(lambda p: (p.micro + p.stages) / (p.micro + p.stages - 1)),
          "The number of turns is micro + stages - 1: the last micro-batch enters after micro - 1 "
          "turns, and needs one turn for each stage."),
    Hint("other", say="In each turn, a stage runs a forward and a backward of one micro-batch. "
         "There are micro + stages - 1 turns."),
)
SLICES = (
    *UNITS,
    _idea("no sums", lambda q, right: 0.0, "The slices' sums in each block, forward and backward, "
          "are missing."),
    _idea("once a step", _times(lambda p: 1 / p.micro), "Slices add up once for every micro-batch, "
          "not once in a step."),
    _idea("once a micro-batch", lambda q, right: right / q[1].blocks, "Slices add up in every "
          "block, not once for each micro-batch."),
    _idea("a number, not bytes", lambda q, right: right / NUMBER, "A number has 4 bytes. Pass "
          "bytes to `machine.all_reduce`."),
    _idea("half of the sums", _times(lambda p: 1 / 2), "You count half of the sums' time. Slices "
          "add up forward, where slices end, and backward, where slices begin; a number has 4 "
          "bytes."),
    _idea("inside", _sums, "These slices do not fit into one host. Pass the number of slices and "
          "their distance, 1, to `machine.all_reduce`."),
    Hint("other", say="Only the slices' sums take time here: an all-reduce of rows × width numbers "
         "of 4 bytes, twice for each block and micro-batch."),
)
STAGED_SLICES = (
    *UNITS,
    _idea("sums of micro turns", _times(lambda p: p.micro / _turns(p)), "With stages, a step has "
          "micro + stages - 1 turns. The slices add up in each turn, twice for each block of a "
          "stage."),
    Hint("other", say="Only the slices' sums take time here: an all-reduce of rows × width numbers "
         "of 4 bytes, twice for each block of a stage and each turn."),
)
MESSAGES = (
    *UNITS,
    _idea("nothing travels", lambda q, right: 0.0, "The messages between stages take time too."),
    _idea("half of the messages", _times(lambda p: 1 / 2), "You count half of the messages' time. "
          "Activations go forward, and gradients come back; a number has 4 bytes."),
    _idea("a message more", _times(lambda p: p.stages / (p.stages - 1)), "There are 3 boundaries "
          "between 4 stages."),
    _then("one after the other", lambda p: p.micro * p.stages / _turns(p), "A micro-batch does not "
          "wait until the previous micro-batch has come back: as many micro-batches are under way "
          "as there are stages."),
    _then("one round trip", lambda p: p.stages / _turns(p), "You count one micro-batch's way there "
          "and back. With several micro-batches, (micro + stages - 1) / stages such ways follow "
          "each other."),
    Hint("stages not apart", lambda s: abs(_second(s) - 1) <= NEAR
         and s.seconds[2] < 0.1 * s.rights[2], "With slices, the next stage is further away: the "
         "distance is the number of slices. Therefore these two stages do not share a host."),
    Hint("a part of each row", lambda s: abs(_ratio(s, 2) - 1 / 2) <= NEAR, "Slices share the "
         "weights, but not the messages between stages: each slice has the whole message."),
    Hint("other", say="Only messages take time here: a micro-batch goes through all stages and "
         "comes back, with rows × width numbers of 4 bytes each time. Such ways follow each other "
         "(micro + stages - 1) / stages times."),
)
GRADIENTS = (
    *UNITS,
    _idea("no gradients", lambda q, right: 0.0, "The replicas' gradients have to be added up. "
          "Replicas are stages × slices ranks apart."),
    _idea("whole gradients", _times(lambda p: p.stages), "A rank has only the gradients of its own "
          "blocks and slices: 1 / (slices × stages) of the model's gradients."),
    _idea("each micro-batch", _times(lambda p: p.micro), "Gradients grow over the micro-batches, "
          "and are sent once in a step."),
    Hint("not apart", lambda s: s.seconds[1] < 0.1 * s.rights[1], "With slices, replicas are "
         "further apart: stages × slices ranks. Therefore these replicas do not share a host."),
    Hint("numbers, not bytes", lambda s: abs(_ratio(s, 2) - 1 / NUMBER) <= CLOSER, "A gradient has "
         "4 bytes for each weight. Pass bytes to `machine.all_reduce`."),
    Hint("of all slices", lambda s: abs(_ratio(s, 2) - 2) <= NEAR, "A slice has only the gradients "
         "of its part of each block: 1 / slices of the block's gradients."),
    Hint("other", say="Only the gradients take time here: an all-reduce of each block's gradients, "
         "once in a step, between replicas that are stages × slices apart."),
)
HIDDEN = (
    *UNITS,
    _idea("never hidden", _hiding(9.0, 12.0), "Backward continues while the gradients of later "
          "blocks are sent, so backward hides a part of them."),
    _idea("always free", _hiding(9.0, 6.0), "Backward hides at most as much as its own compute "
          "time, and never the gradients of the last block."),
    _idea("all of backward", _hiding(9.0, 8.0), "When the first gradients are ready, one block's "
          "backward is over. Only the remaining backwards can hide gradients."),
    Hint("always shards", lambda s: abs(_second(s) - 8.5 / 7.0) <= CLOSER, "These replicas have no "
         "shards, so no parameters are gathered after the optimizer. Only `plan.shards` adds this "
         "gather."),
    Hint("all micro-batches", lambda s: abs(_ratio(s, 2) - 7.0 / 8.5) <= CLOSER, "Gradients grow "
         "in all micro-batches, and are ready in the last micro-batch. Only its backward can hide "
         "gradients."),
    Hint("never the last", lambda s: abs(_ratio(s, 3) - 6.0 / (6.0 + ALL_HIDDEN)) <= CLOSER, "Here "
         "backward hides the gradients of all blocks but one. The all-reduce of the last block "
         "starts when backward is over, so the rank waits at least g."),
    Hint("other", say="There are gradients of k blocks, and each all-reduce takes g. The first can "
         "start when one block's backward is done, and k - 1 backwards are left to hide them."),
)
SHARDS = (
    *UNITS,
    Hint("one gather", lambda s: abs(s.seconds[0] / s.rights[0] - 7.0 / 8.5) <= CLOSER
         and abs(s.seconds[1] / s.rights[1] - 8.0 / 11.0) <= CLOSER, "After the optimizer, the "
         "replicas gather the parameters of each block of a stage: k gathers."),
    _idea("as without", _hiding(8.5, 7.0), "With shards, the parameters are gathered after the "
          "optimizer, and no compute hides this half."),
    _idea("twice", _hiding(8.5, 11.0), "Scattering the sums and gathering the parameters are the "
          "two halves of an all-reduce. Each takes half the time of an all-reduce."),
    _idea("all exposed", _hiding(8.5, 10.0), "Backward can hide the first half, like an "
          "all-reduce."),
    Hint("less than both halves", lambda s: 0 < _second(s) < 1 - NEAR, "Scattering the sums and "
         "gathering the parameters are the two halves of an all-reduce. Together they take as long "
         "as an all-reduce."),
    Hint("other", say="With shards, the gradients take half of an all-reduce, which backward "
         "hides. The parameters take the second half, after the optimizer."),
)
TOGETHER = (
    *UNITS,
    Hint("other", say=lambda s: f"Each term is right alone. {_worst(s)} Do you add up all terms, "
         "and does each term use the plan's own groups?"),
)
# fmt: on


def _worst(s: Seen) -> str:
    pairs = zip(s.seconds, s.rights, s.questions, strict=True)
    got, right, question = max(pairs, key=lambda pair: abs(pair[0] / pair[1] - 1))
    return f"{question[0]}: {1e3 * got:.1f} ms, but the simulator says {1e3 * right:.1f} ms."


def terms(rng: random.Random) -> Iterator[Term]:
    """Yield questions about each term of the time in turn, and then about all terms together."""
    model = MeshModel(4, 32 * rng.randrange(2, 5), 32 * rng.randrange(6, 12), 48)
    free = MeshMachine(rng.randrange(5_000, 50_000) * 1e5, 10**9, 2, "unlimited", "unlimited")
    inside, between = _link(rng, 10, 20), _link(rng, 1, 200)
    wired = replace(free, flops=NO_TIME, inside=inside, between=between)
    yield Term("a rank alone", [(MeshPlan(micro=4), model, free)], COMPUTE)
    yield Term("3 replicas of 2 slices", [(MeshPlan(3, 1, 2, 4), model, free)], SHARED)
    yield Term("4 stages", [(MeshPlan(stages=4, micro=6), model, free)], BUBBLE)
    large = replace(model, batch=64 * model.batch)  # few bytes would hide behind latency
    # 5 blocks, 4 bytes a number, 3 micro-batches: no two mistakes have the same factor
    yield Term("4 slices", [(MeshPlan(slices=4, micro=3), replace(large, blocks=5), wired)], SLICES)
    alone = replace(wired, per_host=1)
    apart = replace(wired, inside="unlimited")
    messages = [(MeshPlan(stages=4, micro=micro), large, alone) for micro in (1, 3)]
    messages.append((MeshPlan(stages=2, slices=2), large, apart))
    yield Term("messages between stages", messages, MESSAGES)
    apart = replace(wired, between="unlimited")
    sums = [(MeshPlan(stages=2, slices=2, micro=3), large, apart)]
    yield Term("2 stages of 2 slices", sums, STAGED_SLICES)
    apart = replace(wired, inside="unlimited", between=_link(rng, 100, 200))
    gradients = [(MeshPlan(2, 2, micro=3), model, apart), (MeshPlan(2, 1, 2), model, apart)]
    thin = replace(apart, between=_link(rng, 1, 1))  # the bytes take longer than the latency
    gradients.append((MeshPlan(2, 1, 2), model, thin))
    yield Term("gradients", gradients, GRADIENTS)
    shares = ((1.5, 1), (1.0, 1), (1.0, 2), (ALL_HIDDEN, 1))
    hidden = [_hidden(model, free, share, micro) for share, micro in shares]
    yield Term("hidden gradients", hidden, HIDDEN)
    shared = [_hidden(model, free, share, shards=True) for share in (1.0, 2.0)]
    yield Term("shards", shared, SHARDS)
    yield Term("6 plans", [_drawn(rng) for _ in range(6)], TOGETHER)


def _hidden(
    model: MeshModel, machine: MeshMachine, share: float, micro: int = 1, *, shards: bool = False
) -> Question:
    """Return a question of two replicas; an all-reduce takes `share` times a block's backward."""
    nbytes = NUMBER * 2 * model.width * model.hidden
    backward = nbytes * model.batch / 2 / machine.flops
    between = Link(bandwidth=nbytes / (share * backward))
    plan = MeshPlan(2, micro=micro, shards=shards)
    return plan, model, replace(machine, per_host=1, between=between)


def _link(rng: random.Random, gbit: int, us: int) -> str:
    """Draw a link of about `gbit` Gbit/s, so that no answer can hold all times in a table."""
    return f"{gbit * rng.randrange(950, 1050) / 1000:g} Gbit/s, {us} us"


def _drawn(rng: random.Random) -> Question:
    """Draw a plan that computes longer than it waits, so that the terms of its time add up."""
    plan = MeshPlan(
        rng.choice((1, 2)), rng.choice((1, 2)), rng.choice((1, 2)), 4, rng.random() < 0.4
    )
    model = MeshModel(4, 32 * rng.randrange(2, 5), 128 * rng.randrange(2, 5), 256)
    machine = MeshMachine(
        rng.randrange(4_000, 12_000) * 1e5, 10**9, 2, _link(rng, 10, 20), _link(rng, 1, 200)
    )
    return plan, model, machine
