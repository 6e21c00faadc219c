"""Lab 17: choices of tokens, the rows that are sent for them, and the reading of tickets.

A ticket has the order of the sent rows and the split sizes. The results travel back by the ticket.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ddpkit.exercises.exercise import Observed

FEATURES = 16  # numbers of a token
ROW = 4 * FEATURES  # bytes


class Journey:
    """Tokens and their choices by rank, and the rows that are sent to the chosen experts.

    counts     the tokens of each rank
    choose     a function that draws the experts of a token from a random generator
    members    the ranks of the group; None for a group of all ranks
    idle       ranks whose tokens all choose nothing; then the last token of each rank does too
    """

    def __init__(
        self,
        rng: random.Random,
        counts: Sequence[int],
        k: int,
        per_rank: int,
        choose: Callable[[random.Random], list[int]],
        members: Sequence[int] | None = None,
        idle: Sequence[int] = (),
    ) -> None:
        self.n, self.k, self.per_rank, self.members = len(counts), k, per_rank, members
        self.experts = self.n * per_rank
        generator = torch.Generator().manual_seed(rng.randrange(10**9))
        self.x = [_whole(generator, count, FEATURES) for count in counts]
        self.chosen = [torch.tensor([choose(rng) for _ in range(count)]) for count in counts]
        for rank, chosen in enumerate(self.chosen if idle else ()):
            chosen[0 if rank in idle else -1 :] = -1
        self.orders = [self._order(each, generator) for each in self.chosen]
        self.sends: list[list[int]] = [
            (each.flatten()[order] // per_rank).bincount(minlength=self.n).tolist()
            for each, order in zip(self.chosen, self.orders, strict=True)
        ]
        self.takes = [[sent[rank] for sent in self.sends] for rank in range(self.n)]

    def _order(self, chosen: Tensor, generator: torch.Generator) -> Tensor:
        """Return the indices of the choices sorted by expert, in random order within an expert."""
        flat = chosen.flatten()
        mixed = torch.randperm(len(flat), generator=generator)
        mixed = mixed[flat[mixed] >= 0]
        return mixed[flat[mixed].argsort(stable=True)]

    def rows(
        self, orders: Sequence[Tensor], rank: int, *, modulo: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Return the rows that a rank receives if ranks send in these orders, and their experts.

        With `modulo`, the ranks make a mistake: they take choice p for a choice of token p %
        tokens.
        """
        rows, experts = [], []
        for x, chosen, order in zip(self.x, self.chosen, orders, strict=True):
            wanted = chosen.flatten()[order]
            here = order[wanted // self.per_rank == rank]
            rows.append(x[here % len(x) if modulo else here // self.k])
            experts.append(chosen.flatten()[here] - rank * self.per_rank)
        return torch.cat(rows), torch.cat(experts)

    def gradient(self, rank: int) -> Tensor:
        """Return the gradient of x; a row's gradient is the row times (its expert's number + 1)."""
        chosen = self.chosen[rank]
        return self.x[rank] * (chosen + 1).sum(1, keepdim=True).to(torch.float32)

    def away(self, rank: int) -> int:
        """Return the number of rows that a rank sends to other ranks."""
        return sum(self.sends[rank]) - self.sends[rank][rank]

    def came(self, rank: int) -> int:
        """Return the number of rows that a rank receives from other ranks."""
        return sum(self.takes[rank]) - self.takes[rank][rank]

    # dispatch

    def read(self, observed: Observed) -> Observed:
        """Return verdicts on the order, the rows, and the local numbers of the rows' experts.

        Every order that is sorted by expert is right. So the rows are compared with the right rows
        for the order in each rank's ticket.
        """
        orders, rows, local = observed["order"], observed["rows"], observed["local"]
        rest = {name: observed[name] for name in observed if name not in ("order", "rows", "local")}
        said, at = self._order_said(orders)
        words = {"order": said, **({"at": at} if at else {})}
        if said not in ("by expert", "by rank"):
            return {**words, "rows": _shapes(rows), **rest}
        tensors = [torch.tensor(order, dtype=torch.int64) for order in orders]
        right = [self.rows(tensors, rank) for rank in range(self.n)]
        words["rows"] = "as sent"
        if not _all_equal(rows, [each for each, _ in right]):
            swapped = [self.rows(tensors, rank, modulo=True)[0] for rank in range(self.n)]
            words["rows"] = "of token p % tokens" if _all_equal(rows, swapped) else "others"
        words["local"] = self._local_said(local, [each for _, each in right])
        return {**words, **rest}

    def _order_said(self, orders: Any) -> tuple[str, list[int]]:
        """Return a verdict on the order of the choices, and the numbers that a hint needs."""
        by_rank = False
        for rank, (order, chosen) in enumerate(zip(orders, self.chosen, strict=True)):
            flat = chosen.flatten().tolist()
            if not isinstance(order, list) or not all(
                type(each) is int and 0 <= each < len(flat) for each in order
            ):
                return "no places of choices", []
            gone = [each for each in order if flat[each] < 0]
            if gone:
                return "choices of -1", [len(gone)]
            if sorted(order) != [place for place, expert in enumerate(flat) if expert >= 0]:
                return "not each choice once", [rank]
            wanted = [flat[each] for each in order]
            ranks = [each // self.per_rank for each in wanted]
            if ranks != sorted(ranks):
                to = sorted(ranks)
                wrong = next(place for place, each in enumerate(ranks) if each != to[place])
                return "unsorted", [rank, wanted[wrong], to[wrong]]
            by_rank |= wanted != sorted(wanted)
        return ("by rank", []) if by_rank else ("by expert", [])

    def _local_said(self, local: Any, right: Sequence[Tensor]) -> str:
        if _all_equal(local, right):
            return "right"
        if _all_equal(local, [each + rank * self.per_rank for rank, each in enumerate(right)]):
            return "all experts"
        if _all_equal(local, [each.sort().values for each in right]):
            return "sorted"
        return "others"


class Combining:
    """Outputs of experts by rank, weights by token, and the weighted sums in one process."""

    def __init__(self, journey: Journey, rng: random.Random) -> None:
        self.journey = journey
        generator = torch.Generator().manual_seed(rng.randrange(10**9))
        self.made = [_whole(generator, sum(takes), FEATURES) for takes in journey.takes]
        self.weights = [
            torch.randint(1, 16, each.shape, generator=generator) / 16 for each in journey.chosen
        ]
        self.gradients = [_whole(generator, len(x), FEATURES) for x in journey.x]
        of_all = zip(journey.orders, journey.sends, journey.takes, strict=True)
        self.tickets = list(of_all)  # tickets by rank, without the group
        self.back = [self._back(rank) for rank in range(journey.n)]

    def _back(self, rank: int) -> Tensor:
        """Return the expert outputs that come back to a rank, in the order of its choices."""
        parts = []
        for other, takes in enumerate(self.journey.takes):
            start = sum(takes[:rank])
            parts.append(self.made[other][start : start + takes[rank]])
        return torch.cat(parts)

    def every(self, rank: int, *, undone: bool = True) -> Tensor:
        """Return an output for each choice, [token, k, feature]; zeros for dropped choices.

        Without `undone`, the outputs are in the order of arrival, which is a mistake.
        """
        journey, back = self.journey, self.back[rank]
        tokens = len(journey.x[rank])
        every = torch.zeros(tokens * journey.k, FEATURES)
        if undone:
            every[journey.orders[rank]] = back
        else:
            every[: len(back)] = back
        return every.view(tokens, journey.k, FEATURES)

    def summed(self, rank: int, weights: Tensor, *, undone: bool = True) -> Tensor:
        """Return, for each token of a rank, the weighted sum of its experts' outputs."""
        return (self.every(rank, undone=undone) * weights[..., None]).sum(1)

    def right(self) -> dict[str, list[Tensor]]:
        """Return the right outputs and gradients of each rank."""
        journey, n = self.journey, self.journey.n
        of_weights, of_back = [], []
        for rank in range(n):
            every, gradient = self.every(rank), self.gradients[rank]
            of_weights.append((every * gradient[:, None]).sum(2))
            wide = gradient[:, None] * self.weights[rank][..., None]
            of_back.append(wide.flatten(0, 1)[journey.orders[rank]])
        of_rows = [
            torch.cat([
                part[sum(sends[:rank]) : sum(sends[: rank + 1])]
                for part, sends in zip(of_back, journey.sends, strict=True)
            ])
            for rank in range(n)
        ]  # fmt: skip
        outputs = [self.summed(rank, self.weights[rank]) for rank in range(n)]
        return {"output": outputs, "gradient of rows": of_rows, "gradient of weights": of_weights}

    def models(self) -> Mapping[str, object]:
        """Return the outputs that common mistakes give on each rank, by the name of the mistake."""
        journey, ranks, weights = self.journey, range(self.journey.n), self.weights
        went = [(each >= 0).float() for each in journey.chosen]
        shares = [w * here for w, here in zip(weights, went, strict=True)]
        totals = [each.sum(1, keepdim=True) for each in shares]
        whole = [total.where(total > 0, 1.0) for total in totals]
        mixed = []
        for rank in ranks:
            order, flat = journey.orders[rank], weights[rank].flatten()
            other = torch.zeros_like(flat)
            other[order] = flat[: len(order)]
            mixed.append(self.summed(rank, other.view_as(weights[rank])))
        return {
            "n": journey.n,
            "not_undone": [self.summed(r, weights[r], undone=False) for r in ranks],
            "no_weights": [self.summed(r, torch.ones_like(weights[r])) for r in ranks],
            "even": [self.summed(r, torch.ones_like(weights[r]) / journey.k) for r in ranks],
            "of_others": mixed,
            "made_up": [self.summed(r, shares[r] / whole[r]) for r in ranks],
            "softened": [self.summed(r, weights[r].softmax(1)) for r in ranks],
        }


def _whole(generator: torch.Generator, *shape: int) -> Tensor:
    """Draw whole numbers, so that sums and products are exact in any order."""
    return torch.randint(-40, 41, shape, generator=generator).float()


def _all_equal(found: Sequence[object], right: Sequence[Tensor]) -> bool:
    return all(map(_equal, found, right))


def _equal(one: object, other: Tensor) -> bool:
    """True if two tensors are equal and have one dtype; for whole numbers, any integer dtype."""
    if not isinstance(one, torch.Tensor):
        return False
    whole = not (one.is_floating_point() or other.is_floating_point() or one.dtype == torch.bool)
    return (
        torch.equal(one.to(other.dtype), other)
        if whole
        else (one.dtype == other.dtype and torch.equal(one, other))
    )


def _shapes(rows: Tensor) -> list[Any]:
    return [list(getattr(each, "shape", ())) for each in rows]
