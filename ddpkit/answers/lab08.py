# mypy: ignore-errors
"""Answers of lab 08 (parameter_server).

Generated from solutions/08_parameter_server.py by `make release`; do not edit.
"""

import pickle

import torch
import torch.distributed as dist


HEADER, DATA = 1, 2  # tags
PUSH, PULL, DONE = 0, 1, 2  # requests


def done(servers) -> None:
    """Tell each server that this worker asks for nothing more."""
    for server in servers:
        dist.send(torch.tensor([DONE]), server, tag=HEADER)


def push(gradient, servers) -> None:
    """Send each server PUSH and its chunk of the gradient; return when all of it is sent.

    Chunk i belongs to the rank `servers[i]`. All requests and all chunks are on their way before
    any of them is waited for.
    """
    works = []
    for server, chunk in zip(servers, gradient.tensor_split(len(servers))):
        works.append(dist.isend(torch.tensor([PUSH]), server, tag=HEADER))
        works.append(dist.isend(chunk, server, tag=DATA))
    for work in works:
        work.wait()


def pull(flat, servers) -> None:
    """Ask each server for its chunk, with PULL, and put it in its place in `flat`.

    All servers are asked before any answer is waited for.
    """
    works = []
    for server, chunk in zip(servers, flat.tensor_split(len(servers))):
        works.append(dist.isend(torch.tensor([PULL]), server, tag=HEADER))
        works.append(dist.irecv(chunk, server, tag=DATA))
    for work in works:
        work.wait()


def serve(rule, length: int, workers) -> None:
    """Answer the workers, from anybody as they come, until all are DONE.

    PUSH: receive `length` float32 numbers, always into a new tensor, for `rule.push(worker,
    gradient)`. PULL: send `rule.pull(worker)`, once `rule.may_pull(worker)`; until then the worker
    waits, and the others are served. DONE: `rule.done(worker)`. `rule.pull` returns the parameters
    themselves, which a push may change: send a copy (isend), or wait until they are sent (send),
    which is right too, but makes the other workers wait.
    """
    active, waiting, answers = set(workers), [], {}
    header = torch.empty(1, dtype=torch.int64)
    while active:
        worker = dist.recv(header, tag=HEADER)
        if worker in answers:  # it asks again, so it has the last answer
            answers.pop(worker).wait()
        if header == PUSH:
            gradient = torch.empty(length)
            dist.recv(gradient, worker, tag=DATA)
            rule.push(worker, gradient)
        elif header == PULL:
            waiting.append(worker)
        else:
            active.remove(worker)
            rule.done(worker)
        for each in [w for w in waiting if rule.may_pull(w)]:
            waiting.remove(each)
            answers[each] = dist.isend(rule.pull(each).clone(), each, tag=DATA)


class Synchronous:
    """One update a round: `update(flat, mean)`, when all workers that are not done have pushed.

    The mean is over all that have pushed in the round, added in the order of `workers` (which need
    not be sorted), so that each run gives the same bits. A worker has one gradient in a round. A
    pushed gradient is the rule's own: the rule may change it.
    """

    def __init__(self, flat, update, workers):
        self.flat, self.update, self.workers = flat, update, workers
        self.active = set(workers)  # those that are not done
        self.gradients = {}  # of this round, by worker

    def pull(self, worker):
        return self.flat

    def push(self, worker, gradient) -> None:
        """Keep the gradient, and close the round if it is complete."""
        self.gradients[worker] = gradient
        self.close()

    def may_pull(self, worker) -> bool:
        """Not while the worker's own gradient waits for the others."""
        return worker not in self.gradients

    def done(self, worker) -> None:
        """The others no longer wait for this worker: the round may be complete."""
        self.active.remove(worker)
        self.close()

    def close(self) -> None:
        """If the round is complete: update with the mean, and begin a new round."""
        if self.gradients and self.active <= self.gradients.keys():
            gradients = [self.gradients[w] for w in self.workers if w in self.gradients]
            self.update(self.flat, sum(gradients) / len(gradients))
            self.gradients = {}


