# ---
# jupyter:
#   ddpkit:
#     builds: GPipe, 1F1B, and the worker that runs their plans
#     minutes: 95
#     needs: labs 00 and 01
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
# # 11 · Pipeline
#
# **You will build** schedules of a pipeline, GPipe and 1F1B, and the worker that runs these
# schedules: all ranks together train a model that no rank could hold alone, and get the gradients of
# one process.
#
# **You need** labs 00 (send and receive) and 01 (micro-batches). About 95 minutes.

# %%
import torch, torch.distributed as dist
from ddpkit import Cluster, beside, busy, check

# %%
import math
from unittest import mock
from torch.nn.functional import mse_loss
from ddpkit.simulate import held, pipeline_plans, pipeline_time
from ddpkit.view import explore_pipeline, show_pipeline

# %% [markdown]
# ## One model, a layer each
#
# One device may be too small for a model. So cut the model: rank 0 has the first layer, rank 1 the
# second, and so on. A **stage** is the part of the model that one rank has.

# %% [markdown]
# Here a stage takes 2.5 ms for the forward of each row of its input, and 5 ms for the backward. The
# ranks are emulated: the code states these times, so the times are the same on every laptop.


# %%
class Takes(torch.autograd.Function):
    """Passes x on, and takes time in forward and backward (spans F0 and B0 for micro-batch 0)."""

    @staticmethod
    def forward(ctx, x, micro):
        ctx.micro = micro
        busy(0.0025 * len(x), f"F{micro}")
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        busy(0.005 * len(gradient), f"B{ctx.micro}")
        return gradient, None


# %%
class Stage(torch.nn.Module):
    """The rank's part of the model. It counts the micro-batches that pass."""

    takes = Takes

    def __init__(self):
        super().__init__()
        torch.manual_seed(dist.get_rank())
        self.wide, self.narrow = torch.nn.Linear(32, 1024), torch.nn.Linear(1024, 32)
        self.passed = 0

    def forward(self, x):
        self.passed += 1
        y = self.narrow(torch.relu(self.wide(x)))
        return self.takes.apply(y, self.passed - 1)


# %% [markdown]
# In the forward, a rank receives the output of the previous rank, and sends its own output to the
# next rank. In the backward, a *gradient* comes from the next rank: the gradient of the loss with
# respect to the sent output. From there autograd continues: `y.backward(gradient)`.


# %% tags=["answers"]
def receive(like, src):
    """Receive the next tensor from rank `src`, as a new tensor with the shape of `like`."""
    x = torch.empty_like(like)
    dist.recv(x, src=src)
    return x


# %%
def whole_batch():
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    stage, x, target = Stage(), torch.ones(64, 32), torch.zeros(64, 32)
    if rank > 0:
        x = receive(x, rank - 1).requires_grad_()  # otherwise no gradient goes back
    y = stage(x)
    if rank < last:
        dist.send(y.detach(), dst=rank + 1)
        y.backward(receive(y, rank + 1))
    else:
        mse_loss(y, target).backward()
    if rank > 0:
        dist.send(x.grad, dst=rank - 1)


# %% [markdown]
# **Predict:** four ranks, with one stage each, train on 64 rows. How long is a step? During which
# share of the step does a rank work?

# %% guess="naive_ms"
naive_ms = 4 * 64 * (2.5 + 5)  # your prediction, in ms

# %%
ranks = Cluster(4, machine="laptop core", speed=math.inf)  # only stated times count
naive = ranks.run(whole_batch)
beside(naive_ms, naive.trace.duration_ms, "ms")
show_pipeline(naive)

# %% [markdown]
# **Notice:** only one rank works at a time. The staircase goes down with the forwards, and
# up with the backwards. Four ranks are as fast as one rank: cutting the model makes the model fit,
# but not faster. Each layer waits for the output of the previous layer.

