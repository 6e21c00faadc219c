"""Handwritten digits: 1,797 real images of 8 × 8 pixels in 45 kB, so that every lab trains offline.

Source: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning
Repository, 1998, doi:10.24432/C50P49, CC BY 4.0; through scikit-learn's ``load_digits``.
``DIGITS.md``, beside this file, has the details.
"""

from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

BRIGHTEST = 16  # a pixel counts the dark points of a 4 × 4 block of the scan


def load_digits() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Return the images and their labels, in the order of the source.

    Returns:
        images: float32 (1797, 64), each a row-major 8 × 8 picture, from 0 (paper) to 1 (ink).
        labels: int64 (1797,), values 0 to 9.

    The arrays are fresh on each call: yours to shuffle or change.
    """
    raw: dict[str, npt.NDArray[Any]] = {}
    with files(__package__).joinpath("digits.npz").open("rb") as file, np.load(file) as arrays:
        raw.update(arrays)
    images = raw["images"].reshape(-1, 64).astype(np.float32) / np.float32(BRIGHTEST)
    return images, raw["labels"].astype(np.int64)
