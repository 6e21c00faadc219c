# ---
# jupyter:
#   ddpkit:
#     builds: "parameter servers: push, pull, serve; three rules for waiting; remote calls"
#     minutes: 100
#     needs: labs 01, 03, 04 and 05
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---
# %% [markdown]
# # 08 · Parameter server
#
# **You will build** both sides of a **parameter server**. An all-reduce waits for all ranks. In this
# lab, a few ranks hold the parameters, and the remaining ranks push, pull and wait. Then you build
# three rules that decide when a worker may go on, and at the end you use several servers.
#
# **You need** labs 01, 03, 04 and 05. About 100 minutes; a student's first try took
# 120 minutes.

# %%
import math, time, torch, torch.distributed as dist
from ddpkit import Cluster, beside, busy, carry, check, show

# %%
import pickle, random, tempfile, warnings
import matplotlib.pyplot as plt
from functools import partial
from torch import nn
from ddpkit.data import load_digits
from ddpkit.simulate import cost, parameter_server

# %%
shard = carry("shard")
gradients_of = carry("gradients_of")
train = carry("train")
flatten = carry("flatten")
unflatten = carry("unflatten")

# %% [markdown]
# ## What is the value of the parameters?
#
# After an all-reduce, all ranks have taken the same step: the parameters have one value, and each
# rank knows the value. For this equality, all ranks wait for the slowest rank.
#
# **In words:** suppose that the ranks don't wait for each other. What is then *the* value of the
# parameters at a given time? Write down your idea; the answer comes in the middle of the lab.

# %% [markdown]
# *Your words:*

# %% [markdown]
# ## Your turn: ask
#
# A **server** is a rank that holds parameters; a **worker** is a rank that computes gradients. To
# **pull** is to request the parameters from a server, and to **push** is to send a gradient to a
# server. The worker always begins, with a request: an int64 tensor of one number.

# %% [markdown]
# Each message has a **tag**, a number: a receive takes only a message with the same tag. Requests
# have tag `HEADER`; parameters and gradients follow with tag `DATA`.
#
# All parameters are one flat tensor. With k servers, server i holds chunk i of
# `flat.tensor_split(k)`.


# %% tags=["answers"]
HEADER, DATA = 1, 2  # tags
PUSH, PULL, DONE = 0, 1, 2  # requests


def done(servers) -> None:
    """Tell each server that this worker asks for nothing more."""
    for server in servers:
        dist.send(torch.tensor([DONE]), server, tag=HEADER)


# %% exercise="push"
def push(gradient, servers) -> None:
    """Send each server PUSH and its chunk of the gradient; return when all is sent.

    Chunk i belongs to the rank `servers[i]`. Start to send all requests and all chunks before you
    wait for any of them.
    """
    # BEGIN SOLUTION
    works = []
    for server, chunk in zip(servers, gradient.tensor_split(len(servers))):
        works.append(dist.isend(torch.tensor([PUSH]), server, tag=HEADER))
        works.append(dist.isend(chunk, server, tag=DATA))
    for work in works:
        work.wait()
    # END SOLUTION


# %% check="push"
check(push)


# %% exercise="pull"
def pull(flat, servers) -> None:
    """Ask each server for its chunk, with PULL, and put the chunk in its place in `flat`.

    Ask all servers before you wait for any answer.
    """
    # BEGIN SOLUTION
    works = []
    for server, chunk in zip(servers, flat.tensor_split(len(servers))):
        works.append(dist.isend(torch.tensor([PULL]), server, tag=HEADER))
        works.append(dist.irecv(chunk, server, tag=DATA))
    for work in works:
        work.wait()
    # END SOLUTION


# %% check="pull"
check(pull)

# %% [markdown]
# ## One pull
#
# Time is *emulated* here: each rank has its own machine and its own link. With `speed=math.inf`,
# compute takes no time, except the time that `busy("20 ms")` states. So every number below is the
# same in every run of your code, on every laptop; even the order of arrival is the same.

# %% [markdown]
# **Predict:** the link has a latency $\alpha$ of 0.2 ms, and 1 MB takes $t = 8$ ms on the link. How
# long does a pull of 1 MB take?

# %% guess="pull_ms"
pull_ms = 2 * 0.2 + 8  # your guess, in ms

# %%
link = "1 Gbit/s, 200 us"
two = Cluster(2, link=link, speed=math.inf)


def one_pull():
    flat = torch.zeros(250_000)
    if dist.get_rank() == 0:
        worker = dist.recv(torch.empty(1, dtype=torch.int64), tag=HEADER)  # a message from any rank
        dist.send(flat, worker, tag=DATA)
    else:
        pull(flat, [0])


# %%
run = two.run(one_pull)
show(run, names={0: "server", 1: "worker"})
beside(pull_ms, run.trace.duration_ms, "ms")

# %% [markdown]
# **Notice:** a pull is a request and an answer, each with a latency: $2\alpha + t$. A push
# is shorter, because the server does not answer: $\alpha + t$.

# %% [markdown]
# ## Your turn: answer
#
# A server does not know which worker comes next. `dist.recv(header, tag=HEADER)` without a source
# takes a message from any rank, and returns the rank that sent the message.
#
# Your `serve` does not decide how the server *acts*. A **rule** decides: an object with four
# methods, `push(worker, gradient)`, `may_pull(worker)`, `pull(worker)`, `done(worker)`.


