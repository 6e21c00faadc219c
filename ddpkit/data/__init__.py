"""The data sets of ddpkit, shipped with the package: no download is needed.

published    numbers of papers, each with its source
digits       load_digits: 1,797 images of handwritten digits
make_digits  the script that made the shipped file of digits
"""

from ddpkit.data.digits import load_digits

__all__ = ["load_digits"]
