"""Lab 13: an optimizer in one process: the right results, and the results of mistakes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from torch.optim import Optimizer

HUGE = ((40, 9), (5,), (4, 3), (2,), (7,))  # one parameter has nearly all numbers
EVEN = ((6, 5), (6,), (5, 6), (5,))
TINY_FIRST = ((1,), (6, 5), (5, 6), (5,))  # on 2 ranks, one gets none of the first tensor
STEPS = 4
LOSS = 1.5  # returned by the closure in the last step


class Stepping:
    """Parameters, their gradients in some steps, and an optimizer by its name and options.

    `frozen` and `unused` are indices in `shapes`. `groups` is (index, options): the parameters from
    the index on are a second group with these options. Before each step, the step's rate in `rates`
    becomes the "lr" of the first group, and half of the rate becomes the "lr" of the second.
    """

    def __init__(
        self,
        seed: int,
        name: str,
        options: Mapping[str, Any],
        *,
        shapes: Sequence[tuple[int, ...]] = HUGE,
        frozen: Sequence[int] = (),
        unused: Sequence[int] = (),
        groups: tuple[int, Mapping[str, Any]] | None = None,
        rates: Sequence[float] = (),
    ) -> None:
        generator = torch.Generator().manual_seed(seed)

        def drawn() -> list[Any]:
            return [torch.randn(shape, generator=generator) for shape in shapes]

        self.start = drawn()
        self.gradients: list[list[Any]] = [drawn() for _ in range(STEPS)]
        for each in self.gradients:
            for place in (*frozen, *unused):
                each[place] = None
        self.name, self.options = name, dict(options)
        self.frozen, self.unused, self.groups, self.rates = frozen, unused, groups, rates

    def asks(self) -> dict[str, Any]:
        """Return the inputs of a rank, without the right results."""
        return {
            "start": self.start,
            "gradients": self.gradients,
            "frozen": list(self.frozen),
            "name": self.name,
            "options": self.options,
            "groups": self.groups,
            "rates": list(self.rates),
            "heard": 2,
        }

    def learned(self, **instead: object) -> list[Tensor]:
        """Return the parameters after all steps in one process; `instead` replaces some inputs."""
        asked = {**self.asks(), **instead}
        parameters = made(asked["start"], asked["frozen"])
        sets = grouped(parameters, asked["groups"])
        optimizer = getattr(torch.optim, asked["name"])(sets, **asked["options"])
        take_steps(optimizer, parameters, asked["gradients"], asked["rates"], asked["heard"])
        return [p.detach() for p in parameters]

    @property
    def lines(self) -> list[int]:
        """The number of trainable elements of each group, to be divided among the ranks."""
        sizes = [0 if i in self.frozen else each.numel() for i, each in enumerate(self.start)]
        if self.groups is None:
            return [sum(sizes)]
        return [sum(sizes[: self.groups[0]]), sum(sizes[self.groups[0] :])]

    def state(self, n: int) -> int:
        """Return the bytes that the optimizer may keep on a rank: a chunk's state, and counters."""
        return sum(4 * self.kept * -(-numbers // n) for numbers in self.lines) + 256

    @property
    def kept(self) -> int:
        """The number of state elements that the optimizer keeps for each parameter element."""
        return 2 if self.name.startswith("Adam") else 1

    @property
    def used(self) -> int:
        """The number of elements that have a gradient, without frozen and unused parameters."""
        still = (*self.frozen, *self.unused)
        return sum(each.numel() for i, each in enumerate(self.start) if i not in still)

    def sent(self, n: int) -> int:
        """Return the bytes that a rank may send in all steps: each element once in each step."""
        return STEPS * sum(4 * n * -(-numbers // n) for numbers in self.lines) if n > 1 else 0

    def received(self, n: int) -> int:
        """Return the fewest bytes that all ranks send: each element goes to all ranks but one."""
        return STEPS * 4 * (n - 1) * self.used

    def at_rest(self, n: int) -> int:
        """Return the most bytes that a rank may keep between steps: its state, and two chunks."""
        return self.state(n) + 2 * sum(4 * -(-numbers // n) for numbers in self.lines) + 1024

    def models(self) -> Mapping[str, object]:
        """Return the results of common mistakes, by the name of the mistake."""
        zeros = [
            [torch.zeros_like(p) if g is None else g for p, g in zip(self.start, each, strict=True)]
            for each in self.gradients
        ]
        return {
            "start": self.start,
            "frozen": self.frozen,
            "unused": self.unused,
            "deaf": self.learned(rates=()) if self.rates else None,
            "first_heard": self.learned(heard=1) if self.rates and self.groups else None,
            "one_group": self.learned(groups=None) if self.groups else None,
            "first_group": range(self.groups[0]) if self.groups else (),
            "zeros": self.learned(gradients=zeros) if self.unused else None,
            "without_the_last": self.learned(gradients=self.gradients[:-1]),
        }


def made(start: Sequence[Tensor], frozen: Sequence[int]) -> list[nn.Parameter]:
    """Return parameters with the values in `start`; those at the indices `frozen` are frozen."""
    return [
        nn.Parameter(each.clone(), requires_grad=place not in frozen)
        for place, each in enumerate(start)
    ]


def grouped(parameters: list[nn.Parameter], groups: Any) -> Any:
    """Return the parameters in the form that an optimizer takes: an iterator, or groups."""
    if groups is None:
        return iter(parameters)
    place, options = groups
    return [{"params": parameters[:place]}, {"params": parameters[place:], **options}]


def take_steps(
    optimizer: Optimizer,
    parameters: Sequence[nn.Parameter],
    gradients: Sequence[Sequence[Tensor | None]],
    rates: Sequence[float],
    heard: int = 2,
) -> tuple[list[weakref.ReferenceType[Any]], float | None, int]:
    """Make a step with each list of gradients in turn; the last step has a closure.

    Only the first `heard` groups get the learning rates. Return weak references to the memory of
    the last gradients, the result of the last step, and the number of calls of the closure. A
    reference is dead when no tensor holds the memory.
    """
    memory: list[weakref.ReferenceType[Any]] = []
    returned, calls = None, 0
    for number, each in enumerate(gradients):
        optimizer.zero_grad()
        memory.clear()
        backward = partial(_backward, parameters, each, memory)

        def closure(backward: Callable[[], float] = backward) -> float:
            nonlocal calls
            calls += 1
            return backward()

        for place, group in enumerate(optimizer.param_groups[:heard] if rates else ()):
            group["lr"] = rates[number] / 2**place
        if number < len(gradients) - 1:
            backward()
            optimizer.step()
        else:
            returned = optimizer.step(closure)
    return memory, returned, calls


def _backward(
    parameters: Sequence[nn.Parameter],
    gradients: Sequence[Tensor | None],
    memory: list[weakref.ReferenceType[Any]],
) -> float:
    """Give each parameter a copy of its gradient, and record the memory; return a loss."""
    for p, gradient in zip(parameters, gradients, strict=True):
        p.grad = None
        if gradient is not None:
            array = gradient.numpy().copy()
            p.grad = torch.from_numpy(array)
            memory.append(weakref.ref(array))
            del array
    return LOSS
