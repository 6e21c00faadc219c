"""Who calls: the user's code, which sees what it has asked for; or torch, which sees what is."""

from __future__ import annotations

from types import FrameType


def is_torchs(frame: FrameType) -> bool:
    """True if the code of a frame is torch's own. torch's test bodies count as a user's code."""
    package, *rest = str(frame.f_globals.get("__name__", "")).split(".")
    return package == "torch" and rest[:1] != ["testing"]
