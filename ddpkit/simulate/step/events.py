"""A data-parallel step of all ranks as a program, which the engine plays message by message.

Each rank computes, and posts a bucket when the rank's gradients of the bucket are ready and all
earlier buckets are posted. The rank begins its part of an all_reduce when its part of the stream's
previous all_reduce is done. `replay` computes the same times by formulas; tests compare the two.
"""

from __future__ import annotations

from collections.abc import Sequence

from ddpkit.link import LinkSpec
from ddpkit.simulate.engine.play import play_program
from ddpkit.simulate.engine.program import Action, After, CollectivePart, Program, Work
from ddpkit.simulate.messages.by_name import schedule
from ddpkit.simulate.messages.schedules import Schedule
from ddpkit.simulate.step.buckets import Bucket, assign_buckets
from ddpkit.simulate.step.recorded import Step, last_of_each


def step_program(
    steps: Sequence[Step],
    buckets: Sequence[Bucket] | None = None,
    algorithm: str = "ring",
    streams: int = 1,
) -> Program:
    """Return the program of a data-parallel step; ``steps`` has a `Step` for each rank.

    Without ``buckets``, torch's default caps make the buckets. ``streams`` is the number of process
    groups that take the buckets in turns. The groups share the links; within one group, all_reduces
    go one after another. Raises ValueError for fewer than one stream, or for buckets that do not
    fit the steps.
    """
    if streams < 1:
        raise ValueError(f"streams= must be 1 or more, not {streams!r}")
    if buckets is None:
        buckets = assign_buckets(steps[0].gradients)
    plans = [schedule(algorithm, len(steps), bucket.bytes) for bucket in buckets]
    lanes = [_lane(step, buckets, plans, streams) for step in steps]
    return Program.of_lanes(f"a step of {algorithm}", lanes)


def step_ends(
    steps: Sequence[Step],
    link: LinkSpec,
    buckets: Sequence[Bucket] | None = None,
    algorithm: str = "ring",
    streams: int = 1,
) -> list[int]:
    """Simulate `step_program`, and return the time at which each rank ends the step, in ns.

    This function is fast enough for some hundred ranks.
    """
    return list(play_program(step_program(steps, buckets, algorithm, streams), link).ends_ns)


def _lane(
    step: Step, buckets: Sequence[Bucket], plans: Sequence[Schedule], streams: int
) -> list[Action]:
    """Return one rank's actions in a step: it posts its buckets like DDP, and waits at the end."""
    everybody = tuple(range(plans[0].world_size)) if plans else ()
    last = last_of_each([gradient.name for gradient in step.gradients], buckets)
    lane: list[Action] = [Work(step.other_ns, ""), Work(step.forward_ns, "forward", "forward")]

    def post(ready: int) -> None:
        """Add to the lane the buckets that can be posted when gradient number `ready` is ready."""
        for number, (plan, bucket) in enumerate(zip(plans, buckets, strict=True)):
            if last[number] == ready:
                turn, stream = divmod(number, streams)
                group = str(stream) if streams > 1 else ""
                lane.append(
                    CollectivePart(
                        plan, everybody, turn, bucket.bytes, group,
                        async_op=True, handle=number, facts={"bucket": number},
                    )
                )  # fmt: skip

    post(-1)
    for i, (gradient, gap) in enumerate(zip(step.gradients, step.gaps_ns, strict=True)):
        named = {"gradient": gradient.name}
        lane.append(Work(gap, "backward", "backward", gradient.bytes, facts=named))
        post(i)
    after = After(tuple(range(len(buckets))))
    finish = Work(step.finish_ns, "backward", "backward")
    return [*lane, after, finish, Work(step.optimizer_ns, "optimizer", "optimizer")]