# %% [markdown]
# ## A net that does not have to wait
#
# A recurrent net reads a sequence step by step. Layer 1 can begin as soon as layer 0 has computed
# its output of step 0; layer 1 does not need the whole sequence.
#
# **Predict:** four ranks have one layer each, and the sequence has 12 steps. In tick 1, one rank
# works. In which tick do all four ranks work? How many ticks does the sequence take?

# %% guess="how_many"
how_many = 12 + 3  # your prediction, in ticks

# %% [markdown]
# ## Your turn: the working stages of each tick
#
# A *piece* is the unit of work that moves from stage to stage. Here a piece is a time step; below, a
# piece will be a part of a batch.


# %% exercise="ticks"
def ticks(stages: int, pieces: int) -> list[list[tuple[int, int]]]:
    """List the (stage, piece) pairs at work in each tick, in any order within a tick.

    In each tick, a piece is at one stage. Each stage takes the pieces in order, and no stage waits
    without need.
    """
    # BEGIN SOLUTION
    return [
        [(stage, t - stage) for stage in range(stages) if 0 <= t - stage < pieces]
        for t in range(stages + pieces - 1)
    ]
    # END SOLUTION


# %% check="ticks"
check(ticks)

# %%
print("ranks at work, tick by tick:", *map(len, ticks(4, 12)))
beside(how_many, len(ticks(4, 12)), "ticks")

# %% [markdown]
# ## Your turn: a layer of the net
#
# A cell computes the next hidden state, which is also the output of the cell:
# `hidden = cell(x, hidden)`.
#
# Send each output as soon as the cell has computed the output, and do not wait for the message:
# `dist.isend` returns a Work at once. Wait for all Works at the end.


# %% exercise="rnn_layer"
def rnn_layer(cell, xs, hidden) -> list:
    """Run this rank's layer of a recurrent net.

    On rank 0, `xs` is the sequence of inputs. On the other ranks, `xs` only gives the number, shape
    and dtype of the inputs. Send each output to the next rank as soon as the output is computed.
    The last rank returns the list of its outputs, and the other ranks return an empty list.
    """
    # BEGIN SOLUTION
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    outputs, works = [], []
    for x in xs:
        if rank > 0:
            x = receive(x, rank - 1)
        hidden = cell(x, hidden)
        if rank < last:
            works.append(dist.isend(hidden, dst=rank + 1))
        else:
            outputs.append(hidden)
    for work in works:
        work.wait()
    return outputs
    # END SOLUTION


# %% check="rnn_layer"
check(rnn_layer)

# %% [markdown]
# Now run your layers with a cell that takes 20 ms, and compare with torch's own net of four layers
# in one process.


# %%
class SlowCell(torch.nn.RNNCell):
    """A cell with the weights of one layer of `net`; each call takes 20 ms."""

    def __init__(self, net, layer):
        super().__init__(8, 8)
        self.step = 0
        for name, p in self.named_parameters():
            p.data = getattr(net, f"{name}_l{layer}").data

    def forward(self, x, hidden):
        busy("20 ms", f"F{self.step}")
        self.step += 1
        return super().forward(x, hidden)


# %%
def run_layer(net, xs):
    with torch.no_grad():
        cell = SlowCell(net, dist.get_rank())
        return rnn_layer(cell, list(xs), torch.zeros(1, 8))


torch.manual_seed(0)
net, xs = torch.nn.RNN(8, 8, num_layers=4), torch.randn(12, 1, 8)
wave = ranks.run(run_layer, net, xs)
print("as torch's net:", torch.allclose(torch.stack(wave.results[3]), net(xs)[0], atol=1e-6))
show_pipeline(wave)

# %% [markdown]
# **Notice:** the picture shows a wavefront. First one rank works, then two ranks, then
# three. When the first step reaches the last layer, all four ranks work. Except for the waits at
# both ends, each rank works all the time.
#
# The time steps make the wavefront possible. Which pieces can replace the time steps in a net
# without a sequence?

