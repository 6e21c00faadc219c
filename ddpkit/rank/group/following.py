"""Marks the results of operations on a script's GPU tensors as GPU tensors (see `placed`)."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Any

import torch

from ddpkit.rank.group.placed import is_marked, mark
from ddpkit.rank.mode import PlainMode
from ddpkit.torch_private import schema_of, tree_leaves

# Operations that may bring values of a GPU to the host.
_COPIES = ("aten::copy_", "aten::_foreach_copy_", "aten::_copy_from")


class Marking(PlainMode):
    """A dispatch mode that marks the results of operations on marked tensors."""

    def __torch_dispatch__(
        self,
        func: Any,
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        out = func(*args, **(kwargs or {}))
        if not func.is_view and schema_of(func).name not in _COPIES:
            given = [*_plain((args, kwargs))]
            if any(map(is_marked, given)):
                for made in _plain(out if out is not None else given):
                    mark(made)
        return out


def _plain(values: object) -> list[torch.Tensor]:
    return [
        each
        for each in tree_leaves(values)
        if type(each) in (torch.Tensor, torch.nn.Parameter) and each.layout == torch.strided
    ]


class Following:
    """Marks results in all threads of a script with two backends."""

    def __init__(self) -> None:
        self._undo = ExitStack()
        self._on = False

    def begin(self) -> None:
        """Mark results from now on, in this thread and in threads that start later."""
        if self._on:
            return
        self._on = True
        self._undo.enter_context(Marking())
        run = threading.Thread.run

        def marked(thread: threading.Thread) -> None:
            with Marking():
                run(thread)

        kind: Any = threading.Thread
        kind.run = marked
        self._undo.callback(setattr, kind, "run", run)

    def end(self) -> None:
        """Stop marking results."""
        self._undo.close()
        self._on = False


following = Following()
