"""Lab 10: the clinic: diagnoses of faulty programs ("patients"), and repairs, which are run.

A repair is right if the program ends, sends as many bytes as the healthy program, and has the
results of one process. A repair that removes only the symptom leaves wrong results. A repair must
be small, and each rank has the true numbers only of its own rows of a batch. Therefore an answer
cannot replace the faulty program by a new program.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from ddpkit.checks.lab10.hints import DIAGNOSIS, MEND
from ddpkit.exercises.exercise import Case, Observed
from ddpkit.exercises.ranks import call
from ddpkit.faults import clinic
from ddpkit.protocol.per_rank import PerRank

if TYPE_CHECKING:
    from torch import Tensor

    from ddpkit.faults.clinic import Start

Answer = Callable[[], Any]
Ranks = list[Any]  # the reports of the ranks, by rank
ALIKE = "as many on each rank"
MOST_WORDS = 80  # limit of new words in a mend: the kit's mends have up to 21, mends in tests 69
NUMBER = 8  # bytes
GRADIENTS = 4 * NUMBER  # bytes of the gradients in a step
ROW = 3 * NUMBER
LEAST: dict[str, list[int]] = {  # patient -> the fewest bytes that each rank must send
    "A": [ROW] * 3,
    "B": [4 * GRADIENTS] * 2,
    "C": [4 * GRADIENTS] * 3,
    "D": [NUMBER * (4 * 4 - (rank == 2)) for rank in range(3)],
    "E": [3 * GRADIENTS] * 3,  # a mend may skip the step with the broken image
    "F": [4 * GRADIENTS] * 2,
    "G": [4 * GRADIENTS] * 2,
    "H": [4 * GRADIENTS] * 2,
    "I": [4 * GRADIENTS] * 3,
    "J": [2 * ROW] * 2 + [ROW] * 2,
    "K": [4 * ROW, 0],
    "L": [ROW] * 3,
    "M": [4 * GRADIENTS] * 3,
    "N": [2 * GRADIENTS] * 2,
    "O": [4 * GRADIENTS] * 2,
}
MOST_TIMES = 4  # a mended program sends at most this multiple of the least bytes
MOST_MORE = 4096  # bytes above the multiple, for pickled objects and the start of DDP

DIAGNOSES: dict[str, tuple[str, int | None]] = {
    "A": ("all send first", None),
    "B": ("one rank alone", 0),
    "C": ("another order", 2),
    "D": ("other sizes", 2),
    "E": ("left out", 2),
    "F": ("one rank alone", 0),
    "G": ("same data", None),
    "H": ("no common start", None),
    "I": ("divided twice", None),
    "J": ("a group of some", None),
    "K": ("written too early", 0),
    "L": ("read too early", None),
    "M": ("another order", 1),
    "N": ("data again", None),
    "O": ("old gradients", None),
}


def cases(name: str, answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Yield two cases of a patient: one checks the diagnosis, and one runs the repaired program.

    The program is the same for every seed, and so is its diagnosis, which can be guessed or copied.
    Therefore the diagnosis is trivial, and earns no points without a repair.
    """
    cause, rank = DIAGNOSES[name]
    yield Case(
        "diagnosis",
        partial(_diagnosed, answer),
        {"illness": cause, "rank": rank},
        hints=DIAGNOSIS,
        given={"patient": name},
        trivial=True,
    )
    seed = rng.randrange(10**6)
    begins = clinic.starts(name, seed, clinic.patient(name).ranks, apart=True)
    yield Case(
        "mended",
        partial(treated, answer, name, begins),
        {
            "ends": "well",
            "ranks": "talk",
            "mend": "small",
            **({"groups": ALIKE} if name == "J" else {}),
            "it has": "what it was made for",
        },
        read=partial(_looked_at, name, seed),
        hints=MEND,
        given={"patient": name},
    )


def _diagnosed(answer: Answer) -> Observed:
    cause, rank, _ = answer()
    return {"illness": cause, "rank": rank}


def treated(answer: Answer, name: str, begins: list[clinic.Start]) -> Observed:
    """Run a repaired program; return the results, the number of added words, and bytes by rank.

    A wrong repair cannot pass by luck: as for any answer, the check fails if the program does not
    wait for a message, or changes a tensor while a message uses the tensor.
    """
    _, _, mend = answer()
    ill = clinic.patient(name)
    mended = ill.mended(mend)
    clinic.remember(name, mended.program)
    did = call(_healthy, mended.program, name, PerRank(begins), world_size=mended.ranks)
    return {"ranks": did.returned, "words": ill.words_of(mended), "handed in": did.handed_in}


def _healthy(program: str, name: str, begins: Start) -> dict[str, object]:
    """Run a program on this rank; return its results, and the number of groups that it made.

    After the program, the job can make another group only if all ranks have made equally many
    groups.
    """
    import torch.distributed as dist

    before = dist.get_pg_count()
    found = clinic.live(program, name, begins)
    return found | {"groups": dist.get_pg_count() - before}


def _looked_at(name: str, seed: int, seen: Observed) -> Observed:
    ranks = seen["ranks"]
    model, lists = _right_model(name, seed), LISTS.get(name)
    has = all(any(_close(each["model"], one) for one in model) for each in ranks)
    what = "what it was made for" if has else "another model than one process"
    if has and lists is not None and not lists(ranks, seed):
        what = "a right model, and wrong results"
    looked = {"ends": "well", "ranks": _talk(name, seen["handed in"]), "it has": what}
    words = seen["words"]
    looked["mend"] = "small" if words <= MOST_WORDS else f"{words} new words and signs"
    if name == "J":
        counts = [each["groups"] for each in ranks]
        looked["groups"] = ALIKE if len(set(counts)) == 1 else f"{counts}, by rank"
    return looked


