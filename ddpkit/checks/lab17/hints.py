"""Lab 17: the hints for routing, dispatch, combine and capacity, a table for each exercise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ddpkit.exercises.compare import same
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.exercises.ranks import who
from ddpkit.exercises.values import Close
from ddpkit.text import size


def is_model(found: Sequence[object], model: Sequence[object]) -> bool:
    """True if each rank's value equals the value that a mistake gives, up to rounding."""
    if isinstance(model, list):
        return all(same(one, Close(other)) for one, other in zip(found, model, strict=True))
    return same(found, Close(model))


def right_but(s: Seen, *names: str) -> bool:
    """True if at least one of these values is wrong, and no other value."""
    return s.wrong(*names) and not s.wrong(*(name for name in s.expect if name not in names))


def too_much(s: Seen, phase: str) -> tuple[int, int] | None:
    """Return (sent bytes, allowed bytes) for the first rank that sends too much in this phase."""
    pairs = zip(s[f"sent {phase}"], s.expect[f"sent {phase}"], strict=True)
    return next(((got, due.most) for got, due in pairs if got > due.most), None)


def sends_more(s: Seen) -> str | None:
    """Return a sentence about a right answer that sends too much; None for any other answer."""
    phases = [name.removeprefix("sent ") for name in s.expect if name.startswith("sent ")]
    if not right_but(s, *(f"sent {phase}" for phase in phases)):
        return None
    found = next((each for each in (too_much(s, phase) for phase in phases) if each), None)
    if found is None:
        return None
    ours, enough = map(size, found)
    return f"The values are right, but a rank sends {ours}, and {enough} are enough: "


CHANGED = "Your code changed an argument. Return new tensors, and leave the arguments unchanged."


# route


def _routed_as(name: str) -> Callable[[Seen], object]:
    return lambda s: s.wrong("weights by expert") and is_model(s.weights_by_expert, s.given[name])


def _sums(s: Seen) -> str:
    return f"{s.weights_by_expert.sum(1)[0].item():.2f}"


def _other_choice(s: Seen) -> str:
    """Return the name of the first token with wrong choices, for example "Token 3"."""
    wrong = (s.choices != s.right_choices).any(1)
    return f"Token {int(wrong.nonzero()[0, 0])}"


# fmt: off
ROUTE = (
    Hint("changed", lambda s: s.kind == "leaf in place" or s.wrong("left alone"),
         "Your code changed the logits or the bias. Work on new tensors."),
    Hint("experts choose", lambda s: s["weights by expert"] == "other shapes"
         and s.tokens not in (s.k, s.experts) and s.shapes[1] in (
             [s.k, s.experts], [s.experts, s.k]),
         lambda s: f"Your numbers have {s.k} places for each expert, as if each expert chose "
         f"tokens. Each token must choose {s.k} experts."),
    Hint("other shapes", lambda s: s["weights by expert"] == "other shapes",
         lambda s: f"Return two tensors of {s.tokens} tokens × {s.k} experts: first the weights, "
         f"then the numbers. Their shapes are {s.shapes[0]} and {s.shapes[1]}."),
    Hint("swapped", lambda s: s["weights by expert"] == "no experts",
         "The second tensor has to hold numbers of experts, and the first tensor their weights."),
    Hint("no int64", lambda s: s["weights by expert"] == "no int64",
         lambda s: f"The numbers of experts are {s.dtype}: indices of torch are int64."),
    Hint("less than 1", lambda s: _routed_as("of_all")(s) or _routed_as("all_biased")(s),
         lambda s: f"The weights of token 0 add up to {_sums(s)}: take the softmax of the k chosen "
         "logits alone, or divide by the sum of the chosen."),
    Hint("over tokens", _routed_as("over_tokens"),
         "The weights of each column add up to 1, but the weights of each token must add up to 1."),
    Hint("twice", _routed_as("twice"),
         "The weights are too even: they are a softmax of probabilities, not of logits."),
    Hint("bias in the weights", _routed_as("biased"),
         "The weights contain the bias. The bias is for the choice alone."),
    Hint("no bias", lambda s: s.wrong("weights by expert")
         and s.choices.equal(s.unbiased_choices) and not s.choices.equal(s.right_choices),
         lambda s: f"{_other_choice(s)} has chosen its experts as if there were no bias."),
    Hint("even weights", lambda s: _routed_as("even")(s) and s.k > 1,
         "All weights are 1/k. The router's logits decide how large the weight of each expert is."),
    Hint("lowest", lambda s: s.choices.equal(s.lowest) and not s.choices.equal(s.right_choices),
         "The experts with the smallest logits are chosen."),
    Hint("other experts", lambda s: s.wrong("weights by expert")
         and not s.choices.equal(s.right_choices),
         lambda s: f"{_other_choice(s)} has not chosen the {s.k} experts with the largest sums of "
         "logit and bias."),
    Hint("no gradient", lambda s: right_but(s, "gradient of logits"),
         "The values are right, but the gradient of the logits is wrong. The router learns only "
         "through the weights, so keep the weights in the graph."),
    Hint("other weights", lambda s: s.wrong("weights by expert"),
         "The experts are right, but the weights are wrong. The weights are the softmax of the "
         "chosen logits, in the dtype of the logits."),
)


