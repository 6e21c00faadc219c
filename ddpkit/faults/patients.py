"""The patients of the clinic: short programs, each with one classic fault, as text."""

from __future__ import annotations

from typing import NamedTuple


class Ill(NamedTuple):
    """One program, and on how many ranks it runs."""

    ranks: int
    program: str


# Each fault but those of A and F needs no other than these lines. What a program finds when it
# begins says `clinic.RUNS_WITH`.
ILL = {
    "A": Ill(
        3,
        """\
above = torch.zeros(3).double()
dist.send(strip[-1], (rank + 1) % n)  # my last row goes to the rank below
dist.recv(above, (rank - 1) % n)
result.append(above)
""",
    ),
    "B": Ill(
        2,
        """\
for x, y in steps:
    part = slice(rank * len(x) // n, (rank + 1) * len(x) // n)
    loss = mse(model(x[part]), y[part])
    optimizer.zero_grad()
    loss.backward()
    average(model)
    optimizer.step()
    if rank == 0:
        mean = loss.detach() / n
        dist.all_reduce(mean)
        log.append(mean.item())
""",
    ),
    "C": Ill(
        3,
        """\
parameters = dict(model.named_parameters())
for x, y in steps:
    part = slice(rank * len(x) // n, (rank + 1) * len(x) // n)
    optimizer.zero_grad()
    mse(model(x[part]), y[part]).backward()
    for name in settings["average"]:
        dist.all_reduce(parameters[name].grad)
        parameters[name].grad /= n
    optimizer.step()
""",
    ),
    "D": Ill(
        3,
        """\
for x, _ in steps:
    part = x.tensor_split(n)[rank]
    mine = model(part).detach()
    everyone = [torch.empty_like(mine) for _ in range(n)]
    dist.all_gather(everyone, mine)
    result.append(torch.cat(everyone))
""",
    ),
    "E": Ill(
        3,
        """\
for x, y in steps:
    part = slice(rank * len(x) // n, (rank + 1) * len(x) // n)
    loss = mse(model(x[part]), y[part])
    if not loss.isfinite():
        continue  # a broken image
    optimizer.zero_grad()
    loss.backward()
    average(model)
    optimizer.step()
""",
    ),
    "F": Ill(
        2,
        """\
ddp = DistributedDataParallel(model)
for x, y in steps:
    part = slice(rank * len(x) // n, (rank + 1) * len(x) // n)
    optimizer.zero_grad()
    mse(ddp(x[part]), y[part]).backward()
    optimizer.step()
    if rank == 0:
        with torch.no_grad():
            log.append(mse(ddp(x), y).item())
""",
    ),
    "G": Ill(
        2,
        """\
for x, y in steps:
    order = torch.randperm(len(x), generator=generator)
    part = order[: len(x) // n]
    seen.append(part)
    optimizer.zero_grad()
    mse(model(x[part]), y[part]).backward()
    average(model)
    optimizer.step()
""",
    ),
    "H": Ill(
        2,
        """\
model = build()
optimizer = torch.optim.SGD(model.parameters(), 0.1, weight_decay=0.1)
for x, y in steps:
    part = slice(rank * len(x) // n, (rank + 1) * len(x) // n)
    optimizer.zero_grad()
    mse(model(x[part]), y[part]).backward()
    average(model)
    optimizer.step()
""",
    ),
    "I": Ill(
        3,
        """\
for x, y in steps:
    part = slice(rank * len(x) // n, (rank + 1) * len(x) // n)
    optimizer.zero_grad()
    (mse(model(x[part]), y[part]) / n).backward()
    average(model)
    optimizer.step()
""",
    ),
}

CAUSES = {
    "all send first": "all ranks send before any receives",
    "nobody sends": "all ranks receive before any sends",
    "one rank alone": "one rank alone calls what all have to call",
    "another order": "one rank makes its calls in another order",
    "other sizes": "one rank's tensor has another size",
    "left out": "one rank leaves a call out, and goes on",
    "one step more": "one rank has a batch more than the others",
    "same data": "all ranks take the same images",
    "no common start": "the ranks begin with different parameters",
    "divided twice": "gradients are divided by the number of ranks twice",
    "old gradients": "gradients of the step before are still there",
    "read too early": "a result is read before it has come",
}
