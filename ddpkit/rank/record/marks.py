"""Blocks that a rank's code marks for the trace: `span` and `step`."""

from __future__ import annotations

import functools
import inspect
import warnings
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ParamSpec, TypeAlias

from ddpkit.rank.record.recorder import current, now_here

if TYPE_CHECKING:
    from contextlib import _GeneratorContextManager

P = ParamSpec("P")
Block: TypeAlias = "_GeneratorContextManager[None]"


def _warns_without_with(blocks: Callable[P, Block]) -> Callable[P, Block]:
    """Return `blocks` with a warning for a caller that forgets `with` (`span("x")` alone)."""

    @functools.wraps(blocks)
    def made(*args: P.args, **kwargs: P.kwargs) -> Block:
        block = blocks(*args, **kwargs)
        weakref.finalize(block, _warn_if_unused, blocks.__name__, block.gen).atexit = False
        return block

    return made


def _warn_if_unused(name: str, body: Generator[None, None, None]) -> None:
    if inspect.getgeneratorstate(body) == inspect.GEN_CREATED:
        said = f"{name}(...) alone marks nothing: write `with ddpkit.{name}(...):` and the work"
        warnings.warn(said, stacklevel=3)


@_warns_without_with
@contextmanager
def span(name: str) -> Iterator[None]:
    """Name a stretch of a rank's own work, so that the timeline shows the stretch as compute.

    ```python
    with span("add the chunks"):
        mine += received
    ```
    Outside a run the block has no effect, so a function with a span also runs by itself.
    """
    start, recorder = now_here(), current()
    if recorder is not None:
        recorder.opens(1)
    try:
        yield
    finally:
        if recorder is not None:
            recorder.opens(-1)
        if (now := current()) is not None:
            now.compute("span", name, start)


@_warns_without_with
@contextmanager
def step(**amounts: float) -> Iterator[None]:
    """Mark a training step, for programs in which a step does not end with `optimizer.step()`.

    ```python
    for batch in batches:
        with step(tokens=batch.numel()):
            train(batch)
    ```
    In a trace with marked steps, only these steps count: `run.trace.step(k)` is the k-th marked
    step of each rank. `amounts` are the amounts of work in the step, such as numbers of tokens or
    samples; `ddpkit run` reports them per second. Outside a run `step` does nothing.

    Raises ValueError if an amount is negative or not a number.
    """
    for name, amount in amounts.items():
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not amount >= 0:
            raise ValueError(f"step({name}={amount!r}): give a number, 0 or more")
    start = now_here()
    try:
        yield
    finally:
        if (now := current()) is not None:
            now.log.end_step("step", "step", start, now_here(), **amounts)
