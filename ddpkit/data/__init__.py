"""The data sets that come with ddpkit: nothing is downloaded.

published    numbers of papers, each with its source
digits       load_digits: 1,797 images of handwritten digits
text         load_text: 450 kB of English, and a tenth of it held out
make_digits  made the file that is shipped, once
"""

from ddpkit.data.digits import load_digits
from ddpkit.data.text import load_text

__all__ = ["load_digits", "load_text"]
