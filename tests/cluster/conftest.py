"""Fixtures: a cluster for a module, and two hosts.

Ranks receive test functions by value, as they receive the functions of a notebook's cells.
"""

from collections.abc import Iterator

import cloudpickle
import pytest

from ddpkit import Cluster
from tests.cluster.two_hosts import Host, NoHosts, two_hosts


@pytest.fixture(autouse=True, scope="module")
def by_value(request: pytest.FixtureRequest) -> Iterator[None]:
    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    """Return a cluster of two ranks for a whole module.

    A test that breaks the cluster makes the next test fail.
    """
    return Cluster(2)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Host, Host]]:
    """Yield two hosts; skip the test, with the reason, if the system forbids network namespaces."""
    try:
        with two_hosts(tmp_path_factory.mktemp("hosts")) as both:
            yield both
    except NoHosts as reason:
        pytest.skip(f"no two hosts on this machine: {reason}")
