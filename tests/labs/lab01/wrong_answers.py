"""Wrong answers to lab 01."""

import torch

from ddpkit import answers
from tests.labs.answers import edits, wrong
from tests.labs.lab01.right_answers import by_backward, by_data

SHUFFLE = "torch.randperm(n, generator=generator)"

# fmt: off
edits(
    ("minibatches", "in_order", SHUFFLE, "torch.arange(n)", "not shuffled"),
    ("minibatches", "from_the_middle_on", SHUFFLE, "torch.arange(n).roll(seed)", "not shuffled"),
    ("minibatches", "shuffled_inside",
     {SHUFFLE: "torch.arange(n)", "list(order.split(batch_size))":
      "[each[torch.randperm(len(each), generator=generator)] for each in order.split(batch_size)]"},
     "not shuffled"),
    ("minibatches", "whole_batches_move",
     {SHUFFLE: "torch.arange(n)", "list(order.split(batch_size))":
      "[order.split(batch_size)[i] for i in torch.randperm(-(-n // batch_size), "
      "generator=generator)]"}, "not shuffled"),
    ("minibatches", "fills_the_last", "    return list(order",
     "    order = torch.cat([order, order[: -n % batch_size]])\n    return list(order", "put back"),
    ("minibatches", "seeds_everybody_back", "    return list(order",
     "    torch.manual_seed(0)\n    return list(order", "global seed"),
    ("minibatches", "from_1_to_n", SHUFFLE, f"{SHUFFLE} + 1", "out of range"),
    ("minibatches", "from_1_to_n_less_1", SHUFFLE, "torch.randperm(n - 1, generator=generator) + 1",
     "missing"),
    ("minibatches", "with_replacement", "randperm(n,", "randint(n, (n,),", "put back"),
    ("minibatches", "drops_the_last",
     "order.split", "order[: n - n % batch_size].split", "last left out"),
    ("minibatches", "evenly", "split(batch_size)", "tensor_split(-(-n // batch_size))", "sizes"),
    ("minibatches", "floats", "order.split", "order.float().split", "not int64"),
    ("minibatches", "unseeded", ", generator=generator", "", "seed not enough"),
    ("minibatches", "seeds_everybody",
     {"generator = torch.Generator()": "torch", ", generator=generator": ""}, "global seed"),
    ("minibatches", "one_seed_for_all", "manual_seed(seed)", "manual_seed(0)", "seed ignored"),
    ("minibatches", "ten_seeds_for_all", "manual_seed(seed)", "manual_seed(seed % 10)",
     "seed ignored"),
    ("minibatches", "two_seeds_for_all", "manual_seed(seed)", "manual_seed(seed % 2)",
     "seed ignored"),
    ("minibatches", "one_at_a_time", "list(order.split(batch_size))",
     "(batch for batch in order.split(batch_size))", "no list"),
    ("sgd_step", "uphill", "p -= lr * v", "p += lr * v", "uphill"),
    ("sgd_step", "no_lr", "p -= lr * v", "p -= v", "no lr"),
    ("sgd_step", "not_in_place", "p -= lr * v", "p = p - lr * v", "unchanged"),
    ("sgd_step", "scales_the_velocity", "p -= lr * v", "p -= v.mul_(lr)", "v *= lr"),
    ("sgd_step", "damped", "v + g for", "v + (1 - momentum) * g for", "damped"),
    ("sgd_step", "no_momentum", "momentum * v + g", "g + 0 * v", "no momentum"),
    ("sgd_step", "lr_in_the_velocity",
     {"v + g for": "v + lr * g for", "p -= lr * v": "p -= v"}, "lr inside"),
    ("sgd_step", "forgets", "    return velocities", "", "returned None"),
    ("sgd_step", "returns_the_parameters", "return velocities", "return parameters[:1]",
     "not returned"),
    ("sgd_step", "differentiates_the_step", "with torch.no_grad()", "if True", "differentiated"),
    ("sgd_step", "no_first_step", "velocities is None", "False", "no first step"),
    ("sgd_step", "first_gradient_twice", "torch.zeros_like(g)", "g", "velocity"),
    ("accumulate", "one_at_a_time", "return total", "return (t for t in total)", "no list"),
    ("accumulate", "yields", "return total", "yield from total", "no list"),
    ("accumulate", "plain_mean", "len(y) / images", "1 / len(micro_batches)", "plain mean"),
    ("accumulate", "sum", "len(y) / images", "1", "added up"),
    ("accumulate", "summed_loss", "len(y) / images", "len(y)", "summed loss"),
    ("accumulate", "as_if_all_were_long", "len(y) / images",
     "len(y) / max(len(y) for _, y in micro_batches) / len(micro_batches)", "share"),
    ("accumulate", "takes_a_step", "    return total",
     "    for p, t in zip(parameters, total):\n        p.data -= 0.1 * t\n    return total",
     "parameters changed"),
    ("accumulate", "takes_a_step_each_time", "t += g * (len(y) / images)",
     "t += g * (len(y) / images)\n        for p, g in zip(parameters, gradients):\n"
     "            p.data -= 0.1 * g", "parameters changed"),
    ("accumulate", "keeps_the_last", "t += g * (len(y) / images)", "t.copy_(g)", "only the last"),
)
edits(  # the first velocity is the gradient's own tensor, and then changes in place
    ("sgd_step", "velocity_is_the_gradient",
     "[g.clone() for g in gradients]", "list(gradients)", "gradients changed"),
    of=by_data,
)
edits(
    ("accumulate", "into_an_old_grad", "        p.grad = None", "        pass", "old grad"),
    ("accumulate", "clears_each_time", "        (loss",
     "        for p in parameters:\n            p.grad = None\n        (loss", "cleared each time"),
    of=by_backward,
)
edits(
    ("sgd_step", "new_memory", "p.data -= lr * v", "p.data = p.data - lr * v", "not in place"),
    of=by_data,
)
# fmt: on


