"""Who calls: a script, which sees what it would see under torchrun; or torch, to see what is."""

from __future__ import annotations

from types import FrameType


def is_torchs(frame: FrameType) -> bool:
    """Whether code is torch's own, and not the script's."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "torch"
