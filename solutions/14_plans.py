# ---
# jupyter:
#   ddpkit:
#     builds: a planner for replicas, stages and slices, and runs of its plans
#     minutes: 65
#     needs: labs 03, 06, 11 and 12
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
# # 14 · Plans
#
# **You will build** a planner. You give the planner a model and some machines, and the planner says
# how to train: the number of replicas, stages, slices and micro-batches. Then you run the planner's
# plan, and compare with other plans.
#
# **You need** labs 03, 06, 11 and 12. About 65 minutes.

# %%
import torch, torch.distributed as dist
from ddpkit import Cluster, beside, check, show

# %%
from itertools import product
from ddpkit.mesh import train_on_mesh
from ddpkit.simulate import MeshMachine, MeshModel, MeshPlan, plan_time
from ddpkit.view import compare, show_mesh, show_pipeline

# %% [markdown]
# ## Three ways to share
#
# You know three ways to train one model on several ranks:
#
# - **replicas** (lab 06): each has all layers, and its own part of the batch;
# - **stages** (lab 11): each has some layers, and the batch passes through in micro-batches;
# - **slices** (lab 12): each has a part of every layer, and the slices add up their results.
#
# Large models are trained in all three ways at once. Then a rank belongs to three groups.

# %% [markdown]
# Arrange eight ranks as a **mesh** of 2 × 2 × 2. Write the ranks down row by row: the last dimension
# varies fastest, so the ranks of a group along the last dimension are neighbours.
#
# **Predict:** which ranks are in a group with rank 5 along each dimension?

# %%
show_mesh({"replica": 2, "stage": 2, "slice": 2}, rank=5)

# %% [markdown]
# **Notice:** rank 5 is in three groups of two. Within each group one index changes, and two
# indices stay the same.

# %% [markdown]
# ## Your turn: the groups of a mesh
#
# In torch every rank has to create *all* groups, including the groups without that rank, in the same
# order (lab 10). Your function therefore returns all groups.


# %% exercise="groups_of"
def groups_of(shape: dict[str, int]) -> dict[str, list[list[int]]]:
    """Return the groups of ranks along each dimension of a mesh.

    `shape` has a name and a size for each dimension, such as {"replica": 2, "slice": 4}. Ranks are
    laid out row by row: the ranks of a group along the last dimension are neighbours. List the
    members of a group in rising order, and the groups of a dimension in any order.
    """
    # BEGIN SOLUTION
    mesh = torch.arange(torch.tensor(list(shape.values())).prod()).reshape(*shape.values())
    return {
        name: mesh.movedim(axis, -1).reshape(-1, shape[name]).tolist()
        for axis, name in enumerate(shape)
    }
    # END SOLUTION


# %% check="groups_of"
check(groups_of)

# %% [markdown]
# ## Our machines, and our model
#
# There are two hosts with two ranks each. Inside a host the link is fast; between the two hosts
# there is one slow link, which all ranks share. Each rank computes 50 GFLOP/s and has 10 MB of
# memory. All of these numbers are emulated, and the same on every laptop.

# %%
machine = MeshMachine(
    flops=50e9,
    memory=10_000_000,
    per_host=2,
    inside="10 Gbit/s, 20 us",
    between="1 Gbit/s, 200 us",
)
cluster = Cluster(4, machine=machine.machine, link=machine.link)

# %% [markdown]
# The model has four equal blocks: $x + W_2 \, \mathrm{relu}(W_1 x)$. A row of the batch has 128
# numbers between blocks, and 512 numbers inside a block. A step takes 1,024 rows.

# %%
model = MeshModel(blocks=4, width=128, hidden=512, batch=1024)

# %% [markdown]
# `train_on_mesh` combines your work of labs 06, 11 and 12, and uses a separate group for each
# technique. The stages run 1F1B, the slices add up their results in each block, and the replicas
# all-reduce their gradients in the last backward. (The code is in `ddpkit/mesh`, 250 lines.)
#
# torch's `init_device_mesh` creates and names the groups.

# %% [markdown]
# ## Which ranks are neighbours?
#
# Take two replicas of two slices. Either the slices of a replica share a host, and gradients travel
# between hosts. Or the replicas share a host, and the sums of the slices travel between hosts.
#
# **Predict:** both layouts send equally many bytes. Which layout is faster? Slices add up results
# twice in each block, but gradients travel only once in a step.

