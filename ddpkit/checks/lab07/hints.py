"""Lab 07: sentences about wrong hooks and groups, a table for each exercise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddpkit.exercises.compare import same
from ddpkit.exercises.guard import SENT
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.exercises.values import Between, Close, show_value

if TYPE_CHECKING:
    from torch import Tensor


def first(s: Seen) -> Any:
    """Return the value of the hook's Future on rank 0."""
    return s.gave[0]


def near(got: object, wanted: Tensor, digits: int = 4) -> bool:
    """True if the numbers are equal to `wanted`, up to rounding."""
    return same(got, Close(wanted, digits))


def is_text(got: object, text: str) -> bool:
    return isinstance(got, str) and text in got


def is_own(s: Seen) -> bool:
    """True if rank 0's Future holds only rank 0's own numbers, divided by n, n² or nothing.

    n is the world size.
    """
    return any(near(first(s), s.own / parts, 3) for parts in (1, s.size, s.size**2))


def outside(s: Seen) -> bool:
    """True if rank 0's matrix has columns outside the column space of the low-rank mean."""
    rest = s.matrix - s.space @ (s.space.T @ s.matrix)
    return bool(rest.norm() > 1e-3 * s.matrix.norm())


def drawn_mean(s: Seen, step: int, far: int) -> Any:
    """Return the mean of the first buckets of rank 0 and rank `far` in the given step."""
    return (s.drawn[0, step, 0] + s.drawn[far, step, 0]) / 2