class Asynchronous:
    """Each push is applied at once: `update(flat, gradient)`.

    `version` counts the updates. `staleness` lists (worker, age) of each push: how many updates
    there were between the worker's last pull and this push, without the update of this one.
    """

    def __init__(self, flat, update, workers):
        self.flat, self.update = flat, update
        self.version, self.staleness = 0, []
        self.seen = dict.fromkeys(workers, 0)  # the version that a worker has pulled

    def may_pull(self, worker) -> bool:
        return True

    def pull(self, worker):
        """The parameters as they are now; note for whom."""
        self.seen[worker] = self.version
        return self.flat

    def push(self, worker, gradient) -> None:
        self.staleness.append((worker, self.version - self.seen[worker]))
        self.update(self.flat, gradient)
        self.version += 1

    def done(self, worker) -> None:
        pass


class Bounded(Asynchronous):
    """A worker may pull while its clock is at most `bound` ahead of the slowest worker's.

    A clock counts the worker's pushes. Workers that are done are not waited for.
    """

    def __init__(self, flat, update, workers, bound):
        super().__init__(flat, update, workers)
        self.bound = bound
        self.clock = dict.fromkeys(workers, 0)

    def push(self, worker, gradient) -> None:
        super().push(worker, gradient)
        self.clock[worker] += 1

    def may_pull(self, worker) -> bool:
        return self.clock[worker] - min(self.clock.values()) <= self.bound

    def done(self, worker) -> None:
        del self.clock[worker]


def seconds_per_round(
    workers: int, servers: int, nbytes: int, compute: float, latency: float, bandwidth: float
) -> float:
    """A synchronous round, from the moment when all ask until the last push is in, in seconds.

    `nbytes` of parameters are spread over the servers, of which there are at most as many as
    workers. `compute` and `latency` are in seconds, `bandwidth` in bytes per second, for each
    direction of each rank's link. A server sends its answers one after the other. A worker takes in
    the chunks of all servers one after the other, and sends them so.
    """
    own = nbytes / bandwidth  # on a worker's link: what it takes in, and what it sends
    others = (workers - 1) * own / servers
    return compute + 3 * latency + others + 2 * own


def send_bytes(value, dst: int) -> None:
    """Send any object that pickle can write."""
    data = torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)
    dist.send(torch.tensor([len(data)]), dst, tag=HEADER)
    dist.send(data, dst, tag=DATA)


def recv_bytes(src: int | None = None) -> tuple:
    """The rank that has sent an object, and the object; without `src` from anybody."""
    length = torch.empty(1, dtype=torch.int64)
    src = dist.recv(length, src, tag=HEADER)
    data = torch.empty(int(length), dtype=torch.uint8, device="cpu")  # as bytes are
    dist.recv(data, src, tag=DATA)
    return src, pickle.loads(data.numpy().tobytes())


def call(server: int, name: str, *args):
    """Call the method `name` of the object that rank `server` serves, and return what it returns.

    What it raises there is raised here.
    """
    send_bytes((name, args), server)
    _, (kind, value) = recv_bytes(server)
    if kind == "raised":
        raise value
    return value


def serve_calls(target, clients) -> None:
    """Answer calls of `target`'s methods, from anybody, until each client has called "shutdown".

    Every call gets an answer, a shutdown ("ok", None). A method that raises does not stop this.
    """
    active = set(clients)
    while active:
        client, (name, args) = recv_bytes()
        answer = "ok", None
        if name == "shutdown":
            active.remove(client)
        else:
            try:
                answer = "ok", getattr(target, name)(*args)
            except Exception as error:
                answer = "raised", error
        send_bytes(answer, client)


class RemoteRows(torch.autograd.Function):
    """Rows of the table that rank `server` serves: `RemoteRows.apply(anchor, ids, server)`.

    backward sends the rows' gradient there, once: `add_gradient(ids, gradient)`. The rows do not
    depend on the anchor, so the anchor gets no gradient: None.
    """

    @staticmethod
    def forward(ctx, anchor, ids, server):
        ctx.ids, ctx.server = ids, server
        return call(server, "rows", ids)

    @staticmethod
    def backward(ctx, gradient):
        call(ctx.server, "add_gradient", ctx.ids, gradient)
        return None, None, None