VELOCITIES = []


@wrong("sgd_step", "in turn")
def velocities_are_kept(parameters, gradients, lr, momentum=0.0, velocities=None):
    if velocities is None:
        VELOCITIES[:] = [torch.zeros_like(g) for g in gradients]
    VELOCITIES[:] = [momentum * v + g for v, g in zip(VELOCITIES, gradients, strict=True)]
    with torch.no_grad():
        for p, v in zip(parameters, VELOCITIES, strict=True):
            p -= lr * v
    return list(VELOCITIES)


@wrong("accumulate", "graphs held")
def sum_of_losses(loss, parameters, micro_batches):
    weighted = [loss(x, y) * y.shape[0] for x, y in micro_batches]
    total = torch.stack(weighted).sum() / sum(y.shape[0] for _, y in micro_batches)
    return list(torch.autograd.grad(total, parameters))


@wrong("accumulate", "graphs held")
def graph_of_the_gradients(loss, parameters, micro_batches):
    """A gradient that can be differentiated again keeps the graph that made it."""
    images = sum(len(y) for _, y in micro_batches)
    total = [torch.zeros_like(p) for p in parameters]
    for x, y in micro_batches:
        found = torch.autograd.grad(loss(x, y), parameters, create_graph=True)
        total = [t + g * len(y) / images for t, g in zip(total, found, strict=True)]
    return [t.detach() for t in total]


@wrong("accumulate", "all at once")
def all_at_once(loss, parameters, micro_batches):
    x, y = (torch.cat(parts) for parts in zip(*micro_batches, strict=True))
    return list(torch.autograd.grad(loss(x, y), parameters))


@wrong("accumulate", "other pieces")
def image_by_image(loss, parameters, micro_batches):
    images = [image for x, y in micro_batches for image in zip(x.split(1), y.split(1), strict=True)]
    return answers.get("accumulate")(loss, parameters, images)


@wrong("sgd_step", "no first step")
def asks_the_parameters(parameters, gradients, lr, momentum=0.0, velocities=None):
    velocities = velocities or [torch.zeros_like(g) for g in gradients]
    velocities = [momentum * v + p.grad for v, p in zip(velocities, parameters, strict=True)]
    with torch.no_grad():
        for p, v in zip(parameters, velocities, strict=True):
            p -= lr * v
    return velocities


@wrong("accumulate", "not all")
def the_first_alone(loss, parameters, micro_batches):
    return list(torch.autograd.grad(loss(*micro_batches[0]), parameters))