# %% exercise="serve"
def serve(rule, length: int, workers) -> None:
    """Answer the requests of all workers, in the order of arrival, until all workers are DONE.

    PUSH: receive `length` float32 numbers, always into a new tensor, and call `rule.push(worker,
    gradient)`. PULL: send `rule.pull(worker)` as soon as `rule.may_pull(worker)` is true; until
    then, this worker waits, and the server answers other workers. DONE: call `rule.done(worker)`.
    `rule.pull` returns the parameters themselves, which a push may change. So send a copy with
    isend, or use send, which returns when the parameters are sent: that is right too, but all other
    workers wait meanwhile.
    """
    # BEGIN SOLUTION
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
    # END SOLUTION


# %% [markdown]
# In the check, the workers come in a fixed order: each worker acts when the previous worker has
# finished. The title of a case describes the order.

# %% check="serve"
check(serve)

# %% [markdown]
# ## In which order do the workers come?
#
# The whole lab uses the job below: the first k ranks are servers, and the remaining ranks are
# workers.


# %%
def work(flat, gradient, servers, rounds, seconds):
    """Pull, make `gradient(flat, round)` and push, for some rounds or seconds."""
    start, number = time.perf_counter(), 0
    while number < rounds and time.perf_counter() - start < seconds:
        pull(flat, servers)
        push(gradient(flat, number), servers)
        number += 1
    done(servers)


# %%
def job(rule, flat, gradient, rounds=math.inf, seconds=math.inf, k=1):
    rank, ranks = dist.get_rank(), list(range(dist.get_world_size()))
    servers, workers = ranks[:k], ranks[k:]
    if rank not in servers:
        return work(flat, gradient, servers, rounds, seconds)
    mine = flat.tensor_split(k)[rank].clone()
    server = rule(mine, workers)
    serve(server, len(mine), workers)
    return server


# %%
class GuestBook:
    """A rule without changes: it notes the workers of all pushes."""

    def __init__(self, flat, workers):
        self.flat, self.guests = flat, []

    def may_pull(self, worker):
        return True

    def pull(self, worker):
        return self.flat

    def push(self, worker, gradient):
        self.guests.append(worker)

    def done(self, worker):
        pass


# %% [markdown]
# **Predict:** each of three workers needs 20 ms for a gradient, and pulls and pushes a megabyte. In
# which order do the workers push? For which part of the time does the server compute?


# %%
def stated(flat, number):
    busy("20 ms", "gradient")
    return torch.ones_like(flat)


names = {0: "server", 1: "worker 1", 2: "worker 2", 3: "worker 3"}
four = Cluster(4, link=link, speed=math.inf)
run = four.run(job, GuestBook, torch.zeros(250_000), stated, rounds=3)
show(run, names=names)
print("pushed:", run.results[0] and run.results[0].guests)

# %% [markdown]
# **Notice:** all three workers ask at once. The server answers one worker after the other,
# because its link carries one message at a time. So the workers begin to compute one after the
# other, and also push one after the other. After the first round, no worker waits in a queue.

# %% [markdown]
# The server's row shows only communication. A server must never wait for one particular worker,
# because all other workers would wait too. (In the picture, "waits for worker 1" names the sender
# of the message. The server's `recv` names no rank.)

# %% [markdown]
# ## Your turn: everybody waits
#
# The first rule is lab 04's training. A *round* is over when all workers have pushed, and the server
# makes one update with the mean of the gradients. Only then may the workers pull.


# %% exercise="Synchronous"
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
        # BEGIN SOLUTION
        self.gradients[worker] = gradient
        self.close()
        # END SOLUTION

    def may_pull(self, worker) -> bool:
        """Return False while the worker's own gradient waits for other gradients."""
        # BEGIN SOLUTION
        return worker not in self.gradients
        # END SOLUTION

    def done(self, worker) -> None:
        """Stop waiting for this worker: the round may now be complete."""
        # BEGIN SOLUTION
        self.active.remove(worker)
        self.close()
        # END SOLUTION

    def close(self) -> None:
        """Update with the mean and begin a new round, if the round is complete."""
        # BEGIN SOLUTION
        if self.gradients and self.active <= self.gradients.keys():
            gradients = [self.gradients[w] for w in self.workers if w in self.gradients]
            self.update(self.flat, sum(gradients) / len(gradients))
            self.gradients = {}
        # END SOLUTION


# %% check="Synchronous"
check(Synchronous)

# %% [markdown]
# ## Is it the training of lab 04?
#
# Lab 04's `train` averages by all-reduce. Here, the same model takes five steps with a server, on
# the same parts of the same batches.

# %%
x, y = map(torch.from_numpy, load_digits())


def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def picks(worker, workers):
    """Return this worker's part of five batches of 240 images."""
    return shard(len(x), 240, 0, worker, workers)[:5]


# %%
def load(model, flat):
    """Give the model the parameters in `flat`."""
    for p, new in zip(model.parameters(), unflatten(flat, list(model.parameters()))):
        p.detach().copy_(new)


def gradient_at(flat, images):
    """Return the gradient of the loss over some images, at the parameters `flat`."""
    model = small()
    load(model, flat)
    nn.functional.cross_entropy(model(x[images]), y[images]).backward()
    return flatten(gradients_of(model))


