"""Lab 17: experts of tokens and their weights, and choices within a capacity, in one process."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ddpkit.exercises.exercise import Observed

if TYPE_CHECKING:
    from ddpkit.exercises.guard import Answer

Choices = Tensor  # int64[token, k]


# route


class Routing:
    """Router logits, the number k of experts per token, a bias or None, and the right routing."""

    def __init__(
        self, rng: random.Random, tokens: int, experts: int, k: int, dtype: str, bias: bool
    ) -> None:
        self.k, self.experts, self.tokens = k, experts, tokens
        generator = torch.Generator().manual_seed(rng.randrange(10**9))
        kind = getattr(torch, dtype)
        self.bias = None
        while True:
            self.logits = torch.randn(tokens, experts, generator=generator).to(kind)
            self.probe = torch.randn(tokens, experts, generator=generator).to(kind)
            if not bias:
                break
            up, down = torch.randperm(experts, generator=generator)[:2].tolist()
            self.bias = torch.zeros(experts, dtype=kind)
            self.bias[up], self.bias[down] = 3.0, -3.0
            if (self.chosen() != self.logits.topk(k).indices).any():
                break

    def chosen(self) -> Choices:
        """Return the right experts of each token."""
        bias = 0.0 if self.bias is None else self.bias
        return (self.logits + bias).topk(self.k).indices

    def wide(self, weights: Tensor, chosen: Choices) -> Tensor:
        """Return the weights as a matrix [token, expert], with zeros for experts not chosen."""
        return torch.zeros_like(self.logits).scatter_add(1, chosen, weights.to(self.logits.dtype))

    def right(self) -> tuple[Tensor, Tensor]:
        """Return the weights [token, expert], and d sum(weights · probe) / d logits."""
        given = self.logits.clone().requires_grad_()
        chosen = self.chosen()
        weights = self.wide(given.gather(1, chosen).softmax(1), chosen)
        (gradient,) = torch.autograd.grad((weights * self.probe).sum(), given)
        return weights.detach(), gradient

    def models(self) -> Mapping[str, object]:
        """Return the weights [token, expert] that common mistakes give, by name of the mistake."""
        logits, k, chosen = self.logits, self.k, self.chosen()
        mine, unbiased = logits.gather(1, chosen), logits.topk(k).indices
        of_all = logits.softmax(1).gather(1, chosen)
        biased = logits if self.bias is None else logits + self.bias
        return {
            "of_all": self.wide(of_all, chosen),
            "over_tokens": self.wide(mine.softmax(0), chosen),
            "twice": self.wide(of_all.softmax(1), chosen),
            "biased": self.wide(biased.gather(1, chosen).softmax(1), chosen),
            "unbiased": self.wide(logits.gather(1, unbiased).softmax(1), unbiased),
            "all_biased": self.wide(biased.softmax(1).gather(1, chosen), chosen),
            "even": self.wide(torch.full_like(mine, 1 / k), chosen),
            "lowest": (-biased).topk(k).indices.sort(1).values,
            "right_choices": chosen.sort(1).values,
            "unbiased_choices": unbiased.sort(1).values,
            "k": k,
            "tokens": self.tokens,
            "experts": self.experts,
        }

    def read(self, observed: Observed) -> Observed:
        """Turn the answer's results into weights [token, expert]: the order of choices is free."""
        weights, chosen = observed["weights"], observed["chosen"]
        rest = {name: observed[name] for name in ("gradient of logits", "left alone")}
        shape = (self.tokens, self.k)
        tensors = isinstance(weights, torch.Tensor) and isinstance(chosen, torch.Tensor)
        if not tensors or weights.shape != shape or chosen.shape != shape:
            shapes = [list(getattr(each, "shape", ())) for each in (weights, chosen)]
            return {"weights by expert": "other shapes", "shapes": shapes, **rest}
        numbers = not chosen.is_floating_point() and weights.is_floating_point()
        if not numbers or chosen.min() < 0 or chosen.max() >= self.experts:
            return {"weights by expert": "no experts", **rest}
        if chosen.dtype != torch.int64:
            return {"weights by expert": "no int64", "dtype": str(chosen.dtype), **rest}
        same_kind = weights.dtype == self.logits.dtype
        wide = self.wide(weights, chosen.long())
        choices = chosen.long().sort(1).values
        return {"weights by expert": wide.to(weights.dtype) if not same_kind else wide,
                "choices": choices, **rest}  # fmt: skip


