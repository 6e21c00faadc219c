"""Lab 17: the hints for routing, dispatch, combine and capacity, a table for each exercise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ddpkit.exercises.compare import same
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.exercises.ranks import who
from ddpkit.exercises.values import Close
from ddpkit.text import size


def is_model(found: Any, model: Any) -> bool:
    """True if each rank's value is that of a mistake, up to rounding."""
    if isinstance(model, list):
        return all(same(one, Close(other)) for one, other in zip(found, model, strict=True))
    return same(found, Close(model))


def right_but(s: Seen, *names: str) -> bool:
    """True if only these values are wrong."""
    return s.wrong(*names) and not s.wrong(*(name for name in s.expect if name not in names))


def too_much(s: Seen, phase: str) -> tuple[int, int] | None:
    """Return the bytes of the first rank that sends too much, and the bytes that are enough."""
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
    return f"The values are right, but a rank sends {ours} where {enough} would do: "


CHANGED = "An argument was changed: return new tensors, and leave the arguments as they are."


# route


def _routed_as(name: str) -> Any:
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
         "The logits or the bias were changed: work on new tensors."),
    Hint("experts choose", lambda s: s["weights by expert"] == "other shapes"
         and s.tokens not in (s.k, s.experts) and s.shapes[1] in (
             [s.k, s.experts], [s.experts, s.k]),
         "Each expert has chosen tokens: each token has to choose experts."),
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
         "The weights of each column add up to 1: the weights of each token should."),
    Hint("twice", _routed_as("twice"),
         "The weights are too even: the second softmax gets probabilities in the place of "
         "logits."),
    Hint("bias in the weights", _routed_as("biased"),
         "The weights contain the bias. The bias is for the choice alone."),
    Hint("no bias", lambda s: s.wrong("weights by expert")
         and s.choices.equal(s.unbiased_choices) and not s.choices.equal(s.right_choices),
         lambda s: f"{_other_choice(s)} has chosen as if there were no bias."),
    Hint("even weights", lambda s: _routed_as("even")(s) and s.k > 1,
         "All weights are 1/k: the router's logits say how much each expert counts."),
    Hint("lowest", lambda s: s.choices.equal(s.lowest) and not s.choices.equal(s.right_choices),
         "The experts with the smallest logits are chosen."),
    Hint("other experts", lambda s: s.wrong("weights by expert")
         and not s.choices.equal(s.right_choices),
         lambda s: f"{_other_choice(s)} has other experts than the {s.k} with the largest "
         "logits, after the bias is added."),
    Hint("no gradient", lambda s: right_but(s, "gradient of logits"),
         "The values are right, but the gradient of the logits is wrong: the router learns "
         "through the weights alone, so keep the weights in the graph."),
    Hint("other weights", lambda s: s.wrong("weights by expert"),
         "The experts are right and the weights are wrong: the weights are the softmax of the "
         "chosen logits, in the dtype of the logits."),
)


# dispatch


def _unsorted(s: Seen) -> str:
    rank, expert, to = s.at
    return (f"Rank {s.ranks[rank]} has sent a row for expert {expert} to the rank with number "
            f"{to} of the group: sort the choices by expert first.")


def _added(why: str) -> Any:
    return lambda s: (said := sends_more(s)) and said + why


OTHER_GROUP = Hint(
    "other group",
    lambda s: len(s.ranks) > 1 and s.ranks[-1] >= len(s.ranks)
    and (s.stuck or s.mismatch or s.kind == "number of splits"),
    lambda s: f"The group has {who(s.ranks)} alone: each exchange and each size has to be that of "
    "`group`, not of all ranks.",
)

