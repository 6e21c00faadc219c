"""The sentences of lab 20 about wrong answers are true of the question."""

import random
import re

import pytest

from ddpkit.checks.lab20 import rooflines
from ddpkit.checks.lab20.hints import ROOF
from ddpkit.exercises.hint import Seen, first_that_fits


@pytest.mark.parametrize("seed", range(5))
def test_the_device_is_busy_when_the_named_operation_is_launched(seed):
    """The sentence must not name operation 0: the device is idle when operation 0 is launched."""
    _, queue = rooflines.drawn(random.Random(seed))[0]
    limits, end = rooflines.right(queue)
    ideas = rooflines.by_ideas(queue)
    seen = Seen(
        {"limits": ideas["short"], "us": 1e6 * end},
        {"limits": limits, "us": 1e6 * end},
        {"ideas": ideas, "has_queue": True},
    )
    advice = first_that_fits(ROOF, seen)
    assert advice is not None
    found = re.search(r"[Oo]peration (\d+)", advice.says)
    assert found, advice.says
    named, launch = int(found[1]), queue.machine.launch
    free = 0.0  # the time at which the device has done the operations before
    for number, times in enumerate(queue.work[:named], 1):
        free = max(free, number * launch) + max(times)
    assert (named + 1) * launch < free, advice.says