def sgd(lr):
    return lambda flat, gradient: flat.sub_(gradient, alpha=lr)


def a_rule(kind, lr, *more):
    """Return a function that makes a server's rule from its chunk and the workers."""
    return lambda flat, workers: kind(flat, sgd(lr), workers, *more)


# %%
def with_all_reduce():
    model = small()
    train(model, ((x[p], y[p]) for p in picks(dist.get_rank(), 3)), lr=0.1)
    return flatten([p.detach() for p in model.parameters()])


def of_its_part(flat, number):
    return gradient_at(flat, picks(dist.get_rank() - 1, 3)[number])


# %%
start = flatten([p.detach() for p in small().parameters()])
served = four.run(job, a_rule(Synchronous, 0.1), start, of_its_part, rounds=5).results[0]
reduced = Cluster(3).run(with_all_reduce).results[0]
if served is not None and reduced is not None:  # a job under torchrun may have fewer ranks
    print("largest difference:", f"{(served.flat - reduced).abs().max():.1e}")
    print("five steps moved the parameters by", f"{(start - reduced).abs().max():.1e}")

# %% [markdown]
# **Notice:** both programs run the same algorithm, and their parameters agree to the last
# digits of float32. All workers have the same role, and the hyper-parameters are the same as on one
# machine.

# %% [markdown]
# ## What does a round cost?
#
# Draw a round on paper, for three workers and one server: 1 MB of parameters ($t = 8$ ms), compute
# $C = 20$ ms, $\alpha = 0.2$ ms. A round begins when all workers ask, and is over when the server
# has the last push. The link carries both directions at the same time.
#
# **Predict:** how long is a round?

# %% guess="round_ms"
round_ms = 20 + 3 * 0.2 + (3 - 1) * 8 + 2 * 8  # your guess, in ms

# %%
synchronous = a_rule(Synchronous, 0.01)


def one_round(workers, servers=1):
    """Return the ms until the last push of a round has arrived, on real ranks."""
    cluster = Cluster(workers + servers, link=link, speed=math.inf)
    run = cluster.run(job, synchronous, torch.zeros(250_000), stated, rounds=1, k=servers)
    data = [s.end_ns for s in run.trace.spans if s.rank < servers and s.is_recv and s.bytes > 8]
    return max(data, default=0) / 1e6 - run.trace.start_ns / 1e6


beside(round_ms, one_round(3), "ms")

# %% [markdown]
# **Notice:** with $W$ workers, many readers predict $C + 2Wt$, but a round is shorter,
# because pulls and pushes overlap with compute. While the third worker waits for its parameters, the
# first worker computes. When the third worker pushes, the server already has the other two pushes.
# So a round takes the compute, the answers to all workers one after the other, and the last push:
#
# $$C + 3\alpha + (W - 1)\,t + 2t$$

# %% [markdown]
# **Predict:** a ring all-reduce takes $2(W - 1)(\alpha + t/W)$ in addition to $C$ (lab 03). For which
# numbers of workers is one server faster than the ring? For which numbers are as many servers as
# workers faster than the ring?


# %%
def simulated(workers, servers):
    """Return the ms of a round by the simulator, which moves the messages by the same rules."""
    return parameter_server(workers, servers, 10**6, 20 * 10**6, link).done_ns / 1e6


many = [1, 2, 3, 4, 6, 8, 16, 32, 64]
ring = [20 + cost("ring", w, 10**6, link) / 1e6 for w in many]
one_server = [simulated(w, 1) for w in many]
as_many = [simulated(w, w) for w in many]
print(f"64 workers: {one_server[-1]:.0f} ms, 64 servers {as_many[-1]:.0f}, ring {ring[-1]:.0f}")
for name, ms in {"one server": one_server, "as many": as_many}.items():
    print(f"{name}: better than a ring at", [w for w, a, b in zip(many, ms, ring) if a < b])

# %%
plt.style.use("ddpkit.view.plain")
plt.figure(figsize=(6.4, 3.4))
plt.loglog(many, one_server, "-", label="one server")
plt.loglog(many, as_many, "-", label="as many servers as workers")
plt.loglog(many, ring, "--", label="ring, no server")
few = {1: one_round(1), 3: one_round(3), 6: one_round(6)}
plt.plot(few.keys(), few.values(), "ko", label="real ranks, one server")
plt.plot([3], [one_round(3, 3)], "ks", label="real ranks, 3 servers")
plt.xticks([1, 4, 16, 64], [1, 4, 16, 64]), plt.yticks([30, 100, 300], [30, 100, 300])
plt.minorticks_off(), plt.legend(fontsize=8)
plt.xlabel("workers"), plt.ylabel("ms a round")
plt.show()

# %% [markdown]
# **Notice:** all $W \cdot S$ bytes go through the link of the single server, in each
# direction. In a ring, each link carries $2(W-1)/W \cdot S$, less than $2S$ for any $W$. A single
# server works like lab 03's `master_worker`, and is as slow. With as many servers as workers, a
# round hardly grows with $W$, while a ring adds up latencies.

# %% [markdown]
# In the simulator, the server receives while it sends an answer. If your `serve` waits for each
# answer (`dist.send`), the pushes that come meanwhile wait too: a round of six workers then takes
# 96.2 ms instead of 76.6 ms.
#
# (A server can also hold data: lab 04's batches could come from a server of their own.)

