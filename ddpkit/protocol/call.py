"""`Call`: one call into torch.distributed, as the rank that made it and the launcher know it.

A rank makes a `Call` once for each line that a loop comes by, and writes it into its black box as
JSON. The launcher reads it there, compares it with those of the other ranks, and puts it into the
error that it raises. Nothing in ddpkit is below this module, so errors and hints may use it.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

Where: TypeAlias = tuple[str, int]  # file and line of the user's code; ("", 0) is outside of it

NOWHERE: Where = ("", 0)
MESSAGES = ("send", "recv")  # the operations with one rank at each end; all others are collectives
ASYNCHRONOUS = ("isend", "irecv", "batch_isend_irecv")  # post them, and do not wait
# torch.distributed's calls with Python objects, which consist of calls with tensors.
OF_OBJECTS = (
    *("broadcast_object_list", "scatter_object_list", "all_gather_object", "gather_object"),
    *("send_object_list", "recv_object_list"),
)

TUPLES = ("shape", "members", "sends", "takes", "keys", "strides")  # lists in JSON


class Call(NamedTuple):
    """The operation of a call, the line in the user's code, and the number `seq`.

    `seq` numbers the collectives of a group from 1 on, and the messages between two ranks with one
    tag. `seq` is 0 while a call is not made yet, and for a wait outside of the process group's
    calls: for a store's keys, or in `new_group`. Such a wait has `op` and `where`; in addition a
    wait for keys has `keys`, and a wait in `new_group` has `group` and `members`.
    """

    op: str  # torch.distributed's name of it: "all_reduce", "send"
    group: str = ""  # the group's name; "" is the default group
    where: Where = NOWHERE
    via: str = ""  # the function the user called there, where it is not `op`: "isend", "backward"
    peer: int | None = None  # global rank; None: a collective, or a recv from anybody till it came
    root: int | None = None  # global rank that a broadcast, scatter, reduce or gather names
    tag: int = 0
    shape: tuple[int, ...] = ()
    dtype: str = ""  # "float32"; "" where the call has no tensor
    bytes: int = 0
    reduce: str = ""  # "SUM", "MAX"; "" where nothing is reduced
    members: tuple[int, ...] = ()  # global ranks of the group; may be () for the default group
    seq: int = 0
    found: bool = False  # a recv from anybody, written once more when its source is known
    group_desc: str = ""  # what the user calls the group: "tp", a mesh's dimension; "" without one
    sends: tuple[int, ...] = ()  # numbers to each member, of an all-to-all in a small group
    takes: tuple[int, ...] = ()  # numbers from each member, in the same case
    strides: tuple[int, ...] = ()  # in elements; () for a contiguous or a copied tensor
    keys: tuple[str, ...] = ()  # a store's keys for which a rank waits in "get" or "wait"
    absent: int = 0  # the number of further members, which do not run (`protocol.alike`)
    model: int = 0  # the gradient's DDP model, by its number in the group, from 0

    @property
    def group_size(self) -> int:
        """The number of ranks in the group, with those that do not run."""
        return len(self.members) + self.absent

    @property
    def function(self) -> str:
        """The function of torch.distributed: `via` for a call with objects, otherwise `op`."""
        return self.via if self.via in OF_OBJECTS else self.op

    @property
    def objects(self) -> int | None:
        """The length of a list of objects, in the call that moves their sizes; None elsewhere."""
        is_list = self.via.endswith("_object_list") and self.via != "scatter_object_list"
        return self.shape[0] if is_list and self.dtype == "int64" and self.shape else None

    @property
    def is_users(self) -> bool:
        """True if the user's own code calls the operation, and not code of torch's in between."""
        return self.via in ("", *ASYNCHRONOUS)

    @property
    def is_message(self) -> bool:
        """Whether it is a send or a recv, which have two ends; else it is a collective."""
        return self.op in MESSAGES

    @property
    def makes_group(self) -> bool:
        """Whether it is a wait, seen from outside, while a group other than the default is made."""
        return not self.seq and bool(self.group)

    def ends(self, rank: int) -> tuple[int, int]:
        """The ranks that a message of `rank`'s goes from and to. Its peer must be known."""
        assert self.peer is not None
        return (rank, self.peer) if self.op == "send" else (self.peer, rank)

    def to_json(self) -> dict[str, Any]:
        """Plain values, without those that are empty and without the default group's members."""
        plain = {name: value for name, value in self._asdict().items() if value or value == 0}
        if not self.group:
            plain.pop("members", None)
        for name in ("seq", "found", "absent", "model"):
            if not plain[name]:
                del plain[name]
        return plain

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Call:
        """The call again. Raises KeyError, TypeError or ValueError if it is none."""
        file, line = plain.get("where", NOWHERE)
        lists = {name: tuple(plain.get(name, ())) for name in TUPLES}
        return cls(**{**plain, **lists, "where": (file, line)})


def to_itself(op: str, argument: str, rank: int) -> str:
    """Return the words for a rank's message to or from itself: "send(dst=0): a rank cannot …"."""
    return f"{op}({argument}={rank}): a rank cannot exchange messages with itself"
