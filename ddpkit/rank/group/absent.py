"""Groups in which only the first ranks run (`Alike`); gloo connects the running ranks.

A call has the arguments of the whole group: lists and tensors with a part for each member. gloo
gets the parts of the running ranks. An absent rank's part is a copy of a running rank's part. A sum
counts each running rank once for itself and once for each of its copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import torch

from ddpkit.protocol.alike import Alike, short
from ddpkit.rank.group import arguments
from ddpkit.rank.group.believed import GATHERS, SCATTERS
from ddpkit.rank.group.staged import Landing
from ddpkit.rank.record.call import RecordedCall

if TYPE_CHECKING:
    import torch.distributed as dist

Start: TypeAlias = "Callable[..., dist.Work]"  # `direct.Direct.start`
LISTS_OF_PARTS = {"allgather": 0, "allgather_coalesced": 0, "gather": 0, "alltoall": 0}
EXCHANGES = ("alltoall_base", "all_to_all_single")
REDUCES = ("allreduce", "allreduce_coalesced", "reduce", "reduce_scatter", *SCATTERS)


class Absent:
    """The absent ranks of one group, and the calls of the group for them."""

    def __init__(self, alike: Alike, members: tuple[int, ...], rank: int) -> None:
        self.alike, self.size, self._rank = alike, len(members), rank
        self.running = alike.running(members)
        self.present = len(self.running)
        self.copies = self.size // self.present  # each running rank counts for so many ranks

    def check_parts(self, op: str, sends: Sequence[int], takes: Sequence[int]) -> None:
        """Raise ValueError if the parts of an exchange have unequal sizes."""
        if len({*sends, *takes}) > 1:
            raise ValueError(
                f"{op} has unequal parts, but only {self.present} of the {self.size} ranks run, so "
                "the parts of the other ranks are unknown. Give equal parts, or leave out alike="
            )

    def check(self, op: str, rank: int | None) -> None:
        """Raise ValueError if the root or the peer of a call is an absent rank."""
        if rank is None or rank < self.alike.present:
            return
        raise ValueError(
            f"{op} names rank {rank}, which does not run: with alike={self.alike.present}, ranks "
            f"{self.alike.present} to {self.alike.world_size - 1} are copies of ranks 0 to "
            f"{self.alike.present - 1}. Run without alike, or name a rank below "
            f"{self.alike.present}"
        )

    def around(self, start: Start) -> Start:
        """Return a function like `start` that accepts the arguments of the whole group.

        The function passes only the running ranks' parts to gloo.
        """

        def started(call: RecordedCall, method: str, *args: object, **kwargs: object) -> dist.Work:
            given, copied = self._for_gloo(method, args)
            inner = start(call, method, *given, **kwargs)
            return Copying(inner, *copied, arguments.tensors(args[:1])) if copied[0] else inner

        return started

    def _for_gloo(
        self, method: str, args: tuple[Any, ...]
    ) -> tuple[tuple[object, ...], tuple[list[torch.Tensor], list[torch.Tensor]]]:
        """Return the arguments for gloo, and two lists of tensors for the results of absent ranks.

        At the end of the call, each tensor of the first list is copied to the tensor at the same
        index of the second list.
        """
        first, second, *rest = (*args, None, None)[: max(len(args), 2)]
        here, n = self.present, self.size
        options = arguments.options(args)
        if method in REDUCES:
            reduction = arguments.reduction(options)
            if method == "reduce_scatter":
                parts = [[self._often(each, reduction) for each in of[:here]] for of in second]
                return (first, parts, *rest), ([], [])
            if method in SCATTERS:
                part = self._often(_first_parts(second, here, n), reduction)
                return (first, part, *rest), ([], [])
            often = [self._often(tensor, reduction) for tensor in first]
            if method == "reduce" and options.rootRank != self._rank:
                return (often, *args[1:]), ([], [])
            for tensor, value in zip(first, often, strict=True):
                tensor.detach().copy_(value)
            return args, ([], [])
        if method in EXCHANGES or method in GATHERS:
            landing = _first_parts(first, here, n)
            given = _first_parts(second, here, n) if method in EXCHANGES else second
            others = first.detach().view(self.copies, -1)[1:].unbind()
            if method in EXCHANGES:
                rest[:2] = [], []
            return (landing, given, *rest), ([landing.reshape(-1)] * len(others), [*others])
        if method == "scatter":
            return (first, [each[:here] for each in second], *rest), ([], [])
        if method in LISTS_OF_PARTS:
            lists = first if method in ("allgather", "gather") else [first]
            pairs = [(each[at % here], each[at]) for each in lists for at in range(here, len(each))]
            given_lists = [each[:here] for each in lists]
            outputs = given_lists if method in ("allgather", "gather") else given_lists[0]
            inputs = second[:here] if method == "alltoall" else second
            return (outputs, inputs, *rest), _flat(pairs)
        return args, ([], [])

    def _often(self, tensor: torch.Tensor, reduction: str) -> torch.Tensor:
        """Return a rank's input, reduced with the equal inputs of all copies of this rank."""
        if reduction == "SUM":
            return tensor.detach() * self.copies
        if reduction == "PRODUCT":
            return tensor.detach() ** self.copies
        if reduction == "BXOR" and self.copies % 2 == 0:
            return torch.zeros_like(tensor)
        return tensor.detach()