# %% [markdown]
# ## Your turn: nobody waits
#
# The second rule applies each push at once. Then a worker's copy of the parameters has an **age**:
# the number of updates by other workers since the worker's pull.


# %% exercise="Asynchronous"
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
        # BEGIN SOLUTION
        self.seen[worker] = self.version
        return self.flat
        # END SOLUTION

    def push(self, worker, gradient) -> None:
        # BEGIN SOLUTION
        self.staleness.append((worker, self.version - self.seen[worker]))
        self.update(self.flat, gradient)
        self.version += 1
        # END SOLUTION

    def done(self, worker) -> None:
        pass


# %% check="Asynchronous"
check(Asynchronous)

# %% [markdown]
# ## How old is a gradient?
#
# Three equal workers take 10 to 30 ms for a gradient, and pull 40 kB of parameters. Random
# generators draw these times, with a fixed seed for each worker and round, so the times are the same
# in every run. The order of all events is the same too, although no worker waits for another worker.
#
# **Predict:** how many updates of other workers does a gradient miss, on average?

# %% guess="age"
age = 3 - 1  # your guess

# %%
asynchronous = a_rule(Asynchronous, 0.01)
numbers = torch.zeros(10_000)


def drawn(flat, number, slow=()):
    chance = random.Random(f"{dist.get_rank()} {number}").uniform(0.5, 1.5)
    busy(0.02 * chance * (4 if dist.get_rank() in slow else 1), "gradient")
    return torch.ones_like(flat)


# %%
def ages(server, worker=None):
    """Return the ages of all gradients, or of one worker's gradients."""
    return [age for w, age in (server.staleness if server else ()) if worker in (None, w)]


def mean(values):
    return sum(values) / max(1, len(values))


equal = four.run(job, asynchronous, numbers, drawn, seconds=1.5).results[0]
beside(age, mean(ages(equal)), "updates")

# %% [markdown]
# Between its pull and its push, a worker misses about one update of each of the $W - 1$ other
# workers.
#
# Now worker 3 becomes four times slower.
#
# **Predict:** how many gradients arrive in a second, with each of the two rules? How old are the
# gradients of worker 3?

# %%
straggling = partial(drawn, slow=(3,))
waiting = four.run(job, synchronous, numbers, straggling, seconds=1.5)
free = four.run(job, asynchronous, numbers, straggling, seconds=1.5)
for name, run in {"synchronous": waiting, "asynchronous": free}.items():
    pushed = sum(s.name == "gradient" for s in run.trace.spans)
    print(f"{name:13}{pushed / 1.5:5.0f} gradients/s")
for worker in (1, 2, 3):
    of = ages(free.results[0], worker)
    print(f"worker {worker}: {len(of)} gradients, age {mean(of):.1f}, at most {max(of, default=0)}")

# %%
plt.figure(figsize=(6.4, 2.8))
for place, worker in enumerate((1, 2, 3)):
    of = ages(free.results[0], worker)
    at = [each + 0.28 * (place - 1) for each in range(13)]
    label = f"worker {worker}" + ", 4 times slower" * (worker == 3)
    plt.bar(at, [of.count(each) for each in range(13)], 0.26, label=label)
plt.xlabel("age: updates since its pull"), plt.ylabel("gradients"), plt.legend()
plt.show()

# %% [markdown]
# **Notice:** the slow worker no longer holds up the other workers. But the age of each of
# its gradients is the number of pushes by other workers during its round.
#
# This also answers the first question of the lab. "The" value of the parameters is the server's
# value, which has a version. A worker has only a copy, and the copy has an age.

# %% [markdown]
# The pictures below show both rules, for a quarter of a second. **Predict:** where will workers 1
# and 2 wait, and for which rank?

# %%
short = {"seconds": 0.25}
show(four.run(job, synchronous, numbers, straggling, **short), names=names)

# %%
show(four.run(job, asynchronous, numbers, straggling, **short), names=names)

# %% [markdown]
# **Notice:** in the first picture, workers 1 and 2 wait for the server, and the server waits
# for worker 3. In the second picture, each worker has its own pace, and no worker waits for
# worker 3.

# %% [markdown]
# ## How does age change the training?
#
# We take the smallest possible model: minimise $w^2/2$, with gradient $w$. The gradient is $\tau$
# steps old: $w \leftarrow w - a\, w_{\tau \text{ steps ago}}$.
#
# **Predict:** without age, any $a$ below 2 converges. Which $a$ converge with $\tau = 1$, 2, 3?


# %%
def shrinks(a, tau, steps=2000):
    """True if w gets smaller, from 1, with gradients that are tau steps old."""
    w = [1.0] * (tau + 1)
    for _ in range(steps):
        w.append(w[-1] - a * w[-1 - tau])
        if abs(w[-1]) > 1e6:
            return False
    return max(map(abs, w[-tau - 9 :])) < 0.5


for tau in range(5):
    largest = max(a / 100 for a in range(1, 210) if shrinks(a / 100, tau))
    formula = 2 * math.sin(math.pi / (2 * (2 * tau + 1)))
    print(f"age {tau}: converges up to a = {largest:.2f}, by the formula below {formula:.3f}")

# %% [markdown]
# **Notice:** $w$ converges for $a < 2 \sin\frac{\pi}{2(2\tau + 1)}$ (Levin and May, *A note
# on difference-delay equations*, Theoretical Population Biology 9, 1976). A learning rate that
# converges without age can diverge with old gradients.

