"""Lab 13: blocks of a model that report their events, and their training in one process."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

WIDTH = 32
STEPS = 2
KINDS = ("plain", "tied", "biased", "unused", "frozen")


class TellingBlock(nn.Module):
    """A block that reports its events: block 2 calls `say("forward 2")`, later `say("backward 2")`.

    `kind` is one of: "plain"; "tied", two layers with one weight; "biased", with a frozen bias;
    "unused", with a parameter that has no use; "frozen", completely frozen.
    """

    def __init__(self, number: int, kind: str, say: Callable[[str], None]) -> None:
        super().__init__()
        self.number, self.kind, self.say = number, kind, say
        self.one, self.other = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        if kind == "tied":
            self.other.weight = self.one.weight
        if kind == "biased":
            self.other.bias.requires_grad_(False)
        if kind == "unused":
            self.more = nn.Parameter(torch.ones(7))
        if kind == "frozen":
            self.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.other(torch.tanh(self.one(x)))
        self.say(f"forward {self.number}")
        if hidden.requires_grad:
            hidden.register_hook(lambda _: self.say(f"backward {self.number}"))
        return x + torch.tanh(hidden)


def silent(_: str) -> None:
    """Do nothing: this function is the `say` of blocks that report no events."""


def made(
    kinds: Sequence[str],
    say: Callable[[str], None] = silent,
    states: bytes = b"",
) -> list[TellingBlock]:
    """Return blocks of these kinds, in the states of `Learning.states` or with new parameters."""
    found = [TellingBlock(number, kind, say) for number, kind in enumerate(kinds)]
    if states:
        for block, state in zip(found, pickle.loads(states), strict=True):
            block.load_state_dict(state)
    return found


def trainable(block: nn.Module) -> list[Tensor]:
    """Return the trainable parameters of a block, each parameter once."""
    return [p for p in block.parameters() if p.requires_grad]


def chunk(tensors: Sequence[Tensor], rank: int, n: int) -> Tensor:
    """Return the rank's chunk of the joined tensors, padded with zeros to a multiple of n."""
    joined = torch.cat([torch.zeros(0), *(each.detach().flatten() for each in tensors)])
    size = -(-len(joined) // n)
    mine = joined[rank * size : (rank + 1) * size]
    return torch.cat([mine, torch.zeros(size - len(mine))])


class Learning:
    """Blocks trained in one process on the inputs of all ranks, and the right results of ranks.

    Each step runs the backward `backwards` times, each time for different inputs.
    """

    def __init__(self, seed: int, n: int, kinds: Sequence[str], backwards: int = 1) -> None:
        self.n, self.kinds, self.backwards = n, tuple(kinds), backwards
        generator = torch.Generator().manual_seed(seed + 1)
        shape = n, STEPS, backwards, 1, WIDTH
        self.inputs = torch.randn(shape, generator=generator)  # [rank, step, backward]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            blocks = made(kinds)
        # pickled, because tensors among a run's arguments would count as memory of the rank
        self.states = pickle.dumps([block.state_dict() for block in blocks])
        net = nn.Sequential(*blocks)
        self.untrained = net(torch.ones(1, WIDTH)).detach()
        self.frozen = sum(p.nbytes for p in net.parameters() if not p.requires_grad)  # bytes
        optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], 1e-2)
        for number in range(STEPS):
            optimizer.zero_grad()
            for x in self.inputs[:, number].transpose(0, 1):
                net(x.flatten(0, 1)).square().mean().backward()
            if number == 0:
                self.gradients = [[_gradient(p) for p in trainable(each)] for each in blocks]
            optimizer.step()
        self.output = net(torch.ones(1, WIDTH)).detach()

    def shards(self) -> list[list[Tensor]]:
        """Return each rank's right gradients of its shards, after the first step's backwards."""
        return [[chunk(each, rank, self.n) for each in self.gradients] for rank in range(self.n)]

    def own_shards(self) -> list[list[Tensor]]:
        """Return each rank's gradients of its shards if the ranks do not exchange gradients."""
        found = []
        for rank, mine in enumerate(self.inputs[:, 0]):
            blocks = made(self.kinds, states=self.states)
            net = nn.Sequential(*blocks)
            for x in mine:
                net(x).square().mean().backward()
            gradients = [[_gradient(p) for p in trainable(each)] for each in blocks]
            found.append([chunk(each, rank, self.n) for each in gradients])
        return found

    @property
    def lines(self) -> list[int]:
        """The number of trainable elements of each block, padded to a multiple of n."""
        sizes = (sum(g.numel() for g in each) for each in self.gradients)
        return [-(-size // self.n) * self.n for size in sizes]

    def sent(self, nbytes: int) -> int:
        """Return the bytes that a rank sends in the last step, with `nbytes` for each element."""
        return self.backwards * 3 * (self.n - 1) * sum(self.lines) * nbytes // self.n

    def needed(self, nbytes: int) -> list[int]:
        """Return the fewest bytes that each rank must send in the last step.

        A rank sends its own chunk twice, for two gathers. It sends the gradients of all other
        chunks once.
        """
        sizes = [sum(g.numel() for g in each) for each in self.gradients]
        found = []
        for rank in range(self.n):
            least = 0
            for size, line in zip(sizes, self.lines, strict=True):
                chunk = line // self.n
                own = max(0, min(size, (rank + 1) * chunk) - rank * chunk)
                least += size + own
            found.append(self.backwards * least * nbytes if self.n > 1 else 0)
        return found

    def operations(self) -> int:
        """Return the number of collectives in the last step."""
        return self.backwards * 3 * sum(size > 0 for size in self.lines)


def _gradient(p: Tensor) -> Tensor:
    return torch.zeros_like(p) if p.grad is None else p.grad.clone()
