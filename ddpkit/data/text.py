"""A text to learn, which comes with Python: the pages of its ``help()``, 450 kB of English.

Source: ``pydoc_data.topics`` of the Python that runs, made from the Python documentation, PSF
license. Its bytes differ a little from version to version.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

ALPHABET = 128  # different bytes: ASCII
TENTHS = 10  # of the text, one of which is held out
PIECES = 100  # of the text: every tenth is held out, so all tenths are equally hard to learn

Text = npt.NDArray[np.uint8]


def load_text(held_out: int = TENTHS - 1, alphabet: int | None = None) -> tuple[Text, Text]:
    """Return a text to train on and a text to judge by: nine tenths of one text, and the tenth.

    held_out    which tenth is held out, from 0: one of every ten pieces; without it the last
    alphabet    a seed by which the letters are exchanged, each for another one; without it they are
                those of ASCII. A model that has learned one alphabet knows nothing of another.

    Returns:
        train, held_out: uint8 (about 420,000,) and (about 46,000,), values below 128. The arrays
        are fresh on each call: yours to shuffle or change.

    Raises:
        ValueError: there is no such tenth.
    """
    if held_out not in range(TENTHS):
        raise ValueError(
            f"held_out={held_out!r}: give the number of a tenth of the text, 0 to {TENTHS - 1}"
        )
    letters = np.frombuffer(_whole(), dtype=np.uint8)
    if alphabet is not None:
        letters = np.random.default_rng(alphabet).permutation(ALPHABET).astype(np.uint8)[letters]
    pieces = np.array_split(letters, PIECES)
    train = [piece for i, piece in enumerate(pieces) if i % TENTHS != held_out]
    return np.concatenate(train), np.concatenate(pieces[held_out::TENTHS])


@lru_cache(1)
def _whole() -> bytes:
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics)).encode("ascii", "replace")
