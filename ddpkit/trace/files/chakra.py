"""Export of a trace as Chakra execution traces, the input of simulators of other networks.

Each rank has a file, NAME.0.et, NAME.1.et and so on, with a `GlobalMetadata` and then a `Node` for
each node of `rank_graph`. NAME.groups.json holds the ranks of each process group, in the format of
ASTRA-sim's configuration of groups.

Source: github.com/mlcommons/chakra, schema/protobuf/et_def.proto, version 1.0.0 (May 2026). The
protobuf messages below declare only the fields that a trace needs, with their names and numbers. In
a file, each message comes after its length, which is a varint. The names of attributes are those
that Chakra's own feeder reads.
"""

from __future__ import annotations

import functools
import io
import json
from collections import defaultdict
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any

from ddpkit.errors import TraceError
from ddpkit.trace.base import BaseTrace
from ddpkit.trace.files import disk
from ddpkit.trace.files.graph import GraphNode, rank_graph
from ddpkit.trace.peers import messages
from ddpkit.trace.span import Span

ENDING = ".et"
VERSION = "1.0.0"
_PACKAGE = "ChakraProtoMsg"


class NodeType(IntEnum):
    COMP_NODE = 4
    COMM_SEND_NODE = 5
    COMM_RECV_NODE = 6
    COMM_COLL_NODE = 7


class CollectiveCommType(IntEnum):
    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    BARRIER = 9


_COLLECTIVES = {
    "all_reduce": CollectiveCommType.ALL_REDUCE,
    "reduce": CollectiveCommType.REDUCE,
    "all_gather": CollectiveCommType.ALL_GATHER,
    "all_gather_into_tensor": CollectiveCommType.ALL_GATHER,
    "gather": CollectiveCommType.GATHER,
    "scatter": CollectiveCommType.SCATTER,
    "broadcast": CollectiveCommType.BROADCAST,
    "all_to_all": CollectiveCommType.ALL_TO_ALL,
    "all_to_all_single": CollectiveCommType.ALL_TO_ALL,
    "reduce_scatter": CollectiveCommType.REDUCE_SCATTER,
    "reduce_scatter_tensor": CollectiveCommType.REDUCE_SCATTER,
    "barrier": CollectiveCommType.BARRIER,
    "monitored_barrier": CollectiveCommType.BARRIER,
}
# message -> rows of (name, number, type, repeated); the type is a scalar's or a message's name
_MESSAGES: Mapping[str, tuple[tuple[str, int, str, bool], ...]] = {
    "AttributeProto": (
        ("name", 1, "string", False),
        ("int32_val", 7, "int32", False),
        ("int64_val", 9, "int64", False),
        ("bool_val", 27, "bool", False),
        ("string_val", 29, "string", False),
    ),
    "GlobalMetadata": (("version", 1, "string", False), ("attr", 2, "AttributeProto", True)),
    "Node": (
        ("id", 1, "uint64", False),
        ("name", 2, "string", False),
        ("type", 3, "int32", False),  # an enum; its encoding is that of an int32
        ("ctrl_deps", 4, "uint64", True),
        ("data_deps", 5, "uint64", True),
        ("start_time_micros", 6, "uint64", False),
        ("duration_micros", 7, "uint64", False),
        ("attr", 10, "AttributeProto", True),
    ),
}


def write(trace: BaseTrace, path: Path) -> list[Path]:
    """Write a file for each rank, and one for the groups; return the paths of all files.

    ``path`` ends in ".et"; the number of the rank is put before this ending.

    Raises TraceError if Chakra has no name for an operation, if the package protobuf is missing,
    and if a file cannot be written.
    """
    ranks = [rank for rank in trace.ranks if trace.window_of(rank)[0] < trace.window_of(rank)[1]]
    if not ranks:
        return []
    stem = path.name.removesuffix(ENDING)
    exporter = _Exporter(trace)
    content = {path.with_name(f"{stem}.{rank}{ENDING}"): exporter.rank(rank) for rank in ranks}
    groups = path.with_name(f"{stem}.groups.json")
    content[groups] = (json.dumps(exporter.groups(), indent=1) + "\n").encode()
    for file, data in content.items():
        disk.write(file, data)
    return [*content]