def routed(answer: Answer, logits: Tensor, k: int, bias: Any, probe: Any) -> Observed:
    """Return an answer's weights and choices, and the gradient of the logits.

    "left alone" is true if the arguments are unchanged.
    """
    given = logits.clone().requires_grad_()
    mine = None if bias is None else bias.clone()
    weights, chosen = answer(given, k) if bias is None else answer(given, k, mine)
    gradient = None
    if isinstance(weights, torch.Tensor) and weights.requires_grad:
        if weights.shape == chosen.shape == (len(logits), k):
            (weights * probe.gather(1, chosen.long())).sum().backward()
        gradient = given.grad
    kept = torch.equal(given, logits) and (mine is None or torch.equal(mine, bias))
    return {
        "weights": weights.detach() if isinstance(weights, torch.Tensor) else weights,
        "chosen": chosen,
        "gradient of logits": gradient,
        "left alone": kept,
    }


# within_capacity


def limited(answer: Answer, chosen: Choices, experts: int, capacity: int) -> Observed:
    """Return an answer's choices, and "left alone": true if `chosen` is unchanged."""
    given = chosen.clone()
    choices = answer(given, experts, capacity)
    return {"choices": choices, "left alone": torch.equal(given, chosen)}


def _in_turn(chosen: Choices, experts: int, capacity: int, order: list[tuple[int, int]]) -> Choices:
    kept, taken = chosen.clone(), [0] * experts
    for token, at in order:
        expert = int(chosen[token, at])
        if taken[expert] >= capacity:
            kept[token, at] = -1
        taken[expert] += 1
    return kept


def _first_first(chosen: Choices) -> list[tuple[int, int]]:
    tokens, k = chosen.shape
    return [(token, at) for at in range(k) for token in range(tokens)]


def within(chosen: Choices, experts: int, capacity: int) -> Choices:
    """Return the right choices: all first choices get places before any second choice."""
    return _in_turn(chosen, experts, capacity, _first_first(chosen))


def _by_token(chosen: Choices, experts: int, capacity: int) -> Choices:
    tokens, k = chosen.shape
    order = [(token, at) for token in range(tokens) for at in range(k)]
    return _in_turn(chosen, experts, capacity, order)


def _room_twice(chosen: Choices, experts: int, capacity: int) -> Choices:
    columns = [within(each[:, None], experts, capacity) for each in chosen.unbind(1)]
    return torch.cat(columns, dim=1)


def _last_first(chosen: Choices, experts: int, capacity: int) -> Choices:
    return _in_turn(chosen, experts, capacity, _first_first(chosen)[::-1])


def _second_choices_first(chosen: Choices, experts: int, capacity: int) -> Choices:
    return within(chosen.flip(1), experts, capacity).flip(1)


def _whole_token(chosen: Choices, experts: int, capacity: int) -> Choices:
    kept = within(chosen, experts, capacity)
    return kept.where((kept >= 0).all(1, keepdim=True), -1)


def _one_more(more: int, chosen: Choices, experts: int, capacity: int) -> Choices:
    return within(chosen, experts, capacity + more)


IDEAS: Mapping[str, Callable[..., Choices]] = {
    "by_token": _by_token,
    "room_twice": _room_twice,
    "last_first": _last_first,
    "second_first": _second_choices_first,
    "whole_token": _whole_token,
    "one_short": partial(_one_more, -1),
    "one_too_many": partial(_one_more, 1),
}


def drawn_choices(rng: random.Random, tokens: int, experts: int, k: int, capacity: int) -> Choices:
    """Draw choices for which the mistakes in `IDEAS` differ; most tokens choose expert 0 first.

    With one choice for each token, mistakes about second choices cannot differ.
    """
    while True:
        rows = []
        for _ in range(tokens):
            first = 0 if rng.random() < 0.6 else rng.randrange(experts)
            rest = [each for each in range(experts) if each != first]
            rows.append([first, *rng.sample(rest, k - 1)])
        chosen = torch.tensor(rows)
        made = [within(chosen, experts, capacity)]
        made += [idea(chosen, experts, capacity) for idea in IDEAS.values()]
        if k == 1 or len({tuple(each.flatten().tolist()) for each in made}) == len(made):
            return chosen
