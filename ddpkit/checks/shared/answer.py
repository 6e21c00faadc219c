"""The type of a student's answer, which may be any function or class and may return anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

Answer: TypeAlias = Callable[..., Any]
