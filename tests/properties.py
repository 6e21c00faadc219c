"""Properties: what holds for every input. Hypothesis makes inputs up, equal ones in every run, and
shows the smallest that breaks the property."""

from hypothesis import HealthCheck, settings


def examples(count: int) -> settings:
    """Settings with which a property is tried on `count` inputs, however slow the machine is."""
    return settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
