"""The data sets that come with ddpkit: nothing is downloaded.

published    numbers of papers, each with its source
digits       load_digits: 1,797 images of handwritten digits
make_digits  made the file that is shipped, once
"""

from ddpkit.data.digits import load_digits

__all__ = ["load_digits"]
