"""Simulated parameter servers: the closed form, the rules, and the errors for wrong arguments."""

import math
from random import Random

import pytest

from ddpkit.simulate import parameter_server

LINK, ALPHA, WIRE, COMPUTE = "1 Gbit/s, 200 us", 200_000, 8_000_000, 20_000_000
SIZES = [(1, 1), (2, 1), (3, 1), (3, 2), (3, 3), (16, 1), (16, 4), (64, 1), (64, 4)]


def served(workers=3, servers=1, nbytes=1_000_000, link=LINK, **options):
    return parameter_server(workers, servers, nbytes, COMPUTE, link, **options)


@pytest.mark.parametrize(("workers", "servers"), SIZES)
def test_a_synchronous_round_takes_what_the_formula_says(workers, servers):
    formula = COMPUTE + 3 * ALPHA + (workers - 1) * WIRE / servers + 2 * WIRE
    headers = 2 * 64 * workers * servers  # 8 bytes each, which the formula ignores
    assert 0 <= served(workers, servers).done_ns - formula <= headers


def test_without_latency_the_formula_is_met_too():
    done = served(4, 2, link="1 Gbit/s").done_ns
    assert done == pytest.approx(COMPUTE + 3 * WIRE / 2 + 2 * WIRE, rel=1e-4)


def test_a_second_round_asks_while_the_first_ends():
    one, five = served().done_ns, served(rounds=5).done_ns
    assert five == pytest.approx(one + 4 * (one - ALPHA), rel=1e-4)


def gradients(run):
    return [sum(each == worker for each, _ in run.ages) for worker in (1, 2, 3)]


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_a_worker_is_never_further_ahead_than_its_bound_and_one_push(bound):
    run = served(nbytes=40_000, rounds=None, seconds=1.0, bound=bound, slow={3: 4})
    clocks = {1: 0, 2: 0, 3: 0}
    for worker, _ in run.ages:
        clocks[worker] += 1
        assert max(clocks.values()) - min(clocks.values()) <= bound + 1
    fast, also_fast, slow = gradients(run)
    assert fast == also_fast == slow + bound + 1 or fast == slow + bound


def test_without_a_bound_a_slow_worker_holds_up_nobody():
    run = served(nbytes=40_000, rounds=None, seconds=1.0, bound=math.inf, slow={3: 4})
    fast, _, slow = gradients(run)
    assert 3.5 < fast / slow < 4
    assert (
        run.gradients_per_s
        > 2 * served(nbytes=40_000, rounds=None, seconds=1.0, slow={3: 4}).gradients_per_s
    )
    of_slow = [age for worker, age in run.ages if worker == 3]
    assert sum(of_slow) / len(of_slow) > 6


def test_equal_workers_see_each_other_once():
    """An age is W - 1 on average, and ages differ if rounds take different times."""

    def compute(worker, number):
        return round(Random(f"{worker} {number}").uniform(10e6, 30e6))

    run = parameter_server(4, 1, 40_000, compute, LINK, bound=math.inf, rounds=60)
    ages = [age for _, age in run.ages[20:-20]]
    assert sum(ages) / len(ages) == pytest.approx(3, abs=0.1)
    assert len(set(ages)) > 2


def test_the_trace_is_complete():
    trace = served(2, 2, rounds=3).trace
    assert trace.facts["servers"] == 2
    assert trace.traffic.sent(0) == trace.traffic.received(0) - 8 * (3 + 3 + 1) * 2
    # the names of lab 08
    assert {span.name for span in trace.of(3)} == {"isend", "irecv", "gradient"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"workers": 0}, "at least one worker"),
        ({"servers": 0}, "at least one worker"),
        ({"rounds": None}, "give rounds= or seconds="),
        ({"bound": -1}, "0 or more"),
    ],
)
def test_numbers_that_make_no_run_are_refused(arguments, says):
    with pytest.raises(ValueError, match=says):
        served(**arguments)