class Copying(Landing):
    """A call that, at the end of its wait, copies results into the parts of absent ranks."""

    def __init__(
        self,
        inner: dist.Work,
        landing: list[torch.Tensor],
        tensors: list[torch.Tensor],
        results: Iterable[torch.Tensor],
    ) -> None:
        super().__init__(inner, landing, tensors)
        self._results = list(results)

    def get_future(self) -> NoReturn:
        """Raise RuntimeError: gloo's own future would have too few results, and end too early."""
        raise RuntimeError("with alike=, this call has no future: call wait() instead")

    def result(self) -> list[torch.Tensor]:
        return self._results


class GroupsMade:
    """The groups that a program has made, in a run with absent ranks.

    A group of absent ranks is a copy of a group with running ranks.
    """

    def __init__(self, alike: Alike) -> None:
        self._alike = alike
        self.awaited = alike.present  # number of ranks that the present call of new_group awaits
        self._made: set[tuple[int, ...]] = set()
        # a group of running ranks that has not been made -> a group of absent ranks that copies it
        self._copies: dict[tuple[int, ...], tuple[int, ...]] = {}

    def made(self, ranks: Sequence[int] | None, by_members: bool) -> None:
        """Record a call of new_group, which the members or all ranks make.

        Raises ValueError if a group with running ranks does not have equally many copies of each of
        them.
        """
        members = tuple(range(self._alike.world_size) if ranks is None else sorted(ranks))
        self._alike.check_group(members)
        running = self._alike.running(members)
        self.awaited = len(running) if by_members else self._alike.present
        if running:
            self._made.add(members)
            self._copies.pop(members, None)
        elif (first := self._alike.first_copy(members)) not in self._made:
            self._copies.setdefault(first, members)

    def check(self) -> None:
        """Raise ValueError if a group of absent ranks copies a group that was never made."""
        for first, members in self._copies.items():
            raise ValueError(
                f"the group {short(members)} does not repeat any group: with "
                f"alike={self._alike.present}, the group needs its original, the group "
                f"{short(first)}, which the program has not made. Make both groups"
            )


groups_made: GroupsMade | None = None  # set in a run with absent ranks


def _first_parts(tensor: torch.Tensor, here: int, size: int) -> torch.Tensor:
    """Return the parts of the first `here` ranks, from a tensor with a part for each rank."""
    return tensor.detach().view(size, -1)[:here].view(-1)


def _flat(
    pairs: list[tuple[object, object]],
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return the first tensors of all pairs, and the second tensors of all pairs.

    A pair has two tensors or two lists of tensors.
    """
    sources = [each for source, _ in pairs for each in arguments.tensors(source)]
    targets = [each for _, target in pairs for each in arguments.tensors(target)]
    return sources, targets
