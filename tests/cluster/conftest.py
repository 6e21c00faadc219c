"""Test functions reach the ranks as those of a notebook's cells do: by value."""

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
    """One cluster of two ranks for a whole module: what a test breaks, the next one needs."""
    return Cluster(2)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Host, Host]]:
    """Two hosts; skipped, and said, where the system does not let us make them."""
    try:
        with two_hosts(tmp_path_factory.mktemp("hosts")) as both:
            yield both
    except NoHosts as reason:
        pytest.skip(f"no two hosts on this machine: {reason}")
