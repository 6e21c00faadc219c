"""The texts in which a cluster in emulated time describes itself."""

import math

import pytest

from ddpkit import Cluster
from ddpkit.cluster.cluster import Run
from ddpkit.cluster.speeds import speed_text
from ddpkit.trace import Trace

pytestmark = pytest.mark.processes  # a cluster starts a forkserver
LINK = "1 Gbit/s, 200 us"


def test_a_cluster_says_its_link_and_its_speed() -> None:
    assert repr(Cluster(4, link=LINK)) == "4 ranks · gloo · cpu · emulated: 1 Gbit/s, 200 us"
    cluster = Cluster(4, link="unlimited", speed={3: 0.5})
    assert repr(cluster) == "4 ranks · gloo · cpu · emulated: unlimited · speed 1; rank 3: 0.5"


def test_speeds_are_said_where_one_is_not_1() -> None:
    assert speed_text([1.0, 1.0]) == ""
    assert speed_text([math.inf] * 40) == "infinite"
    assert speed_text([2.0, 2.0, 0.25]) == "2; rank 2: 0.25"


def test_runs_and_traces_say_emulated() -> None:
    trace = Trace((), 2, {"backend": "gloo", "emulated": LINK, "time": "emulated"})
    assert repr(trace) == "<Trace of 2 ranks: 0 spans, 0 ms, emulated>"
    assert repr(Run([1, 2], "", trace)) == "<Run of 2 ranks, emulated: results [1, 2]>"
    real = Trace((), 2, {"backend": "gloo", "emulated": ""})
    assert repr(Run([1, 2], "", real)) == "<Run of 2 ranks: results [1, 2]>"
