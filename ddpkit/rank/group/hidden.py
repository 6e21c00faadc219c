"""Refuses process groups that code makes without ddpkit, because a trace does not show them.

Code makes such a group by calling torch's class directly. A user's own run allows such a group; a
check that counts bytes refuses it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch.distributed as dist

from ddpkit.rank.group.making import making

if TYPE_CHECKING:
    from collections.abc import Callable

KINDS = ("ProcessGroupGloo", "ProcessGroupNCCL", "ProcessGroupMPI", "ProcessGroupUCC")


class HiddenGroup(RuntimeError):
    """Raised if code makes a process group that ddpkit cannot record."""


@contextmanager
def no_hidden_groups() -> Iterator[None]:
    """A block in which `HiddenGroup` is raised if code makes a torch backend without ddpkit."""
    usual = {kind: kind.__init__ for name in KINDS if (kind := getattr(dist, name, None))}
    for kind, init in usual.items():
        kind.__init__ = _refusing(init)
    try:
        yield
    finally:
        for kind, init in usual.items():
            kind.__init__ = init


def _refusing(init: Callable[..., object]) -> object:
    @functools.wraps(init)
    def refuse(self: object, *arguments: object, **named: object) -> None:
        if not making.ours:
            raise HiddenGroup(
                "the code makes a process group by itself, and the messages in such a group are "
                "not counted: make the group with dist.new_group(ranks)"
            )
        init(self, *arguments, **named)

    return refuse
