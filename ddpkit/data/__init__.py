"""The data sets of ddpkit, which needs no download.

published    numbers of papers, each with its source
digits       load_digits: 1,797 images of handwritten digits
make_digits  made the shipped file, once
"""

from ddpkit.data.digits import load_digits

__all__ = ["load_digits"]