def _talk(name: str, handed_in: list[int]) -> str:
    """Return "talk" if the ranks send about as many bytes as in the healthy program.

    Otherwise describe the difference.
    """
    if 0 in (given for given, least in zip(handed_in, LEAST[name], strict=True) if least):
        return "are silent"
    pairs = enumerate(zip(handed_in, LEAST[name], strict=True))
    lacks = [f"rank {rank} sends {got} bytes of {least}" for rank, (got, least) in pairs
             if got < least]  # fmt: skip
    if lacks:
        return lacks[0]
    return (
        "talk" if sum(handed_in) <= MOST_TIMES * sum(LEAST[name]) + MOST_MORE else "talk too much"
    )


# The right results, from one process


def _right_model(name: str, seed: int) -> list[Tensor]:
    if name in "ADJKL":  # these programs do not train
        return [clinic.vector(clinic.build(seed))]
    if name == "E":
        return [_without_the_broken(seed, rule) for rule in ("zeros", "leave out", "the others")]
    return [clinic.vector(clinic.one_process(seed))]


def _without_the_broken(seed: int, rule: str) -> Any:
    """Return the trained model; `rule` says how a part of a batch with a broken image is handled.

    "zeros": the gradient of the part is zero. "leave out": the step is skipped. "the others": the
    step uses only the other parts.
    """
    import torch

    model = clinic.build(seed)
    optimizer = torch.optim.SGD(model.parameters(), clinic.LR, weight_decay=clinic.DECAY)
    for x, y in clinic.data(seed, "E"):
        parts = list(zip(x.split(4), y.split(4), strict=True))
        good = [part for part in parts if bool(part[0].isfinite().all())]
        if len(good) < len(parts) and rule == "leave out":
            continue
        optimizer.zero_grad()
        total: Any = sum(torch.nn.functional.mse_loss(model(x), y) for x, y in good)
        (total / (len(parts) if rule == "zeros" else len(good))).backward()
        optimizer.step()
    return clinic.vector(model)


def _edges(ranks: Ranks, seed: int) -> bool:
    x = clinic.data(seed)[0][0]
    right = [x[(4 * rank - 1) % len(x)] for rank in range(3)]
    return all(_all_close(each["result"], [row]) for each, row in zip(ranks, right, strict=True))


def _predictions(ranks: Ranks, seed: int) -> bool:
    model = clinic.build(seed)
    right = [model(x).detach() for x, _ in clinic.data(seed, "D")]
    return all(_all_close(each["result"], right) for each in ranks)


def _shared(ranks: Ranks, seed: int) -> bool:
    """True if, in each step, the parts that the ranks used are together the whole batch."""
    import torch

    images = torch.arange(clinic.IMAGES)
    return all(len(each["seen"]) == clinic.STEPS for each in ranks) and all(
        torch.equal(torch.cat([images[part] for part in parts]).sort().values, images)
        for parts in zip(*(each["seen"] for each in ranks), strict=True)
    )


def _sums(ranks: Ranks, seed: int) -> bool:
    """True if the ranks have the right sums of rows.

    Every rank must have the sum of all rows. Ranks 0 and 1 must have, as their first result, the
    sum of the rows of these two ranks.
    """
    x = clinic.data(seed)[0][0]
    upper, total = x[:6].sum(0), x.sum(0)
    right = [[upper, total]] * 2 + [[total]] * 2
    return all(_all_close(each["result"], sums) for each, sums in zip(ranks, right, strict=True))


def _first_rows(ranks: Ranks, seed: int) -> bool:
    return _all_close(ranks[1]["result"], [x[0] for x, _ in clinic.data(seed)])


def _with_the_row_above(ranks: Ranks, seed: int) -> bool:
    x = clinic.data(seed)[0][0]
    right = [x.roll(1 - 4 * rank, 0)[:5] for rank in range(3)]
    return all(_all_close(each["result"], [rows]) for each, rows in zip(ranks, right, strict=True))


def _losses(after: bool, ranks: list[Any], seed: int) -> bool:
    """True if rank 0 recorded the loss of each whole batch: after the step, if `after`."""
    import torch

    model, right = clinic.build(seed), []
    optimizer = torch.optim.SGD(model.parameters(), clinic.LR, weight_decay=clinic.DECAY)
    for x, y in clinic.data(seed):
        optimizer.zero_grad()
        loss: Any = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            later = torch.nn.functional.mse_loss(model(x), y)
        right.append(float(later if after else loss.detach()))
    log = ranks[0]["log"]
    return len(log) == len(right) and _close(torch.tensor(log), torch.tensor(right))


def _all_close(some: list[Tensor], others: list[Tensor]) -> bool:
    return len(some) == len(others) and all(map(_close, some, others))


def _close(a: object, b: Tensor) -> bool:
    import torch

    return (
        isinstance(a, torch.Tensor)
        and a.shape == b.shape
        and torch.allclose(a.double(), b.double())
    )


LISTS: dict[str, Callable[[Ranks, int], bool]] = {
    "A": _edges,
    "B": partial(_losses, False),
    "D": _predictions,
    "F": partial(_losses, True),
    "G": _shared,
    "J": _sums,
    "K": _first_rows,
    "L": _with_the_row_above,
    "N": lambda ranks, seed: all(each["log"] == [2, 3] for each in ranks),
}
