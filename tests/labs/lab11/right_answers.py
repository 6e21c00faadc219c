"""Right answers to lab 11, different from the solution."""

import torch
import torch.distributed as dist

from tests.labs.answers import right

# ticks


@right("ticks")
def by_events(stages, pieces):
    """Move each piece by one stage a tick; a new piece enters while there are some."""
    found, under_way, entered = [], [], 0
    while True:
        under_way = [(stage + 1, piece) for stage, piece in under_way if stage + 1 < stages]
        if entered < pieces:
            under_way.append((0, entered))
            entered += 1
        if not under_way:
            return found
        found.append(under_way)


@right("ticks")
def of_a_table(stages, pieces):
    when = torch.arange(stages)[:, None] + torch.arange(pieces)
    return [(when == t).nonzero().tolist() for t in range(stages + pieces - 1)]


# rnn_layer


@right("rnn_layer")
def receives_ahead(cell, xs, hidden):
    rank, n = dist.get_rank(), dist.get_world_size()
    came = [dist.irecv(x, src=rank - 1) for x in xs] if rank else [None] * len(xs)
    outputs, works = [], []
    for x, work in zip(xs, came, strict=True):
        if work is not None:
            work.wait()
        hidden = cell(x, hidden)
        outputs.append(hidden)
        if rank + 1 < n:
            works.append(dist.isend(outputs[-1], rank + 1))
    [work.wait() for work in works]
    return outputs if rank == n - 1 else []


@right("rnn_layer")
def asks_for_the_next_one_early(cell, xs, hidden):
    rank, n = dist.get_rank(), dist.get_world_size()
    outputs, works, coming = [], [], None
    if rank:
        coming = dist.irecv(xs[0], rank - 1)
    for k, x in enumerate(xs):
        if rank:
            coming.wait()
            if k + 1 < len(xs):
                coming = dist.irecv(xs[k + 1], rank - 1)
        hidden = cell(x, hidden)
        if rank + 1 < n:
            works += dist.batch_isend_irecv([dist.P2POp(dist.isend, hidden, rank + 1)])
        else:
            outputs.append(hidden)
    for work in works:
        work.wait()
    return outputs


# gpipe


@right("gpipe")
def last_in_first_out(stage, stages, micro):
    forward = [("F", i) for i in range(micro)]
    return forward + [("B", i) for _, i in reversed(forward)]


@right("gpipe")
def in_a_loop(stage, stages, micro):
    plan = []
    for kind in "FB":
        for i in range(micro):
            plan.append((kind, i))
    return plan


# bubble


@right("bubble")
def counted(stages, micro):
    """Count a forward and a backward of equal length, tick by tick."""
    slots = stages + micro - 1
    return sum(1 for t in range(slots) if not 0 <= t - (stages - 1) < micro) / slots


@right("bubble")
def of_times(stages, micro, forward=20, backward=40):
    step = (micro + stages - 1) * (forward + backward)
    return 1 - micro * (forward + backward) / step


# one_f_one_b


@right("one_f_one_b")
def backward_first(stage, stages, micro):
    """Do one more forward at first; then B and F in turn."""
    ahead = min(stages - stage, micro)
    plan = [("F", i) for i in range(ahead)]
    for i in range(micro):
        plan.append(("B", i))
        if ahead + i < micro:
            plan.append(("F", ahead + i))
    return plan


@right("one_f_one_b")
def by_counting(stage, stages, micro):
    plan, forward, backward = [], 0, 0
    while backward < micro:
        if forward < micro and forward - backward < stages - stage:
            plan.append(("F", forward))
            forward += 1
        else:
            plan.append(("B", backward))
            backward += 1
    return plan


# pipeline_step


@right("pipeline_step")
def with_tags(plan, stage, inputs, targets, loss, like):
    """Send messages by tag, and drop each Work as soon as it is done."""
    rank, n = dist.get_rank(), dist.get_world_size()
    held, works, losses = {}, [], []
    for kind, i in plan:
        works = [work for work in works if not work.is_completed()]
        if kind == "F":
            x = inputs[i]
            if rank:
                x = torch.zeros_like(like, requires_grad=True)
                with torch.no_grad():
                    dist.recv(x, rank - 1, tag=i)
            y = stage(x)
            if rank + 1 < n:
                works.append(dist.isend(y.detach().clone(), rank + 1, tag=i))
            else:
                y = loss(y, targets[i])
                losses.append(y.detach())
            held[i] = (x, y)
            continue
        x, y = held[i]
        del held[i]
        if rank + 1 < n:
            gradient = torch.empty_like(y)
            dist.recv(gradient, rank + 1, tag=i)
            torch.autograd.backward(y, gradient)
        else:
            (y / len(targets)).backward()
        if rank:
            works.append(dist.isend(x.grad, rank - 1, tag=i))
        del x, y
    for work in works:
        work.wait()
    return torch.stack(losses).mean() if losses else None


@right("pipeline_step")
def in_batches(plan, stage, inputs, targets, loss, like):
    """Use `batch_isend_irecv` for each message."""
    rank, last = dist.get_rank(), dist.get_world_size() - 1

    def start(how, x, peer):
        (work,) = dist.batch_isend_irecv([dist.P2POp(how, x, peer)])
        return work

    held, sent, total = {}, [], 0.0
    for kind, i in plan:
        if kind == "F":
            x = inputs[i]
            if rank > 0:
                x = torch.empty_like(like)
                start(dist.irecv, x, rank - 1).wait()
                x.requires_grad_(True)
            y = stage(x)
            if rank == last:
                total += float(loss(y, targets[i])) / len(targets)
            else:
                sent.append(start(dist.isend, y.detach(), rank + 1))
            held[i] = x, y
        else:
            x, y = held.pop(i)
            if rank == last:
                (loss(y, targets[i]) / len(targets)).backward()
            else:
                gradient = torch.empty_like(y)
                start(dist.irecv, gradient, rank + 1).wait()
                y.backward(gradient)
            if rank > 0:
                sent.append(start(dist.isend, x.grad, rank - 1))
    for work in sent:
        work.wait()
    return total if rank == last else None


# split_backward


@right("split_backward")
def by_gradients(y, x, gradient, parameters):
    of_x = torch.autograd.grad([y], [x], [gradient], retain_graph=True)[0]

    def rest():
        found = torch.autograd.grad(y, parameters, gradient, allow_unused=True)
        for p, g in zip(parameters, found, strict=True):
            if g is not None:
                p.grad = g if p.grad is None else p.grad + g

    return of_x, rest


@right("split_backward")
def into_x(y, x, gradient, parameters):
    y.backward(gradient, retain_graph=True, inputs=[x])
    of_x, x.grad = x.grad, None
    return [of_x, lambda: torch.autograd.backward([y], [gradient], inputs=parameters)]