class _Exporter:
    def __init__(self, trace: BaseTrace) -> None:
        self.trace, self.messages = trace, message_classes()
        # A receive from any source names no peer; the matching send tells the source.
        self.sources = {id(recv): send.rank for send, recv in messages(trace.spans)}

    def groups(self) -> dict[str, list[int]]:
        """Return the ranks of each process group that has run a collective."""
        members: dict[str, set[int]] = defaultdict(set)
        for span in self.trace.spans:
            if span.is_collective and span.group:
                members[span.group].add(span.rank)
        return {group: sorted(ranks) for group, ranks in sorted(members.items())}

    def rank(self, rank: int) -> bytes:
        """Return the content of the file of a rank."""
        from google.protobuf.proto import serialize_length_prefixed

        file = io.BytesIO()
        serialize_length_prefixed(self._metadata(rank), file)
        for node in rank_graph(self.trace, rank):
            serialize_length_prefixed(self._node(node), file)
        return file.getvalue()

    def _metadata(self, rank: int) -> Any:
        message = self.messages["GlobalMetadata"](version=VERSION)
        self._add(message, {"rank": rank, "world_size": self.trace.world_size})
        self._add(message, {f"ddpkit {name}": str(v) for name, v in self.trace.facts.items()})
        return message

    def _node(self, node: GraphNode) -> Any:
        start, end = (self._us(ns) for ns in (node.start_ns, node.end_ns))
        operation = node.operation
        message = self.messages["Node"](
            id=node.number,
            name=node.name,
            type=_type(operation),
            data_deps=sorted(node.after),
            start_time_micros=start,
            duration_micros=end - start,
        )
        self._add(message, {"is_cpu_op": False})
        if operation is None:
            self._add(message, {"kind": node.span.kind if node.span else node.name})
        elif operation.is_collective:
            comm_type = _collective(operation)
            self._add(message, {"comm_type": comm_type, "comm_size": operation.bytes})
            self._group(message, operation)
        else:
            self._message(message, operation)
        return message

    def _message(self, message: Any, operation: Span) -> None:
        """Add the sender, the receiver, the tag and the bytes of a send or receive to a node."""
        peer = self.sources.get(id(operation), operation.peer)
        if peer is None:
            raise TraceError(
                f"rank {operation.rank} has a {operation.name} with an unknown peer, but a Chakra "
                "trace must name the peer: record the files of all ranks, or export a step without "
                f"such a {operation.name}"
            )
        ends = (peer, operation.rank) if operation.is_recv else (operation.rank, peer)
        for name, value in zip(("comm_src", "comm_dst"), ends, strict=True):
            message.attr.add(name=name, int32_val=value)
        message.attr.add(name="comm_tag", int32_val=_tag(operation))
        self._add(message, {"comm_size": operation.bytes})
        self._group(message, operation)

    def _group(self, message: Any, operation: Span) -> None:
        """Add the name of the process group to a node; the group of all ranks may have no name."""
        if operation.group:
            self._add(message, {"pg_name": operation.group})

    def _add(self, message: Any, attributes: Mapping[str, bool | int | str]) -> None:
        for name, value in attributes.items():
            if isinstance(value, bool):
                message.attr.add(name=name, bool_val=value)
            elif isinstance(value, int):
                message.attr.add(name=name, int64_val=value)
            else:
                message.attr.add(name=name, string_val=value.encode("utf-8", "replace").decode())

    def _us(self, ns: int) -> int:
        """Return a time in whole microseconds.

        Each end of a stretch is rounded by itself, so adjacent stretches stay adjacent.
        """
        return max(0, (ns - self.trace.start_ns + 500) // 1000)


def _type(operation: Span | None) -> NodeType:
    if operation is None:
        return NodeType.COMP_NODE
    if operation.is_collective:
        return NodeType.COMM_COLL_NODE
    return NodeType.COMM_SEND_NODE if operation.is_send else NodeType.COMM_RECV_NODE


def _collective(operation: Span) -> CollectiveCommType:
    name = operation.name.removesuffix("_coalesced").removesuffix("_object").removesuffix("_list")
    if (found := _COLLECTIVES.get(name)) is None:
        raise TraceError(
            f"Chakra has no collective for {operation.name!r} of rank {operation.rank}: Chakra has "
            f"{', '.join(dict.fromkeys(each.name.lower() for each in _COLLECTIVES.values()))}"
        )
    return found


def _tag(operation: Span) -> int:
    tag = operation.args.get("tag", 0)
    return tag if isinstance(tag, int) and 0 <= tag < 2**31 else 0


@functools.cache
def message_classes() -> dict[str, Any]:
    """Return the classes of Chakra's protobuf messages, by name.

    Raises TraceError if protobuf is not installed.
    """
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, proto
    except ImportError:
        raise TraceError(
            "a Chakra trace needs the package protobuf: pip install 'protobuf>=6.30'"
        ) from None
    assert proto.serialize_length_prefixed
    fields = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="ddpkit_chakra.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, rows in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind, repeated in rows:
            label = fields.LABEL_REPEATED if repeated else fields.LABEL_OPTIONAL
            added = message.field.add(name=field, number=number, label=label)
            if kind in _MESSAGES:
                added.type, added.type_name = fields.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                added.type = getattr(fields, f"TYPE_{kind.upper()}")
        if name == "AttributeProto":
            message.oneof_decl.add(name="value")
            for each in message.field[1:]:
                each.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _MESSAGES
    }