# %%
mixed = MeshPlan(replicas=2, slices=2)
slices_inside = cluster.run(train_on_mesh, mixed, model, order=("replica", "stage", "slice"))
slices_between = cluster.run(train_on_mesh, mixed, model, order=("slice", "stage", "replica"))
compare(slices_inside, slices_between, labels=["slices inside", "slices between"])


# %%
def megabytes(run, dimension):
    """Return the MB that rank 0 all-reduces in its group along a dimension."""
    spans = [one for one in run.trace.of(0) if one.kind == "comm"]
    own = [one for one in spans if str(one.args.get("group_desc", "")).startswith(dimension)]
    return sum(one.bytes for one in own) / 1e6


# %%
for about, run in (("slices inside", slices_inside), ("slices between", slices_between)):
    sums, gradients = megabytes(run, "slice"), megabytes(run, "replica")
    print(f"{about}: slices {sums:.2f} MB, gradients {gradients:.2f} MB")

# %% [markdown]
# **Notice:** both layouts send equally many bytes, but over different links. A slice waits
# for every sum, and computes nothing meanwhile, but the all-reduce of gradients can run during the
# backward. So the ranks of slices should be nearest to each other, then the ranks of stages, and
# then the ranks of replicas. Llama 3 lays out its 16,384 GPUs in this way ([Llama Team
# 2024](https://arxiv.org/abs/2407.21783), section 3.3.2).

# %%
show(slices_inside)

# %% [markdown]
# ## How long does a step take?
#
# A plan has a mesh and a number of micro-batches. Four ranks have dozens of plans, too many to run.
# So write down the time of a step as a sum. You know each term of the sum:
#
# | term | lab |
# |---|---|
# | a micro-batch forward and backward, in turns | 11 |
# | sums of slices, for each block | 12 |
# | messages between stages | 11 |
# | gradients, as far as backward does not hide them | 06 |

# %% [markdown]
# `machine` has methods that compute the times of messages. You give the number of ranks in a group,
# and the distance between neighbours in the group (`stride`): 1 for slices, the number of slices for
# stages, and slices × stages for replicas.
#
# - `machine.all_reduce(nbytes, ranks, stride)` returns the seconds of an all-reduce, by lab 03's
#   ring;
# - `machine.message(nbytes, ranks, stride)` returns the seconds of a message to the next stage.

# %% [markdown]
# Both methods know which groups fit into a host, and which groups share the link between hosts.

# %%
for ranks, stride in ((2, 1), (2, 2), (4, 1)):
    seconds = machine.all_reduce(1_000_000, ranks, stride)
    print(f"1 MB, {ranks} ranks, {stride} apart: {1e3 * seconds:.1f} ms")

# %% [markdown]
# **Turns.** With $m$ micro-batches and $p$ stages, a step has $m + p - 1$ turns. Each turn is a
# forward and a backward of one micro-batch on one stage. For each row and weight, a forward takes 2
# operations, and a backward takes 4.
#
# **Messages.** A micro-batch takes $2(p - 1)$ messages, forward and back. 1F1B keeps $p$
# micro-batches in flight, so these round trips follow each other $(m + p - 1)/p$ times (lab 11).

# %% [markdown]
# **Gradients.** A stage has $k$ blocks. The all-reduce of a block takes $g$, and the backward of a
# block takes $b$. The first all-reduce can start when one block's backward is done. So the rank
# still waits for
#
# $$ \max(g,\; k g - (k - 1)\, b) $$

# %% [markdown]
# **Shards.** Replicas may share the work of the optimizer: each replica keeps Adam's numbers for a
# part of the parameters, and updates only this part (ZeRO, [Rajbhandari et al.
# 2019](https://arxiv.org/abs/1910.02054)). Then a reduce-scatter replaces the all-reduce, so $g$ is
# half as long. After the optimizer's step, the replicas gather the parameters. For each block, the
# gather takes as long as the reduce-scatter.

# %% [markdown]
# ## Your turn: seconds of a step
#
# `plan` has `replicas`, `stages`, `slices`, `micro` and `shards`; `model` has `blocks`, `width`,
# `hidden` and `batch`; `machine` has `flops`. A number takes 4 bytes. The check tests the terms one
# after the other, and makes all other terms zero meanwhile. So begin with one term and check this
# term. The check asks for plans with little waiting, and allows 10 % more or less than the
# simulator's time.


