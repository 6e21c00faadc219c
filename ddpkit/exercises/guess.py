"""`beside`: prints a prediction beside the measured number, and their ratio."""

from __future__ import annotations

import math
from typing import Any, SupportsFloat

from ddpkit.exercises.say import say

NOTHING = "Nothing was measured here."
UNWRITTEN = "No prediction yet: write a number in place of the dots, and run both cells again."


def beside(prediction: object, measured: SupportsFloat | None, unit: str = "") -> None:
    """Print a prediction beside the measured number, and measured ÷ predicted.

    prediction  a number; `...` if the student has not yet written a number
    measured    a number; None or 0 if the run was skipped
    unit        the unit of both: "ms", "MB", "messages"

    Any prediction is accepted, so this function raises nothing.
    """
    came = _number(measured)
    if not came:
        say(f"{NOTHING}\n")
        return
    text = f"measured  {_said(came, unit)}"
    said = _number(prediction)
    if said is None:
        why = UNWRITTEN if prediction is ... else f"{prediction!r:.40} is no number."
        say(f"{text}\n{why}\n")
    else:
        ratio = f"measured ÷ predicted {came / said:.2f}" if said else "which is not nothing"
        say(f"predicted {_said(said, unit)}\n{text}   {ratio}\n")


def _number(value: Any) -> float | None:
    """Return a value as a finite number; None for a text and for any other value."""
    try:
        found = math.nan if isinstance(value, str) else float(value)
    except Exception:  # the reader may have written any object as the prediction
        return None
    return found if math.isfinite(found) else None


def _said(value: float, unit: str) -> str:
    """Return a number with its unit: "33.8 ms", "350,415 bytes"."""
    digits = f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"
    return f"{digits} {unit}".strip()
