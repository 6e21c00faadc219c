"""Lab 07: what to say of wrong hooks and groups, a table for each exercise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddpkit.exercises.compare import same
from ddpkit.exercises.guard import SENT
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.exercises.values import Close, show_value

if TYPE_CHECKING:
    from torch import Tensor


def first(s: Seen) -> Any:
    """What a hook's Future held on rank 0."""
    return s.gave[0]


def near(got: Any, wanted: Tensor, digits: int = 4) -> bool:
    """Whether these are the same numbers, up to rounding."""
    return same(got, Close(wanted, digits))


def is_text(got: Any, text: str) -> bool:
    return isinstance(got, str) and text in got


def is_own(s: Seen) -> bool:
    """True if a rank's Future holds its own numbers, divided or not, and of no other rank."""
    return any(near(first(s), s.own / parts, 3) for parts in (1, s.size, s.size**2))


def outside(s: Seen) -> bool:
    """Whether rank 0's matrix has columns that do not lie in those of the mean of low rank."""
    rest = s.matrix - s.space @ (s.space.T @ s.matrix)
    return bool(rest.norm() > 1e-3 * s.matrix.norm())


def drawn_mean(s: Seen, step: int, far: int) -> Any:
    """Rank 0's first bucket of a step, averaged with the rank that is so far."""
    return (s.drawn[0, step, 0] + s.drawn[far, step, 0]) / 2


