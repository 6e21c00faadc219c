"""Reading and writing of JSON files; each failure is reported in one clear sentence."""

import gzip
import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ddpkit.errors import TraceError
from ddpkit.files import write_whole

MAX_BYTES = 1_000_000_000  # unpacked; reading takes three to four times as much memory
_GZIP = b"\x1f\x8b"  # the first bytes of a gzip file
_EXACT = 2.0**43  # neighbouring floats from 2**43 on are more than 0.001 apart


class Written(float):
    """A float that also keeps its digits as written in the file, which a float would round."""

    __slots__ = ("digits",)
    digits: str


def _float(digits: str) -> float:
    value = float(digits)
    if -_EXACT < value < _EXACT:
        return value
    kept = Written(value)
    kept.digits = digits
    return kept


def read_json(path: str | os.PathLike[str], hook: Callable[[dict[str, Any]], Any]) -> Any:
    """Return the content of a JSON file, gzipped or not, under any name.

    ``hook`` is called with every JSON object when the object is read, and returns the value to keep
    in its place. A hook for a profiler's file drops most objects, so the memory stays small. A
    number with more digits than a float can hold is a `Written`.
    """
    path = Path(path)
    try:
        return json.loads(_unpacked(path), object_hook=hook, parse_float=_float)
    except FileNotFoundError:
        raise TraceError(f"there is no trace file {path}") from None
    except (ValueError, EOFError, zlib.error, gzip.BadGzipFile, RecursionError):
        raise TraceError(f"{path} is not a trace file, or is damaged") from None
    except OSError as error:
        raise TraceError(f"cannot read the trace {path}: {error.strerror}") from error


def _unpacked(path: Path) -> bytes:
    with path.open("rb") as file:
        packed = file.read(len(_GZIP)) == _GZIP
        file.seek(0)
        if packed:
            with gzip.open(file) as inside:
                data = inside.read(MAX_BYTES + 1)  # a small file may unpack to very many bytes
        else:
            data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise TraceError(
            f"{path} holds more than {MAX_BYTES / 1e9:g} GB of JSON, too much to read at once: "
            "record fewer steps (torch.profiler.schedule), and do not set with_stack=True"
        )
    return data


def write(path: Path, data: bytes) -> None:
    """Write a file in full or not at all; compress it with gzip if the name ends in ".gz"."""
    if path.suffix == ".gz":
        # without a time of writing, equal traces make equal files
        data = gzip.compress(data, compresslevel=6, mtime=0)
    try:
        write_whole(path, data)
    except OSError as error:
        raise TraceError(f"cannot write the trace to {path}: {error.strerror}") from error
