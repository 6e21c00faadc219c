"""Lab 12: slices, strips and parts, compared with one process, and the bytes that ranks send."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ddpkit.checks.lab12 import hints
from ddpkit.exercises.compare import same
from ddpkit.exercises.exercise import Case, Observed, exercise
from ddpkit.exercises.ranks import Did, asked, title
from ddpkit.exercises.values import Between, Close
from ddpkit.protocol.per_rank import PerRank

if TYPE_CHECKING:
    from torch import Tensor

    from ddpkit.checks.lab12.attentions import Attention
    from ddpkit.checks.lab12.mlps import Twin
    from ddpkit.exercises.guard import Answer
    from ddpkit.exercises.hint import Hint

Tensors = Sequence[Any]  # one tensor for each rank
NOTHING = Between(0, 0)

WORLDS = (  # ranks, dtype, memory layout of the given tensors
    (2, "float32", "transposed"),
    (4, "float32", "of stride 0"),
    (3, "float64", "contiguous"),
    (1, "float32", "contiguous"),
)


# Copied and Summed


@exercise("Copied", lab="12", points=1, returns=False)
def copied(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check an autograd function: forward the identity, backward the sum over the ranks."""
    for n, dtype, lies in WORLDS:
        x, gradients = _lying(_exact(rng, dtype), lies), _drawn(rng, n, dtype, lies)
        size = x.numel() * x.element_size()
        yield _passed(
            *(answer, title(n, dtype, f"gradients {lies}"), [x] * n, gradients),
            *([x] * n, [sum(gradients)] * n),
            sent=([NOTHING] * n, [_ring(n, size)] * n),
            hints=hints.COPIED,
            handed_on="output",
            trivial=n == 1,
        )


