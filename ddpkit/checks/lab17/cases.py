"""Lab 17: routing, rows sent to experts and back, balance, gradients, placement of experts."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ddpkit.checks.lab17 import balance_hints, hints, home_hints
from ddpkit.exercises.exercise import Case, exercise
from ddpkit.exercises.ranks import Did, Looks, asked, handed_in, title, within
from ddpkit.exercises.values import Between, Close
from ddpkit.protocol.per_rank import PerRank

if TYPE_CHECKING:
    from ddpkit.checks.lab17.travel import Journey
    from ddpkit.exercises.guard import Answer

COUNT = 8  # bytes of a count


def _sent(phase: str, ranks: Sequence[int], did: Did) -> list[int]:
    """Return, for each rank, the bytes that it passes to torch.distributed within a phase."""
    return [handed_in(within(did.trace.of(rank), phase)) for rank in ranks]


def _fields(*names: str, ranks: Sequence[int]) -> dict[str, Callable[[Did], list[object]]]:
    return {name: partial(_of_each, name, ranks) for name in names}


def _of_each(name: str, ranks: Sequence[int], did: Did) -> list[object]:
    return [did.returned[rank][name] for rank in ranks]


def _all_kept(ranks: Sequence[int], did: Did) -> bool:
    return all(did.returned[rank]["kept"] for rank in ranks)


def _looks(*names: str, ranks: Sequence[int], backward: bool = True) -> Looks:
    from ddpkit.checks.lab17.on_ranks import BACKWARD, FORWARD

    sent = {"sent forward": partial(_sent, FORWARD, ranks)}
    if backward:
        sent["sent backward"] = partial(_sent, BACKWARD, ranks)
    return {**_fields(*names, ranks=ranks), "left alone": partial(_all_kept, ranks), **sent}


# route


@exercise("route", lab="17", points=1)
def route(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the router: k experts for each token, with weights that add up to 1."""
    from ddpkit.checks.lab17.routing import Routing, routed

    for experts, k, dtype, bias in (
        (6, 2, "float32", False),
        (6, 2, "float32", True),
        (3, 1, "float32", False),
        (4, 4, "float32", False),
        (6, 3, "float64", True),
    ):
        asks = Routing(rng, rng.randrange(7, 40), experts, k, dtype, bias)
        weights, gradient = asks.right()
        about = [f"{k} of {experts} experts", dtype, *["a bias"] * bias]
        yield Case(
            ", ".join(about),
            partial(routed, answer, asks.logits, k, asks.bias, asks.probe),
            {
                "weights by expert": Close(weights),
                "gradient of logits": Close(gradient),
                "left alone": True,
            },
            read=asks.read,
            hints=hints.ROUTE,
            given=asks.models(),
        )


# dispatch and combine


def _journeys(rng: random.Random) -> Iterator[tuple[Journey, int, str]]:
    """Yield, for each case, a `Journey` of rows, the number of all ranks, and a title."""
    from ddpkit.checks.lab17.travel import Journey

    def half_hot(drawn: random.Random) -> list[int]:
        first = 0 if drawn.random() < 0.5 else drawn.randrange(7)
        return [first, drawn.choice([each for each in range(7) if each != first])]

    def some_nowhere(drawn: random.Random) -> list[int]:
        pair = drawn.sample(range(2), 2)
        return [-1 if drawn.random() < 0.2 else each for each in pair]

    def three(drawn: random.Random) -> list[int]:
        return drawn.sample(range(3), 2)

    def of_six(drawn: random.Random) -> list[int]:
        return [-1 if drawn.random() < 0.1 else each for each in drawn.sample(range(6), 3)]

    counts = [rng.randrange(12, 25), rng.randrange(3, 12), *(rng.randrange(4, 30) for _ in "ab")]
    yield Journey(rng, counts, 2, 2, half_hot), 4, "two experts each, half hot"
    counts = [rng.randrange(6, 30) for _ in range(3)]
    yield Journey(rng, counts, 2, 1, some_nowhere, idle=[1]), 3, "one expert each, choices of -1"
    counts = [rng.randrange(6, 30) for _ in range(2)]
    yield Journey(rng, counts, 3, 3, of_six, (1, 3)), 4, "a group of ranks 1 and 3"
    yield Journey(rng, [rng.randrange(6, 30)], 2, 3, three), 1, "three experts"


def _of_ranks(values: Sequence[object], ranks: Sequence[int], n: int) -> PerRank:
    """Return one value for each rank; ranks outside the group get the group's first value."""
    mine = dict(zip(ranks, values, strict=True))
    return PerRank([mine.get(rank, values[0]) for rank in range(n)])


