"""The patients of the clinic: short programs, each with one classic fault, as text."""

from __future__ import annotations

from typing import NamedTuple


class Ill(NamedTuple):
    """A program, and the number of ranks to run on."""

    ranks: int
    program: str


# `clinic.RUNS_WITH` lists the names that a program can use. Patients G to I and K to O end with a
# wrong result. K and L are wrong in every run: no rank of K receives, and no rank of L sends,
# before all ranks have come to the barrier.
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
    "J": Ill(
        4,
        """\
total = strip.sum(0)
if rank < 2:
    pair = dist.new_group([0, 1])  # the upper half of the picture
    upper = total.clone()
    dist.all_reduce(upper, group=pair)
    result.append(upper)
everyone = dist.new_group(range(n))
dist.all_reduce(total, group=everyone)
result.append(total)
""",
    ),
    "K": Ill(
        2,
        """\
buffer, sent = torch.zeros(3).double(), []
if rank == 0:
    for x, _ in steps:
        buffer.copy_(x[0])
        sent.append(dist.isend(buffer, 1))
dist.barrier()  # all are on their way
if rank == 1:
    for _ in steps:
        dist.recv(buffer, 0)
        result.append(buffer.clone())
for work in sent:
    work.wait()
""",
    ),
    "L": Ill(
        3,
        """\
above = torch.zeros(3).double()
coming = dist.irecv(above, (rank - 1) % n)
rows = torch.cat([above[None], strip])  # mine, and the one above them
dist.barrier()  # all are ready to receive
dist.send(strip[-1], (rank + 1) % n)
coming.wait()
result.append(rows)
""",
    ),
    "M": Ill(
        3,
        """\
for x, y in steps:
    part = slice(rank * len(x) // n, (rank + 1) * len(x) // n)
    optimizer.zero_grad()
    mse(model(x[part]), y[part]).backward()
    for column in settings["columns"]:
        mean = model.weight.grad[0, column]
        dist.all_reduce(mean)
        mean /= n
    dist.all_reduce(model.bias.grad)
    model.bias.grad /= n
    optimizer.step()
""",
    ),
    "N": Ill(
        2,
        """\
model.load_state_dict(saved["model"])  # from before the job was killed
batches = iter(steps)
for step in range(saved["step"], len(steps)):
    x, y = next(batches)
    part = slice(rank * len(x) // n, (rank + 1) * len(x) // n)
    optimizer.zero_grad()
    mse(model(x[part]), y[part]).backward()
    average(model)
    optimizer.step()
    log.append(step)
""",
    ),
    "O": Ill(
        2,
        """\
for x, y in steps:
    part = slice(rank * len(x) // n, (rank + 1) * len(x) // n)
    mse(model(x[part]), y[part]).backward()
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
    "a group of some": "some ranks make a group, and the others do not",
    "one step more": "one rank has a batch more than the others",
    "same data": "all ranks take the same images",
    "no common start": "the ranks begin with different parameters",
    "divided twice": "gradients are divided by the number of ranks twice",
    "old gradients": "gradients of the step before are still there",
    "read too early": "a result is read before it has come",
    "written too early": "a tensor is written again before it has been sent",
    "data again": "after a restart the same images are taken again",
}