# dispatch


def _unsorted(s: Seen) -> str:
    rank, expert, to = s.at
    return (f"Rank {s.ranks[rank]} has sent a row for expert {expert} to rank {to} of the group. "
            "Sort the choices by expert first.")


def _added(why: str) -> Any:
    return lambda s: (said := sends_more(s)) and said + why


OTHER_GROUP = Hint(
    "other group",
    lambda s: len(s.ranks) > 1 and s.ranks[-1] >= len(s.ranks)
    and (s.stuck or s.mismatch or s.kind == "number of splits"),
    lambda s: f"The group consists only of {who(s.ranks)}. Make each exchange in `group`, and use "
    "the group's number of ranks, not the number of all ranks.",
)

DISPATCH = (
    OTHER_GROUP,
    Hint("nobody asked", lambda s: s.mismatch == "splits" or s.kind == "total of splits",
         "The splits do not fit the rows: a rank receives as many rows as the other ranks send to "
         "it. Exchange the counts first, one for each rank of the group."),
    Hint("sent nowhere", lambda s: s.order == "choices of -1",
         lambda s: f"Your code sends choices of -1 to an expert, {s.at[0]} of them on one rank. "
         "Leave them out."),
    Hint("unsorted", lambda s: s.order == "unsorted", _unsorted),
    Hint("experts mixed", lambda s: s.order == "by rank",
         "The rows are on the right ranks, but among the rows for one rank the experts are mixed. "
         "Sort the choices by expert, not by rank."),
    Hint("not each choice", lambda s: s.order in ("not each choice once", "no places of choices"),
         "`order` must name each place of chosen.flatten() that has an expert, once, and no other "
         "place."),
    Hint("wrong token", lambda s: s.rows == "of token p % tokens" and s.k > 1,
         "These are rows of other tokens. In chosen.flatten() a token has k places, side by side: "
         "divide a place by k to find its token."),
    Hint("other rows", lambda s: s.wrong("rows"),
         "The arriving rows are not the tokens that `order` names. Place p of chosen.flatten() "
         "belongs to token p // k, and rows leave in the order of `order`."),
    Hint("ticket", lambda s: s.wrong("sends", "takes", "group"),
         lambda s: "The rows are right, and the ticket is wrong: "
         + ("`sends` and `takes` are lists with the number of rows for each rank of the group."
            if s.wrong("sends", "takes") else "its last part is not the `group` of the exchange.")),
    Hint("local counted from 0", lambda s: s.local == "all experts" and s.n > 1,
         "`local` has numbers among all experts. Count this rank's own experts from 0."),
    Hint("local sorted", lambda s: s.local == "sorted",
         "The rows lie rank by rank, and by expert within each rank. Do not sort the numbers in "
         "`local`: they must have the same order as the rows."),
    Hint("other local", lambda s: s.wrong("local"),
         "The rows are right, and `local` is wrong: give each row the number of its expert on "
         "this rank. The counts by expert, from each rank, tell the numbers."),
    Hint("changed", lambda s: s.wrong("left alone"), CHANGED),
    Hint("no gradient", lambda s: s.wrong("gradient"),
         "The rows are right, but the gradient of x is wrong. Send the rows through `Exchanged`, "
         "which sends gradients back."),
    Hint("more bytes", sends_more, _added("send each row once, to the rank of its expert, and no "
         "padding.")),
)


# combine


def _summed_as(name: str) -> Callable[[Seen], object]:
    return lambda s: s.wrong("output") and is_model(s.output, s.given[name])


def _none(found: Sequence[object]) -> bool:
    return all(each is None for each in found)