# %% [markdown]
# ## Micro-batches
#
# The rows of a batch are independent of each other. So cut the batch of 64 rows into 8 micro-batches
# of 8 rows: the micro-batches are the pieces. For one micro-batch, a forward takes $F = 20$ ms and a
# backward $B = 40$ ms.

# %% [markdown]
# A **plan** lists the operations of one stage in order, as pairs: `("F", 0)` is the forward of
# micro-batch 0, and `("B", 0)` is the backward of micro-batch 0. **GPipe** (Huang et al., 2018) runs
# all forwards first, then all backwards.


# %% exercise="gpipe"
def gpipe(stage: int, stages: int, micro: int) -> list[tuple[str, int]]:
    """Return the plan of a stage: first all forwards, then all backwards.

    Stages and micro-batches are counted from 0.
    """
    # BEGIN SOLUTION
    return [("F", i) for i in range(micro)] + [("B", i) for i in range(micro)]
    # END SOLUTION


# %% check="gpipe"
check(gpipe)

# %% [markdown]
# The kit simulates such plans without ranks. An operation begins when the stage has finished the
# previous operation, and when the input of the operation has come from the neighbour.
#
# **Predict:** with four stages and eight micro-batches, how long is a step?

# %% guess="gpipe_ms"
gpipe_ms = (8 + 3) * (20 + 40)  # your prediction, in ms

# %%
predicted = pipeline_time([gpipe(stage, 4, 8) for stage in range(4)])
beside(gpipe_ms, predicted.duration_ms, "ms")
show_pipeline(predicted)

# %% [markdown]
# The grey time, in which a stage has no work, is the **bubble**. The bubble is as long as the time
# in which one micro-batch goes through the other stages, forward and backward. So the bubble does
# not grow with the number of micro-batches. Which share of the step is the bubble?


# %% exercise="bubble"
def bubble(stages: int, micro: int) -> float:
    """Return the share of a step in which a stage does nothing, between 0 and 1."""
    # BEGIN SOLUTION
    return (stages - 1) / (micro + stages - 1)
    # END SOLUTION


# %% check="bubble"
check(bubble)

# %% [markdown]
# **Predict:** how many micro-batches bring the bubble of four stages down to 5 %?

# %% guess="enough"
enough = 3 / 0.05 - 3  # your prediction, in micro-batches

# %%
for micro in (1, 2, 4, 8, 16, 32, 64):
    print(f"{micro:3} micro-batches: {bubble(4, micro):6.1%} of the step")
beside(enough, next(m for m in range(1, 1000) if bubble(4, m) <= 0.05), "micro-batches")

# %% [markdown]
# The step takes $(m + p - 1)(F + B)$ with $p$ stages and $m$ micro-batches.
#
# ## Your turn: the worker
#
# The worker is the code of `whole_batch` in a loop over the operations of the plan. A backward needs
# the `x` and the `y` of its own micro-batch, so the forward has to keep both.
#
# **Predict:** why does a plan such as `F0 F1 B0 F2` need `isend`?


# %% exercise="pipeline_step"
def pipeline_step(plan, stage, inputs, targets, loss, like):
    """Run this rank's plan, a list or a generator of operations. `stage` is the rank's module.

    `like` has the shape and dtype of each message. The first rank has the micro-batches in the list
    `inputs`, which may be whole numbers. The last rank has the `targets`. The other lists may hold
    None. Every parameter's gradient grows by the gradient of the mean over micro-batches of
    `loss(output, target)`. The last rank returns the mean, the other ranks return None. A backward
    drops the output of its micro-batch, and the graph; only a detached message may be kept.
    """
    # BEGIN SOLUTION
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    held, sends, mean = {}, [], 0.0
    for kind, i in plan:
        if kind == "F":
            x = inputs[i] if rank == 0 else receive(like, rank - 1).requires_grad_()
            y = stage(x)
            if rank < last:
                sends.append(dist.isend(y.detach(), dst=rank + 1))
            else:
                y = loss(y, targets[i]) / len(targets)
                mean += y.item()
            held[i] = x, y
        else:
            x, y = held.pop(i)
            y.backward(None if rank == last else receive(y, rank + 1))
            if rank > 0:
                sends.append(dist.isend(x.grad, dst=rank - 1))
    for work in sends:
        work.wait()
    return mean if rank == last else None
    # END SOLUTION


