"""Distinguishes the user's calls, which see emulated values, from torch's, which see real ones."""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType

from ddpkit.source import is_user_file
from ddpkit.torch_private import COMPILES

_SENDS_OBJECTS = "torch.distributed.distributed_c10d"  # the module with `broadcast_object_list`


def is_torchs(frame: FrameType) -> bool:
    """True if the code of a frame belongs to torch.

    Functions of torch's own tests count as a user's code.
    """
    package, *rest = module_of(frame).split(".")
    return package == "torch" and rest[:1] != ["testing"]


def below_the_user(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and its callers, up to the first frame of the user's code (not included)."""
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        yield frame
        frame = frame.f_back


def module_of(frame: FrameType) -> str:
    """Return the name of the module in which a frame's function is defined."""
    return str(frame.f_globals.get("__name__", ""))


def compiles(frame: FrameType) -> bool:
    """True if torch's compiler, in this frame, compiles a function or prepares to compile one."""
    module = module_of(frame)
    return module in COMPILES or f"{module}.{frame.f_code.co_name}" in COMPILES


def sends_an_object(frame: FrameType | None) -> bool:
    """True if torch.distributed sends or receives a pickled object in a frame or in its callers."""
    while frame is not None:
        if module_of(frame) == _SENDS_OBJECTS and "_object" in frame.f_code.co_name:
            return True
        frame = frame.f_back
    return False
