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
    """Send each server PUSH and its chunk of the gradient; return when all is sent.

    Chunk i belongs to the rank `servers[i]`. Start to send all requests and all chunks before you
    wait for any of them.
    """
    works = []
    for server, chunk in zip(servers, gradient.tensor_split(len(servers))):
        works.append(dist.isend(torch.tensor([PUSH]), server, tag=HEADER))
        works.append(dist.isend(chunk, server, tag=DATA))
    for work in works:
        work.wait()


def pull(flat, servers) -> None:
    """Ask each server for its chunk, with PULL, and put the chunk in its place in `flat`.

    Ask all servers before you wait for any answer.
    """
    works = []
    for server, chunk in zip(servers, flat.tensor_split(len(servers))):
        works.append(dist.isend(torch.tensor([PULL]), server, tag=HEADER))
        works.append(dist.irecv(chunk, server, tag=DATA))
    for work in works:
        work.wait()


def serve(rule, length: int, workers) -> None:
    """Answer the requests of all workers, in the order of arrival, until all workers are DONE.

    PUSH: receive `length` float32 numbers, always into a new tensor, and call `rule.push(worker,
    gradient)`. PULL: send `rule.pull(worker)` as soon as `rule.may_pull(worker)` is true; until
    then, this worker waits, and the server answers other workers. DONE: call `rule.done(worker)`.
    `rule.pull` returns the parameters themselves, which a push may change. So send a copy with
    isend, or use send, which returns when the parameters are sent: that is right too, but all other
    workers wait meanwhile.
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
    """Makes one update a round, `update(flat, mean)`, when each worker has pushed or is done.

    The mean is over all gradients of the round. Add the gradients in the order of `workers` (which
    need not be sorted), so that each run gives the same bits. A worker has at most one gradient in
    a round. The rule may change a pushed gradient.
    """

    def __init__(self, flat, update, workers):
        self.flat, self.update, self.workers = flat, update, workers
        self.active = set(workers)  # those that are not done
        self.gradients = {}  # gradients of this round: {worker: gradient}

    def pull(self, worker):
        return self.flat

    def push(self, worker, gradient) -> None:
        """Keep the gradient, and close the round if it is complete."""
        self.gradients[worker] = gradient
        self.close()

    def may_pull(self, worker) -> bool:
        """Return False while the worker's own gradient waits for other gradients."""
        return worker not in self.gradients

    def done(self, worker) -> None:
        """Stop waiting for this worker: the round may now be complete."""
        self.active.remove(worker)
        self.close()

    def close(self) -> None:
        """Update with the mean and begin a new round, if the round is complete."""
        if self.gradients and self.active <= self.gradients.keys():
            gradients = [self.gradients[w] for w in self.workers if w in self.gradients]
            self.update(self.flat, sum(gradients) / len(gradients))
            self.gradients = {}


class Asynchronous:
    """Applies each push at once: `update(flat, gradient)`.

    `version` counts the updates. `staleness` lists (worker, age) for each push. The age is the
    number of updates after the worker's last pull and before the update of this push.
    """

    def __init__(self, flat, update, workers):
        self.flat, self.update = flat, update
        self.version, self.staleness = 0, []
        self.seen = dict.fromkeys(workers, 0)  # the version that a worker has pulled

    def may_pull(self, worker) -> bool:
        return True

    def pull(self, worker):
        """Return the current parameters, and note which version the worker gets."""
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
    """Return the seconds of a synchronous round, from all requests until the last push arrives.

    `nbytes` of parameters are spread over the servers; there are at most as many servers as
    workers. `compute` and `latency` are in seconds, `bandwidth` in bytes per second, for each
    direction of each rank's link. A server sends its answers one after the other. A worker receives
    the chunks of all servers one after the other, and also sends its chunks one after the other.
    """
    own = nbytes / bandwidth  # s on a worker's link, for a pull and for a push
    others = (workers - 1) * own / servers
    return compute + 3 * latency + others + 2 * own


def send_bytes(value, dst: int) -> None:
    """Send any object that pickle can write."""
    data = torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)
    dist.send(torch.tensor([len(data)]), dst, tag=HEADER)
    dist.send(data, dst, tag=DATA)


def recv_bytes(src: int | None = None) -> tuple:
    """Return the rank that sent an object, and the object; without `src`, from any rank."""
    length = torch.empty(1, dtype=torch.int64)
    src = dist.recv(length, src, tag=HEADER)
    data = torch.empty(int(length), dtype=torch.uint8, device="cpu")  # where pickled bytes are
    dist.recv(data, src, tag=DATA)
    return src, pickle.loads(data.numpy().tobytes())


def call(server: int, name: str, *args):
    """Call the method `name` of the object that rank `server` serves, and return its result.

    If the method raises an exception on the server, raise the exception here.
    """
    send_bytes((name, args), server)
    _, (kind, value) = recv_bytes(server)
    if kind == "raised":
        raise value
    return value


def serve_calls(target, clients) -> None:
    """Answer calls of `target`'s methods, from any client, until each one has called "shutdown".

    Every call gets an answer; a shutdown gets ("ok", None). If a method raises, go on serving.
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

    backward sends the rows' gradient to the server, once: `add_gradient(ids, gradient)`. The rows
    do not depend on the anchor, so the anchor gets no gradient: None.
    """

    @staticmethod
    def forward(ctx, anchor, ids, server):
        ctx.ids, ctx.server = ids, server
        return call(server, "rows", ids)

    @staticmethod
    def backward(ctx, gradient):
        call(ctx.server, "add_gradient", ctx.ids, gradient)
        return None, None, None