@exercise("Summed", lab="12", points=1, returns=False)
def summed(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check an autograd function: forward the sum over the ranks, backward the identity."""
    for n, dtype, lies in WORLDS:
        xs, gradients = _drawn(rng, n, dtype, lies), _drawn(rng, n, dtype, lies)
        size = xs[0].numel() * xs[0].element_size()
        yield _passed(
            *(answer, title(n, dtype, f"tensors {lies}"), xs, gradients),
            *([sum(xs)] * n, gradients),
            sent=([_ring(n, size)] * n, [NOTHING] * n),
            hints=hints.SUMMED,
            handed_on="gradient",
            trivial=n == 1,
        )


def _ring(n: int, size: int, least: int | None = None) -> Between:
    """Return the range of bytes that a rank may send in an all-reduce of `size` bytes.

    A rank must send its own numbers once: `size` bytes, or `least` if fewer bytes are enough.
    """
    least = size if least is None else least
    return Between(least if n > 1 else 0, -(-2 * (n - 1) * size // n))


def _one_number(n: int) -> Between:
    """Return the range of bytes that a rank may send to sum or gather one number of each rank."""
    return Between(4 if n > 1 else 0, 8 * (n - 1))


def _moved(n: int, part: int, *, own: bool) -> Between:
    """Return the range of bytes that a rank may send in a gather (`own`) or a reduce-scatter.

    In a ring, a rank sends all parts but one, of `part` bytes each. In a gather, a rank must send
    at least its own part. In a reduce-scatter, a rank must send its numbers for the parts of all
    other ranks.
    """
    return Between((1 if own else n - 1) * part if n > 1 else 0, (n - 1) * part)


def _exact(rng: random.Random, dtype: str, *shape: int) -> Any:
    """Draw numbers that no shorter dtype can hold; their sums are exact in any order."""
    import torch

    generator = torch.Generator().manual_seed(rng.randrange(10**6))
    finest = 2 ** (36 if dtype == "float64" else 13)
    drawn = torch.randint(-20 * finest, 20 * finest, shape or (3, 4), generator=generator)
    return drawn.to(getattr(torch, dtype)) / finest


def _drawn(rng: random.Random, n: int, dtype: str, lies: str) -> list[Tensor]:
    return [_lying(_exact(rng, dtype), lies) for _ in range(n)]


def _lying(x: Tensor, lies: str) -> Tensor:
    """Return a tensor like x in the memory layout `lies`.

    The layout is "transposed" or "of stride 0", which repeats one value of x; otherwise x itself is
    returned.
    """
    if lies == "of stride 0":
        return x[0, 0].clone().expand_as(x)
    return x.t().contiguous().t() if lies == "transposed" else x


def _passed(
    answer: Answer,
    about: str,
    xs: Tensors,
    gradients: Tensors,
    outputs: Tensors,
    of_xs: Tensors,
    *more: Any,
    sent: tuple[Sequence[Between], Sequence[Between]],
    hints: Sequence[Any],
    trivial: bool = False,
    given: dict[str, Any] | None = None,
    at_once: bool = False,
    handed_on: str = "",
) -> Case:
    """Return a case of an autograd function: output and gradient by rank, and the bytes sent.

    `handed_on` names a result that must equal an input: "output" or "gradient". `read` compares the
    results in the notebook's process, so that no rank can find the right results.
    """
    from ddpkit.checks.shared.functions import passed
    from ddpkit.checks.shared.travel import SENT, few

    n, right = len(xs), {"output": list(outputs), "gradient": list(of_xs)}
    return Case(
        about,
        asked(
            *(partial(passed, answer), PerRank(list(xs)), PerRank(list(gradients)), *more),
            world_size=n,
            see={
                "output": _field("output"),
                "gradient": _field("gradient"),
                "left alone": _all_kept,
                **SENT,
                **({"all at once": partial(few, n + 2)} if at_once else {}),
            },
        ),
        {
            **{name: values for name, values in right.items() if name != handed_on},
            **({f"{handed_on} as it was": True} if handed_on else {}),
            "left alone": True,
            "sent forward": list(sent[0]),
            "sent backward": list(sent[1]),
            **({"all at once": True} if at_once else {}),
        },
        read=partial(_handed_on, right, handed_on),
        hints=hints,
        given={"n": n, "xs": xs, "gradients": gradients, "right": right, **(given or {})},
        trivial=trivial,
    )


def _handed_on(right: Mapping[str, Tensors], name: str, seen: Observed) -> Observed:
    """Add an observation: True if the result `name` is equal to the unchanged input."""
    return {**seen, f"{name} as it was": same(seen[name], right[name])} if name else seen


def _field(name: str) -> Callable[[Did], list[object]]:
    return partial(_of_each, name)


def _of_each(name: str, did: Did) -> list[object]:
    return [each[name] for each in did.returned]


def _all_kept(did: Did) -> bool:
    return all(each["kept"] for each in did.returned)


# SlicedMLP


@exercise("SlicedMLP", lab="12", points=4)
def sliced_mlp(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check an MLP with a slice on each rank: it computes and learns as in one process."""
    from ddpkit.checks.lab12.mlps import Twin

    for n, hidden, name in ((2, 8, "GELU"), (4, 10, "Tanh"), (3, 7, "GELU"), (1, 5, "GELU")):
        twin = Twin(rng.randrange(10**6), hidden, name)
        yield _sliced(answer, n, (f"{hidden} hidden numbers", name), twin, hints.SLICED)


def _sliced(
    answer: Answer, n: int, about: Sequence[str], twin: Twin | Attention, hints: Sequence[Hint]
) -> Case:
    """Return a case of a layer with a slice on each rank; `twin` has the right results."""
    from ddpkit.checks.lab12.on_ranks import sliced
    from ddpkit.checks.shared.travel import SENT

    # bytes of the last bias: one rank may add the bias for all ranks
    bias = twin.output[0, 0].nbytes
    return Case(
        title(n, *about),
        asked(
            *(partial(sliced, answer), PerRank(twin.layers(n)), twin.x, twin.gradient),
            world_size=n,
            see={
                "output": _field("output"),
                "gradient of x": _field("gradient"),
                "after 3 steps": _field("learned"),
                "numbers": _field("numbers"),
                "bytes held": _field("held"),
                "left alone": _all_kept,
                **SENT,
            },
        ),
        {
            "output": [Close(twin.output)] * n,
            "gradient of x": [Close(twin.gradient_of_x)] * n,
            "after 3 steps": [Close(twin.learned, digits=3)] * n,
            "numbers that learn otherwise": [0] * n,
            "left alone": True,
            "bytes held": [Between(each - bias, each) for each in twin.held(n)],
            "sent forward": [_ring(n, twin.output.nbytes)] * n,
            "sent backward": [_ring(n, twin.x.nbytes)] * n,
        },
        read=partial(_apart, twin.learns),
        hints=hints,
        given=twin.models(n),
        trivial=n == 1,
    )


def _apart(learns: Mapping[float, float], seen: Observed) -> dict[str, object]:
    """Count, for each rank, the parameter elements that do not change as in one process.

    An element is identified by its value before the first step, so its place and the shape of its
    tensor do not matter. Elements that the layer of one process does not have are not counted.
    """
    found = [_otherwise(learns, one) for one in seen["numbers"]]
    rest = {name: value for name, value in seen.items() if name != "numbers"}
    return {**rest, "numbers that learn otherwise": found}


def _otherwise(learns: Mapping[float, float], numbers: Any) -> int:
    first, last = (map(float, each) for each in numbers)
    pairs = [(learns[a], b) for a, b in zip(first, last, strict=True) if a in learns]
    return sum(not abs(want - got) <= 0.01 * abs(want) + 0.001 for want, got in pairs)


# Halo

STRIPS = ((2, 1, 6), (4, 2, 10), (3, 1, 7), (1, 1, 3))  # ranks, k, rows of the image


@exercise("Halo", lab="12", points=4, returns=False)
def halo(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check strips that borrow rows from their neighbours, and return these rows' gradient."""
    from ddpkit.checks.lab12.strips import Strips

    for n, k, rows in STRIPS:
        strips = Strips(_exact(rng, "float32", 2, 3, rows, 5), n, k)
        gradients = [_exact(rng, "float32", *one.shape) for one in strips.with_halo()]
        yield _passed(
            *(answer, title(n, f"{rows} rows", f"k = {k}"), strips.strips, gradients),
            *(strips.with_halo(), strips.gradients(gradients), k),
            sent=([Between(each, each) for each in strips.sent()],) * 2,
            hints=hints.HALO,
            trivial=n == 1,
            given={"k": k, **strips.models(gradients)},
            at_once=n == 4,
        )


# Gathered and Scattered

PARTS = (  # ranks, dtype, batch size; with batch size 1, the parts are contiguous views
    (2, "float32", 6),
    (4, "float32", 6),
    (3, "float64", 1),
    (1, "float32", 6),
)


@exercise("Gathered", lab="12", points=2, returns=False)
def gathered(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check an autograd function: forward an all-gather of parts, backward a reduce-scatter."""
    import torch

    for n, dtype, batch in PARTS:
        parts = [_exact(rng, dtype, batch, 5, 3)[:, :2] for _ in range(n)]  # gaps in memory
        whole = torch.cat(parts, dim=1)
        gradients = [_exact(rng, dtype, *whole.shape) for _ in range(n)]
        yield _passed(
            *(answer, title(n, dtype), parts, gradients, [whole] * n),
            list(sum(gradients).chunk(n, dim=1)),
            sent=(
                [_moved(n, parts[0].nbytes, own=True)] * n,
                [_moved(n, parts[0].nbytes, own=False)] * n,
            ),
            hints=hints.GATHERED,
            trivial=n == 1,
            given={
                "own": [one.chunk(n, dim=1)[rank] for rank, one in enumerate(gradients)],
                "reshaped": [torch.cat(parts).reshape(whole.shape)] * n,
            },
        )


@exercise("Scattered", lab="12", points=2, returns=False)
def scattered(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check an autograd function: forward a reduce-scatter, backward an all-gather of parts."""
    import torch

    for n, dtype, batch in PARTS:
        xs = [_exact(rng, dtype, batch, 2 * n, 3) for _ in range(n)]
        parts = list(sum(xs).chunk(n, dim=1))
        gradients = [_exact(rng, dtype, batch, 5, 3)[:, :2] for _ in range(n)]
        whole = torch.cat(gradients, dim=1)
        alone = [torch.zeros_like(whole) for _ in range(n)]
        for rank, zeros in enumerate(alone):
            zeros.chunk(n, dim=1)[rank].copy_(gradients[rank])
        yield _passed(
            *(answer, title(n, dtype), xs, gradients, parts, [whole] * n),
            sent=(
                [_moved(n, parts[0].nbytes, own=False)] * n,
                [_moved(n, parts[0].nbytes, own=True)] * n,
            ),
            hints=hints.SCATTERED,
            trivial=n == 1,
            given={
                "own": [one.chunk(n, dim=1)[rank] for rank, one in enumerate(xs)],
                "alone": alone,
            },
        )


# global_norm


@exercise("global_norm", lab="12", points=3)
def global_norm(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check that all ranks get the norm of the whole model's gradient, and send one number."""
    from ddpkit.checks.lab12.norm_hints import NORM
    from ddpkit.checks.lab12.norms import Gradients
    from ddpkit.checks.lab12.on_ranks import norm_of
    from ddpkit.checks.shared.travel import SENT

    for n, about in ((2, ""), (4, "parameters without a gradient"), (3, ""), (1, "")):
        drawn = Gradients(rng.randrange(10**6), n, missing=bool(about))
        yield Case(
            title(n, *filter(None, [about])),
            asked(
                *(partial(norm_of, answer), PerRank(drawn.by_rank), drawn.slices),
                world_size=n,
                see={
                    "norm": _field("norm"),
                    "left alone": _all_kept,
                    "sent forward": SENT["sent forward"],
                },
            ),
            {
                "norm": [Close(drawn.norm(), digits=5)] * n,
                "left alone": True,
                "sent forward": [_one_number(n)] * n,
            },
            hints=NORM,
            given=drawn.models(),
            trivial=n == 1,
        )


# SlicedAttention


@exercise("SlicedAttention", lab="12", points=3)
def sliced_attention(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check attention with a few heads on each rank: it computes and learns as in one process."""
    from ddpkit.checks.lab12.attentions import Attention

    for n, heads in ((2, 4), (4, 4), (3, 4), (1, 2)):
        twin = Attention(rng.randrange(10**6), heads)
        about = (f"{heads} heads",)
        yield _sliced(answer, n, about, twin, hints.ATTENTION)
