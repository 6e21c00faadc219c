"""The folder of the package, and `write_whole`, which writes a file whole or not at all."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

PACKAGE = Path(__file__).parent
CHECKOUT = PACKAGE.parent  # has solutions/ and tests/, unless ddpkit was installed from a wheel


def write_whole(path: Path, data: bytes) -> None:
    """Write a file atomically, so that no reader finds half of the file.

    A reader, and the next start after a crash, finds the old file or the new one.

    Raises OSError; then the old file is unchanged.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