@exercise("dispatch", lab="17", points=3)
def dispatch(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check that tokens' rows are sent to the ranks of their experts, and the gradient of x."""
    from ddpkit.checks.lab17.on_ranks import dispatched
    from ddpkit.checks.lab17.travel import ROW

    for journey, n, about in _journeys(rng):
        ranks = journey.members or range(n)
        # The counts may go to all ranks, and the number of an expert may travel with each row.
        counts = COUNT * journey.n * journey.experts
        mine = range(journey.n)
        yield Case(
            title(n, about),
            asked(
                partial(dispatched, answer),
                _of_ranks(journey.x, ranks, n),
                _of_ranks(journey.chosen, ranks, n),
                *(journey.per_rank, journey.members),
                world_size=n,
                see=_looks(
                    *("rows", "local", "order", "sends", "takes", "group", "gradient"),
                    ranks=ranks,
                ),
            ),
            {
                "order": "by expert",
                "rows": "as sent",
                "local": "right",
                "sends": journey.sends,
                "takes": journey.takes,
                "group": [True for _ in mine],
                "gradient": [journey.gradient(rank) for rank in mine],
                "left alone": True,
                "sent forward": [
                    Between(ROW * journey.away(r), (ROW + COUNT) * sum(journey.sends[r]) + counts)
                    for r in mine
                ],
                "sent backward": [
                    Between(ROW * journey.came(r), ROW * sum(journey.takes[r])) for r in mine
                ],
            },
            read=journey.read,
            hints=hints.DISPATCH,
            given={"n": journey.n, "k": journey.k, "per_rank": journey.per_rank,
                   "ranks": list(ranks)},
            trivial=n == 1,
        )  # fmt: skip


@exercise("combine", lab="17", points=2)
def combine(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the weighted sum of the experts' outputs for each token, and the gradients."""
    from ddpkit.checks.lab17.on_ranks import combined
    from ddpkit.checks.lab17.travel import ROW, Combining

    for journey, n, about in _journeys(rng):
        ranks, asks = journey.members or range(n), Combining(journey, rng)
        right, mine = asks.right(), range(journey.n)
        yield Case(
            title(n, about),
            asked(
                partial(combined, answer),
                *(_of_ranks(each, ranks, n) for each in (asks.made, asks.weights, asks.tickets)),
                _of_ranks(asks.gradients, ranks, n),
                journey.members,
                world_size=n,
                see=_looks("output", "of rows", "of weights", ranks=ranks),
            ),
            {
                "output": [Close(each) for each in right["output"]],
                "of rows": [Close(each) for each in right["gradient of rows"]],
                "of weights": [Close(each) for each in right["gradient of weights"]],
                "left alone": True,
                "sent forward": [
                    Between(ROW * journey.came(r), ROW * sum(journey.takes[r])) for r in mine
                ],
                "sent backward": [
                    Between(ROW * journey.away(r), ROW * sum(journey.sends[r])) for r in mine
                ],
            },
            hints=hints.COMBINE,
            given={**asks.models(), "ranks": list(ranks)},
            trivial=n == 1,
        )


# within_capacity


@exercise("within_capacity", lab="17", points=2)
def within_capacity(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the choices that fit into the experts' capacity; first choices come first."""
    from ddpkit.checks.lab17.routing import IDEAS, drawn_choices, limited
    from ddpkit.checks.lab17.routing import within as right

    few, more, many = (rng.randrange(*sizes) for sizes in ((12, 25), (20, 60), (12, 40)))
    for tokens, experts, k, capacity in (
        (few, 5, 2, few // 3),
        (more, 6, 3, more // 3),
        (few, 5, 2, few),
        (many, 4, 1, many // 4),
        (more, 11, 2, more // 4),
        (more, 4, 2, 0),
    ):
        telling = 0 < capacity < tokens
        asked_for = capacity if telling else tokens // 3
        chosen = drawn_choices(rng, tokens, experts, k, asked_for)
        models = {name: idea(chosen, experts, capacity) for name, idea in IDEAS.items()}
        yield Case(
            f"{tokens} tokens, {k} of {experts} experts, room for {capacity}",
            partial(limited, answer, chosen, experts, capacity),
            {"choices": right(chosen, experts, capacity), "left alone": True},
            hints=hints.CAPACITY,
            given={"chosen": chosen, "experts": experts, "capacity": capacity, **models},
            trivial=not telling,
        )


# balance_loss and nudged


@exercise("balance_loss", lab="17", points=2)
def balance_loss(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the balance loss: shares of all choices times this rank's mean probabilities."""
    from ddpkit.checks.lab17.balance import Balance
    from ddpkit.checks.lab17.on_ranks import balanced

    for n, experts, k in ((4, 6, 2), (2, 5, 3), (1, 4, 2)):
        asks = Balance(rng, n, rng.randrange(8, 40), experts, k)
        losses, gradients = asks.right()
        yield Case(
            title(n, f"{experts} experts", f"{k} choices for each token"),
            asked(
                *(partial(balanced, answer), PerRank(asks.probabilities), PerRank(asks.chosen)),
                world_size=n,
                see=_looks("loss", "gradient", ranks=range(n), backward=False),
            ),
            {
                "loss": [Close(each) for each in losses],
                "gradient": [Close(each) for each in gradients],
                "left alone": True,
                "sent forward": [_counts(n, experts)] * n,
            },
            hints=balance_hints.LOSS,
            given=asks.models(),
            trivial=n == 1,
        )


def _counts(n: int, experts: int) -> Between:
    """Return the range of bytes that a rank may send for its counts: 1 to 8 for each expert.

    The rank may also send the sum of its counts.
    """
    return Between(experts if n > 1 else 0, COUNT * (experts + 1))


@exercise("nudged", lab="17", points=1)
def nudged(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check a bias that grows for experts with few choices, and falls for those with many."""
    from ddpkit.checks.lab17.balance import Bias, between_counts, counts_around
    from ddpkit.checks.lab17.on_ranks import new_bias

    few = counts_around(rng, 4, 8, rng.randrange(3, 9) * 2, 2)
    near = [4000 + each for each in (rng.randrange(1, 4), 0, -rng.randrange(4, 8))]
    near.append(16_000 - sum(near))
    for n, counts, about in (
        (4, few, "one expert has the mean"),
        (4, near, "counts near 4,000"),
        (1, between_counts(rng), ""),
    ):
        asks = Bias(rng, n, counts, 2)
        yield Case(
            title(n, f"{len(counts)} experts", *filter(None, [about])),
            asked(
                *(partial(new_bias, answer), asks.bias, PerRank(asks.chosen), asks.rate),
                world_size=n,
                see=_looks("bias", ranks=range(n), backward=False),
            ),
            {
                "bias": [asks.right()] * n,
                "left alone": True,
                "sent forward": [_counts(n, len(counts))] * n,
            },
            hints=balance_hints.BIAS,
            given=asks.models(),
            trivial=n == 1,
        )


# average_gradients


@exercise("average_gradients", lab="17", points=3, returns=False)
def average_gradients(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check averaged gradients, which are sent only to the ranks that need them."""
    from ddpkit.checks.lab17.balance import ExpertGradients
    from ddpkit.checks.lab17.on_ranks import averaged

    for same, ep, missing in ((2, 2, False), (1, 4, False), (4, 1, False), (2, 2, True), (1, 1, 0)):
        asks, n = ExpertGradients(rng, same, ep, missing=bool(missing)), same * ep
        right, (shared, own) = asks.right(), asks.sizes()
        about = f"mesh of {same} × {ep}"
        least = (shared if n > 1 else 0) + (own if same > 1 else 0)
        yield Case(
            title(n, about, *["no rows"] * missing),
            asked(
                partial(averaged, answer),
                PerRank(asks.shared),
                PerRank([asks.given(rank) for rank in range(n)]),
                asks.groups,
                world_size=n,
                see=_looks("shared", "experts", ranks=range(n), backward=False),
            ),
            {
                "shared": right["shared"],
                "experts": right["experts"],
                "left alone": True,
                "sent forward": [Between(least, shared + own)] * n,
            },
            hints=balance_hints.GRADIENTS,
            given={**asks.models(), "right": right, "missing": bool(missing)},
            trivial=n == 1,
        )


# place


@exercise("place", lab="17", points=3)
def place(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the placement of experts on ranks: each expert at least once, no rank too busy."""
    from ddpkit.checks.lab17 import homes

    one = rng.randrange(100, 900)
    idle = [0, one, 3 * one, 0, one + 1, 2 * one, 0, one + 2]
    questions = [
        ("one expert has half", homes.hot(rng)),
        *(("few hot experts", each) for each in homes.drawn(rng)),
        ("even loads", ([one] * 8, 4, 2)),
        ("three experts without rows", (idle, 4, 2)),
    ]
    for about, question in questions:
        load, ranks, slots = question
        yield Case(
            f"{len(load)} experts on {ranks} × {slots} slots, {about}",
            partial(homes.placed, answer, load, ranks, slots),
            {"places": "balanced", "load kept": True},
            read=partial(homes.read, question),
            hints=home_hints.PLACE,
            given={"load": load, "ranks": ranks, "slots": slots,
                   "right_copies": homes.copied(load, ranks * slots - len(load)),
                   "way_rows": {name: sorted(homes.rows_of(way(*question), load))
                                for name, way in homes.WAYS.items()}},
        )  # fmt: skip
