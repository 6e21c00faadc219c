"""`Call`: one call into torch.distributed, in the form shared by rank and launcher.

A rank makes one `Call` object for a line in a loop, even if the loop runs many times, and writes
the call into its black box as JSON. The launcher reads the call there, compares the call with those
of the other ranks, and attaches the call to its errors. This module imports no other module of
ddpkit, so errors and hints may import it.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

Where: TypeAlias = tuple[str, int]  # file and line of the user's code; ("", 0) is any other code

NOWHERE: Where = ("", 0)
# the operations with one rank at each end; all further operations are collectives
MESSAGES = ("send", "recv")
# these functions post operations without waiting
ASYNCHRONOUS = ("isend", "irecv", "batch_isend_irecv")
# Functions of torch.distributed for Python objects. Inside, these functions send tensors.
OF_OBJECTS = (
    *("broadcast_object_list", "scatter_object_list", "all_gather_object", "gather_object"),
    *("send_object_list", "recv_object_list"),
)

TUPLES = ("shape", "members", "sends", "takes", "keys", "strides")  # tuples here, lists in JSON


class Call(NamedTuple):
    """One call into torch.distributed: its operation, its line in the user's code, and its number.

    The number is `seq`. For a collective, `seq` counts the collectives of its group from 1. For a
    message, `seq` counts the messages with the same sender, receiver and tag. `seq` is 0 before the
    call is made.

    A `Call` with `seq` 0 also stands for a wait outside a process group. A wait for keys of a store
    has `op`, `where` and `keys`. A wait in `new_group` has `op`, `where`, `group` and `members`.
    """

    op: str  # torch.distributed's name of the operation: "all_reduce", "send"
    group: str = ""  # the group's name; "" is the default group
    where: Where = NOWHERE
    via: str = ""  # the function that the user called, if it is not `op`: "isend", "backward"
    # global rank; None for a collective, and for a recv from any rank before its message came
    peer: int | None = None
    root: int | None = None  # global rank named by a broadcast, scatter, reduce or gather
    tag: int = 0
    shape: tuple[int, ...] = ()
    dtype: str = ""  # "float32"; "" where the call has no tensor
    bytes: int = 0
    reduce: str = ""  # "SUM", "MAX"; "" without a reduction
    members: tuple[int, ...] = ()  # global ranks of the group; may be () for the default group
    seq: int = 0
    found: bool = False  # True for a recv from any rank that is written again with its sender
    # the user's name of the group: "tp", a mesh's dimension; "" without a name
    group_desc: str = ""
    # elements that an all_to_all_single sends to, and takes from, each member; () in a large group
    sends: tuple[int, ...] = ()
    takes: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()  # in elements; () for a contiguous or a copied tensor
    keys: tuple[str, ...] = ()  # a store's keys for which a rank waits in "get" or "wait"
    absent: int = 0  # the number of further members, which do not run (`protocol.alike`)
    model: int = 0  # for a gradient's call, the number of its DDP model in the group, from 0

    @property
    def group_size(self) -> int:
        """The number of ranks in the group, including ranks that do not run."""
        return len(self.members) + self.absent

    @property
    def function(self) -> str:
        """The function of torch.distributed: `via` for a call with objects, otherwise `op`."""
        return self.via if self.via in OF_OBJECTS else self.op

    @property
    def objects(self) -> int | None:
        """The number of objects, if the call moves the sizes of a list of objects; else None."""
        is_list = self.via.endswith("_object_list") and self.via != "scatter_object_list"
        return self.shape[0] if is_list and self.dtype == "int64" and self.shape else None

    @property
    def is_users(self) -> bool:
        """True if the user's own code calls the operation directly, not through code of torch."""
        return self.via in ("", *ASYNCHRONOUS)

    @property
    def is_message(self) -> bool:
        """True for a send or a recv, which have two ends; False for a collective."""
        return self.op in MESSAGES

    @property
    def makes_group(self) -> bool:
        """True for a wait in `new_group` in which the ranks make a new group."""
        return not self.seq and bool(self.group)

    def ends(self, rank: int) -> tuple[int, int]:
        """Return the sender and the receiver of a message that `rank` sends or receives."""
        assert self.peer is not None
        return (rank, self.peer) if self.op == "send" else (self.peer, rank)

    def to_json(self) -> dict[str, object]:
        """Return the call as plain values for JSON, without empty values.

        The members of the default group are left out too.
        """
        plain = {name: value for name, value in self._asdict().items() if value or value == 0}
        if not self.group:
            plain.pop("members", None)
        for name in ("seq", "found", "absent", "model"):
            if not plain[name]:
                del plain[name]
        return plain

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Call:
        """Return the call that `to_json` has turned into plain values.

        Raises KeyError, TypeError or ValueError for other values.
        """
        file, line = plain.get("where", NOWHERE)
        lists = {name: tuple(plain.get(name, ())) for name in TUPLES}
        return cls(**{**plain, **lists, "where": (file, line)})


def to_itself(op: str, argument: str, rank: int) -> str:
    """Return the error's text for a message from a rank to itself: "send(dst=0): a rank …"."""
    return f"{op}({argument}={rank}): a rank cannot exchange messages with itself"
