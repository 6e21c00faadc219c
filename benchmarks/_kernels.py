"""Operations of a GPU, listed by hand from the sizes of a model, and their time on a machine."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ddpkit.machine import MachineModel

# An operation's kind, dtype, FLOPs and bytes, and the number of such operations.
Operations = Counter[tuple[str, str, int, int]]


def seconds(counted: Operations, machine: MachineModel, of_bytes: float = 1.0) -> float:
    """Return the device's seconds of operations; `of_bytes` scales the bytes of each operation."""
    total = 0
    for (kind, dtype, flops, moved), times in counted.items():
        _, device_ns = machine.host_and_device_ns(kind, flops, round(moved * of_bytes), dtype)
        total += times * device_ns
    return total / 1e9


@dataclass
class Kernels:
    """Operations on `tokens` tokens, in numbers of `dtype`, of `size` bytes."""

    tokens: float
    dtype: str = "bfloat16"
    size: float = 2
    found: Operations = field(default_factory=Counter)

    def product(self, rows: float, columns: float, times: int = 1, added: int = 0) -> None:
        """Add the product of the tokens with a weight of shape (rows, columns).

        The product moves `added` further bytes for each number of the weight.
        """
        moved = self.size * self.tokens * (rows + columns) + (self.size + added) * rows * columns
        self._add("matmul", 2 * self.tokens * rows * columns, moved, times)

    def batched(self, flops: float, numbers: float, times: int = 1) -> None:
        """Add products without a weight, which move `numbers` numbers."""
        self._add("matmul", flops, self.size * numbers, times)

    def attention(self, flops: float, numbers: float, times: int = 1) -> None:
        """Add a kernel of attention, which keeps no matrix of scores."""
        self._add("attention", flops, self.size * numbers, times)

    def one_pass(self, bytes_of_a_token: float, times: int = 1) -> None:
        """Add a kernel that does no products: it moves so many bytes for each token."""
        self._add("elementwise", 0, self.tokens * bytes_of_a_token, times)

    def _add(self, kind: str, flops: float, moved: float, times: int) -> None:
        self.found[kind, self.dtype, round(flops), round(moved)] += times