DISPATCH = (
    OTHER_GROUP,
    Hint("nobody asked", lambda s: s.mismatch == "splits" or s.kind == "total of splits",
         "The rows that come are the rows that other ranks send: exchange the counts first."),
    Hint("sent nowhere", lambda s: s.order == "choices of -1",
         lambda s: f"Choices of -1 were sent to an expert, {s.at[0]} of them on one rank: leave "
         "them out."),
    Hint("unsorted", lambda s: s.order == "unsorted", _unsorted),
    Hint("experts mixed", lambda s: s.order == "by rank",
         "The rows are on the right ranks. Among the rows for one rank, the experts are mixed: "
         "sort the choices by expert, not by rank."),
    Hint("not each choice", lambda s: s.order in ("not each choice once", "no places of choices"),
         "`order` has to name each place of chosen.flatten() with an expert once, and no other "
         "place."),
    Hint("wrong token", lambda s: s.rows == "of token p % tokens" and s.k > 1,
         "These are rows of other tokens. In chosen.flatten() a token has k places, side by side: "
         "divide a place by k to find its token."),
    Hint("other rows", lambda s: s.wrong("rows"),
         "The rows that arrive are not the tokens that `order` names. Place p of chosen.flatten() "
         "belongs to token p // k, and rows leave in the order of `order`."),
    Hint("ticket", lambda s: s.wrong("sends", "takes"),
         "The rows are right, and the ticket is wrong: `sends` and `takes` are lists with the "
         "number of rows for each rank of the group."),
    Hint("local counted from 0", lambda s: s.local == "all experts" and s.n > 1,
         "`local` has numbers among all experts: count this rank's own experts from 0."),
    Hint("local sorted", lambda s: s.local == "sorted",
         "The rows lie rank by rank, and by expert within each rank: the numbers in `local` have "
         "to lie in the same order, so do not sort them."),
    Hint("other local", lambda s: s.wrong("local"),
         "The rows are right, and `local` is wrong: give each row the number of its expert on "
         "this rank. The counts by expert, from each rank, tell the numbers."),
    Hint("changed", lambda s: s.wrong("left alone"), CHANGED),
    Hint("no gradient", lambda s: s.wrong("gradient"),
         "The rows are right, and the gradient of x is wrong: rows have to go through "
         "`Exchanged`, which sends gradients back."),
    Hint("more bytes", sends_more, _added("send each row once, to its rank, and no padding.")),
)


# combine


def _summed_as(name: str) -> Any:
    return lambda s: s.wrong("output") and is_model(s.output, s.given[name])


def _none(found: Sequence[Any]) -> bool:
    return all(each is None for each in found)


COMBINE = (
    OTHER_GROUP,
    Hint("same way", lambda s: s.mismatch == "splits" or s.kind == "total of splits",
         "On the way back a rank sends the rows that it took, and takes the rows that it sent: "
         "exchange `sends` and `takes`."),
    Hint("no weights", _summed_as("no_weights"), "The outputs are added without their weights."),
    Hint("even weights", _summed_as("even"),
         "All outputs of a token count alike: each output has a weight of its own."),
    Hint("softened", _summed_as("softened"),
         "The weights went through another softmax: take the weights as they are."),
    Hint("made up for", _summed_as("made_up"),
         "The weights were divided by the sum of the weights that went somewhere. A dropped choice "
         "adds nothing, and the others keep their weights."),
    Hint("not undone", _summed_as("not_undone"),
         "Tokens have outputs of other tokens: rows come back in the order in which they were "
         "sent, by expert, and `order` names the place of each row."),
    Hint("weights of others", _summed_as("of_others"),
         "The outputs reach their tokens with the weights of other choices: the row at place p of "
         "chosen.flatten() has the weight weights.flatten()[p]."),
    Hint("weights do not learn", lambda s: right_but(s, "of weights") and _none(s.of_weights),
         "The output is right, and the router learns nothing: the weights are the only way of "
         "gradients to the router."),
    Hint("experts do not learn", lambda s: right_but(s, "of rows", "sent backward")
         and _none(s.of_rows),
         "The output is right, and the experts learn nothing: `made` has no gradient."),
    Hint("changed", lambda s: s.wrong("left alone"), CHANGED),
    Hint("other gradients", lambda s: not s.wrong("output") and s.wrong("of rows", "of weights"),
         "The output is right, and a gradient is wrong. Each row's gradient is its token's, times "
         "the weight; it travels home through `Exchanged`."),
    Hint("more bytes", sends_more, _added("each row comes back once, to its token's rank.")),
    Hint("other sum", lambda s: s.wrong("output"),
         "The output is wrong: put each row that comes back at its place in `order`, multiply by "
         "the weight of this place, and add up the k places of each token."),
)


# within_capacity


def _is(name: str) -> Any:
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
         "A choice was replaced by another expert: a dropped choice becomes -1, because the router "
         "has not asked for any other expert."),
    Hint("room twice", _is("room_twice"),
         lambda s: f"Expert {_fullest(s)[0]} has {_fullest(s)[1]} choices and room for "
         f"{s.capacity}: first and second choices share the room."),
    Hint("second before first", _is("by_token"),
         "The second choice of an early token has taken the place of a later token's first "
         "choice: all first choices go before all second choices."),
    Hint("second before first", _is("second_first"),
         "Second choices went before first choices."),
    Hint("last first", _is("last_first"),
         "The last choices have got the room: tokens go in their order."),
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
         "Count the choices of each expert in the order of the first choices, then of the second "
         "choices: a choice with a number above the capacity becomes -1."),
)
# fmt: on