# %% exercise="step_cost"
def step_cost(plan: MeshPlan, model: MeshModel, machine: MeshMachine) -> float:
    """Return the seconds of a plan's training step: the sum of the terms of the table."""
    # BEGIN SOLUTION
    rows = model.batch // (plan.replicas * plan.micro)
    blocks = model.blocks // plan.stages
    weights = 2 * model.width * model.hidden // plan.slices  # weights of a block, on a rank
    travels = 4 * rows * model.width
    added = machine.all_reduce(travels, plan.slices, 1)
    forward = 2 * rows * weights / machine.flops + added
    backward = 4 * rows * weights / machine.flops + added
    turns = plan.micro + plan.stages - 1
    step = turns * blocks * (forward + backward)
    trip = 2 * (plan.stages - 1) * machine.message(travels, plan.stages, plan.slices)
    step += trip * turns / plan.stages
    reduced = machine.all_reduce(4 * weights, plan.replicas, plan.stages * plan.slices)
    if plan.shards:
        reduced /= 2
        step += blocks * reduced
    return step + max(reduced, blocks * reduced - (blocks - 1) * backward)
    # END SOLUTION


# %% check="step_cost"
check(step_cost)

# %% [markdown]
# **Predict:** by your formula, how many ms does a step of two replicas of two slices take? The run
# above shows the measured time.


# %%
def step_ms(run):
    """Return the ms of the last step, on the rank where it took longest."""
    windows = [own[-1] for own in run.trace.step_windows.values() if own]
    return max((end - start for start, end in windows), default=0) / 1e6


# %%
if slices_inside.results[0] is not None:  # None under torchrun with too few ranks
    formula = 1e3 * step_cost(mixed, model, machine)
    simulated = plan_time(mixed, model, machine).duration_ms
    print(
        f"formula {formula:.2f} ms, simulator {simulated:.2f} ms, run {step_ms(slices_inside):.2f} ms"
    )

# %% [markdown]
# **Notice:** the simulator (`plan_time`) follows every message of a step, and the run agrees
# with the simulator to the nanosecond. The result of the formula is close here. But the formula only
# adds up terms, and does not know which terms overlap or wait for each other.

# %% [markdown]
# ## Does it fit?
#
# A parameter takes 16 bytes: 4 for its value, 4 for its gradient, and 8 for the two numbers that
# Adam keeps. With shards, each replica keeps Adam's 8 bytes only for its own part of the parameters.

# %% [markdown]
# For the backward of a block, a rank keeps activations: for each row the block's input (all of
# `width`), and the rank's own part of the hidden numbers. With 1F1B the first stage holds as many
# micro-batches as there are stages, or all micro-batches if there are fewer (lab 11).