# %% [markdown]
# Next, four equal workers train on the digits for 1.5 s. `Synchronous` divides the sum of four
# gradients by 4, so with the same learning rate each gradient moves the parameters only a quarter as
# far. For the same step *per gradient*, `Synchronous` gets four times the learning rate.
#
# **Predict:** which rule has the lower loss with a small step per gradient, and which rule with a
# large step?


# %%
def of_a_batch(flat, number, slow=()):
    chance = random.Random(f"{dist.get_rank()} {number}")
    busy(0.02 * chance.uniform(0.5, 1.5) * (4 if dist.get_rank() in slow else 1), "gradient")
    return gradient_at(flat, chance.sample(range(len(x)), 64))


def loss_of(server):
    model = small()
    load(model, server.flat)
    return nn.functional.cross_entropy(model(x), y).item()


# %%
five = Cluster(5, link=link, speed=math.inf)
for step in (0.05, 0.375, 1.5):
    for made, lr in ((Synchronous, 4 * step), (Asynchronous, step)):
        server = five.run(job, a_rule(made, lr), start, of_a_batch, seconds=1.5).results[0]
        if server is not None:
            print(f"step per gradient {step:5}  {made.__name__:13} loss {loss_of(server):.2f}")

# %% [markdown]
# **Notice:** with the two smaller steps per gradient, `Asynchronous` reaches the lower loss,
# because more gradients arrive in 1.5 s. With the largest step, neither rule learns: 2.31 is about
# the loss of guessing, $\ln 10$. With a *learning rate* of 1.5 for both rules, `Synchronous` reaches
# 0.50 (its step per gradient is 0.375), and `Asynchronous` learns nothing. Three changes help:
# smaller steps; steps of $a / (1 + \text{age})$ (Zhang and others, [Staleness-aware
# Async-SGD](https://arxiv.org/abs/1511.05950), 2015); or waiting a little.

# %% [markdown]
# ## Your turn: wait a little
#
# A worker's *clock* counts its pushes. With the third rule, a worker may pull only while its clock is
# at most `bound` ahead of the slowest worker's clock (Ho and others, *More Effective Distributed ML
# via a Stale Synchronous Parallel Parameter Server*, 2013). With bound 0, all workers are in step;
# with `math.inf`, the rule is asynchronous.


# %% exercise="Bounded"
class Bounded(Asynchronous):
    """A worker may pull while its clock is at most `bound` ahead of the slowest worker's.

    A clock counts the worker's pushes. Workers that are done are not waited for.
    """

    def __init__(self, flat, update, workers, bound):
        super().__init__(flat, update, workers)
        self.bound = bound
        self.clock = dict.fromkeys(workers, 0)

    def push(self, worker, gradient) -> None:
        # BEGIN SOLUTION
        super().push(worker, gradient)
        self.clock[worker] += 1
        # END SOLUTION

    def may_pull(self, worker) -> bool:
        # BEGIN SOLUTION
        return self.clock[worker] - min(self.clock.values()) <= self.bound
        # END SOLUTION

    def done(self, worker) -> None:
        # BEGIN SOLUTION
        del self.clock[worker]
        # END SOLUTION


# %% check="Bounded"
check(Bounded)

# %% [markdown]
# **In words:** a job may also start with more workers than the server waits for: the server takes
# the first W gradients of W + 2 workers, and drops the late gradients (Chen and others, [Revisiting
# Distributed Synchronous SGD](https://arxiv.org/abs/1604.00981), 2016). Which line of your
# `Synchronous` changes?

# %% [markdown]
# *Your words:*
#
# <details><summary>An answer</summary>
#
# The condition for a complete round changes: `len(self.gradients) >= W`. The server must also
# recognise a late gradient of a closed round, by the version that the worker has pulled, and drop
# the gradient.
#
# </details>

# %% [markdown]
# ## When does a bound help?
#
# **Predict:** worker 3 is always four times slower. With bounds of 0, 1, 3 and ∞, how many gradients
# arrive in a second, and how old is the oldest gradient? How do both numbers change if any worker
# may be slow in any round, but none is always slow?


# %%
def hiccups(flat, number):
    chance = random.Random(f"{dist.get_rank()} {number}")
    busy(0.02 * (4 if chance.random() < 0.1 else 1), "gradient")
    return torch.ones_like(flat)


# %%
print("bound   worker 3 always slow          all slow now and then")
for bound in (0, 1, 3, math.inf):
    row = f"{bound:5}"
    for gradient in (straggling, hiccups):
        rule = a_rule(Bounded, 0.01, bound)
        server = four.run(job, rule, numbers, gradient, seconds=1.5).results[0]
        old = max(ages(server), default=0)
        row += f"   {len(ages(server)) / 1.5:3.0f} gradients/s, oldest {old:2}   "
    print(row)

# %% [markdown]
# **Notice:** against a *permanent* straggler, a bound only delays the waiting. In the end,
# all workers go at the pace of the straggler, with any finite bound. A bound does hide short delays
# that hit every worker now and then: a worker waits only when it is more than `bound` pushes ahead.
# Most texts do not mention that a bound fails against a permanent straggler.

