"""The data sets that come with ddpkit: nothing is downloaded."""

from ddpkit.data.digits import load_digits

__all__ = ["load_digits"]