# %% exercise="plan_bytes"
def plan_bytes(plan: MeshPlan, model: MeshModel) -> int:
    """Return the bytes of a first-stage rank: parameters, gradients, optimizer, activations.

    `model.parameters` is the number of parameters of the whole model.
    """
    # BEGIN SOLUTION
    mine = model.parameters // (plan.stages * plan.slices)
    state = 8 * mine + 8 * mine // (plan.replicas if plan.shards else 1)
    rows = model.batch // (plan.replicas * plan.micro)
    held = min(plan.stages, plan.micro)
    kept = model.width + model.hidden // plan.slices
    return state + held * (model.blocks // plan.stages) * rows * kept * 4
    # END SOLUTION


# %% check="plan_bytes"
check(plan_bytes)

# %% [markdown]
# **Predict:** four replicas have one micro-batch each. How many MB does a rank need? Do these MB fit
# into 10 MB?

# %% guess="needs_mb"
needs_mb = plan_bytes(MeshPlan(replicas=4), model) / 1e6  # your prediction, in MB

# %%
roomy = Cluster(4, machine="50 GFLOP/s", link=machine.link)
four = roomy.run(train_on_mesh, MeshPlan(replicas=4), model, steps=2)
if (peak := four.trace.peak(0)) is not None:  # None under torchrun with too few ranks
    beside(needs_mb, peak.total / 1e6, "MB at most, on ranks")

# %% [markdown]
# **Notice:** your number is exact for the parameters, gradients and Adam's numbers. The run
# needs 11 % more memory than your number, for temporary tensors such as the gradient that the
# backward is computing. So 10 MB are not enough: the next cell shows the error on our machines.

# %%
run = cluster.run(train_on_mesh, MeshPlan(replicas=4), model, steps=2, expect_error=True)

# %% [markdown]
# ## All plans at once
#
# Now let a program search: the planner goes through all plans of four ranks, skips the plans that do
# not fit, and takes the plan with the shortest step.


# %% tags=["answers"]
def divisors(n):
    """Return the numbers that divide n, in rising order."""
    return [d for d in range(1, n + 1) if n % d == 0]


# %% [markdown]
# ## Your turn: the planner
#
# A plan divides the model: stages divide the blocks, slices divide the hidden numbers, and replicas
# × micro divides the batch. Shards are useful only with two replicas or more.


# %% exercise="best_plan"
def best_plan(model: MeshModel, machine: MeshMachine, ranks: int, cost, size) -> MeshPlan:
    """Return the cheapest plan that uses all ranks and fits into memory.

    `cost(plan, model, machine)` is the time of a step. A plan fits if `size(plan, model)`, the
    bytes that a rank needs, is at most `machine.memory`. Raises ValueError if no plan fits.
    """
    # BEGIN SOLUTION
    fitting = []
    for replicas, stages, micro in product(divisors(ranks), divisors(ranks), divisors(model.batch)):
        if ranks % (replicas * stages) or model.blocks % stages or model.batch % (replicas * micro):
            continue
        for shards in (False, True) if replicas > 1 else (False,):
            plan = MeshPlan(replicas, stages, ranks // (replicas * stages), micro, shards)
            if model.hidden % plan.slices == 0 and size(plan, model) <= machine.memory:
                fitting.append(plan)
    if not fitting:
        raise ValueError(f"no plan of {ranks} ranks fits into {machine.memory} bytes")
    return min(fitting, key=lambda plan: cost(plan, model, machine))
    # END SOLUTION


# %% check="best_plan"
check(best_plan)

# %% [markdown]
# Your planner calls `cost` for every plan that fits. So a `cost` function that stores its results
# gives us a table of all plans.
#
# **Predict:** which plan is the fastest on two hosts of two ranks: a plan with replicas, stages or
# slices alone, or a mixture?

# %%
table = {}


def noted(plan, model, machine):
    table[plan] = step_cost(plan, model, machine)
    return table[plan]


chosen = best_plan(model, machine, 4, noted, plan_bytes)
ranking = sorted(table, key=table.get)
print(f"{len(ranking)} plans fit. By the formula:")
for each in ranking[:10]:
    simulated = plan_time(each, model, machine).duration_ms
    megabyte = plan_bytes(each, model) / 1e6
    print(f"{1e3 * table[each]:5.1f} ms, simulated {simulated:5.1f} ms, {megabyte:4.1f} MB: {each}")

# %% [markdown]
# **Notice:** the fastest plan by the formula is not the fastest by the simulator. With four
# stages, the formula's time is 6 to 20 % too short, and the times of neighbouring plans in the table
# differ by less. The formula takes almost no time, so use the formula for a first choice: keep the
# formula's twenty fastest plans. Then ask the simulator about these twenty.


# %%
def careful(plan, model, machine):
    """Return the simulator's seconds for the formula's best twenty plans; for all others, over 10
    s.
    """
    if plan in ranking[:20]:
        return plan_time(plan, model, machine).duration_ms / 1e3
    return 10 + step_cost(plan, model, machine)


chosen = best_plan(model, machine, 4, careful, plan_bytes)
print("chosen:", chosen)

# %% [markdown]
# ## Is it true?
#
# Only a run proves a plan. Run the planner's plan on real ranks, and the next five plans as well.
#
# **Predict:** is one of these five plans faster than the planner's plan?

# %%
near = sorted(ranking[:20], key=lambda plan: careful(plan, model, machine))[:6]
runs = {plan: cluster.run(train_on_mesh, plan, model, steps=2) for plan in near}
for each, run in runs.items():
    predicted = plan_time(each, model, machine).duration_ms
    print(f"{each!s:28} predicted {predicted:.2f} ms, run {step_ms(run):.2f} ms")

# %%
fastest = min(runs, key=lambda plan: step_ms(runs[plan]))
print("the fastest of the six is the planner's:", fastest == chosen)

# %% [markdown]
# **Notice:** the runs have the predicted order, although the planner has not run any plan.
# The planner's plan is a mixture, with slices inside each host and replicas between hosts. The next
# cell shows that all plans of the same model and batch have the same losses.

# %%
for each, run in runs.items():
    if run.results[0] is not None:  # None under torchrun with too few ranks
        losses = [sum(own[step] for own in run.results) / each.slices for step in (0, 1)]
        print(f"{each!s:28} loss {losses[0]:.4f}, then {losses[1]:.4f}")

# %% [markdown]
# For comparison, the next picture shows the best pipeline. During which parts of the step do its
# ranks wait?

# %%
pipeline = next(each for each in near if each.stages > 1)
show_pipeline(plan_time(pipeline, model, machine), labels=[str(pipeline)])

# %% [markdown]
# **Notice:** the ranks wait less while the pipeline fills and empties than in between. Ranks
# 1 and 2 are on different hosts, and each micro-batch crosses the slow link forward and back. The
# grey parts between the boxes show this wait.

# %% [markdown]
# **In words:** which change to the two hosts would make four replicas the best plan? Change one
# number of `machine`, or of `model`, and let your planner check your answer.

# %% [markdown]
# *Your words:*

# %% [markdown]
# ## 405 billion parameters
#
# Llama 3 405B was trained on 16,384 H100s, with eight H100s in each host. The next cell has a model
# of the same size. Its 128 blocks stand for Llama's 126 layers, the embedding and the output, and
# have 405 billion parameters together. A step takes 16 million tokens.

# %% [markdown]
# Llama's numbers have 2 bytes, but the numbers of our model have 4 bytes. So we double the bandwidth
# of the links, and the memory. Our GPUs reach 60 % of an H100's peak.
#
# **Predict:** how many slices, stages and replicas does the best plan have?

# %%
llama = MeshModel(blocks=128, width=16_384, hidden=96_560, batch=16_777_216)
gpus = MeshMachine(
    flops=600e12,
    memory=160 * 10**9,
    per_host=8,
    inside="7200 Gbit/s, 5 us",
    between="6400 Gbit/s, 20 us",
)

# %% [markdown]
# The search has two limits. Slices stay inside a host, because a ring across hosts would use only
# one of a host's eight network cards, and our machine does not model network cards. The second limit
# is that no plan cuts a sequence of 8,192 tokens.


# %%
def sized(plan, model):
    """Return the bytes of a plan; far too many bytes for a plan that the search must skip."""
    tokens = model.batch // (plan.replicas * plan.micro)
    wanted = plan.slices <= 8 and tokens and tokens % 8192 == 0
    return plan_bytes(plan, model) if wanted else 10**15


# %%
table.clear()
giant = best_plan(llama, gpus, 16_384, noted, sized)
for each in sorted(table, key=table.get)[:5]:
    print(f"{table[each]:5.1f} s, {plan_bytes(each, llama) / 2e9:3.0f} GB of 80: {each}")

# %% [markdown]
# **Notice:** the first plan of the table is Llama 3's own plan for such sequences: 8 slices,
# 16 stages and 128 replicas with sharded state ([Llama Team 2024](https://arxiv.org/abs/2407.21783),
# table 4). Plans with fewer stages would have a smaller bubble, but do not fit. Your formula leaves
# out attention, interleaved stages, checkpointing, and failures (lab 10).

# %% [markdown]
# ## Optional: one host is slower
#
# Machines are bought at different times, and the second host computes half as fast. (HetSeq, Ding et
# al. 2021, is a package that trains on such unequal hosts.)
#
# **Predict:** which plans become slowest? In which plans do fast ranks wait for slow ranks all the
# time?

# %%
slow = "25 GFLOP/s, 10 MB"
half = {"default": machine.machine, 2: slow, 3: slow}
unequal = Cluster(4, machine=half, link=machine.link)
for each in near:
    run = unequal.run(train_on_mesh, each, model, steps=2)
    print(f"{each!s:28} {step_ms(runs[each]):.1f} ms, now {step_ms(run):.1f} ms")

# %% [markdown]
# **Notice:** the first plan is still the fastest, but the order of the other plans has
# changed: a pipeline of small micro-batches slows down less than other plans. All plans slow down a
# lot, because they give equal shares of the work to unequal ranks. A planner for unequal ranks would
# give the slow host fewer rows, or fewer blocks (lab 10's `shares`).

# %% [markdown]
# ## Optional: sixteen ranks
#
# Run the same program on four hosts of four ranks, with 2 replicas, 2 stages and 4 slices.

# %%
wide = MeshMachine(50e9, 10_000_000, 4, "10 Gbit/s, 20 us", "1 Gbit/s, 200 us")
big = MeshPlan(replicas=2, stages=2, slices=4, micro=4)
sixteen = Cluster(16, machine=wide.machine, link=wide.link).run(train_on_mesh, big, model)
predicted = plan_time(big, model, wide).duration_ms
print(f"predicted {predicted:.2f} ms, run {step_ms(sixteen):.2f} ms")

# %%
show_mesh(big.shape, rank=5, per_host=4)

# %% [markdown]
# ## The same in torch
#
# torch has all parts of such a plan: a mesh with names, tensor parallelism along one dimension (lab
# 12), and `fully_shard` along a second dimension. `fully_shard` also shards parameters and
# gradients, and gathers each block before the block is used.
#
# **Predict:** take two replicas of two slices, as in your planner's plan. Is torch's version faster
# or slower?


# %%
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from ddpkit.mesh.training import waves  # train_on_mesh's data; Block has its weights


# %%
class Block(torch.nn.Module):
    def __init__(self, number):
        super().__init__()
        drawn = torch.Generator().manual_seed(number)
        self.up = torch.nn.Linear(128, 512, bias=False)
        self.down = torch.nn.Linear(512, 128, bias=False)
        self.up.weight.data = torch.randn(512, 128, generator=drawn) / 128**0.5
        self.down.weight.data = torch.randn(128, 512, generator=drawn) / 512**0.5

    def forward(self, x):
        return x + self.down(self.up(x).relu())


# %%
def torchs_net(mesh):
    net = torch.nn.Sequential(*map(Block, range(4)))
    for block in net:
        cut = {"up": ColwiseParallel(), "down": RowwiseParallel()}
        parallelize_module(block, mesh["slice"], cut)
        fully_shard(block, mesh=mesh["replica"])
    return fully_shard(net, mesh=mesh["replica"])  # otherwise, blocks keep parameters


# %%
def torchs():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "slice"))
    net, losses = torchs_net(mesh), []
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    first = 512 * mesh.get_local_rank("replica")
    x, y = (waves(range(first, first + 512), 128, phase) for phase in (0.0, 1.0))
    for _ in range(2):
        dist.barrier()
        optimizer.zero_grad()
        loss = (net(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [dist.get_process_group_ranks(mesh.get_group(each)) for each in (0, 1)]


# %%
run = cluster.run(torchs)
print(f"torch's {step_ms(run):.1f} ms")
show(run, step=1)

# %%
groups = groups_of({"replica": 2, "slice": 2}).values()
if None not in run.results:  # None under torchrun with too few ranks
    same = all(mine in all_of for _, own in run.results for mine, all_of in zip(own, groups))
    losses = [sum(own[step] for own, _ in run.results) / 4 for step in (0, 1)]
    print(f"groups as yours: {same}; loss {losses[0]:.4f}, then {losses[1]:.4f}")

# %% [markdown]
# **Notice:** torch has the same groups, and the same losses as your planner's plans above.
# torch's version is slower here: `fully_shard` gathers parameters between the hosts, before forward
# and again before backward (lab 13), and hides none of these gathers on a CPU. torch's version sends
# more bytes, and holds fewer bytes in memory.

# %% [markdown]
# ## The way out
#
# This program combines slices and replicas in plain torch. Each technique uses one dimension of a
# mesh.
#
# ```python
# import torch, torch.distributed as dist
# from torch.distributed.device_mesh import init_device_mesh
# from torch.distributed.fsdp import fully_shard
# from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
#
# dist.init_process_group("gloo")
# mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "tp"))
# torch.manual_seed(0)
# mlp = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))
# parallelize_module(mlp, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
# fully_shard(mlp, mesh=mesh["dp"])
# optimizer = torch.optim.AdamW(mlp.parameters(), lr=1e-3)
# x = torch.ones(32, 64)
# for step in range(3):
#     loss = (mlp(x) - 1).square().mean()
#     loss.backward()
#     optimizer.step()
#     optimizer.zero_grad()
# print("loss", loss.item())
# dist.destroy_process_group()
# ```

# %% [markdown]
# ## In this lab you have
#
# - laid out ranks as a mesh, and seen why the ranks of slices should be neighbours;
# - combined the formulas of four labs into one formula, and written a second formula for a rank's
#   memory;
# - written a planner, and compared its plan with the next five plans;
# - learned the limits of a formula: a formula sorts plans, and a simulator or a run decides.
#
# **Next:** lab 15, where you make a slow program fast.

# %% [markdown]
# **Before you hand in:** save, and run `ddpkit check --as-graded 14_plans.ipynb` in a terminal. This
# command checks your notebook in the same way as the grader, with other inputs, and shows the
# grader's result.