# %% check="pipeline_step"
check(pipeline_step)

# %% [markdown]
# **Predict:** will the run on ranks take as long as the simulator predicts? How many micro-batches
# does each rank hold before its first backward?


# %%
def train(plans, micro=8):
    rows = torch.ones(64, 32).chunk(micro)
    stage, plan = Stage(), plans[dist.get_rank()]
    pipeline_step(plan, stage, rows, [0 * x for x in rows], mse_loss, rows[0])
    return [p.grad for p in stage.parameters()]


# %%
seen = ranks.run(train, [gpipe(stage, 4, 8) for stage in range(4)])
show_pipeline(predicted, seen, labels=["predicted", "on ranks"])

# %% [markdown]
# **Activations** are the outputs of layers that a forward keeps for the backward. The trace counts
# the activations of a rank to the byte: each storage counts once, from the operation that makes the
# storage until the storage is freed.


# %%
def activations(run):
    for rank, levels in run.trace.memory.items():
        most = max(level.nbytes[-1] for level in levels)
        print(f"rank {rank}: {most / 1e3:5.0f} kB of activations at most")


activations(seen)

# %% [markdown]
# **Notice:** prediction and run agree to the millisecond. But each rank holds all eight
# micro-batches: the activations of the whole batch. More micro-batches of this size make the bubble
# smaller, but may not fit into memory.
#
# The last rank could begin its first backward right after its first forward. Then the last rank
# holds only one micro-batch. When may the earlier ranks begin their first backward?

# %% [markdown]
# ## Your turn: one forward, one backward
#
# **1F1B** (PipeDream, Narayanan et al., 2019) has three parts. First comes the **warm-up**: as few
# forwards as possible, but enough that no stage waits longer than in GPipe. Then each stage
# alternates one forward and one backward until no forward is left. The remaining backwards come
# last.


# %% exercise="one_f_one_b"
def one_f_one_b(stage: int, stages: int, micro: int) -> list[tuple[str, int]]:
    """Return the plan of a stage.

    The plan begins with as few forwards as are needed. Then comes one backward after each forward,
    and at the end the backwards that are left. Every micro-batch has one forward and, later, one
    backward.
    """
    # BEGIN SOLUTION
    first = min(stages - 1 - stage, micro)
    plan = [("F", i) for i in range(first)]
    for i in range(micro - first):
        plan += [("F", first + i), ("B", i)]
    return plan + [("B", i) for i in range(micro - first, micro)]
    # END SOLUTION


# %% check="one_f_one_b"
check(one_f_one_b)

# %% [markdown]
# The worker is the same; only the plan is new.
#
# **Predict:** how long is the step, how large is the bubble, and how many micro-batches does each
# rank hold?

# %%
plans = [one_f_one_b(stage, 4, 8) for stage in range(4)]
better = ranks.run(train, plans)
show_pipeline(seen, better, labels=["GPipe", "1F1B"])

# %%
activations(better)
equal = [torch.allclose(a, b) for a, b in zip(seen.results[0], better.results[0])]
print("rank 0's gradients are equal:", all(equal))

# %% [markdown]
# **Notice:** the bubble is the same, but the memory is smaller. With a batch of any size, a
# rank holds only as many micro-batches as there are stages from its own stage to the last stage.

# %% [markdown]
# ## Why isend?
#
# The run below replaces `isend` by `send`, which returns only when the neighbour has received the
# message.
#
# **Predict:** does GPipe's plan reach the end? Does 1F1B's plan reach the end?


# %%
class Sent:
    def wait(self):
        pass


def send_now(x, dst):
    dist.send(x, dst=dst)
    return Sent()


