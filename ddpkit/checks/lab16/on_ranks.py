"""Lab 16: functions that run answers on a rank, with recorded calls of `attend` and `back`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ddpkit.checks.shared.functions import FORWARD, passed
from ddpkit.exercises.guard import Answer, returning, values
from ddpkit.rank.record.marks import span

Notes = list[tuple[int, float]]  # a pair for each block: source, first number of k


# One block: the keys of a single rank


def block(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the output and the log-sum-exp of attention from q to these keys alone."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    lse = scores.logsumexp(-1, keepdim=True)
    return (scores - lse).exp().nan_to_num() @ v, lse


def block_back(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, of_out: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of q, k and v that come from attention to these keys alone."""
    scale = q.shape[-1] ** -0.5
    scores = q @ k.mT * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    p = (scores - lse).exp()
    of_scores = p * (of_out @ v.mT - (of_out * out).sum(-1, keepdim=True)) * scale
    return of_scores @ k, of_scores.mT @ q, p.mT @ of_out


def _mask(places: Sequence[Tensor], source: int, causal: bool) -> Tensor | None:
    return places[dist.get_rank()][:, None] >= places[source] if causal else None


def _noted(notes: Notes, k: Tensor, source: int) -> None:
    notes.append((int(source), k.flatten()[0].item()))


# ring_attention


def ringed(
    answer: Answer, q: Tensor, k: Tensor, v: Tensor, places: Sequence[Tensor], causal: bool
) -> dict[str, object]:
    """Return the answer's output and log-sum-exp, and the notes of the calls of `attend`."""
    notes: Notes = []

    def attend(q: Tensor, k: Tensor, v: Tensor, source: int) -> tuple[Tensor, Tensor]:
        _noted(notes, k, source)
        return block(q, k, v, _mask(places, source, causal))

    with span(FORWARD):
        out, lse = values(returning(answer)(q, k, v, attend, list(map(len, places))), 2)
    return {"output": out, "lse": lse, "notes": notes}


def ringed_lean(
    answer: Answer, q: Tensor, k: Tensor, v: Tensor, places: Sequence[Tensor]
) -> dict[str, object]:
    """Return the answer's output with an `attend` of little memory, which takes all scores as 0."""

    def attend(q: Tensor, k: Tensor, v: Tensor, source: int) -> tuple[Tensor, Tensor]:
        lse = q.new_full((*q.shape[:-1], 1), float(k.shape[1])).log()
        return v.mean(1, keepdim=True).expand(*q.shape), lse

    with span(FORWARD):
        out, _ = values(returning(answer)(q, k, v, attend, list(map(len, places))), 2)
    return {"output": out}


# ring_gradients


def ringed_back(
    answer: Answer,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rest: tuple[Tensor, Tensor, Tensor],
    places: Sequence[Tensor],
    causal: bool,
) -> dict[str, object]:
    """Return the answer's three gradients, and the notes of the calls of `back`.

    `rest` has the output, its log-sum-exp, and the gradient of the output.
    """
    notes: Notes = []

    def back(q: Tensor, k: Tensor, v: Tensor, source: int) -> tuple[Tensor, Tensor, Tensor]:
        _noted(notes, k, source)
        return block_back(q, k, v, *rest, _mask(places, source, causal))

    with span(FORWARD):
        found = returning(answer)(q, k, v, back, list(map(len, places)))
    of_q, of_k, of_v = values(found, 3)
    return {"of q": of_q, "of k": of_k, "of v": of_v, "notes": notes}


def ringed_back_lean(
    answer: Answer, q: Tensor, k: Tensor, v: Tensor, places: Sequence[Tensor]
) -> dict[str, object]:
    """Return the answer's gradients with a `back` of little memory, which returns simple values.

    The values are q times (source + 1), k, and v.
    """

    def back(q: Tensor, k: Tensor, v: Tensor, source: int) -> tuple[Tensor, Tensor, Tensor]:
        return q * (source + 1.0), k * 1.0, v * 1.0

    with span(FORWARD):
        found = returning(answer)(q, k, v, back, list(map(len, places)))
    of_q, of_k, of_v = values(found, 3)
    return {"of q": of_q, "of k": of_k, "of v": of_v}


# ByHeads


def by_heads(answer: Answer, x: Tensor, gradient: Tensor, sizes: list[int]) -> dict[str, object]:
    """Return the result of `passed`, and the gradient if ctx has only the attribute `sizes`.

    In its forward, the lesson's `ByTokens` calls the answer's backward with such a ctx. If the
    backward raises an error, the name of the error is in the place of the gradient. If all ranks
    have equally many tokens, the numbers of x have another order in memory than in x.
    """
    if len(set(sizes)) == 1:
        x = x.transpose(0, 2).contiguous().transpose(0, 2)
    seen = passed(answer, x, gradient, sizes)
    try:
        apply: Any = _Backward.apply
        seen["with sizes alone"] = apply(gradient.clone(), answer, list(sizes))
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        seen["with sizes alone"] = type(error).__name__
    return seen


class _Backward(torch.autograd.Function):
    """An autograd function with a forward that calls an answer's backward; ctx has only `sizes`."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, answer: Any, sizes: list[int]) -> object:
        ctx.sizes = sizes
        return answer.backward(ctx, gradient)[0]


# share_of_loss


def shared(answer: Answer, losses: Tensor, counted: object) -> dict[str, object]:
    """Return the gradient of the losses, and "finite": true if the answer's loss is finite."""
    given = losses.clone().requires_grad_()
    number = returning(answer)(given, counted)
    number.backward()
    finite = bool(torch.isfinite(number.detach()).all())
    return {"gradient": given.grad, "finite": finite}
