"""`PerRank`: an argument that has a different value on every rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PerRank:
    """Marks an argument with one item for every rank; each rank gets its own item.

    ```python
    cluster.run(train, PerRank([0.1, 0.2]))      # rank 0 gets 0.1, rank 1 gets 0.2
    ```
    """

    values: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", list(self.values))


def pick(arguments: Any, rank: int) -> Any:
    """Return the arguments for rank `rank`: each `PerRank` is replaced by the rank's item."""
    if isinstance(arguments, dict):
        return {name: pick((value,), rank)[0] for name, value in arguments.items()}
    return tuple(a.values[rank] if isinstance(a, PerRank) else a for a in arguments)
