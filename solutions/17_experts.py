# ---
# jupyter:
#   ddpkit:
#     builds: "a mixture of experts: routing, dispatch and combine, balance, gradients of experts"
#     minutes: 90
#     needs: labs 02, 04 and 12
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
# # 17 · Experts
#
# **You will build** a mixture of experts on several ranks: the router, the way of each token to its
# experts and back, the balance between experts, and the averaging of their gradients.
#
# **You need** labs 02, 04 and 12. About 90 minutes. Homes for experts, and the sections after them,
# may wait for another day.

# %%
import torch, torch.distributed as dist
from ddpkit import Cluster, beside, check, show, span

# %%
from torch import nn
from torch.nn.functional import one_hot

# %% [markdown]
# ## Eight networks, two for each token
#
# A larger model knows more, but each token costs more compute. A **mixture of experts** separates
# size and cost: the layer has many small networks, the **experts**, and each token uses only a few
# of them. DeepSeek-V3 has 671 billion parameters and uses 37 billion for a token ([DeepSeek-AI
# 2024](https://arxiv.org/abs/2412.19437)).

# %% [markdown]
# Our layer has eight experts. An expert is an MLP: 256 → 1,024 → 256 numbers. The seed of an expert
# is its number, so expert 3 is the same on every rank that makes it.


# %%
class Expert(nn.Sequential):
    def __init__(self, number, width=256, hidden=1024):
        with torch.random.fork_rng():
            torch.manual_seed(number)
            super().__init__(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width))


# %% [markdown]
# Each token takes two experts, and adds up their outputs with two weights. A **choice** is one pair
# of a token and an expert. For now the choices are stated, so that you can predict each run: token
# $t$ of rank $r$ takes expert $(t + r) \bmod 8$ and the next one. Each rank has 512 tokens.


# %%
def tokens(rank, count=512):
    drawn = torch.Generator().manual_seed(rank)
    x = torch.randn(count, 256, generator=drawn)
    return x, torch.rand(count, 2, generator=drawn).softmax(-1)


def even(rank, count=512):
    first = torch.arange(count) + rank
    return torch.stack([first, first + 1], dim=1) % 8


# %% [markdown]
# Here are two ways to compute the layer in one process. In `dense`, every expert computes every
# token, and tokens that have not chosen the expert get the weight 0. In `sparse`, an expert computes
# its own tokens alone.


# %%
def dense(experts, x, weights, chosen):
    parts = [(weights * (chosen == e)).sum(1, keepdim=True) for e in range(len(experts))]
    return sum(expert(x) * part for expert, part in zip(experts, parts))


def sparse(experts, x, weights, chosen):
    y = torch.zeros_like(x)
    for number, expert in enumerate(experts):
        token, at = (chosen == number).nonzero(as_tuple=True)
        y = y.index_add(0, token, expert(x[token]) * weights[token, at, None])
    return y


# %% [markdown]
# The machine of this lab computes 1 TFLOP/s, and only products of matrices take time. One token in
# one expert takes 4 · 256 · 1,024 FLOP: the expert has two layers with 256 · 1,024 weights each, and
# each weight takes one multiplication and one addition.
#
# **Predict:** how many ms does `sparse` take for 512 tokens? How many ms does `dense` take?

# %% guess="sparse_ms"
sparse_ms = 512 * 2 * 4 * 256 * 1024 / 1e12 * 1e3  # your prediction, in ms


# %%
@torch.no_grad()
def alone(layer):
    experts = nn.ModuleList(map(Expert, range(8)))
    held = sum(p.nbytes for p in experts.parameters())
    return layer(experts, *tokens(0), even(0)), held


# %%
one = Cluster(1, machine="1 TFLOP/s")
by_all, by_chosen = (one.run(alone, layer) for layer in (dense, sparse))
print(f"dense {by_all.trace.duration_ms:.2f} ms")
if by_all.results[0] is not None:  # None if a job under torchrun skips the run
    (y, held), (same, _) = by_all.results[0], by_chosen.results[0]
    print(f"equal: {torch.allclose(y, same, atol=1e-5)}; the experts hold {held / 1e6:.1f} MB")
beside(sparse_ms, by_chosen.trace.duration_ms, "ms")

# %% [markdown]
# **Notice:** the sparse layer holds eight experts, but computes only as much as two experts
# would. Memory is now the problem, not compute. So the experts will be shared out over the ranks.

# %% [markdown]
# ## Your turn: the router
#
# The **router** is a linear layer. For each token, the router gives one number for each expert, a
# **logit**. The token takes the k experts with the largest logits. The weights are the softmax of
# these k logits, as in Mixtral. A softmax over all experts, divided by its sum over the chosen
# experts, gives the same weights.

# %% [markdown]
# Without the division, the weights of a token add up to less than 1, and no error shows the mistake
# ([torchtitan #1448](https://github.com/pytorch/torchtitan/issues/1448)). `bias` changes only the
# choice, not the weights. You will need `bias` for the balance.


# %% exercise="route"
def route(logits, k, bias=None):
    """Return the weights and the numbers of each token's k experts, both [token, k].

    logits is [token, expert]. The k experts with the largest logits are chosen; `bias`, one number
    for each expert, is added for the choice alone. The weights are the softmax of the logits of
    the chosen experts, so the weights of a token add up to 1. The numbers are int64, in any order.
    """
    # BEGIN SOLUTION
    chosen = (logits if bias is None else logits + bias).topk(k, dim=-1).indices
    return logits.gather(-1, chosen).softmax(-1), chosen
    # END SOLUTION


# %% check="route"
check(route)