def train_with_send(plans):
    with mock.patch.object(dist, "isend", send_now):
        return train(plans)


# %%
Cluster(4).run(train_with_send, [gpipe(stage, 4, 8) for stage in range(4)])
print("GPipe: done")

# %%
run = Cluster(4).run(train_with_send, plans, expect_error=True)

# %% [markdown]
# **Notice:** in 1F1B, rank 2 sends a forward's output down to rank 3 while rank 3 sends a
# backward's gradient up to rank 2. Each of the two ranks waits until its neighbour receives. In
# GPipe, first all messages go down, and then all messages go up. With messages in both directions at
# once, a rank must be able to go on before the neighbour receives.

# %% [markdown]
# ## A slow link
#
# So far, messages took no time. Now each message takes 10 ms from rank to rank.
#
# **Predict:** which schedule slows down more? Both schedules send the same messages.

# %%
far = Cluster(4, link="10 ms", machine="laptop core", speed=math.inf)
gpipe_far = far.run(train, [gpipe(stage, 4, 8) for stage in range(4)])
one_far = far.run(train, plans)
show_pipeline(gpipe_far, one_far, labels=["GPipe", "1F1B"])

# %% [markdown]
# **Notice:** GPipe loses time to latency twice: when the pipeline fills, and when the
# pipeline empties. 1F1B also loses time in between: a stage sends a forward's output down, and waits
# for the gradient to come back. With $p$ stages, the ranks wait for one such round trip in each
# group of $p$ micro-batches.

# %% [markdown]
# With a longer warm-up, a stage has other forwards to compute during the round trip. The kit's
# "eager 1f1b" has a warm-up of twice the length:

# %%
eager = pipeline_plans("eager 1f1b", 4, 8)
show_pipeline(one_far, far.run(train, eager), labels=["1F1B", "twice the warm-up"])

# %% [markdown]
# **Notice:** the longer warm-up hides these round trips, and the step is as long as GPipe's. The
# price is memory: the column "held" shows that rank 0 holds 7 micro-batches instead of 4.

# %% [markdown]
# Move the sliders: for which latency is 1F1B as fast as GPipe? How do 64 micro-batches change the
# shares of bubble and latency?
#
# <details><summary>An answer</summary>
#
# With 8 micro-batches, 1F1B is as fast as GPipe only for a latency of 0. With 1 or 2 micro-batches,
# both are equally fast for any latency. With 64 micro-batches, the share of the bubble is smaller,
# but the share of latency remains: each round of $p$ micro-batches waits for $2(p-1)$ messages.
#
# </details>

# %%
explore_pipeline("1f1b", stages=4, micro=8, latency_ms=10)

# %% [markdown]
# ## Your schedule and torch's schedule
#
# torch's module `torch.distributed.pipelining` has the same schedules. `PipelineStage` wraps a
# stage, and `schedule.step()` does the work of your worker. torch also makes the plans.
#
# **Predict:** with the same link and the same stages, is torch's 1F1B faster than your 1F1B?