COMBINE = (
    OTHER_GROUP,
    Hint("same way", lambda s: s.mismatch == "splits" or s.kind == "total of splits",
         "On the way back a rank sends the rows that it took, and takes the rows that it sent: "
         "exchange `sends` and `takes`."),
    Hint("no weights", _summed_as("no_weights"), "Your code adds the outputs without their "
         "weights."),
    Hint("even weights", _summed_as("even"),
         "All outputs of a token have the same weight in your sum, but each output has a weight of "
         "its own."),
    Hint("softened", _summed_as("softened"),
         "The weights went through another softmax: take the weights as they are."),
    Hint("made up for", _summed_as("made_up"),
         "Your code divides the weights by the sum of the weights that are not dropped. A dropped "
         "choice adds nothing, and the other choices keep their weights."),
    Hint("not undone", _summed_as("not_undone"),
         "Tokens get the outputs of other tokens. Rows come back in the order in which they left, "
         "by expert, and `order` names the place of each row."),
    Hint("weights of others", _summed_as("of_others"),
         "The outputs reach their tokens, but with the weights of other choices. The row at place "
         "p of chosen.flatten() has the weight weights.flatten()[p]."),
    Hint("weights do not learn", lambda s: right_but(s, "of weights") and _none(s.of_weights),
         "The output is right, but the router learns nothing: a gradient reaches the router only "
         "through the weights."),
    Hint("experts do not learn", lambda s: right_but(s, "of rows", "sent backward")
         and _none(s.of_rows),
         "The output is right, and the experts learn nothing: `made` has no gradient."),
    Hint("changed", lambda s: s.wrong("left alone"), CHANGED),
    Hint("other gradients", lambda s: not s.wrong("output") and s.wrong("of rows", "of weights"),
         "The output is right, but a gradient is wrong. The gradient of a row is the gradient of "
         "its token times the weight, and travels home through `Exchanged`."),
    Hint("more bytes", sends_more, _added("each row comes back once, to its token's rank.")),
    Hint("other sum", lambda s: s.wrong("output"),
         "The output is wrong: put each row that comes back at its place in `order`, multiply by "
         "the weight of this place, and add up the k places of each token."),
)


# within_capacity


def _is(name: str) -> Callable[[Seen], object]:
    return lambda s: same(s.choices, s.given[name])


def _per_expert(s: Seen) -> list[int]:
    kept = s.choices[s.choices >= 0]
    found: list[int] = kept.bincount(minlength=s.experts).tolist()
    return found


def _fullest(s: Seen) -> tuple[int, int]:
    counts = _per_expert(s)
    expert = max(range(s.experts), key=counts.__getitem__)
    return expert, counts[expert]


def _looks_like_choices(s: Seen) -> bool:
    return bool(s.choices.shape == s.chosen.shape and s.choices.dtype == s.chosen.dtype)


CAPACITY = (
    Hint("changed", lambda s: s.wrong("left alone"), CHANGED),
    Hint("no numbers", lambda s: not _looks_like_choices(s),
         "Return numbers of experts in the shape and the dtype of `chosen`, with -1 for each "
         "dropped choice."),
    Hint("sent elsewhere", lambda s: bool(
         ((s.choices != s.chosen) & (s.choices != -1)).any()),
         "Your code replaces a choice by another expert. A dropped choice becomes -1, because the "
         "router has not chosen any other expert."),
    Hint("room twice", _is("room_twice"),
         lambda s: f"Expert {_fullest(s)[0]} has {_fullest(s)[1]} choices, but room for only "
         f"{s.capacity}: first and second choices share this room."),
    Hint("second before first", _is("by_token"),
         "An early token's second choice has taken the place of a later token's first choice. All "
         "first choices come before all second choices."),
    Hint("second before first", _is("second_first"),
         "Your code takes second choices before first choices."),
    Hint("last first", _is("last_first"),
         "The last choices get the room. Let the choices take room in the order of the tokens."),
    Hint("whole token", _is("whole_token"),
         "A token with one dropped choice has lost all of its choices: only the choice without "
         "room is dropped."),
    Hint("one short", _is("one_short"),
         lambda s: f"Expert {_fullest(s)[0]} has {_fullest(s)[1]} choices and room for "
         f"{s.capacity}."),
    Hint("one too many", lambda s: max(_per_expert(s)) > s.capacity,
         lambda s: f"Expert {_fullest(s)[0]} has {_fullest(s)[1]} choices and room for "
         f"{s.capacity}."),
    Hint("other", lambda s: s.wrong("choices"),
         "Number the choices of each expert: first the first choices in the order of the tokens, "
         "then the second choices. A choice with a number above the capacity becomes -1."),
)
# fmt: on
