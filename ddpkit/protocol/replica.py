"""`Replica`: one rank's fingerprints of a model that should be equal on several ranks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

Prints: TypeAlias = tuple[int, ...]  # fingerprints, one for each parameter


@dataclass
class Fingerprints:
    """The fingerprints of a model at one moment: after an optimizer's step, or at the end."""

    step: int  # the number of optimizer steps so far
    prints: Prints
    called: bool  # True if the rank communicated since the step before


@dataclass
class Replica:
    """The fingerprints of a model on one rank.

    kind     "DDP", or the class of the optimizer that has the parameters
    names    a name for each parameter: "0.weight", or "parameter 0 of SGD"
    matrices  for each parameter, True if the parameter has two dimensions or more
    members  ranks of DDP's process group, in the group's order; empty for an optimizer, which
             stands for all ranks
    begun    the fingerprints before the first step of an optimizer; empty for DDP
    seen     fingerprints after some steps, the same steps on every rank; on a modelled device,
             without steps that ended while a collective still moved the parameters
    end      fingerprints when the rank deleted the model, or when its function returned; None if
             a collective still moved the parameters then
    """

    kind: str
    names: tuple[str, ...]
    matrices: tuple[bool, ...] = ()
    members: tuple[int, ...] = ()
    begun: Prints = ()
    seen: list[Fingerprints] = field(default_factory=list)
    end: Fingerprints | None = None