# %%
def train_torchs(micro=8):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank, x, stage = dist.get_rank(), torch.ones(64, 32), Stage()
    like = torch.zeros(64 // micro, 32, requires_grad=rank > 0)
    travels = {"input_args": like, "output_args": torch.zeros_like(like, requires_grad=True)}
    wrapped = PipelineStage(stage, rank, 4, torch.device("cpu"), **travels)
    schedule = Schedule1F1B(wrapped, n_microbatches=micro, loss_fn=mse_loss)
    schedule.step(*[x] * (rank == 0), target=0 * x if rank == 3 else None)
    return [p.grad for p in stage.parameters()]


# %%
torchs = far.run(train_torchs)
show_pipeline(one_far, torchs, labels=["ours", "torch's"])

# %%
pairs = [pair for rank in range(4) for pair in zip(one_far.results[rank], torchs.results[rank])]
print("all gradients are equal:", all(torch.allclose(a, b) for a, b in pairs))

# %% [markdown]
# **Notice:** torch's 1F1B takes as long as your 1F1B. torch's schedules are also lists of
# operations, and both workers run the same list. torch's worker can also run several parts of a
# model on one rank.

# %% [markdown]
# **In words:** a model needs at least 16 ranks, and you may cut its batch into at most 32
# micro-batches. Which of your two schedules do you choose, and for which link? How much time and how
# much memory does this choice cost on each rank? Use numbers from `pipeline_time`.

# %% [markdown]
# *Your words:*

# %% [markdown]
# ## Optional: what fills a bubble
#
# So far, B was the whole backward. From here on, a backward has two parts: B computes the gradient of
# the input, and W computes the gradient of the weights. The previous rank waits for B, but no rank
# waits for W. So the **zero bubble** schedule (Qi et al., 2023) computes B at once, and computes W
# when the stage would otherwise wait.

# %% [markdown]
# `torch.autograd.grad(y, x, gradient)` computes the gradient of `x` alone, and frees the graph
# unless `retain_graph=True`. `y.backward(gradient, inputs=[...])` adds to the `.grad` of the listed
# tensors alone.


# %% exercise="split_backward"
def split_backward(y, x, gradient, parameters):
    """Return the gradient of `x`, and a function for the second part of the backward.

    `gradient` is the gradient of `y`. The function adds to the `.grad` of `parameters`, a list, and
    frees the graph. Before this function is called, compute nothing for the parameters. A parameter
    that `y` does not use keeps its `.grad`, which may be None.
    """
    # BEGIN SOLUTION
    (of_x,) = torch.autograd.grad(y, x, gradient, retain_graph=True)
    return of_x, lambda: y.backward(gradient, inputs=parameters)
    # END SOLUTION


# %% check="split_backward"
check(split_backward)

# %% [markdown]
# Your worker does not have to change. A stage that splits its own backward keeps the second part for
# later. A plan may be a generator, which can run this second part between two operations.


# %%
class Split(torch.autograd.Function):
    """A stage whose backward makes the gradient of its input, and leaves the rest in `later`."""

    @staticmethod
    def forward(ctx, x, whole):
        ctx.whole, ctx.micro, ctx.x = whole, whole.stage.passed, x.detach().requires_grad_()
        with torch.enable_grad():
            ctx.y = whole.stage(ctx.x)
        return ctx.y.detach()

    @staticmethod
    def backward(ctx, gradient):
        parameters = list(ctx.whole.parameters())
        of_x, rest = split_backward(ctx.y, ctx.x, gradient, parameters)
        ctx.whole.later[ctx.micro] = rest
        return of_x, None


# %%
class TakesHalf(Takes):
    """Takes half of the backward's time at the first call (B), and half at the second (W)."""

    @staticmethod
    def backward(ctx, gradient):
        ctx.kind = "W" if hasattr(ctx, "kind") else "B"
        busy(0.0025 * len(gradient), f"{ctx.kind}{ctx.micro}")
        return gradient, None


# %%
class SplitStage(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stage, self.later = Stage(), {}
        self.stage.takes = TakesHalf

    def forward(self, x):
        return Split.apply(x, self)

    def between(self, plan):
        """Yield the plan without its W; compute each W when the worker asks for the next operation."""
        for kind, i in plan:
            if kind == "W":
                self.later.pop(i)()
            else:
                yield kind, i


# %%
def train_split(plans, micro=8):
    rows = [x.requires_grad_() for x in torch.ones(64, 32).chunk(micro)]
    whole = SplitStage()
    plan = whole.between(plans[dist.get_rank()])
    pipeline_step(plan, whole, rows, [0 * x.detach() for x in rows], mse_loss, rows[0])
    return [p.grad for p in whole.parameters()]


# %% [markdown]
# **Predict:** forward, B and W take 20 ms each, so the bubble of 1F1B is now written $(p-1)(F+B+W)$.
# How much of the bubble can W fill? How long is a step?

# %% guess="zero_ms"
zero_ms = 8 * (20 + 20 + 20) + 3 * (20 + 20 - 20)  # your prediction, in ms

# %%
zero = pipeline_plans("zero bubble", 4, 8)
print("rank 3:", *(f"{kind}{i}" for kind, i in zero[3]))

# %%
filled = ranks.run(train_split, zero)
beside(zero_ms, filled.trace.duration_ms, "ms")
show_pipeline(better, filled, labels=["1F1B", "zero bubble"])

# %%
equal = [torch.allclose(a, b) for a, b in zip(better.results[0], filled.results[0])]
print("rank 0's gradients are equal:", all(equal))

# %% [markdown]
# **Notice:** the remaining bubble is $(p-1)(F+B-W)$, as Qi et al. write about their schedule
# ZB-H1. The column "held" shows the price: a micro-batch with a waiting W keeps its activations. But
# no rank holds more micro-batches than rank 0 holds in 1F1B.
#
# A schedule has three costs: the bubble, memory, and messages. Each of these schedules lowers one
# cost and raises another cost.

# %%
for name in ("gpipe", "1f1b", "interleaved", "zero bubble"):
    plans = pipeline_plans(name, 4, 8)
    parts = 2 if name == "interleaved" else 1  # two layers on a rank, each half as large
    trace = pipeline_time(plans, forward=0.02 / parts, backward=0.04 / parts)
    messages = sum(one.is_send for one in trace.spans)
    most = max(held(plan) for plan in plans) / parts
    print(f"{name:12} {trace.end_ns / 1e6:4.0f} ms, {messages:3} messages, {most:.1f} held at most")

# %% [markdown]
# **Notice:** in the interleaved schedule each rank has two parts of the model, each half as large:
# rank 0 has parts 0 and 4. The bubble is half as long as in 1F1B. But more than twice as many
# messages travel, and rank 0 holds more.
#
# torch has seven schedules. `ScheduleInterleavedZeroBubble` has two parts on each rank and a
# separate W. `ScheduleZBVZeroBubble` shares out the parts in a V: rank 0 has the first and the last
# part.

# %% [markdown]
# ## The way out
#
# This script uses torch's schedule. Each rank makes its own stage; the first rank gives the inputs,
# and the last rank gives the targets.
#
# ```python
# import torch, torch.distributed as dist
# from torch.distributed.pipelining import PipelineStage, Schedule1F1B
#
# dist.init_process_group("gloo")
# rank, last = dist.get_rank(), dist.get_world_size() - 1
# torch.manual_seed(rank)
# layer = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Tanh())
# optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
# stage = PipelineStage(layer, rank, last + 1, torch.device("cpu"))
# schedule = Schedule1F1B(stage, n_microbatches=8, loss_fn=torch.nn.functional.mse_loss)
# for step in range(4):
#     losses = []
#     if rank < last:
#         schedule.step(*[torch.ones(64, 32)] * (rank == 0))
#     else:
#         schedule.step(target=torch.zeros(64, 32), losses=losses)
#         print("loss", sum(losses).item() / 8)
#     optimizer.step()
#     optimizer.zero_grad()
# dist.destroy_process_group()
# ```
#
# `ddpkit run -n 4 --link "10 Gbit/s, 50 us" train.py` runs the script and shows where a rank waits.

# %% [markdown]
# ## In this lab you have
#
# - cut a model into stages, and seen that cutting alone makes nothing faster;
# - made micro-batches the pieces of a wavefront, and predicted the bubble to the millisecond;
# - written GPipe and 1F1B as lists of operations, and one worker that runs any such list;
# - used more memory to make the bubble smaller and to hide latency.
#
# **Next:** lab 12 cuts the layers themselves. You can also write a plan of your own.

# %% [markdown]
# **Before you hand in:** save, and run `ddpkit check --as-graded 11_pipeline.ipynb` in a terminal.
# This command checks your notebook in the same way as the grader, with other inputs, and shows the
# grader's result.
