"""Enters the collectives that ranks have posted into the emulated network."""

from __future__ import annotations

from ddpkit.protocol.emulation import MEETING, PostedCollective
from ddpkit.simulate.engine.folded import can_be_folded, folded_schedule
from ddpkit.simulate.engine.network import Network
from ddpkit.simulate.engine.operations import AFTER_ALL, exchange_of, schedule_of
from ddpkit.simulate.engine.posted import Part
from ddpkit.simulate.messages.schedules import Schedule


def enter(network: Network, ns: int, rank: int, post: PostedCollective, running: int) -> list[Part]:
    """Enter a rank's part of a collective into the network, and the parts of its absent copies.

    ``running`` is the number of members that run. In a collective without a root, one part stands
    for a rank and all its copies. In a collective with a root, each absent rank has its own part,
    and the collective ends at the same time for all ranks.
    """
    members, n = post.members, len(post.members)
    me, some = members.index(rank), running < n
    root = members.index(post.root) if post.root is not None else 0
    in_full = some and post.operation != MEETING and not can_be_folded(post.operation)
    if post.operation == MEETING:
        schedule = Schedule(MEETING, MEETING, n, 0, ())
    elif post.sends:
        schedule = exchange_of(post.operation, me, post.sends, post.takes)
    elif some and not in_full:
        nbytes = post.nbytes // n if post.operation == "all_to_all" else post.nbytes
        schedule = folded_schedule(post.operation, nbytes, n, running)
    else:
        schedule = schedule_of(post.operation, post.nbytes, n, root)
    # Ranks leave a real barrier up to some latencies apart. Measurements after a barrier would
    # include the difference, so emulated ranks leave together.
    together = in_full or post.operation in ("barrier", MEETING)
    return [
        network.enter(
            *(ns, post.group, post.seq, each, members, schedule),
            together=together,
            after_all=post.operation in AFTER_ALL,
            present=n if in_full else running,
        )
        for each in (members[me::running] if in_full else (rank,))
    ]