# %% [markdown]
# ## Your turn: how many servers?
#
# With k servers, each server holds $1/k$ of the parameters and has its own link. Look at your
# drawing again: which parts of the round get shorter?


# %% exercise="seconds_per_round"
def seconds_per_round(
    workers: int, servers: int, nbytes: int, compute: float, latency: float, bandwidth: float
) -> float:
    """Return the seconds of a synchronous round, from all requests until the last push arrives.

    `nbytes` of parameters are spread over the servers; there are at most as many servers as
    workers. `compute` and `latency` are in seconds, `bandwidth` in bytes per second, for each
    direction of each rank's link. A server sends its answers one after the other. A worker receives
    the chunks of all servers one after the other, and also sends its chunks one after the other.
    """
    # BEGIN SOLUTION
    own = nbytes / bandwidth  # s on a worker's link, for a pull and for a push
    others = (workers - 1) * own / servers
    return compute + 3 * latency + others + 2 * own
    # END SOLUTION


# %% check="seconds_per_round"
check(seconds_per_round)

# %%
ks = [1, 2, 3, 4, 5, 6]
formula = [seconds_per_round(6, k, 10**6, 0.02, 0.0002, 125e6) * 1000 for k in ks]
plt.figure(figsize=(6.4, 2.8))
plt.plot(ks, formula, "-", label="6 workers, your formula")
plt.plot(ks, [simulated(6, k) for k in ks], "o", label="simulated")
plt.plot([1, 3], [one_round(6, k) for k in (1, 3)], "k^", label="real ranks")
plt.ylim(0, 90), plt.xlabel("servers"), plt.ylabel("ms a round"), plt.legend()
plt.show()

# %% [markdown]
# **Notice:** more servers shorten only the time in which the servers answer the *other*
# workers. The $2t$ of a worker's own pull and push remain; in a ring, this part is $2(W-1)/W \cdot
# t$. If pushes of one chunk overlapped pulls of another chunk, only $t$ would be left, half of the
# ring's time: servers can win (BytePS: Jiang and others, [A Unified
# Architecture](https://www.usenix.org/conference/osdi20/presentation/jiang), 2020).

# %% [markdown]
# **Predict:** asynchronous workers have no rounds. A server's link is full when the workers ask for
# more bytes than the link can carry: when $W\,t/k > C + 2t$. How many servers do 16 workers need
# here?

# %% guess="enough"
enough = math.ceil(16 * 8 / (20 + 2 * 8))  # your guess


# %%
def rate(servers):
    """Return the gradients per second of 16 asynchronous workers."""
    options = {"bound": math.inf, "rounds": 12}
    return parameter_server(16, servers, 10**6, 20 * 10**6, link, **options).gradients_per_s


rates = {k: rate(k) for k in (1, 2, 3, 4, 6, 8)}
for k, each in rates.items():
    print(f"servers: {k}, {each:4.0f} gradients/s, {16 * 1000 / each:5.1f} ms for 16")
beside(enough, next(k for k in rates if rates[k] > 0.9 * rates[8]), "servers")

# %% [markdown]
# **Notice:** if there are few servers, their links limit the rate, and twice as many servers
# double the rate. If there are enough servers, the workers limit the rate, and more servers hardly
# help.

# %% [markdown]
# ## Parameters instead of gradients
#
# A worker may also take steps by itself, and push its *parameters* every eighth step. The server
# then takes the mean of all workers' parameters. The rule stays the same; only the update is
# different.
#
# **Predict:** how many bytes does this save, and what happens to the loss?


# %%
def eight_steps(flat, number):
    for step in range(8):
        flat.sub_(of_a_batch(flat, 8 * number + step), alpha=0.1)
    return flat


def average(flat, mean_of_all):
    flat.copy_(mean_of_all)


# %%
each = four.run(job, a_rule(Synchronous, 0.1), start, of_a_batch, rounds=48)
eighth = four.run(
    job, lambda flat, workers: Synchronous(flat, average, workers), start, eight_steps, rounds=6
)
for name, run in {"each step": each, "every 8th": eighth}.items():
    if run.results[0] is not None:
        sent, ms = run.traffic.sent() / 1e6, run.trace.duration_ms
        print(f"{name}: {sent:.1f} MB, {ms:.0f} ms, loss {loss_of(run.results[0]):.2f}")

# %% [markdown]
# **Notice:** the workers send an eighth of the bytes, and on these digits the loss is as
# low. So you can choose the time of an exchange, and you can choose to send gradients or parameters.

# %% [markdown]
# ## All-reduce or servers?
#
# | | all-reduce | server |
# |---|---|---|
# | dense gradients, equal machines | yes: no rank is special | as many servers as workers |
# | a huge table, few rows a step | sends the whole table | yes: sends the rows |
# | machines that differ, or come and go | all ranks wait | asynchronous, or bounded |
#
# Today one job often has both: tables on servers, and the dense part in DDP.

# %% [markdown]
# **In words:** which data is lost if a server dies? Which data is lost if a worker dies?

# %% [markdown]
# *Your words:*
#
# <details><summary>An answer</summary>
#
# The only copy of the server's chunk is lost, and all workers wait for the server; so servers keep
# copies or save often. The loss of a *worker* costs little: the server calls the rule's `done`.
#
# </details>

