# mypy: ignore-errors
"""Answers of lab 11 (pipeline).

Generated from solutions/11_pipeline.py by `make release`; do not edit.
"""

import torch
import torch.distributed as dist


def receive(like, src):
    """Receive the next tensor from rank `src`, as a new tensor with the shape of `like`."""
    x = torch.empty_like(like)
    dist.recv(x, src=src)
    return x


def ticks(stages: int, pieces: int) -> list[list[tuple[int, int]]]:
    """List the (stage, piece) pairs at work in each tick, in any order within a tick.

    In each tick, a piece is at one stage. Each stage takes the pieces in order, and no stage waits
    without need.
    """
    return [
        [(stage, t - stage) for stage in range(stages) if 0 <= t - stage < pieces]
        for t in range(stages + pieces - 1)
    ]


def rnn_layer(cell, xs, hidden) -> list:
    """Run this rank's layer of a recurrent net.

    On rank 0, `xs` is the sequence of inputs. On the other ranks, `xs` only gives the number, shape
    and dtype of the inputs. Send each output to the next rank as soon as the output is computed.
    The last rank returns the list of its outputs, and the other ranks return an empty list.
    """
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


def gpipe(stage: int, stages: int, micro: int) -> list[tuple[str, int]]:
    """Return the plan of a stage: first all forwards, then all backwards.

    Stages and micro-batches are counted from 0.
    """
    return [("F", i) for i in range(micro)] + [("B", i) for i in range(micro)]


def bubble(stages: int, micro: int) -> float:
    """Return the share of a step in which a stage does nothing, between 0 and 1."""
    return (stages - 1) / (micro + stages - 1)


def pipeline_step(plan, stage, inputs, targets, loss, like):
    """Run this rank's plan, a list or a generator of operations. `stage` is the rank's module.

    `like` has the shape and dtype of each message. The first rank has the micro-batches in the list
    `inputs`, which may be whole numbers. The last rank has the `targets`. The other lists may hold
    None. Every parameter's gradient grows by the gradient of the mean over micro-batches of
    `loss(output, target)`. The last rank returns the mean, the other ranks return None. A backward
    drops the output of its micro-batch, and the graph; only a detached message may be kept.
    """
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


def one_f_one_b(stage: int, stages: int, micro: int) -> list[tuple[str, int]]:
    """Return the plan of a stage.

    The plan begins with as few forwards as are needed. Then comes one backward after each forward,
    and at the end the backwards that are left. Every micro-batch has one forward and, later, one
    backward.
    """
    first = min(stages - 1 - stage, micro)
    plan = [("F", i) for i in range(first)]
    for i in range(micro - first):
        plan += [("F", first + i), ("B", i)]
    return plan + [("B", i) for i in range(micro - first, micro)]


def split_backward(y, x, gradient, parameters):
    """Return the gradient of `x`, and a function for the second part of the backward.

    `gradient` is the gradient of `y`. The function adds to the `.grad` of `parameters`, a list, and
    frees the graph. Before this function is called, compute nothing for the parameters. A parameter
    that `y` does not use keeps its `.grad`, which may be None.
    """
    (of_x,) = torch.autograd.grad(y, x, gradient, retain_graph=True)
    return of_x, lambda: y.backward(gradient, inputs=parameters)
