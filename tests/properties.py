"""Properties: statements that hold for every input.

Hypothesis generates the inputs, equal inputs in every run, and shows the smallest input that breaks
a property.
"""

from hypothesis import HealthCheck, settings


def examples(count: int) -> settings:
    """Return settings that try a property on `count` inputs, on a machine of any speed."""
    return settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