# %% [markdown]
# **Predict:** with k = 1 the weight of every token is 1. Does the router learn anything then?
#
# <details><summary>An answer</summary>
#
# The router learns nothing: the softmax of one number is 1, so the logits have no gradient. Switch
# Transformers choose one expert for each token. Therefore they take the softmax over all experts.
#
# </details>

# %% [markdown]
# ## Two experts on each rank
#
# Now four ranks share the experts: rank 0 has experts 0 and 1, rank 1 has experts 2 and 3, and so
# on. Each rank still has its own 512 tokens. A **row** is a token on its way to one expert: a token
# with two choices becomes two rows. **Dispatch** sends the rows to the experts, and **combine**
# brings the outputs home.

# %% [markdown]
# The exchange is an all-to-all with unequal parts: `all_to_all_single` takes two lists, the number
# of rows to each rank and the number of rows from each rank.
#
# **Predict:** a rank knows how many rows it sends to each rank. How does the rank learn how many
# rows will come?

# %% [markdown]
# First the ranks exchange the counts, in one small all-to-all. Then the ranks exchange the rows. The
# next cell has the exchange as a function of autograd.
#
# **Predict:** how do the gradients travel in the backward of a dispatch?


# %% tags=["answers"]
class Exchanged(torch.autograd.Function):
    """Forward: sends[r] rows go to rank r. Backward: the gradients of the rows come home."""

    @staticmethod
    def forward(ctx, rows, sends, takes, group=None):
        ctx.sends, ctx.takes, ctx.group = sends, takes, group
        coming = rows.new_empty(sum(takes), rows.shape[1])
        dist.all_to_all_single(coming, rows.contiguous(), takes, sends, group=group)
        return coming

    @staticmethod
    def backward(ctx, gradient):
        home = gradient.new_empty(sum(ctx.sends), gradient.shape[1])
        dist.all_to_all_single(home, gradient.contiguous(), ctx.sends, ctx.takes, ctx.group)
        return home, None, None, None


# %% [markdown]
# The gradient of a row travels back on the way of the row, so the two lists change places. So the
# backward of a dispatch is a combine without weights
# ([DeepEP](https://github.com/deepseek-ai/DeepEP)).

# %% [markdown]
# ## Your turn: dispatch
#
# `chosen.flatten()` has k places for each token, side by side. Sort the places by expert: then the
# rows for a rank lie side by side too, and the counts say where each part ends. Keep the order of
# the places, because `combine` needs the order.


