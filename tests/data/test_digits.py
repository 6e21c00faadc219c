"""The shipped digits are the digits that DIGITS.md describes, in the documented form."""

import hashlib
import re
import subprocess
import sys
from importlib.resources import files

import numpy as np
import pytest

from ddpkit.data import load_digits

FOLDER = files("ddpkit.data")
# Per class, from UCI's description of the test set; the sum, from scikit-learn 1.9.1's arrays.
IMAGES_PER_DIGIT = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
SUM_OF_PIXELS = 561_718


def test_file_is_the_one_in_digits_md_and_small():
    data = FOLDER.joinpath("digits.npz").read_bytes()
    origin = FOLDER.joinpath("DIGITS.md").read_text(encoding="utf-8")

    assert re.search(r"sha256\**: `(\w{64})`", origin)[1] == hashlib.sha256(data).hexdigest()
    assert len(data) <= 60_000
    for fact in ("10.24432/C50P49", "CC BY 4.0", "Alpaydin", "Kaynak", "scikit-learn", "BSD"):
        assert fact in origin


def test_shapes_types_and_range():
    images, labels = load_digits()

    assert (images.shape, images.dtype) == ((1797, 64), np.float32)
    assert (labels.shape, labels.dtype) == ((1797,), np.int64)
    assert (images.min(), images.max()) == (0.0, 1.0)
    assert images.flags.c_contiguous


def test_content_matches_the_source():
    images, labels = load_digits()
    pixels = images * 16

    assert np.bincount(labels).tolist() == IMAGES_PER_DIGIT
    assert np.array_equal(pixels, np.round(pixels))
    assert int(pixels.sum(dtype=np.float64)) == SUM_OF_PIXELS


def test_pixels_belong_to_their_labels():
    """The nearest class mean is right for most digits.

    Not so with shuffled labels or transposed images.
    """
    images, labels = load_digits()
    means = np.stack([images[labels == digit].mean(axis=0) for digit in range(10)])  # (10, 64)
    nearest = ((images[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    assert (nearest == labels).mean() > 0.88
    assert (
        means[0].reshape(8, 8)[4, 3:5].max() < 0.2 < means[1].reshape(8, 8)[4, 3:5].min()
    )  # the hole of a 0
    assert (
        means[7].reshape(8, 8)[7, 6] < means[2].reshape(8, 8)[7, 6]
    )  # a 2 stands on a line, a 7 does not


def test_each_call_returns_arrays_of_its_own():
    images, labels = load_digits()
    images[:] = 0.5
    labels[:] = 5

    again, labels_again = load_digits()
    assert again.max() == 1.0
    assert set(labels_again.tolist()) == set(range(10))


@pytest.mark.processes
def test_needs_numpy_alone():
    """A rank, or a grader's sandbox, loads the digits without torch and scikit-learn."""
    code = "import sys; from ddpkit.data import load_digits; load_digits(); print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"torch", "sklearn", "matplotlib", "IPython"} & set(loaded)