# %% [markdown]
# ## Optional: call a function on the server
#
# The rest is a second part, of about 25 minutes: you may stop here, and go on to "The way out".
#
# A pull calls a function on another rank, always the same function. A **remote procedure call** (RPC)
# can call any function: it also sends the function's name and arguments. Objects travel as bytes:
# first the number of bytes, then the bytes.


# %% tags=["answers"]
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


# %% [markdown]
# ## Your turn: both ends of a call
#
# A request is a pair, `(name, args)`. The answer is a pair too: `("ok", value)`, or `("raised",
# exception)` if the function has failed. An exception is an object that can travel, like any value.


# %% exercise="call"
def call(server: int, name: str, *args):
    """Call the method `name` of the object that rank `server` serves, and return its result.

    If the method raises an exception on the server, raise the exception here.
    """
    # BEGIN SOLUTION
    send_bytes((name, args), server)
    _, (kind, value) = recv_bytes(server)
    if kind == "raised":
        raise value
    return value
    # END SOLUTION


# %% check="call"
check(call)


# %% exercise="serve_calls"
def serve_calls(target, clients) -> None:
    """Answer calls of `target`'s methods, from any client, until each one has called "shutdown".

    Every call gets an answer; a shutdown gets ("ok", None). If a method raises, go on serving.
    """
    # BEGIN SOLUTION
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
    # END SOLUTION


# %% check="serve_calls"
check(serve_calls)


# %%
class Shelf:
    def __init__(self):
        self.kept = {}

    def put(self, name, value):
        self.kept[name] = value

    def get(self, name):
        return self.kept[name]


# %%
def over_there():
    rank = dist.get_rank()
    if rank == 0:
        return serve_calls(Shelf(), [1, 2])
    call(0, "put", rank, torch.full((2,), rank))
    found = [call(0, "get", rank).tolist()]
    try:
        call(0, "get", "a missing key")
    except KeyError as error:
        found.append(error)
    call(0, "shutdown")
    return found


for rank, found in enumerate(Cluster(3).run(over_there).results):
    print(f"rank {rank}: {found}")

# %% [markdown]
# **Notice:** every caller can run any code on the server, because pickle runs code from the
# bytes that pickle reads. So use RPC only among ranks that you trust. torch's own RPC has the same
# risk.

# %% [markdown]
# torch also has remote procedure calls (RPC). `rpc_sync` works like your `call`. `remote` leaves the
# result on the server and returns a reference, and `to_here()` fetches the result. torch's RPC does
# not use the process group, so the kit cannot record or time its messages. (torch's RPC uses
# TensorPipe, which is [only maintained](https://github.com/pytorch/tensorpipe/pull/468).)

# %% [markdown]
# ## A table that fits on no worker
#
# A recommendation model has a row of numbers for each user, each film, each word: far more rows than
# fit on one worker. A batch needs few of these rows. Here, a server has a table of 100,000 rows of
# 16 numbers; a batch needs 64 rows.

# %% [markdown]
# **Predict:** how many kB of the table travel for a worker's step, as rows and as the gradient of
# the rows? How many kB would travel if the table were a parameter in DDP?

# %% guess="kilobytes"
kilobytes = (2 * 64 * 16 * 4 + 64 * 8 + 1000) / 1000  # rows, gradient, ids, and pickle's own bytes


# %%
class Table:
    """A table of rows, with its gradient and its optimizer step."""

    def __init__(self, rows, width=16):
        torch.manual_seed(0)
        self.weight = torch.randn(rows, width)
        self.gradient = torch.zeros_like(self.weight)

    def rows(self, ids):
        return self.weight[ids]

    def add_gradient(self, ids, gradient):
        self.gradient.index_add_(0, ids, gradient)  # an id may occur twice in a batch

    def step(self, lr):
        self.weight.sub_(self.gradient, alpha=lr)
        self.gradient.zero_()


# %% [markdown]
# ## Your turn: autograd through a call
#
# Autograd does not know how the rows came from the server. A `torch.autograd.Function` tells
# autograd: `forward` makes the output; `backward` gets the gradient of the output, and returns one
# gradient for each input.
#
# Autograd calls `backward` only if an input requires a gradient. The ids are integers, which cannot
# require a gradient; so `forward` also gets an `anchor`: any tensor that requires a gradient.


# %% exercise="RemoteRows"
class RemoteRows(torch.autograd.Function):
    """Rows of the table that rank `server` serves: `RemoteRows.apply(anchor, ids, server)`.

    backward sends the rows' gradient to the server, once: `add_gradient(ids, gradient)`. The rows
    do not depend on the anchor, so the anchor gets no gradient: None.
    """

    @staticmethod
    def forward(ctx, anchor, ids, server):
        # BEGIN SOLUTION
        ctx.ids, ctx.server = ids, server
        return call(server, "rows", ids)
        # END SOLUTION

    @staticmethod
    def backward(ctx, gradient):
        # BEGIN SOLUTION
        call(ctx.server, "add_gradient", ctx.ids, gradient)
        return None, None, None
        # END SOLUTION


# %% check="RemoteRows"
check(RemoteRows)

# %% [markdown]
# ## A dense part and a sparse part
#
# One job now has both kinds of parallelism: the dense part in DDP, on the group of the two trainers,
# and the table on rank 0. Each part has its own optimizer. The optimizer of the table steps when the
# gradients of both trainers have arrived.


# %%
def batch_of(rank):
    chance = torch.Generator().manual_seed(rank)
    return torch.randint(100_000, (64,), generator=chance)


