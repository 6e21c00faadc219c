"""Texts about a run that ended without an error, but may have wrong results.

unwaited   works without a wait()
in_flight  tensors that the code changed while the network used them
replicas   models with unequal parameters on the ranks
limits     waits longer than the timeout of a process group
by_luck    collectives that were paired although ranks called them in different orders
"""

from ddpkit.cluster.afterwards.by_luck import paired_by_luck
from ddpkit.cluster.afterwards.in_flight import changed_in_flight
from ddpkit.cluster.afterwards.limits import over_the_limit
from ddpkit.cluster.afterwards.replicas import differing, train_alone
from ddpkit.cluster.afterwards.unwaited import unwaited
from ddpkit.cluster.outcome import RunOutcome
from ddpkit.trace import Trace


def afterwards(trace: Trace, outcome: RunOutcome) -> list[str]:
    """Return a text for each fault of a run."""
    found = [
        unwaited(trace),
        changed_in_flight(trace),
        paired_by_luck(outcome.by_luck),
        over_the_limit(trace, outcome.limits),
        differing(outcome.replicas, alone=train_alone(trace)),
    ]
    return [text for text in found if text]