def named(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def other_bytes(s: Seen) -> tuple[Any, Any] | None:
    """Return the bytes of the first rank with wrong bytes, and the expected bytes.

    Return None if a value is wrong too.
    """
    counts = [name for name in s.expect if name in SENT or name.startswith("sent")]
    if s.wrong(*(name for name in s.expect if name not in counts)):
        return None
    pairs = (zip(s[name], s.expect[name], strict=True) for name in counts)
    return next((pair for each in pairs for pair in each if not same(*pair)), None)


def _other_bytes(s: Seen) -> str:
    found = other_bytes(s)
    assert found is not None
    return (
        f"The values are right, and a rank gave {found[0]:,} bytes to torch.distributed, where "
        f"{show_value(found[1])} are expected. Messages count too, and so does each collective."
    )


# fmt: off
OTHER_BYTES = Hint("other bytes", lambda s: other_bytes(s) is not None, _other_bytes)
BUCKET = Hint("bucket", lambda s: s.kind == "no bucket",
              "torch looks for a parameter of the hook that is called `bucket`, and finds none.")
FP16 = (
    BUCKET,
    Hint("ignores state", lambda s: s.error and s.members,
         "`state` is the process group: only its ranks call the hook, so all-reduce within it."),
    Hint("waits", lambda s: s.stuck,
         "It waits inside the hook, so backward stands still until the bytes are there. Start, and "
         "let `.then(...)` do what comes afterwards."),
    Hint("a Work", lambda s: s.attribute == "then" or is_text(first(s), "a Work"),
         "A hook returns a Future: work.get_future()."),
    Hint("no Future", lambda s: is_text(first(s), "no Future"),
         "A hook returns a Future, which `.then(...)` gives too."),
    Hint("a list", lambda s: isinstance(first(s), list),
         "The Future of an all-reduce holds a list of one tensor: take its [0]."),
    Hint("no tensor", lambda s: not hasattr(first(s), "dtype"),
         lambda s: f"The Future holds a {type(first(s)).__name__}: let it be the tensor itself."),
    Hint("still float16", lambda s: first(s).dtype != s.mean.dtype and first(s).element_size() == 2,
         "DDP copies what you give into its gradients: give it the dtype of bucket.buffer()."),
    Hint("another dtype", lambda s: first(s).dtype != s.mean.dtype,
         lambda s: f"The Future holds {named(first(s).dtype)}, and the buffer is "
         f"{named(s.mean.dtype)}: DDP wants the buffer's."),
    Hint("another shape", lambda s: first(s).shape != s.mean.shape,
         lambda s: f"The Future's tensor has the shape {tuple(first(s).shape)}, and the buffer "
         f"{tuple(s.mean.shape)}."),
    Hint("not halved", lambda s: sum(s.bytes) > sum(s.expect["bytes"]),
         lambda s: f"{sum(s.bytes)} bytes went over the wire, and {sum(s.expect['bytes'])} are "
         "enough: make it float16 before the all-reduce."),
    Hint("too large", lambda s: not first(s).isfinite().all(),
         "The sum is too large for float16, which ends at 65,504: divide first."),
    Hint("the sum", lambda s: near(first(s), s.mean * s.size),
         "That is the sum: divide by the number of ranks."),
    Hint("another number", lambda s: s.size != s.n
         and near(first(s), s.mean * s.size / s.n, 3),
         lambda s: f"The group has {s.size} ranks, and you divide by {s.n}: ask "
         "dist.get_world_size(state)."),
    Hint("another collective", lambda s: not s.wrong("gave") and s.wrong("collectives"),
         lambda s: f"The means are right, by {' and '.join(s.collectives)}: one all_reduce of "
         "float16 does it, and its bytes hardly grow with the ranks."),
    Hint("bfloat16", lambda s: near(first(s), s.mean, 2),
         "Digits are lost: float16 has 11 binary digits (bfloat16 only 8)."),
    Hint("divided twice", lambda s: near(first(s), s.mean / s.size, 3),
         lambda s: f"That is the mean divided by {s.size} again: divide once."),
    Hint("before it is there", is_own,
         "The Future holds a rank's own numbers only. What an all-reduce has summed has to be read "
         "when it is done: in `.then(...)`, not before."),
    Hint("other means", lambda s: s.wrong("gave"),
         "The Future holds other numbers than the means of the ranks' gradients."),
    Hint("fails in then", lambda s: s.raised == "RuntimeError" and s.kind == "a list",
         "It fails where `.then(...)` calls you: the Future of an all-reduce holds a list of one "
         "tensor: take its [0]."),
    OTHER_BYTES,
)

POWERSGD = (
    BUCKET,
    Hint("another dtype", lambda s: s.kind == "dtypes",
         "Q and the error have the dtype of the gradients, which may be float64."),
    Hint("an emptied error", lambda s: s.emptied and s.raised == "KeyError",
         "state.error was emptied after a step: then nothing is added, and Q' goes on."),
    Hint("no vector", lambda s: s.raised in ("ValueError", "RuntimeError")
         and not s.kind and s.emptied is not None,
         "A bucket may hold one matrix and no vector at all: there is no mean of an empty list."),
    Hint("no matrix", lambda s: s.error and s.in_ddp,
         "In torch's DDP a bucket may have no matrix at all: then nothing is multiplied, and "
         "the vectors alone travel."),
    Hint("one state for all", lambda s: s.several and s.error,
         "It fails at the second bucket, or at a gradient of another shape. Keep Q and the error "
         "by bucket.index(); a gradient may have 0 to 4 dimensions."),
    Hint("no Future", lambda s: s.attribute == "wait" or is_text(s.matrix, "no Future"),
         "A hook returns a Future: done(flat) makes one that is over."),
    Hint("too many bytes", lambda s: not s.several and s.bytes[0] > s.thin,
         lambda s: f"Each rank sends {s.bytes[0]} bytes, and {s.thin} are enough: P and Q' of a "
         f"matrix, the numbers of a vector, and {s.starts} bytes more if rank 0 sends its first Q."
         ),
    Hint("not written back", lambda s: near(s.matrix, s.own[0]),
         "The gradients are as before: write what was received into the bucket's gradients."),
    Hint("the vector", lambda s: s.wrong("vector") and not s.wrong("matrix"),
         "Gradients of one dimension, or none, are averaged as they are: mean_of."),
    Hint("a fixed start", lambda s: s.wrong("another") and not s.wrong("matrix", "vector"),
         "One matrix is not the mean, and others are. Its rows begin with two zeros, and each has "
         "the sum 0: a Q that is fixed, such as ones or zeros, meets none of them. Let Q start at "
         "random."),
    Hint("the sum", lambda s: near(s.matrix, s.mean[0] * s.n),
         "That is the mean times the number of ranks: average Q', do not only sum it."),
    Hint("another rank", lambda s: s.wrong("matrix") and s.bytes[0] < s.thin,
         lambda s: f"Each rank sends {s.bytes[0]} bytes, and {s.thin} would be right: Q has "
         "state.rank columns, or as many as a smaller matrix has rows or columns."),
    Hint("own Q", lambda s: s.wrong("matrix") and outside(s),
         "The result has columns that are not the mean's. M Q can be averaged if Q is the same on "
         "all ranks (the same seed), and as long as it is not yet orthonormal."),
    Hint("P as it is", lambda s: s.wrong("matrix"),
         "The result has the mean's columns and other numbers. P Q'ᵀ is the part of M in P's "
         "columns if P is orthonormal, after it was averaged, and Q' is MᵀP."),
    Hint("several collectives", lambda s: s.few is False,
         "It takes more than three collectives: all P in one, all Q' in one (mean_of takes a "
         "list)."),
    Hint("the error is zero", lambda s: s.wrong("left out") and s.kept == "zero",
         "The error you keep is zero: what you compare with is the buffer itself, which you have "
         "overwritten. Clone it first."),
    Hint("the wrong sign", lambda s: s.wrong("left out") and s.kept == "turned round",
         "That doubles what was wrong. Keep what was wanted minus what was sent."),
    Hint("no error feedback", lambda s: s.wrong("left out"),
         lambda s: f"In the sum of {s.times} equal gradients, {s['left out']} is missing: keep all "
         "that is left out, and add it to the next gradient."),
    Hint("a new Q", lambda s: s.wrong("second") and not s.wrong("first"),
         "The second step does not begin with the Q' of the first: keep it, it is a better start "
         "than chance."),
    Hint("other shapes", lambda s: s.several,
         "Of some shape too much is sent, or something else. Seen as a matrix: first dimension × "
         "the rest; a small one has fewer columns of Q; with fewer than two dimensions: as it is."),
    OTHER_BYTES,
)

PAIRS = (
    Hint("no such rank", lambda s: s.kind == "out of range",
         lambda s: f"A group has a rank that does not exist: {s.n} ranks have "
         f"{s.n.bit_length() - 1} binary digits, and their numbers end at {s.n - 1}."),
    Hint("its own only", lambda s: s.stuck or s.mismatch or s.raised == "ValueError",
         "All ranks call new_group for all pairs, in one order, also for those they are not in."),
    Hint("not in it", lambda s: s.groups[0] == ["a group without this rank"],
         "new_group gives a placeholder to ranks that are not members: keep your own groups only."),
    Hint("too many", lambda s: len(s.groups[0]) > s.n.bit_length() - 1,
         lambda s: f"{len(s.groups[0])} groups for {s.n} ranks: after log2 n rounds everybody has "
         "heard of everybody."),
    Hint("too few", lambda s: len(s.groups[0]) < s.n.bit_length() - 1,
         lambda s: f"Rank 0 has {len(s.groups[0])} of its {s.n.bit_length() - 1} groups: one for "
         "each binary digit."),
    Hint("another order", lambda s: all(sorted(mine) == sorted(right) for mine, right in
                                        zip(s.groups, s.expect["groups"], strict=True)),
         "The groups are right, and some rank has them in another order: that of the digits, the "
         "lowest first."),
    Hint("other partners", say="In round i the partner is the rank whose number differs in binary "
         "digit i: rank ^ 2**i."),
)

GOSSIP = (
    BUCKET,
    Hint("all ranks", lambda s: s["to all"],
         "It goes to all ranks: all-reduce in the group of two."),
    Hint("waits", lambda s: s.stuck,
         "It waits inside the hook, or the partner never comes. A message has no Future, an "
         "all-reduce in a group of two has one; both ranks of the pair take part, with each "
         "bucket."),
    Hint("a list", lambda s: isinstance(first(s)[0][0][0], list),
         "The Future of an all-reduce holds a list of one tensor: take its [0]."),
    Hint("no Future", lambda s: isinstance(first(s)[0][0][0], str),
         "A hook returns a Future: work.get_future()."),
    Hint("the sum", lambda s: near(first(s)[0][0][0], 2 * drawn_mean(s, 0, 1)),
         "That is the sum of two: halve it."),
    Hint("halved twice", lambda s: s.n == 2
         and near(first(s)[0][0][0], drawn_mean(s, 0, 1) / 2),
         "That is half of the mean of two."),
    Hint("of all", lambda s: s.n > 2 and near(first(s)[0][0][0], 2 * drawn_mean(s, 0, 1) / s.n),
         lambda s: f"Two ranks average, so divide by 2, not by {s.n}."),
    Hint("each bucket", lambda s: first(s)[1] > s.steps,
         lambda s: f"After {s.steps} steps state.step is {first(s)[1]}: it grows once in a step, "
         "with the bucket that is_last()."),
    Hint("never another", lambda s: first(s)[1] < s.steps,
         lambda s: f"After {'1 step' if s.steps == 1 else f'{s.steps} steps'} state.step is "
         f"{first(s)[1]}: it grows by 1 in each, and never goes back."),
    Hint("another partner", lambda s: s.wrong("gave"),
         "Not the mean with the partner whose turn it is: "
         "state.pairs[state.step % len(state.pairs)], for all buckets of a step."),
    OTHER_BYTES,
)
# fmt: on