def loss_of_rows(dense, rows):
    return dense(rows).square().mean()


def step_table(trainers, lr):
    dist.barrier(trainers)  # both gradients are there
    if dist.get_rank() == 1:
        call(0, "step", lr)
    dist.barrier(trainers)  # now the step is made


# %%
def train_both(steps=3, lr=0.5):
    trainers, rank = dist.new_group([1, 2]), dist.get_rank()
    if rank == 0:
        return serve_calls(Table(100_000), [1, 2])
    dense, anchor = nn.Linear(16, 1), torch.zeros(1, requires_grad=True)
    ddp = nn.parallel.DistributedDataParallel(dense, process_group=trainers)
    optimizer, losses = torch.optim.SGD(ddp.parameters(), lr), []
    for _ in range(steps):
        loss = loss_of_rows(ddp, RemoteRows.apply(anchor, batch_of(rank), 0))
        optimizer.zero_grad(), loss.backward(), optimizer.step()
        step_table(trainers, lr)
        losses.append(loss.item())
    call(0, "shutdown")
    return losses


# %%
three = Cluster(3, link=link, speed=math.inf)
run = three.run(train_both)
print("losses of trainer 1:", [round(each, 3) for each in (run.results[1] or [])])
data = [s.bytes for s in run.trace.of(1) if s.args.get("tag") == DATA and s.bytes > 3000]
beside(kilobytes, sum(data) / 3 / 1000, "kB")
print(f"as a parameter in DDP: {100_000 * 16 * 4 / 1000:,.0f} kB, all-reduced")

# %% [markdown]
# **Notice:** a step moves some kilobytes instead of megabytes. Recommendation models have
# this structure: DDP for the dense part, servers for the sparse part.

# %% [markdown]
# torch has these parts too: `RemoteModule` works like your table, `dist_autograd` works like your
# `RemoteRows`, and `DistributedOptimizer` steps each parameter on the rank that holds the parameter.
# torch's RPC takes a few seconds to start.


# %%
def with_rpc(*jobs):
    """Start torch's RPC once, for all jobs; the ranks meet through a new file that rank 0 names."""
    from torch.distributed import rpc

    warnings.showwarning = lambda *args, **more: None  # hide torch's warnings about its own parts
    if not rpc.is_available():
        return "this torch has no RPC"
    rank, place = dist.get_rank(), [tempfile.mkdtemp()]
    dist.broadcast_object_list(place)
    torch.set_default_device("cpu")  # RPC sends CPU tensors
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{place[0]}/rpc")
    size = dist.get_world_size()
    rpc.init_rpc(f"w{rank}", rank=rank, world_size=size, rpc_backend_options=options)
    result = [job() for job in jobs] if rank else None
    rpc.shutdown()
    return result


# %%
def torchs_calls():
    from torch.distributed import rpc

    added = rpc.rpc_sync("w0", torch.add, (torch.ones(2), 1))
    kept_there = rpc.remote("w0", torch.add, (torch.zeros(3), 2))
    return added.tolist(), kept_there.to_here().tolist()


# %%
def torchs_table(steps=3, lr=0.5):
    from torch.distributed import autograd, optim, rpc
    from torch.distributed.nn import RemoteModule

    table = RemoteModule("w0/cpu", nn.Embedding, args=(1000, 16))
    dense, losses = nn.Linear(16, 1), []
    everywhere = [*table.remote_parameters(), *map(rpc.RRef, dense.parameters())]
    optimizer = optim.DistributedOptimizer(torch.optim.SGD, everywhere, lr=lr)
    for _ in range(steps):
        with autograd.context() as context:
            loss = loss_of_rows(dense, table.forward(batch_of(1) % 1000))
            autograd.backward(context, [loss])
            optimizer.step(context)
            losses.append(round(loss.item(), 3))
    return losses


# %%
torchs = Cluster(2).run(with_rpc, torchs_calls, torchs_table, timeout=120).results[1]
print(torchs)

# %% [markdown]
# ## The way out
#
# This program for `torchrun` has one asynchronous server in plain torch:
#
# ```python
# import torch, torch.distributed as dist
#
# dist.init_process_group("gloo")
# rank, workers = dist.get_rank(), dist.get_world_size() - 1
# w, target = torch.zeros(4), torch.arange(4.0)
# if rank == 0:
#     gradient = torch.empty(4)
#     for _ in range(20 * workers):
#         worker = dist.recv(gradient)  # from anybody
#         w -= 0.1 * gradient
#         dist.send(w, worker)
#     print("the server has", [round(each, 1) for each in w.tolist()])
# else:
#     for step in range(20):
#         dist.send(w - target, 0)
#         dist.recv(w, 0)
# dist.destroy_process_group()
# ```

# %% [markdown]
# ## In this lab you have
#
# - written both sides of a parameter server, and three rules that decide which worker waits;
# - given each gradient an age, and measured the cost of age;
# - found the number of servers that is enough, and that a finite bound does not cure a slow machine.
#
# **Next:** keep `Bounded`: the labs on failures need a job that goes on without a worker.

# %% [markdown]
# **Before you hand in:** save, and run `ddpkit check --as-graded 08_parameter_server.ipynb` in a
# terminal. This command checks your notebook in the same way as the grader, with other inputs, and
# shows the grader's result.
