"""Right answers to lab 19, different from the solution."""

import time
from datetime import timedelta

import torch
import torch.distributed as dist

from tests.labs.answers import right


def in_a_line(parameters):
    return torch.cat([p.detach().flatten() for p in parameters])


# steps_between


@right("steps_between")
def by_search(step_ms, nbytes, n, latency_ms, gbit, share):
    exchange = sum(latency_ms + nbytes * 8 / n / (gbit * 1e6) for _ in range(2 * n - 2))
    low, high = 1, 1
    while exchange > share * (exchange + high * step_ms):
        high *= 2
    while low < high:
        middle = (low + high) // 2
        if exchange > share * (exchange + middle * step_ms):
            low = middle + 1
        else:
            high = middle
    return low


# Outer


@right("Outer")
class TorchsSGD:
    """An outer optimizer with torch's SGD on the start, and parameters by lerp."""

    def __init__(self, parameters, lr=0.7, momentum=0.9):
        self.parameters, self.n = list(parameters), dist.get_world_size()
        self.start = in_a_line(self.parameters).requires_grad_()
        self.optimizer = torch.optim.SGD(
            [self.start], lr=lr, momentum=momentum, nesterov=momentum > 0
        )

    def begin(self):
        self.mean = (self.start.detach() - in_a_line(self.parameters)) / self.n
        self.work = dist.all_reduce(self.mean, async_op=True)

    def end(self, keep=0.0):
        self.work.wait()
        self.step(self.mean, keep)

    @torch.no_grad()
    def step(self, mean, keep=0.0):
        self.start.grad = mean.clone()
        self.optimizer.step()
        parts = self.start.detach().split([p.numel() for p in self.parameters])
        for p, part in zip(self.parameters, parts, strict=True):
            p.copy_(torch.lerp(part.view_as(p), p, keep))


@right("Outer")
class SumsTheParameters:
    """An outer optimizer that exchanges the sum of the parameters.

    All ranks start alike.
    """

    def __init__(self, parameters, lr=0.7, momentum=0.9):
        self.parameters, self.lr, self.momentum = list(parameters), lr, momentum
        self.start = in_a_line(self.parameters)
        self.velocity = 0 * self.start

    def begin(self):
        self.total = in_a_line(self.parameters).clone()
        self.work = dist.all_reduce(self.total, async_op=True)

    def end(self, keep=0.0):
        self.work.wait()
        self.step(self.start - self.total / dist.get_world_size(), keep)

    def step(self, mean, keep=0.0):
        self.velocity.mul_(self.momentum).add_(mean)
        self.start.sub_(self.lr * (mean + self.momentum * self.velocity))
        with torch.no_grad():
            at = 0
            for p in self.parameters:
                new = self.start[at : at + p.numel()].view_as(p)
                p.mul_(keep).add_((1 - keep) * new)
                at += p.numel()


# stream


@right("stream")
def by_a_table(step, fragments, every, delay):
    begin, end = {}, {}
    for k in range(fragments):
        t = (k + 1) * every // fragments
        while t <= step:
            begin.setdefault(t, []).append(k)
            end.setdefault(t + delay, []).insert(0, k)
            t += every
    return begin.get(step, []), end.get(step, [])


@right("stream")
def counted_by_periods(step, fragments, every, delay):
    def due(t):
        found = []
        for k in reversed(range(fragments)):
            since = t - (k + 1) * every // fragments
            if since >= 0 and since // every * every == since:
                found += [k]
        return found

    return due(step), due(step - delay)


# mean_by_bytes


@right("mean_by_bytes")
def scale_behind_and_clamped(x, error):
    wanted = x + error
    top = wanted.abs().amax()
    scale = top / 127 if top > 0 else torch.ones(())
    levels = torch.clamp(torch.round(wanted / scale), -127, 127).char()
    packed = torch.cat([levels, scale.reshape(1).view(torch.int8)])
    everyone = [torch.empty_like(packed) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, packed)
    total = torch.zeros_like(x)
    for each in everyone:
        total += each[:-4].float() * each[-4:].clone().view(torch.float32)
    return total / len(everyone), wanted - levels.float() * scale


# mean_of


@right("mean_of")
def by_where(difference, steps, group=None):
    weight = torch.full((1,), float(steps))
    mine = torch.where(weight > 0, difference * weight, torch.zeros(()))
    both = torch.cat([weight, mine])
    dist.all_reduce(both, group=group)
    return torch.where(both[0] > 0, both[1:] / both[0], torch.zeros(()))


@right("mean_of")
def nan_to_num(difference, steps, group=None):
    both = torch.empty(len(difference) + 1)
    both[:-1] = difference * steps if steps else (difference * 0).nan_to_num(0.0)
    both[-1] = steps
    dist.all_reduce(both, group=group)
    return both[:-1] / max(both[-1].item(), 1.0)


# quorum


@right("quorum")
def looks_every_5_ms(store, name, rank, world_size, least, seconds):
    store.set(f"{name} {rank}", "1")
    end = time.monotonic() + seconds
    while time.monotonic() < end and not store.check([f"{name} decided"]):
        if all(store.check([f"{name} {r}"]) for r in range(world_size)):
            break
        time.sleep(0.005)
    there = [r for r in range(world_size) if store.check([f"{name} {r}"])]
    if not store.check([f"{name} decided"]) and len(there) < least:
        raise RuntimeError("too few ranks")
    text = store.compare_set(f"{name} decided", "", ",".join(map(str, there)))
    return sorted(int(each) for each in text.decode().split(","))


@right("quorum")
def a_bit_for_each_rank(store, name, rank, world_size, least, seconds):
    asked = store.add(f"{name}/asked", 1 << rank)
    if asked != (1 << world_size) - 1:
        try:
            store.wait([f"{name}/list"], timedelta(seconds=seconds))
        except RuntimeError:
            asked = store.add(f"{name}/asked", 0)
            if bin(asked).count("1") < least and not store.check([f"{name}/list"]):
                raise
    found = int(store.compare_set(f"{name}/list", "", str(asked)))
    return [r for r in range(world_size) if found >> r & 1]


# catch_up


@right("catch_up")
def batched(tensors, have, lack):
    rank, ops = dist.get_rank(), []
    for i, late in enumerate(reversed(lack)):
        source = have[-1 - i % len(have)]
        for tensor in tensors:
            if rank == source:
                ops.append(dist.P2POp(dist.isend, tensor, late))
            if rank == late:
                ops.append(dist.P2POp(dist.irecv, tensor, source))
    for work in dist.batch_isend_irecv(ops) if ops else ():
        work.wait()


@right("catch_up")
def packed_in_bytes(tensors, have, lack):
    """Send all tensors as one line of bytes."""
    rank = dist.get_rank()
    for at, late in enumerate(lack):
        source = have[at * len(have) // len(lack) if len(lack) >= len(have) else at]
        if rank not in (source, late):
            continue
        whole = torch.cat([t.flatten().view(torch.uint8) for t in tensors])
        if rank == source:
            dist.send(whole, late)
        else:
            dist.recv(whole, source)
            parts = whole.split([t.nbytes for t in tensors])
            for tensor, part in zip(tensors, parts, strict=True):
                tensor.copy_(part.clone().view(tensor.dtype).view_as(tensor))
