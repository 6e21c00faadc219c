import pytest

from tests.ddp import demands, models


@pytest.fixture(autouse=True, scope="module")
def by_value(request):
    """Ship the functions of the test module and of `models`: ranks cannot import tests."""
    import cloudpickle

    for module in (request.module, models, demands):
        cloudpickle.register_pickle_by_value(module)
    yield
    for module in (request.module, models, demands):
        cloudpickle.unregister_pickle_by_value(module)
