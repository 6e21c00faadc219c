"""Make ``digits.npz`` from scikit-learn's copy (only this script needs scikit-learn).

    python ddpkit/data/make_digits.py

The file is the same byte for byte each time (zip entries carry no time), so its sha256 in
``DIGITS.md`` shows if the data changed. A different zlib may pack differently: then compare the
arrays.
"""

import hashlib
from pathlib import Path

import numpy as np
from sklearn import datasets


def main() -> None:
    """Write the images and the labels beside this script, and print size and sha256."""
    digits = datasets.load_digits()
    images = digits.images.astype(np.uint8)  # (1797, 8, 8), whole numbers 0..16
    labels = digits.target.astype(np.uint8)  # (1797,), 0..9
    if not (np.array_equal(images, digits.images) and np.array_equal(labels, digits.target)):
        raise SystemExit(
            "these digits do not fit into uint8, so they are not the digits of DIGITS.md"
        )

    file = Path(__file__).with_name("digits.npz")
    np.savez_compressed(file, images=images, labels=labels)
    data = file.read_bytes()
    print(f"{file.name}: {len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}")


if __name__ == "__main__":
    main()
