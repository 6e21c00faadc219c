"""Right answers to lab 08, different from the solution."""

from collections import Counter

import torch
import torch.distributed as dist

from ddpkit.answers.lab08 import (
    DATA,
    HEADER,
    PULL,
    PUSH,
    Asynchronous,
    call,
    recv_bytes,
    send_bytes,
)
from tests.labs.answers import right


@right("push")
def in_a_batch(gradient, servers):
    header, ops = torch.tensor([PUSH]), []
    for server, chunk in zip(servers, gradient.clone().tensor_split(len(servers)), strict=True):
        ops.append(dist.P2POp(dist.isend, header, server, tag=HEADER))
        ops.append(dist.P2POp(dist.isend, chunk.contiguous(), server, tag=DATA))
    for work in dist.batch_isend_irecv(ops):
        work.wait()


@right("push")
def all_headers_and_then_all_chunks(gradient, servers):
    chunks = gradient.tensor_split(len(servers))
    works = [dist.isend(torch.tensor([PUSH]), server, tag=HEADER) for server in servers]
    works += [dist.isend(chunks[i], servers[i], tag=DATA) for i in range(len(servers))]
    for work in works:
        work.wait()


@right("pull")
def room_first(flat, servers):
    chunks = [torch.empty_like(chunk) for chunk in flat.tensor_split(len(servers))]
    works = [dist.irecv(c, s, tag=DATA) for c, s in zip(chunks, servers, strict=True)]
    for server in servers:
        dist.send(torch.tensor([PULL]), server, tag=HEADER)
    for work in works:
        work.wait()
    flat.copy_(torch.cat(chunks))


@right("serve")
def blocking_answers(rule, length, workers):
    waiting, left, header = [], len(workers), torch.zeros(1, dtype=torch.int64)

    def push(worker):
        gradient = torch.zeros(length)
        dist.recv(gradient, src=worker, tag=DATA)
        rule.push(worker, gradient)

    handlers = {PUSH: push, PULL: waiting.append, 2: rule.done}
    while left:
        work = dist.irecv(header, tag=HEADER)
        work.wait()
        kind = int(header)
        handlers[kind](work._source_rank())
        left -= kind == 2
        for worker in waiting.copy():
            if rule.may_pull(worker):
                dist.send(rule.pull(worker), worker, tag=DATA)
                waiting.remove(worker)


@right("serve")
def answers_within(rule, length, workers):
    active, waiting, works = set(workers), set(), []

    def answer():
        for worker in sorted(waiting):
            if rule.may_pull(worker):
                waiting.remove(worker)
                works.append(dist.isend(rule.pull(worker).detach().clone(), worker, tag=DATA))

    while active:
        header = torch.tensor([-1])
        worker = dist.recv(header, tag=HEADER)
        if header.item() == PUSH:
            rule.push(worker, torch.zeros(length).copy_(_received(length, worker)))
        elif header.item() == PULL:
            waiting.add(worker)
        else:
            active -= {worker}
            rule.done(worker)
        answer()
    for work in works:
        work.wait()


def _received(length, worker):
    data = torch.empty(length)
    dist.recv(data, worker, tag=DATA)
    return data


@right("Synchronous")
class BySlot:
    def __init__(self, flat, update, workers):
        self.flat, self.update = flat, update
        self.slots = dict.fromkeys(workers)
        self.gone = set()

    def pull(self, worker):
        return self.flat

    def may_pull(self, worker):
        return self.slots[worker] is None

    def push(self, worker, gradient):
        self.slots[worker] = gradient.clone()
        self._maybe()

    def done(self, worker):
        self.gone.add(worker)
        self._maybe()

    def _maybe(self):
        there = {worker: g for worker, g in self.slots.items() if g is not None}
        if there and all(worker in there or worker in self.gone for worker in self.slots):
            self.update(self.flat, torch.stack(list(there.values())).mean(0))
            self.slots = dict.fromkeys(self.slots)


@right("Synchronous")
class IntoTheFirst:
    """A rule that adds into the first pushed gradient, which belongs to the rule."""

    def __init__(self, flat, update, workers):
        self.flat, self.update, self.workers = flat, update, workers
        self.active, self.gradients = set(workers), {}

    def pull(self, worker):
        return self.flat

    def may_pull(self, worker):
        return worker not in self.gradients

    def push(self, worker, gradient):
        self.gradients[worker] = gradient
        self.close()

    def done(self, worker):
        self.active.remove(worker)
        self.close()

    def close(self):
        if self.gradients and self.active <= self.gradients.keys():
            total, *others = [self.gradients[w] for w in self.workers if w in self.gradients]
            for each in others:
                total += each
            self.update(self.flat, total / (1 + len(others)))
            self.gradients = {}


@right("Asynchronous")
class CountersUp:
    """A rule that raises a worker's age at every push, and sets it to 0 at a pull."""

    def __init__(self, flat, update, workers):
        self.flat, self.update, self.staleness, self.version = flat, update, [], 0
        self.age = Counter(dict.fromkeys(workers, 0))

    def may_pull(self, worker):
        return True

    def pull(self, worker):
        self.age[worker] = 0
        return self.flat.clone()

    def push(self, worker, gradient):
        self.staleness.append((worker, self.age[worker]))
        self.update(self.flat, gradient)
        self.version += 1
        self.age.update(list(self.age))

    def done(self, worker):
        pass


@right("Bounded")
class ByASortedList(Asynchronous):
    def __init__(self, flat, update, workers, bound):
        super().__init__(flat, update, workers)
        self.bound, self.workers, self.pushes = bound, list(workers), Counter()

    def push(self, worker, gradient):
        self.pushes[worker] += 1
        super().push(worker, gradient)

    def may_pull(self, worker):
        slowest = sorted(self.pushes[each] for each in self.workers)[0]
        return not self.pushes[worker] > slowest + self.bound

    def done(self, worker):
        self.workers.remove(worker)


@right("seconds_per_round")
def by_two_queues(workers, servers, nbytes, compute, latency, bandwidth):
    chunk, last = nbytes / servers / bandwidth, 0.0
    for worker in range(workers):
        leaves = worker * chunk  # each server sends to one worker after the other
        has_all = 2 * latency + leaves + servers * chunk
        last = max(last, has_all + compute + latency + servers * chunk)
    return last


@right("call")
def answers_by_kind(server, name, *args):
    send_bytes((name, list(args)), server)
    source, (kind, value) = recv_bytes(server)
    assert source == server
    if kind == "ok":
        return value
    raise value from None


@right("serve_calls")
def shutdown_as_a_method(target, clients):
    left = list(clients)
    while left:
        client, (name, args) = recv_bytes()
        try:
            value = left.remove(client) if name == "shutdown" else getattr(target, name)(*args)
            reply = ("ok", value)
        except Exception as error:
            reply = ("raised", error)
        send_bytes(reply, client)


@right("RemoteRows")
class ByAHook:
    """A class that leaves the backward to a hook of the rows."""

    @staticmethod
    def apply(anchor, ids, server):
        rows = call(server, "rows", ids).requires_grad_()
        rows.register_hook(lambda gradient: call(server, "add_gradient", ids, gradient))
        return rows


@right("RemoteRows")
class SavesItsIds(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, ids, server):
        ctx.save_for_backward(ids)
        ctx.server, ctx.shape = server, anchor.shape
        return call(server, "rows", ids).clone()

    @staticmethod
    def backward(ctx, gradient):
        (ids,) = ctx.saved_tensors
        call(ctx.server, "add_gradient", ids, gradient)
        return torch.zeros(ctx.shape), None, None