def named(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")


def other_bytes(s: Seen) -> tuple[int, Between | int] | None:
    """Return (sent bytes, expected bytes) for the first rank that sends a wrong number of bytes.

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
        f"The values are right, but a rank passed {found[0]:,} bytes to torch.distributed, where "
        f"{show_value(found[1])} are expected. Messages count, and so does each collective."
    )


# fmt: off
OTHER_BYTES = Hint("other bytes", lambda s: other_bytes(s) is not None, _other_bytes)
BUCKET = Hint("bucket", lambda s: s.kind == "no bucket",
              "torch looks for a parameter of the hook with the name `bucket`, but the hook has "
              "none.")
FP16 = (
    BUCKET,
    Hint("ignores state", lambda s: s.error and s.members,
         "`state` is the process group. Only its ranks call the hook, so all-reduce within this "
         "group."),
    Hint("waits", lambda s: s.stuck,
         "The hook waits, so backward stops until the bytes arrive. Only start the all-reduce, and "
         "put the rest into `.then(...)`."),
    Hint("a Work", lambda s: s.attribute == "then" or is_text(first(s), "a Work"),
         "A hook returns a Future: work.get_future()."),
    Hint("no Future", lambda s: is_text(first(s), "no Future"),
         "A hook returns a Future; `.then(...)` also returns a Future."),
    Hint("a list", lambda s: isinstance(first(s), list),
         "Your Future holds a list, but must hold one tensor. The Future of an all-reduce holds a "
         "list with one tensor: take element [0]."),
    Hint("no tensor", lambda s: not hasattr(first(s), "dtype"),
         lambda s: f"The Future holds a {type(first(s)).__name__}, but it must hold the tensor "
         "itself."),
    Hint("still float16", lambda s: first(s).dtype != s.mean.dtype and first(s).element_size() == 2,
         "DDP copies your result into its gradients. Give the result the dtype of "
         "bucket.buffer()."),
    Hint("another dtype", lambda s: first(s).dtype != s.mean.dtype,
         lambda s: f"The Future holds {named(first(s).dtype)}, but the buffer is "
         f"{named(s.mean.dtype)}. DDP needs the buffer's dtype."),
    Hint("another shape", lambda s: first(s).shape != s.mean.shape,
         lambda s: f"The Future's tensor has the shape {tuple(first(s).shape)}, but the buffer has "
         f"{tuple(s.mean.shape)}."),
    Hint("not halved", lambda s: sum(s.bytes) > sum(s.expect["bytes"]),
         lambda s: f"{sum(s.bytes)} bytes went over the network, but {sum(s.expect['bytes'])} are "
         "enough. Convert to float16 before the all-reduce."),
    Hint("too large", lambda s: not first(s).isfinite().all(),
         "The sum is too large for float16, which ends at 65,504. Divide first."),
    Hint("the sum", lambda s: near(first(s), s.mean * s.size),
         "The result is the sum. Divide by the number of ranks."),
    Hint("another number", lambda s: s.size != s.n
         and near(first(s), s.mean * s.size / s.n, 3),
         lambda s: f"The group has {s.size} ranks, but you divide by {s.n}. Ask "
         "dist.get_world_size(state)."),
    Hint("another collective", lambda s: not s.wrong("gave") and s.wrong("collectives"),
         lambda s: f"The means are right, but your code uses {' and '.join(s.collectives)}. One "
         "all_reduce of float16 is enough: its bytes hardly grow with the number of ranks."),
    Hint("bfloat16", lambda s: near(first(s), s.mean, 2),
         "Digits are lost. float16 has 11 binary digits, but bfloat16 only 8."),
    Hint("divided twice", lambda s: near(first(s), s.mean / s.size, 3),
         lambda s: f"Your code divides the mean by {s.size} once more. Divide only once."),
    Hint("before it is there", is_own,
         "The Future holds only a rank's own numbers. Read the result of an all-reduce when the "
         "all-reduce is done: in `.then(...)`, not before."),
    Hint("other means", lambda s: s.wrong("gave"),
         "The Future holds numbers that are not the means of the ranks' gradients."),
    Hint("fails in then", lambda s: s.raised == "RuntimeError" and s.kind == "a list",
         "Your function fails when `.then(...)` calls it: the Future of an all-reduce holds a list "
         "with one tensor. Take element [0]."),
    OTHER_BYTES,
)

POWERSGD = (
    BUCKET,
    Hint("another dtype", lambda s: s.kind == "dtypes",
         "Q and the error must have the dtype of the gradients, which may be float64."),
    Hint("an emptied error", lambda s: s.emptied and s.raised == "KeyError",
         "state.error was emptied after a step. Then add nothing, and keep using Q'."),
    Hint("no vector", lambda s: s.raised in ("ValueError", "RuntimeError")
         and not s.kind and s.emptied is not None,
         "A bucket may hold one matrix and no vector. Then there is no mean of an empty list."),
    Hint("no matrix", lambda s: s.error and s.in_ddp,
         "In torch's DDP, a bucket may have no matrix. Then multiply nothing, and send only the "
         "vectors."),
    Hint("one state for all", lambda s: s.several and s.error,
         "The hook fails at the second bucket, or at a gradient with a different shape. Keep Q and "
         "the error by bucket.index(). A gradient may have 0 to 4 dimensions."),
    Hint("no Future", lambda s: s.attribute == "wait" or is_text(s.matrix, "no Future"),
         "A hook returns a Future; done(flat) makes a Future that is complete."),
    Hint("too many bytes", lambda s: not s.several and s.bytes[0] > s.thin,
         lambda s: f"Each rank sends {s.bytes[0]} bytes, but {s.thin} are enough: P and Q' of a "
         f"matrix, the numbers of a vector, and {s.starts} bytes more if rank 0 sends its first Q."
         ),
    Hint("not written back", lambda s: near(s.matrix, s.own[0]),
         "The gradients have not changed. Write the received numbers into the bucket's "
         "gradients."),
    Hint("the vector", lambda s: s.wrong("vector") and not s.wrong("matrix"),
         "Average gradients with one dimension, or none, without compression: mean_of."),
    Hint("a fixed start", lambda s: s.wrong("another") and not s.wrong("matrix", "vector"),
         "One matrix is not the mean, but the rest are. The rows of this matrix begin with two "
         "zeros, and each row has the sum 0, so a fixed Q of ones or zeros is orthogonal to all "
         "rows. Start with a random Q."),
    Hint("the sum", lambda s: near(s.matrix, s.mean[0] * s.n),
         "The result is the mean times the number of ranks. Average Q', do not only sum it."),
    Hint("another rank", lambda s: s.wrong("matrix") and s.bytes[0] < s.thin,
         lambda s: f"Each rank sends {s.bytes[0]} bytes, where {s.thin} would be right: the "
         "vectors, P and Q', with state.rank columns each, or as many as a smaller matrix has rows "
         "or columns."),
    Hint("own Q", lambda s: s.wrong("matrix") and outside(s),
         "The result has columns that the mean does not have. M Q can be averaged only if Q is the "
         "same on all ranks (the same seed), and before M Q is made orthonormal."),
    Hint("P as it is", lambda s: s.wrong("matrix"),
         "The result has the mean's columns, but different numbers. P Q'ᵀ is the part of M in P's "
         "columns if P is made orthonormal after the average, and Q' is MᵀP."),
    Hint("several collectives", lambda s: s.few is False,
         "The hook needs more than three collectives. Average all P in one collective, and all Q' "
         "in one (mean_of takes a list)."),
    Hint("the error is zero", lambda s: s.wrong("left out") and s.kept == "zero",
         "The error that you keep is zero, but the product leaves out a part. Keep the wanted "
         "gradient minus the sent gradient. If you overwrite the buffer, clone it first."),
    Hint("the wrong sign", lambda s: s.wrong("left out") and s.kept == "turned round",
         "Your code doubles the error. Keep the wanted gradient minus the sent gradient."),
    Hint("no error feedback", lambda s: s.wrong("left out"),
         lambda s: f"In the sum of {s.times} equal gradients, {s['left out']} is missing. Keep the "
         "part that is left out, and add the part to the next gradient."),
    Hint("a new Q", lambda s: s.wrong("second") and not s.wrong("first"),
         "The second step does not begin with the Q' of the first step. Keep Q': it is a better "
         "start than random numbers."),
    Hint("other shapes", lambda s: s.several,
         "For some shape, you send too much, or wrong numbers. As a matrix, a gradient has its "
         "first dimension × the rest. A small matrix has fewer columns of Q. With fewer than two "
         "dimensions, do not compress."),
    OTHER_BYTES,
)

PAIRS = (
    Hint("no such rank", lambda s: s.kind == "out of range",
         lambda s: f"A group has a rank that does not exist: {s.n} ranks have "
         f"{s.n.bit_length() - 1} binary digits, and their numbers end at {s.n - 1}."),
    Hint("its own only", lambda s: s.stuck or s.mismatch or s.raised == "ValueError",
         "All ranks call new_group for all pairs in one order, including pairs without this "
         "rank."),
    Hint("not in it", lambda s: s.groups[0] == ["a group without this rank"],
         "new_group returns a placeholder to ranks that are not members. Keep only your own "
         "groups."),
    Hint("too many", lambda s: len(s.groups[0]) > s.n.bit_length() - 1,
         lambda s: f"You return {len(s.groups[0])} groups for {s.n} ranks. After log2 n rounds, "
         "every rank has heard of every rank."),
    Hint("too few", lambda s: len(s.groups[0]) < s.n.bit_length() - 1,
         lambda s: f"Rank 0 has {len(s.groups[0])} of its {s.n.bit_length() - 1} groups. Each "
         "binary digit needs a group."),
    Hint("another order", lambda s: all(sorted(mine) == sorted(right) for mine, right in
                                        zip(s.groups, s.expect["groups"], strict=True)),
         "The groups are right, but some rank has them in a different order. Use the order of the "
         "digits, the lowest digit first."),
    Hint("other partners", say="In round i, the numbers of a rank and its partner differ in binary "
         "digit i: rank ^ 2**i."),
)

GOSSIP = (
    BUCKET,
    Hint("all ranks", lambda s: s["to all"],
         "Your all-reduce goes to all ranks. All-reduce in the group of two."),
    Hint("waits", lambda s: s.stuck,
         "The hook waits, or its partner never comes. Send and receive give no Future, but an "
         "all-reduce in a group of two gives one. Both ranks of the pair must take part, for each "
         "bucket."),
    Hint("a list", lambda s: isinstance(first(s)[0][0][0], list),
         "Your Future holds a list, but must hold one tensor. The Future of an all-reduce holds a "
         "list with one tensor: take element [0]."),
    Hint("no Future", lambda s: isinstance(first(s)[0][0][0], str),
         "A hook returns a Future: work.get_future()."),
    Hint("the sum", lambda s: near(first(s)[0][0][0], 2 * drawn_mean(s, 0, 1)),
         "The result is the sum of two ranks. Halve the sum."),
    Hint("halved twice", lambda s: s.n == 2
         and near(first(s)[0][0][0], drawn_mean(s, 0, 1) / 2),
         "The result is half of the mean of two ranks."),
    Hint("of all", lambda s: s.n > 2 and near(first(s)[0][0][0], 2 * drawn_mean(s, 0, 1) / s.n),
         lambda s: f"Two ranks average, so divide by 2, not by {s.n}."),
    Hint("each bucket", lambda s: first(s)[1] > s.steps,
         lambda s: f"After {s.steps} steps, state.step is {first(s)[1]}, but it grows only once in "
         "a step, with the bucket for which is_last() is true."),
    Hint("never another", lambda s: first(s)[1] < s.steps,
         lambda s: f"After {'1 step' if s.steps == 1 else f'{s.steps} steps'}, state.step is "
         f"{first(s)[1]}, but it grows by 1 in each step, and never goes back."),
    Hint("another partner", lambda s: s.wrong("gave"),
         "The result is not the mean with the partner of this step. Use state.pairs[state.step % "
         "len(state.pairs)] for all buckets of a step."),
    OTHER_BYTES,
)
# fmt: on
