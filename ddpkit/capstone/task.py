"""What lab 15 asks for: four small computers in two cabinets, a text, and a loss to come below."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from math import prod
from typing import Any

from ddpkit.capstone.model import TextModel
from ddpkit.data.text import TENTHS, Text, load_text
from ddpkit.link import LinkSpec
from ddpkit.machine import machines_of

RANKS = 4
LINK: LinkSpec = {"hosts of": 2, "inside": "10 Gbit/s, 20 us", "between": "200 Mbit/s, 200 us"}
MACHINE = "2 GFLOP/s, 8 GB/s, 1 GB, 3 us"
TARGET = 3.1  # nats a letter, of the text that is held out; see BENCHMARKS.md
GIVEN_MS = 6250.0  # what the given script takes: counted, so the same in every run
WINDOWS, LENGTH = 256, 32  # of the held-out text, by which a model is judged
TABLES = 2  # the first parameters, of letters and places: they are looked up, not multiplied
FEWEST = 32  # windows of 32 letters: from so few nobody learns to come below the target


@dataclass(frozen=True)
class TextTask:
    """A text in an alphabet of its own, a tenth of which is held out, and a fresh model."""

    seed: int

    @cached_property
    def _texts(self) -> tuple[Text, Text]:
        return load_text(self.seed % TENTHS, self.seed)

    @property
    def text(self) -> Text:
        """The text to train on: uint8 (letters,), an array of NumPy."""
        return self._texts[0]

    @property
    def held_out(self) -> Text:
        """The text to judge by: uint8 (letters,), an array of NumPy."""
        return self._texts[1]

    def model(self) -> TextModel:
        """A model that has learned nothing; torch's own generator stays as it is."""
        import torch

        with torch.random.fork_rng(devices=()):
            torch.manual_seed(self.seed)
            return TextModel()

    def loss(self, parameters: Any) -> float:
        """The held-out loss of a model with these parameters, float32 (n,), in nats a letter.

        Raises ValueError: there are too few or too many of them.
        """
        import torch

        model = self.model()
        sizes = [p.numel() for p in model.parameters()]
        if parameters.shape != (sum(sizes),):
            raise ValueError(
                f"the model has {sum(sizes)} parameters, but the tensor given has the shape "
                f"{list(parameters.shape)}"
            )
        text = torch.from_numpy(self.held_out).long()
        windows = text.unfold(0, LENGTH + 1, (len(text) - LENGTH - 1) // WINDOWS)[:WINDOWS]
        with torch.no_grad():
            for p, new in zip(model.parameters(), parameters.split(sizes), strict=True):
                p.copy_(new.view_as(p))
            return float(model(windows[:, :-1], windows[:, 1:]))

    def alike(self, parameters: Any) -> float:
        """Return the cosine between the tables in `parameters`, float32 (n,), and the given tables.

        The model has a table of letters and one of places. The lower cosine is returned.
        """
        import torch

        given = [p.detach() for p in self.model().parameters()][:TABLES]
        sizes = [p.numel() for p in given]
        found = parameters[: sum(sizes)].split(sizes)
        pairs = zip(found, given, strict=True)
        return min(float(torch.cosine_similarity(a, b.flatten(), dim=0)) for a, b in pairs)


@cache
def _shapes() -> tuple[tuple[int, ...], ...]:
    """Return the shapes of the model's parameters, without a change of torch's own generator."""
    import torch

    with torch.device("meta"):
        return tuple(tuple(p.shape) for p in TextModel().parameters())


def floor_flops() -> int:
    """Return the FLOPs of `FEWEST` windows' matrix products, forward and backward."""
    matrices = [shape for shape in _shapes() if len(shape) == 2]
    products = sum(map(prod, matrices[TABLES:]))
    return 6 * products * LENGTH * FEWEST


def floor_ms() -> float:
    """Return a lower bound of any training: `floor_flops` divided by all ranks, in ms."""
    (machine,) = machines_of(MACHINE, 1)
    peak = machine.cost_ns("matmul", 10**12, 0, "float32") / 10**12
    return floor_flops() / RANKS * peak / 1e6


def least_bytes() -> int:
    """Return the bytes of the smallest gradient: one bit for each parameter."""
    return sum(map(prod, _shapes())) // 8