# %% exercise="dispatch"
def dispatch(x, chosen, per_rank, group=None):
    """Send each token to the ranks of its experts; return (rows, local, ticket).

    x is [token, feature], and chosen is [token, k]; a choice of -1 goes nowhere. Rank r of the
    group has the experts from r * per_rank on. rows, [row, feature], are the tokens that arrive
    for this rank's experts; local, [row], is the number of each row's expert on this rank, from 0.
    Rows leave by expert, in any order within an expert, and gradients come back to x. The ticket is
    (order, sends, takes, group): the place in chosen.flatten() of each row sent, and lists of ints
    with the number of rows sent to each rank and taken from each rank.
    """
    # BEGIN SOLUTION
    n, k, flat = dist.get_world_size(group), chosen.shape[1], chosen.flatten()
    order = flat.argsort(stable=True)[int((flat < 0).sum()) :]
    sends = flat[order].bincount(minlength=n * per_rank).view(n, per_rank)
    takes = torch.empty_like(sends)
    dist.all_to_all_single(takes, sends, group=group)
    ticket = order, sends.sum(1).tolist(), takes.sum(1).tolist(), group
    rows = Exchanged.apply(x[order // k], *ticket[1:])
    local = torch.arange(per_rank).repeat(n).repeat_interleave(takes.flatten())
    return rows, local, ticket
    # END SOLUTION


# %% check="dispatch"
check(dispatch)

# %% [markdown]
# ## Your turn: combine
#
# The outputs come back in the order in which the rows left. Put each output at its place, multiply
# by the weight of the place, and add up the k places of each token.


# %% exercise="combine"
def combine(made, weights, ticket):
    """Return [token, feature]: the sum of the outputs of each token's experts, times the weights.

    made is [row, feature], in the order of the rows that `dispatch` returned; weights is
    [token, k]. A choice that went nowhere adds nothing. Gradients reach made and weights.
    """
    # BEGIN SOLUTION
    order, sends, takes, group = ticket
    back = Exchanged.apply(made, takes, sends, group)
    every = back.new_zeros(weights.numel(), back.shape[1]).index_copy(0, order, back)
    return (every.unflatten(0, weights.shape) * weights[..., None]).sum(1)
    # END SOLUTION


# %% check="combine"
check(combine)

# %% [markdown]
# `dispatch` and `combine` together make a layer. An expert without rows computes an empty tensor; a
# later section shows the reason.


# %%
def computed(experts, rows, local):
    """Return the experts' outputs for their rows."""
    with span("experts"):  # a bar in the picture
        made = torch.zeros_like(rows)
        for number, expert in enumerate(experts):
            made[local == number] = expert(rows[local == number])
        return made


# %%
class Experts(nn.Module):
    def __init__(self, count):
        super().__init__()
        per_rank = count // dist.get_world_size()
        first = dist.get_rank() * per_rank
        self.mine = nn.ModuleList(Expert(first + i) for i in range(per_rank))

    def forward(self, x, weights, chosen):
        rows, local, ticket = dispatch(x, chosen, len(self.mine))
        return combine(computed(self.mine, rows, local), weights, ticket)


# %%
four = Cluster(4, machine="1 TFLOP/s", link="25 Gbit/s, 5 us")


@torch.no_grad()
def layer(choose):
    return Experts(8)(*tokens(dist.get_rank()), choose(dist.get_rank()))


def as_one_process(run, choose):
    if None not in run.results:  # None under torchrun with too few ranks
        experts = nn.ModuleList(map(Expert, range(8)))
        right = [dense(experts, *tokens(rank), choose(rank)) for rank in range(4)]
        same = all(map(torch.allclose, run.results, right, [1e-5] * 4, [1e-5] * 4))
        print("every rank's result is that of one process:", same)


# %% [markdown]
# **Predict:** each rank computes 1,024 rows, as one process did for 512 tokens. Three quarters of
# the rows travel to another rank, and their outputs travel back. A row has 256 numbers of 4 bytes,
# and the link carries 3.125 GB/s. How many ms does the layer take?

# %% guess="even_ms"
even_ms = 1.074 + 2 * 3 / 4 * 1024 * 256 * 4 / 3.125e9 * 1e3  # your prediction, in ms

# %%
evenly = four.run(layer, even)
as_one_process(evenly, even)
show(evenly)
beside(even_ms, evenly.trace.duration_ms, "ms")

# %% [markdown]
# **Notice:** the first thin bar is the exchange of the counts. The rest of the difference
# from the prediction is latency: an all-to-all of four ranks takes three rounds.

# %% [markdown]
# ## Experts or replicas?
#
# Lab 06 kept the whole model on every rank and summed the *gradients*. Here only *rows* travel:
# there and back in the forward, and there and back in the backward. With $T$ tokens on each of $n$
# ranks, a rank sends
#
# $$ \text{replicas: } 2\cdot\tfrac{n-1}{n}\cdot 8 \cdot 2 \cdot 256 \cdot 1024 \cdot 4\,\text{B}
#    \qquad \text{experts: } 4 \cdot \tfrac{n-1}{n}\cdot 2 T \cdot 256 \cdot 4\,\text{B} $$
#
# **Predict:** at how many tokens on each rank do both send equally many bytes?

# %% guess="balance"
balance = 8 * 1024 / 2  # your prediction, in tokens


# %%
def with_experts(count=512):
    x, weights = tokens(dist.get_rank(), count)
    y = Experts(8)(x.requires_grad_(), weights, even(dist.get_rank(), count))
    y.square().mean().backward()


def with_replicas(count=512):
    x, weights = tokens(dist.get_rank(), count)
    experts = nn.ModuleList(map(Expert, range(8)))
    y = sparse(experts, x.requires_grad_(), weights, even(dist.get_rank(), count))
    y.square().mean().backward()
    for p in experts.parameters():
        dist.all_reduce(p.grad)


# %%
PARTS = {"all_to_all_single": 3 / 4, "all_reduce": 2 * 3 / 4}


def megabytes(run):
    counts = run.traffic.collectives(0)
    return sum(PARTS.get(name, 0) * each.bytes for name, each in counts.items()) / 1e6


replicas, experts = four.run(with_replicas), four.run(with_experts)
for about, run in (("replicas", replicas), ("experts", experts)):
    print(f"{about}: {megabytes(run):.2f} MB sent, {run.trace.duration_ms:.2f} ms a step")
if megabytes(experts):
    beside(balance, 512 * megabytes(replicas) / megabytes(experts), "tokens on each rank")

# %% [markdown]
# **Notice:** replicas send equally many bytes for every batch, and experts send more bytes
# with each token. A replica holds all eight experts; here a rank holds two. With more experts,
# replicas send more bytes, but the bytes of the rows stay the same: these bytes depend on the number
# of tokens and on k.

# %% [markdown]
# ## A hot expert
#
# A router can prefer an expert. Now every token takes expert 0 first, and one of the other seven
# experts in turn.


# %%
def hot(rank, count=512):
    t = torch.arange(count)
    return torch.stack([torch.zeros_like(t), 1 + (t + rank) % 7], dim=1)


# %%
from ddpkit.view import show_routing

counts = [hot(rank).flatten().bincount(minlength=8) for rank in range(4)]
show_routing(counts)

# %% [markdown]
# **Predict:** rank 0 computes the rows of experts 0 and 1; 586 of these rows are its own tokens. A
# row takes 1.049 us in an expert. All rows for rank 0 go through rank 0's link, there and back. How
# many ms does the layer take?

# %% guess="hot_ms"
hot_ms = 2341 * 1.049e-3 + 2 * (2341 - 586) * 1024 / 3.125e9 * 1e3  # your prediction, in ms

# %%
hotly = four.run(layer, hot)
as_one_process(hotly, hot)
show(hotly)
beside(hot_ms, hotly.trace.duration_ms, "ms")

# %% [markdown]
# **Notice:** the layer takes more than twice as long, for the same number of rows. All ranks
# wait for rank 0 twice: first for its experts, and then for its link, which has to send most of the
# outputs.

# %% [markdown]
# ## Your turn: a capacity
#
# A **capacity** is the largest number of choices that an expert takes: the expert drops all further
# choices. A dropped choice becomes -1 and adds nothing; in a real model, the residual connection
# still carries the token past the layer. The **capacity factor** is the capacity divided by the mean
# number of choices of an expert. First choices matter most, so an expert takes all first choices
# before any second choice.


# %% exercise="within_capacity"
def within_capacity(chosen, experts, capacity):
    """Return the choices, with -1 for each choice that its expert has no room for.

    chosen is [token, k]. An expert takes `capacity` choices: first the tokens' first choices in
    the order of the tokens, then the second choices, and further choices in the same way.
    """
    # BEGIN SOLUTION
    flat = chosen.T.flatten()  # all first choices, then all second choices
    place = one_hot(flat, experts).cumsum(0).gather(1, flat[:, None]).squeeze(1)
    return flat.where(place <= capacity, -1).view_as(chosen.T).T
    # END SOLUTION


# %% check="within_capacity"
check(within_capacity)

# %% [markdown]
# Each rank applies the capacity to its own tokens. At factor 1, an expert takes 512 · 2 / 8 = 128
# choices from each rank.
#
# **Predict:** expert 0 has all 2,048 first choices. Which share of all 4,096 choices is dropped, in
# percent?

# %% guess="dropped"
dropped = (2048 - 4 * 128) / 4096 * 100  # your prediction, in percent


# %%
@torch.no_grad()
def with_capacity(factor):
    chosen = within_capacity(hot(dist.get_rank()), 8, int(128 * factor))
    Experts(8)(*tokens(dist.get_rank()), chosen)
    return (chosen < 0).sum().item()


# %%
lost = {}
for factor in (1, 1.25, 2):
    run = four.run(with_capacity, factor)
    lost[factor] = sum(filter(None, run.results)) / 4096 * 100
    print(f"factor {factor:4}: {lost[factor]:.1f} % dropped, {run.trace.duration_ms:.2f} ms")
beside(dropped, lost[1], "% of the choices dropped, at factor 1")

# %% [markdown]
# **Notice:** a capacity limits the time, and the price is dropped choices. Even a router
# without a favourite drops some choices at factor 1, because drawn counts scatter around their mean:

# %%
drawn = torch.randn(512, 8, generator=torch.Generator().manual_seed(7))
_, chosen = route(drawn, 2)
for factor in (1, 1.25):
    lost = (within_capacity(chosen, 8, int(128 * factor)) < 0).float().mean().item()
    print(f"factor {factor:4}: {100 * lost:.1f} % dropped")

# %% [markdown]
# **In words:** your training drops 8 % of its choices at a capacity factor of 1.25. Which
# changes would you make, in which order, and how much does each change cost?

# %% [markdown]
# *Your words:*

# %% [markdown]
# ## A router that spreads
#
# There are two ways to teach balance to a router. A **balance loss** has a gradient that moves the
# logits. A **bias** is added to the logits for the choice alone; it falls for busy experts, and
# rises for the others.

# %% [markdown]
# The balance loss of Switch Transformers is
#
# $$ \text{experts} \cdot \sum_e f_e \, p_e $$
#
# Here $f_e$ is the share of the choices that expert $e$ gets, and $p_e$ is the mean probability of
# expert $e$. Counts have no gradient, so the gradient comes through $p_e$: a busy expert becomes less
# probable.

# %% [markdown]
# **Predict:** each rank's batch has a topic of its own. Should the loss use the shares of each rank
# alone, or the shares of all ranks?
#
# <details><summary>An answer</summary>
#
# The loss should use the shares of all ranks. Balance on each rank would force every topic onto all
# experts, and no expert could learn a topic. Qwen3 counts over the global batch ([Qiu et al.
# 2025](https://arxiv.org/abs/2501.11873)).
#
# </details>

# %% [markdown]
# ## Your turn: the balance loss


# %% exercise="balance_loss"
def balance_loss(probabilities, chosen):
    """Return experts * sum of (share of the choices of an expert) * (its mean probability).

    probabilities, [token, expert], and chosen, [token, k], are this rank's. The shares are shares
    of the choices of all ranks, which have equally many tokens. The mean probability is this rank's
    own: then the average of the ranks' gradients is the gradient of the loss of all tokens. The
    loss is 1 if shares and probabilities are even.
    """
    # BEGIN SOLUTION
    experts = probabilities.shape[1]
    count = chosen.flatten().bincount(minlength=experts)
    dist.all_reduce(count)
    return experts * (count / count.sum() * probabilities.mean(0)).sum()
    # END SOLUTION


# %% check="balance_loss"
check(balance_loss)

# %% [markdown]
# ## Your turn: the bias
#
# The balance loss also disturbs the gradients of the model's own loss. DeepSeek-V3 therefore moves a
# bias after each step: up for experts with fewer choices than the mean, and down for experts with
# more ([Wang et al. 2024](https://arxiv.org/abs/2408.15664)). All ranks need the same bias. Count in
# integers: in bfloat16, 4,004 and 3,998 are the same number.


# %% exercise="nudged"
def nudged(bias, chosen, rate):
    """Return the bias of the next step: `rate` more for experts with fewer choices than the mean.

    The bias is `rate` less for experts with more choices than the mean, and stays the same for
    experts with exactly the mean. The choices of all ranks count. The old bias stays as it is.
    """
    # BEGIN SOLUTION
    count = chosen.flatten().bincount(minlength=len(bias))
    dist.all_reduce(count)
    return bias + rate * (count.double().mean() - count).sign().to(bias.dtype)
    # END SOLUTION


# %% check="nudged"
check(nudged)

# %% [markdown]
# Each rank gets 512 tokens around a topic of its own, and a fixed router. The measure is the load of
# the busiest expert divided by the mean load, over all ranks; 1 is even.
#
# **Predict:** the bias moves by a rate of 0.02, 0.1 or 0.5 in each step. With which rate is the load
# most even after 60 steps?


# %%
def topic():
    drawn = torch.Generator().manual_seed(dist.get_rank())
    return torch.randn(512, 32, generator=drawn) + 1.5 * torch.randn(32, generator=drawn)


def new_router():
    torch.manual_seed(7)
    return nn.Linear(32, 8, bias=False)


def busiest(chosen):
    count = chosen.flatten().bincount(minlength=8).double()
    alone = (count.max() / count.mean()).item()
    dist.all_reduce(count)
    return (count.max() / count.mean()).item(), alone


# %%
@torch.no_grad()
def with_bias(rate, steps=61):
    x, router, bias, loads = topic(), new_router(), torch.zeros(8), []
    for _ in range(steps):
        _, chosen = route(router(x), 2, bias)
        loads.append(busiest(chosen)[0])
        bias = nudged(bias, chosen, rate)
    return loads


# %%
import matplotlib.pyplot as plt

plt.style.use("ddpkit.view.plain")
plt.figure(figsize=(6, 3))
for rate in (0.02, 0.1, 0.5):
    loads = Cluster(4).run(with_bias, rate).results[0] or []  # None under torchrun
    plt.plot(loads, label=f"rate {rate}")
    print(f"rate {rate:4}:", ", ".join(f"{each:.2f}" for each in loads[::20]))
plt.xlabel("step"), plt.ylabel("busiest ÷ mean"), plt.ylim(1), plt.legend()
plt.show()

# %% [markdown]
# **Notice:** a small rate takes longer and comes closest. A large rate jumps over the
# balance, and then back, forever.
#
# Next, the balance loss alone trains the router: once with the shares of all ranks, and once with
# the shares of each rank alone.
#
# **Predict:** on each single rank, the busiest expert has about 3.5 times the mean at first. How
# many times the mean does the busiest expert have after each training?


# %%
def with_loss(loss, steps=61):
    x, router, loads = topic(), new_router(), []
    for _ in range(steps):
        logits = router(x)
        _, chosen = route(logits, 2)
        loads.append(busiest(chosen))
        router.zero_grad()
        loss(logits.softmax(-1), chosen).backward()
        dist.all_reduce(router.weight.grad)
        router.weight.data -= 0.5 * router.weight.grad / dist.get_world_size()
    return loads[0], loads[-1]


def on_each_rank(probabilities, chosen):
    share = chosen.flatten().bincount(minlength=8) / chosen.numel()
    return 8 * (share * probabilities.mean(0)).sum()


# %%
for about, loss in (("all ranks", balance_loss), ("each rank", on_each_rank)):
    found = [each for each in Cluster(4).run(with_loss, loss).results if each]
    for step, ends in zip((0, 60), zip(*found)):
        alone = ", ".join(f"{own:.2f}" for _, own in ends)
        print(f"balanced over {about}, step {step:2}: {ends[0][0]:.2f}; on each rank {alone}")

# %% [markdown]
# **Notice:** in both trainings the load over all ranks becomes more even: from 2.46 to 1.46
# and 1.35. With the counts of all ranks, each topic keeps its favourite experts: about twice the mean
# on each rank. With the counts of each rank alone, the loads on the single ranks become more even
# too, so most topics lose their own experts.

# %% [markdown]
# ## Nobody comes to rank 3
#
# In the next run, no token chooses the experts of rank 3. The code skips experts without rows, to
# save time.
#
# **Predict:** does the backward work?


# %%
def only_with_rows(experts, rows, local):
    made = torch.zeros_like(rows)
    for number, expert in enumerate(experts):
        if (local == number).any():
            made[local == number] = expert(rows[local == number])
    return made


def nobody_there(compute):
    torch.manual_seed(0)
    x, router = torch.randn(8, 16).requires_grad_(), nn.Linear(16, 8)
    hidden = torch.tensor([0.0] * 6 + [-9.0] * 2)
    weights, chosen = route(router(x) + hidden, 2)
    mine = nn.ModuleList(Expert(2 * dist.get_rank() + i, 16, 32) for i in range(2))
    rows, local, ticket = dispatch(x, chosen, 2)
    combine(compute(mine, rows, local), weights, ticket).square().mean().backward()
    return [p.grad is not None for p in mine.parameters()]


# %%
run = Cluster(4).run(nobody_there, only_with_rows, expect_error=True)

# %% [markdown]
# **Notice:** on rank 3, no output depends on an expert. So the backward of rank 3 never
# reaches the exchange, and the other ranks wait for rank 3 forever. The error shows up only when a
# rank happens to have no rows ([Automodel
# #1365](https://github.com/NVIDIA-NeMo/Automodel/pull/1365), [DeepSpeed
# #5066](https://github.com/microsoft/DeepSpeed/issues/5066)). `computed` also calls
# the experts without rows, with an empty tensor:

# %%
run = Cluster(4).run(nobody_there, computed)
print("rank 3 has gradients:", run.results[3])

# %% [markdown]
# ## More ranks than experts
#
# With more ranks than experts, several ranks have the same experts. A **mesh** arranges the ranks in
# a grid (lab 14). Take a mesh of 2 × 2 with four experts: the dimension `ep` shares out the experts,
# and the ranks along `same` hold the same experts.

# %%
from ddpkit.view import show_mesh

show_mesh({"same": 2, "ep": 2}, rank=1)

# %% [markdown]
# **Predict:** rank 1's experts see the rows of ranks 0 and 1. Over which ranks do you sum their
# gradients, and by which number do you divide?

# %% [markdown]
# ## Your turn: average gradients
#
# The loss of a step is the mean of the four ranks' losses. The router is on all ranks. Rank 1 and
# rank 3 have the same experts, with different rows. On rank 1, backward has already added the
# gradients of rank 0's rows: the result is a sum, not a mean.


# %% exercise="average_gradients"
def average_gradients(shared, experts, same):
    """Make each parameter's .grad the gradient of the mean of all ranks' losses.

    The parameters `shared` are on every rank. The parameters `experts` are on this rank, and on the
    other ranks of the group `same`; their gradients already include the rows of other ranks. A
    parameter without a gradient had no row: its gradient is 0.
    """
    # BEGIN SOLUTION
    for parameters, group in ((shared, None), (experts, same)):
        for p in parameters:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            dist.all_reduce(p.grad, group=group)
            p.grad /= dist.get_world_size()
    # END SOLUTION


# %% check="average_gradients"
check(average_gradients)

# %% [markdown]
# Now train on the mesh for three steps, and compare with one process that has all four experts and
# all tokens.


# %%
from torch.distributed.device_mesh import init_device_mesh


def small(rank):
    return torch.randn(64, 16, generator=torch.Generator().manual_seed(rank))


def a_step(router, experts, y, average):
    y.square().mean().backward()
    average(list(router.parameters()), list(experts.parameters()))
    for p in [*router.parameters(), *experts.parameters()]:
        p.data -= 0.1 * p.grad
        p.grad = None


def small_router():
    torch.manual_seed(0)
    return nn.Linear(16, 4, bias=False)


# %%
def on_a_mesh(average):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("same", "ep"))
    same, ep = mesh.get_group("same"), mesh.get_group("ep")
    router, x = small_router(), small(dist.get_rank())
    mine = nn.ModuleList(Expert(2 * dist.get_rank(ep) + i, 16, 32) for i in range(2))
    for _ in range(3):
        weights, chosen = route(router(x), 2)
        rows, local, ticket = dispatch(x, chosen, 2, ep)
        y = combine(computed(mine, rows, local), weights, ticket)
        a_step(router, mine, y, lambda shared, own: average(shared, own, same))
    return [p.detach().clone() for p in mine.parameters()]


# %%
def in_one_process():
    router, experts = small_router(), nn.ModuleList(Expert(e, 16, 32) for e in range(4))
    x = torch.cat([small(rank) for rank in range(4)])
    for _ in range(3):
        y = sparse(experts, x, *route(router(x), 2))
        a_step(router, experts, y, lambda *_: None)
    return [p.detach() for p in experts.parameters()]


# %%
def by_same(shared, experts, same):
    average_gradients(shared, experts, same)
    for p in experts:
        p.grad *= dist.get_world_size() / dist.get_world_size(same)


def moved(parameters):
    start = [p for e in range(4) for p in Expert(e, 16, 32).parameters()]
    return sum((one - other).norm().item() for one, other in zip(parameters, start))


# %%
right = in_one_process()
for about, average in (("yours", average_gradients), ("divided by `same`", by_same)):
    ranks = Cluster(4).run(on_a_mesh, average).results
    if ranks[0] is not None:  # None under torchrun with too few ranks
        trained = ranks[0] + ranks[1]  # the four experts
        same = all(torch.allclose(a, b, atol=1e-5) for a, b in zip(trained, right))
        far = moved(trained) / moved(right)
        print(f"{about}: as one process: {same}; the experts moved {far:.2f} times as far")

# %% [markdown]
# **Notice:** the wrong divisor makes the steps of all experts too large, and the training
# goes on without a complaint. Published libraries have had this mistake ([DeepSpeed
# #5259](https://github.com/microsoft/DeepSpeed/pull/5259), [pytorch
# #160285](https://github.com/pytorch/pytorch/issues/160285)). With Adam, the loss does not show
# the wrong factor, but the norm for clipping does.

# %% [markdown]
# **In words:** an all-reduce over *all* ranks would make the experts' gradients equal on all ranks.
# Why is that a disaster, and why does the loss not show the disaster at once?

# %% [markdown]
# *Your words:*

# %% [markdown]
# ## A second home
#
# After training, when a model is in use, no bias moves any more. Instead, a hot expert can get
# several **copies**, which share its rows. A **slot** is the room for one copy on a rank. With three
# slots on each of four ranks, one copy of each of eight experts leaves four slots for more copies.
#
# **Predict:** expert 0 has half of all rows. How many of the 12 slots should expert 0 get?

# %% [markdown]
# ## Your turn: homes for experts
#
# Like DeepSeek's load balancer ([EPLB](https://github.com/deepseek-ai/EPLB)), `place` first decides
# how many copies each expert gets, and then chooses a rank for each copy.


# %% exercise="place"
def place(load, ranks, slots):
    """Return for each rank the experts in its `slots`: a list of lists of numbers.

    load[e] is the number of rows of expert e. Each expert has at least one copy, and its copies
    share its rows equally; a rank may have several copies of an expert. No slot is left empty. The
    busiest rank has at most 3 % more rows than with this method: add one copy, again and again, for
    the expert with the most rows per copy; then give each copy, heaviest first, to the rank with
    the fewest rows that has a free slot.
    """
    # BEGIN SOLUTION
    copies = [1] * len(load)
    for _ in range(ranks * slots - len(load)):
        copies[max(range(len(load)), key=lambda e: load[e] / copies[e])] += 1
    parts = sorted((load[e] / copies[e], e) for e in range(len(load)) for _ in range(copies[e]))
    places, total = [[] for _ in range(ranks)], [0.0] * ranks
    for part, expert in reversed(parts):
        rank = min((r for r in range(ranks) if len(places[r]) < slots), key=lambda r: total[r])
        places[rank].append(expert)
        total[rank] += part
    return places
    # END SOLUTION


# %% check="place"
check(place)

# %% [markdown]
# `Placed` has an expert in each slot. `slots_of` turns the choices of experts into choices of slots:
# the tokens use the copies of an expert in turn.


# %%
def slots_of(chosen, places):
    every, slots = torch.tensor(places).flatten(), torch.empty_like(chosen)
    for expert in range(8):
        homes = (every == expert).nonzero().flatten()
        token, at = (chosen == expert).nonzero(as_tuple=True)
        slots[token, at] = homes[token % len(homes)]
    return slots


class Placed(nn.Module):
    def __init__(self, places):
        super().__init__()
        self.places, self.mine = places, nn.ModuleList(map(Expert, places[dist.get_rank()]))

    def forward(self, x, weights, chosen):
        slots = slots_of(chosen, self.places)
        rows, local, ticket = dispatch(x, slots, len(self.mine))
        return combine(computed(self.mine, rows, local), weights, ticket)


# %% [markdown]
# **Predict:** the layer took 1.62 ms with even choices. How many ms does the layer take with the hot
# expert and three slots on each rank? How many ms does it take with four slots?


# %%
@torch.no_grad()
def with_homes(places):
    return Placed(places)(*tokens(dist.get_rank()), hot(dist.get_rank()))


load = sum(counts).tolist()
for slots in (2, 3, 4):
    places = place(load, 4, slots)
    run = four.run(with_homes, places)
    print(f"{slots} slots: {run.trace.duration_ms:.2f} ms, {places}")
as_one_process(run, hot)

# %% [markdown]
# **Notice:** four extra slots halve the time, and the next four slots gain little. Copies
# cost memory. In a training, copies also cost an all-reduce: the ranks with copies of an expert form
# a group, like `same` above.

# %% [markdown]
# ## Two hosts
#
# Take 16 experts, eight for each token, on two hosts of two ranks. A token has about four of its
# experts on the other host, so `dispatch` sends the token across the thin link four times.

# %%
hosts = Cluster(
    4,
    machine="1 TFLOP/s",
    link={"hosts of": 2, "inside": "100 Gbit/s, 5 us", "between": "10 Gbit/s, 20 us"},
)


def eight_each(rank):
    drawn = torch.Generator().manual_seed(rank)
    x = torch.randn(256, 256, generator=drawn)
    weights, chosen = route(torch.randn(256, 16, generator=drawn), 8)
    return x, weights, chosen


# %% [markdown]
# Your functions can do better. A token crosses *once*, with its choices and weights, to the rank
# with the same number on the other host. That rank dispatches the token inside its host, combines
# the outputs there, and sends one sum back. `rail` is the group of the two ranks with the same
# number.


# %%
def by_hosts(x, weights, chosen, experts, rail, host):
    hosts, k = dist.get_world_size(rail), chosen.shape[1]
    here = len(experts) * dist.get_world_size(host)  # experts of a host
    wanted = one_hot(chosen // here, hosts).amax(1).bool()
    to = torch.arange(hosts).where(wanted, -1)  # each host once
    packed = torch.cat([x, chosen.to(x.dtype), weights], dim=1)
    rows, _, ticket = dispatch(packed, to, 1, rail)
    rows, picks, parts = rows.split([x.shape[1], k, k], dim=1)
    picks = picks.long() - dist.get_rank(rail) * here
    picks = picks.where((picks >= 0) & (picks < here), -1)
    inner, local, again = dispatch(rows, picks, len(experts), host)
    some = combine(computed(experts, inner, local), parts, again)  # this host's sum
    return combine(some, torch.ones(to.shape), ticket), ticket[1]


# %% [markdown]
# **Predict:** four ranks have 256 tokens each. In two steps, a token crosses once, with 256 numbers,
# 8 choices and 8 weights; 256 numbers come back. How many MB cross the link between the hosts?

# %% guess="two_mb"
two_mb = 4 * 256 * (272 + 256) * 4 / 1e6  # your prediction, in MB


# %%
@torch.no_grad()
def across(two_steps):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("host", "rank"))
    host, inputs = dist.get_rank() // 2, eight_each(dist.get_rank())
    mine = nn.ModuleList(Expert(4 * dist.get_rank() + i) for i in range(4))
    if two_steps:
        y, sends = by_hosts(*inputs, mine, mesh.get_group("host"), mesh.get_group("rank"))
        return y, sends[1 - host] * (272 + 256) * 4 / 1e6
    x, weights, chosen = inputs
    rows, local, ticket = dispatch(x, chosen, 4)
    y = combine(computed(mine, rows, local), weights, ticket)
    gone = sum(ticket[1]) - sum(ticket[1][2 * host : 2 * host + 2])
    return y, gone * (256 + 256) * 4 / 1e6


# %%
from ddpkit.view import compare

flat, in_two = hosts.run(across, False), hosts.run(across, True)
if None not in flat.results:  # None under torchrun with too few ranks
    mb = [sum(each for _, each in run.results) for run in (flat, in_two)]
    same = all(
        torch.allclose(a, b, atol=1e-5) for (a, _), (b, _) in zip(flat.results, in_two.results)
    )
    print(f"flat {mb[0]:.2f} MB, in two steps {mb[1]:.2f} MB; equal outputs: {same}")
    beside(two_mb, mb[1], "MB between the hosts")
compare(flat, in_two, labels=["flat", "in two steps"])

# %% [markdown]
# **Notice:** in two steps, only a quarter of the bytes cross the thin link. More bytes
# travel inside the hosts, where the link is wide. DeepEP's kernels forward rows in this way, and
# DeepSeek-V3's router takes the experts of a token from at most four hosts ([DeepSeek-AI
# 2025](https://arxiv.org/abs/2505.09343), section 4.3).

# %% [markdown]
# ## Work beside a dispatch
#
# DeepSeek-V3 has one more expert on every rank, the **shared expert**, which every token takes. Its
# rows do not travel. So a rank can compute the shared expert while the other rows are on their way.
#
# **Predict:** how many ms does this order save? A dispatch takes three rounds. Each round has a
# latency of 5 us and carries 256 of the 1,024 rows.

# %% guess="saved_ms"
saved_ms = 3 * (256 * 1024 / 3.125e9 + 5e-6) * 1e3  # your prediction, in ms


# %%
from ddpkit import step


@torch.no_grad()
def with_shared(meanwhile):
    x, weights = tokens(dist.get_rank())
    mine, shared = Experts(8).mine, Expert(8)
    _, local, ticket = dispatch(x, even(dist.get_rank()), 2)  # only for the order and the counts
    order, sends, takes, _ = ticket
    with step():
        rows, leaving = x.new_empty(sum(takes), 256), x.repeat_interleave(2, 0)[order]
        work = dist.all_to_all_single(rows, leaving, takes, sends, async_op=True)
        early = shared(x) if meanwhile else None
        work.wait()
        y = combine(computed(mine, rows, local), weights, ticket)
        return y + (early if meanwhile else shared(x))


# %%
after, meanwhile = four.run(with_shared, False), four.run(with_shared, True)
compare(after, meanwhile, labels=["shared expert at the end", "while the rows travel"])


# %%
def step_ms(run):
    windows = [own[0] for own in run.trace.step_windows.values() if own]
    return max((end - start for start, end in windows), default=0) / 1e6


beside(saved_ms, step_ms(after) - step_ms(meanwhile), "ms saved")

# %% [markdown]
# **Notice:** the shared expert takes twice as long as the dispatch, so all of the dispatch
# is hidden.
#
# **Predict:** which work could hide the combine?
#
# <details><summary>An answer</summary>
#
# The attention of another micro-batch could hide the combine: DualPipe runs the forward of one
# micro-batch at the same time as the backward of another micro-batch (lab 11).
#
# </details>

# %% [markdown]
# ## Published numbers
#
# Bytes divided by bandwidth explain the times of real machines too. DeepEP's page gives the time of
# a dispatch of 128 tokens to 8 experts each. A token has 7,168 numbers of 1 byte, and a 4-byte scale
# for each 128 numbers. The network card carries 98 GB/s.
#
# **Predict:** how many us does the dispatch take?

# %% guess="dispatch_us"
dispatch_us = 128 * 8 * (7168 + 7168 / 128 * 4) / 98e9 * 1e6  # your prediction, in us

# %%
beside(dispatch_us, 77, "us, by DeepEP's page")

# %% [markdown]
# DeepSeek computes the least time of a token in its own model
# ([2025](https://arxiv.org/abs/2505.09343), section 2.3.2). In each of 61 layers, (1 + 2) bytes · 32
# tokens · 9 · 7,000 numbers travel twice, at 50 GB/s.
#
# **Predict:** where do the 1, the 2 and the 9 come from?
#
# <details><summary>An answer</summary>
#
# A number has 1 byte on the way to the experts and 2 bytes on the way back. The 9 stands for eight
# routed experts and the shared expert.
#
# </details>

# %%
a_layer = 2 * (1 + 2) * 32 * 9 * 7000 / 50e9
print(f"{61 * a_layer * 1e3:.2f} ms for each token, {1 / (61 * a_layer):.1f} tokens a second")

# %% [markdown]
# ## The way out
#
# This program trains a mixture of experts in plain torch, with one expert on each rank:
#
# ```python
# import torch, torch.distributed as dist
# from torch.distributed._functional_collectives import all_to_all_single_autograd as exchange
#
# dist.init_process_group("gloo")
# rank, n = dist.get_rank(), dist.get_world_size()
# torch.manual_seed(0)
# router = torch.nn.Linear(16, n, bias=False)  # the same on all ranks
# torch.manual_seed(rank)
# expert, x = torch.nn.Linear(16, 16), torch.randn(64, 16)  # this rank's own
# best, chosen = router(x).topk(2)
# order = chosen.flatten().argsort(stable=True)  # places of choices, by expert
# takes = torch.empty(n, dtype=torch.int64)
# dist.all_to_all_single(takes, chosen.flatten().bincount(minlength=n))
# there, home = takes.tolist(), chosen.flatten().bincount(minlength=n).tolist()
# rows = exchange(x[order // 2], there, home, dist.group.WORLD)
# back = exchange(expert(rows), home, there, dist.group.WORLD) * best.softmax(-1).flatten()[order, None]
# y = torch.zeros_like(x).index_add(0, order // 2, back)
# y.square().mean().backward()
# print("rank", rank, "had", len(rows), "rows; gradient", expert.weight.grad.norm().item() / n)
# dist.destroy_process_group()
# ```

# %% [markdown]
# ## In this lab you have
#
# - routed tokens to experts, and sent rows through an unequal exchange;
# - found the batch at which experts and replicas send equally many bytes;
# - balanced a router by a loss and by a bias;
# - given experts the right gradients, even experts without rows;
# - placed copies of a hot expert, and crossed a thin link once for each token.
#
# **Next:** a model of your own, under `ddpkit run`, on a cluster that you name.

# %% [markdown]
# **Before you hand in:** save, and run `ddpkit check --as-graded 17_experts.ipynb` in a terminal.
# This command checks your notebook in the same way as the grader, with other inputs, and shows the
# grader's result.
