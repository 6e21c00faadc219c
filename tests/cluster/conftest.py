"""Test functions reach the ranks as those of a notebook's cells do: by value."""

from collections.abc import Iterator

import cloudpickle
import pytest

from ddpkit import Cluster


@pytest.fixture(autouse=True, scope="module")
def by_value(request: pytest.FixtureRequest) -> Iterator[None]:
    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    """One cluster of two ranks for a whole module: what a test breaks, the next one needs."""
    return Cluster(2)
