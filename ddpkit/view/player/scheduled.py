"""`playback_of_schedule`: the sums on each rank after each round of a schedule. Pure.

`simulate.execute` runs the schedule on vectors in which every number of rank r is 2**r. The bits of
a sum then name the ranks that contributed, so this module needs no schedule code of its own.
"""

from dataclasses import replace

from ddpkit.simulate import RecvReduce, Schedule, Send, execute, schedule
from ddpkit.simulate.engine.timing import FLOAT32
from ddpkit.simulate.messages.schedules import Part, chunk, elements
from ddpkit.text import count, size
from ddpkit.view.player.model import Message, Moment, Playback, after, check_ranks

Holds = tuple[tuple[int, ...], ...]


def playback_of_schedule(
    plan: Schedule, length: int | None = None, itemsize: int = FLOAT32
) -> Playback:
    """Return the steps of a schedule; ``length`` replaces the length of its vectors, in elements.

    ``itemsize`` is bytes per element. Raises ValueError for more than 16 ranks, and for
    another ``length`` of a schedule that was not made by ``schedule()``.
    """
    check_ranks(plan.world_size)
    if length is not None and length != plan.length:
        plan = _resized(plan, length)
    cuts = _cuts(plan)
    small = _in_chunks(plan, cuts)
    full = plan.world_size if any(isinstance(s, RecvReduce) for s in plan.steps) else 1
    if plan.world_size == 1 or not small.length:
        full = 1 if small.length else 0
    moment = Moment((), (0,) * plan.world_size, 0, _holds(small, -1))
    moments = [moment]
    for round in range(plan.rounds):
        messages = _messages(plan, small, round, itemsize)
        moments.append(moment := after(moment, messages, _holds(small, round)))
    title = (
        f"{_name(plan)} on {count(plan.world_size, 'rank')}"
        f"{f', {plan.length:,} elements ({size(plan.length * itemsize)})' if small.length else ''}"
    )
    return Playback(title, notice(plan, itemsize), tuple(moments), full)


def notice(plan: Schedule, itemsize: int = FLOAT32) -> str:
    """Return a sentence on the pattern of the schedule, with its steps or bytes."""
    ranks = range(plan.world_size)
    sent = [plan.sent(rank) * itemsize for rank in ranks]
    total, most = size(sum(sent)), size(max(sent))
    rounds = count(plan.rounds, "step")
    sentences = {
        "ring": f"every rank sends and receives a chunk in each step: no link is idle, and "
        f"each link carries {most} in all.",
        "reduce_scatter": "each sum grows by one rank a step, and ends on the rank that owns it.",
        "all_gather": "every rank passes on its last received chunk, and no link is ever idle.",
        "tree": f"whole vectors go up to the root and down again in {rounds}; near the root, all "
        "other ranks wait.",
        "butterfly": f"the sums double with each exchange: only {rounds}, but each message "
        f"is a whole vector, {most} for the busiest rank.",
        "master_worker": f"all data pass the root's link: the root receives and sends {most}.",
        "all_to_all": f"one step is enough, but {total} cross the network at once, {most} a rank.",
        "round_robin": f"as much as all-to-all ({most} a rank), one exchange after the other: "
        "no link is crowded.",
        "broadcast": f"the ranks that have the vector double each step: {rounds} for all.",
        "reduce": f"half of the ranks with sums send their sums in each step: {rounds}.",
        "scatter": f"the root sends each rank only its chunk, {most} in all.",
        "gather": "every rank sends a chunk, and all chunks pass the root's incoming side.",
        "barrier": f"after {rounds} without any payload each rank knows that all have come.",
    }
    own = f"{plan.messages()} messages in {rounds}, {total} in all, {most} by the busiest rank."
    if plan.world_size == 1:
        own = "one rank alone has nothing to send."
    return f"Notice: {sentences.get(plan.name, own) if plan.world_size > 1 else own}"


def _name(plan: Schedule) -> str:
    """Return the name of a schedule in words: "Ring all-reduce", "Broadcast"."""
    name, operation = plan.name.replace("_", "-"), plan.operation.replace("_", "-")
    return name.capitalize() if name == operation else f"{name.capitalize()} {operation}"


def _resized(plan: Schedule, length: int) -> Schedule:
    """Return the schedule for vectors of ``length`` elements; find its root by trying all ranks."""
    n = plan.world_size
    try:
        for root in range(n):
            if schedule(plan.name, n, plan.length, root) == plan:
                return schedule(plan.name, n, length, root)
    except ValueError:
        pass  # the name is none of `schedule`'s names
    raise ValueError(
        f"length= can change only the schedules of ddpkit's schedule(): make {plan} with "
        f"{length} elements instead"
    )


def _cuts(plan: Schedule) -> list[int]:
    """Return the positions that cut the vector into chunks, with 0 and the length.

    There are n equal chunks if all messages consist of such chunks, and a single chunk if every
    message has the whole vector. For a barrier, which has no data, the result is [0].
    """
    if plan.steps and not any(elements(step.part) for step in plan.steps):
        return [0]  # the messages of a barrier have no data
    ends = {end for step in plan.steps for end in step.part} | {0, plan.length}
    if len(ends) <= 2 and plan.steps:
        return sorted(ends)
    equal = {end for r in range(plan.world_size) for end in chunk(plan.length, plan.world_size, r)}
    return sorted(equal if ends <= equal else ends)


def _in_chunks(plan: Schedule, cuts: list[int]) -> Schedule:
    """Return the schedule for a vector with one element for each chunk."""
    index = {cut: n for n, cut in enumerate(cuts)}

    def small(part: Part) -> Part:
        return index[part[0]], index[part[1]]

    steps = tuple(replace(step, part=small(step.part)) for step in plan.steps)
    return Schedule(plan.name, plan.operation, plan.world_size, len(cuts) - 1, steps)


def _holds(small: Schedule, last: int) -> Holds:
    """Return the number of ranks that contributed to each rank's chunks after round ``last``."""
    done = replace(small, steps=tuple(step for step in small.steps if step.round <= last))
    vectors = execute(done, _given(small))
    return tuple(tuple(value.bit_count() for value in vector) for vector in vectors)


def _given(small: Schedule) -> list[list[int]]:
    """Return each rank's vector at the start; 0 stands for an element without data."""
    n = small.world_size
    own = [[1 << rank] * small.length for rank in range(n)]
    if small.operation in ("gather", "all_gather"):  # each rank has its own chunk
        return [[bit if at == r else 0 for at, bit in enumerate(v)] for r, v in enumerate(own)]
    # a rank that sends before it receives has the whole vector
    if small.operation in ("broadcast", "scatter"):
        first = {rank: next(iter(small.of(rank)), None) for rank in range(n)}
        return [v if n == 1 or isinstance(first[r], Send) else [0] * small.length
                for r, v in enumerate(own)]  # fmt: skip
    return own


def _messages(plan: Schedule, small: Schedule, round: int, itemsize: int) -> list[Message]:
    """Return the messages of a round, with the bytes of ``plan`` and the chunks of ``small``."""
    adds = {
        (step.peer, step.rank, step.part): isinstance(step, RecvReduce)
        for step in small.steps
        if step.round == round and not isinstance(step, Send)
    }
    return [
        Message(sent.rank, sent.peer, elements(sent.part) * itemsize, shown.part,
                adds.get((shown.rank, shown.peer, shown.part), False))
        for sent, shown in zip(plan.steps, small.steps, strict=True)
        if sent.round == round and isinstance(sent, Send)
    ]  # fmt: skip
