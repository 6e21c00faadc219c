"""`execute`: runs a schedule on numbers, in this process, and returns each rank's vector."""

from collections import defaultdict, deque
from collections.abc import Sequence

from ddpkit.simulate.messages.schedules import RecvReduce, Schedule, Send, Step

Vector = list[int]


def execute(schedule: Schedule, vectors: Sequence[Sequence[int]]) -> list[Vector]:
    """Return each rank's vector after the schedule, from each rank's vector before the schedule.

    `vectors` has ``schedule.length`` numbers for each rank, in the order of the ranks; the given
    vectors are not changed.

    Raises ValueError if the schedule does not work: a rank waits for a message that never comes, a
    message is never received, or a message does not have the size of the receiver's part.
    """
    if [len(vector) for vector in vectors] != [schedule.length] * schedule.world_size:
        raise ValueError(
            f"{schedule} needs {schedule.world_size} vectors of {schedule.length} elements"
        )
    memory = _Memory(vectors)
    programs = {rank: deque(schedule.of(rank)) for rank in range(schedule.world_size)}
    moved = True
    while moved:
        moved = False
        for program in programs.values():
            while program and memory.take(program[0]):
                program.popleft()
                moved = True
    stuck = [str(program[0]) for program in programs.values() if program]
    if stuck or any(memory.mail.values()):
        unread = [f"{to} from {src}" for (src, to), mail in memory.mail.items() if mail]
        raise ValueError(f"{schedule} blocks forever: {stuck}; messages not received: {unread}")
    return memory.vectors


class _Memory:
    """The vectors of all ranks, and the messages that are under way."""

    def __init__(self, vectors: Sequence[Sequence[int]]) -> None:
        self.originals = vectors
        self.vectors: list[Vector] = [list(vector) for vector in vectors]
        self.mail: dict[tuple[int, int], deque[Vector]] = defaultdict(deque)  # (sender, receiver)

    def take(self, step: Step) -> bool:
        """Do one step, if it can be done now; return True if it was done."""
        part, vector = slice(*step.part), self.vectors[step.rank]
        if isinstance(step, Send):
            source = self.originals[step.rank] if step.original else vector
            self.mail[step.rank, step.peer].append(list(source[part]))
            return True
        if not self.mail[step.peer, step.rank]:
            return False
        message = self.mail[step.peer, step.rank].popleft()
        if len(message) != len(vector[part]):
            raise ValueError(
                f"{step} got a message of {len(message)} elements instead of {len(vector[part])}"
            )
        if isinstance(step, RecvReduce):
            message = [a + b for a, b in zip(vector[part], message, strict=True)]
        vector[part] = message
        return True
