"""Lab 03's checks count latencies as the schedules do."""

import pytest

from ddpkit.simulate import ALL_REDUCE, schedule, time_of
from ddpkit.trace import latencies


@pytest.mark.parametrize("n", [1, 2, 4, 8])
@pytest.mark.parametrize("name", ALL_REDUCE)
def test_latencies_in_a_row_are_the_rounds_of_the_schedule(name, n):
    plan = schedule(name, n, length=16)
    assert latencies(time_of(plan, "1 Gbit/s, 200 us").spans) == plan.rounds
