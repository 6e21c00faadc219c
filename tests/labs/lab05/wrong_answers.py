"""Wrong answers to lab 05."""

import torch

from tests.labs.answers import edits, wrong
from tests.labs.lab05.right_answers import (
    Plain,
    counts_on_the_way,
    each_kind_alone,
    in_two_steps,
)

RULE, OPEN, KIND = (
    "q.numel() * q.element_size()",
    "list(open_buckets.values())",
    "(p.dtype, p.device)",
)
CLOSE = "closed.append(open_buckets.pop(kind))"
ALPHAS, WIRES = "2 * (world_size - 1) * latency", "2 * (world_size - 1) / world_size"
FULL = "if filled >= cap * 2**20 or i == len(sizes) - 1:"
PIECE = "part.view(tensor.shape)"

# fmt: off
edits(
    ("flatten", "only_cat", "[tensor.reshape(-1) for tensor in tensors]", "list(tensors)",
     "not 1-D first"),
    ("flatten", "views", "reshape(-1)", "view(-1)", "no view"),
    ("flatten", "by_pythons_numbers", {
        "torch.cat([": "torch.tensor([value for tensor in tensors for value in ",
        "(-1) for tensor in tensors]": "(-1).tolist()]"}, "dtype"),
    ("flatten", "all_as_float32", "reshape(-1)", "flatten().float()", "dtype"),
    ("flatten", "rounded", {"reshape(-1)": "reshape(-1).half()", "tensors])":
     "tensors]).to(tensors[0].dtype)"}, "rounded"),
    ("flatten", "an_array", "torch.cat([tensor.reshape(-1) for tensor in tensors])",
     "torch.cat([tensor.reshape(-1) for tensor in tensors]).numpy()", "no tensor"),
    ("flatten", "last_first", "in tensors", "in reversed(tensors)", "order"),
    ("flatten", "a_row", {"reshape(-1)": "reshape(1, -1)", "in tensors]": "in tensors], dim=1"},
     "one dimension"),
    ("flatten", "one_is_not_copied",
     "return torch.cat", "return tensors[0].reshape(-1) if len(tensors) == 1 else torch.cat",
     "shared"),
    ("unflatten", "copies", PIECE, "part.clone().view(tensor.shape)", "copies"),
    ("unflatten", "stays_flat", PIECE, "part", "shape"),
    ("unflatten", "always_from_the_start",
     PIECE, "flat[: tensor.numel()].view(tensor.shape)", "where it begins"),
    ("unflatten", "fills_the_tensors", PIECE, "tensor.copy_(part.view(tensor.shape))",
     "fills the tensors"),
    ("unflatten", "equal_pieces",
     "split([tensor.numel() for tensor in tensors])", "chunk(len(tensors))", "cut"),
    ("unflatten", "by_columns", PIECE, "part.view(tensor.shape[::-1]).t() if tensor.dim() == 2 "
     "and tensor.numel() else part.view(tensor.shape)", "other elements"),
    ("unflatten", "flat_is_overwritten", "    parts =", "    flat.zero_()\n    parts =",
     "other elements"),
    ("unflatten", "last_first", "zip(parts, tensors)]", "zip(parts, tensors)][::-1]", "shape"),
    ("unflatten", "without_the_last", "zip(parts, tensors)", "zip(parts, tensors[:-1])", "number"),
    ("unflatten", "one_at_a_time",
     "[part.view(tensor.shape) for part, tensor in zip(parts, tensors)]",
     "(part.view(tensor.shape) for part, tensor in zip(parts, tensors))", "no list"),
    ("assign_buckets", "forward", "reversed(list(parameters))", "list(parameters)", "forward"),
    ("assign_buckets", "of_an_iterator", "list(parameters)", "parameters", "iterator"),
    ("assign_buckets", "elements", RULE, "q.numel()", "elements"),
    ("assign_buckets", "decimal", "* 2**20", "* 10**6", "decimal"),
    ("assign_buckets", "kilobytes", "* 2**20", "* 2**10", "stays open"),
    ("assign_buckets", "frozen_left_out", "reversed(list(parameters))",
     "[p for p in reversed(list(parameters)) if p.requires_grad]", "not each once"),
    ("assign_buckets", "rest_in_one", f"+ {OPEN}",
     f"+ [sum({OPEN}, [])][: len(open_buckets)]", "several kinds"),
    ("assign_buckets", "mixes_all", KIND, "0", "two dtypes"),
    ("assign_buckets", "mixes_dtypes", KIND, "p.device", "two dtypes"),
    ("assign_buckets", "mixes_devices", KIND, "p.dtype", "two devices"),
    ("assign_buckets", "no_rest", f" + {OPEN}", "", "no rest"),
    ("assign_buckets", "no_first", "caps.get(kind, first)", "bucket_cap_mb", "no first"),
    ("assign_buckets", "zero_is_nothing",
     "bucket_cap_mb if first_bucket_mb is None else first_bucket_mb",
     "first_bucket_mb or bucket_cap_mb", "no first"),
    ("assign_buckets", "always_first", "caps[kind] = bucket_cap_mb", "pass", "always first"),
    ("assign_buckets", "one_first",
     "caps[kind] = bucket_cap_mb", "first = bucket_cap_mb", "one first of all"),
    ("assign_buckets", "past_the_cap", ">= caps", "> caps", "past the cap"),
    ("assign_buckets", "one_is_left", OPEN, f"{OPEN}[:1]", "not each once"),
    ("assign_buckets", "one_at_a_time", "return closed +", "yield from closed +", "no list"),
    ("assign_buckets", "in_sets", CLOSE, "closed.append(set(open_buckets.pop(kind)))", "no list"),
    ("assign_buckets", "an_empty_one", OPEN, f"{OPEN} + [[]]", "an empty one"),
    ("assign_buckets", "back_in_order",
     CLOSE, "closed.append(open_buckets.pop(kind)[::-1])", "order within"),
    ("assign_buckets", "rest_back_to_front", OPEN, f"{OPEN}[::-1]", "order of buckets"),
    ("assign_buckets", "rest_by_name", "list(open_buckets.values())",
     "[open_buckets[kind] for kind in sorted(open_buckets, key=str)]", "order of buckets"),
    ("assign_buckets", "rest_by_place", "list(open_buckets.values())",
     "sorted(open_buckets.values(), key=len)", "order of buckets"),
    ("assign_buckets", "four_bytes", "q.element_size()", "4", "four bytes"),
    ("assign_buckets", "bytes_of_all_kinds", "for q in bucket)",
     "for each in open_buckets.values() for q in each)", "stays open"),
    ("assign_buckets", "closes_before_it_adds", {
        "        bucket.append(p)\n": "", "in bucket)": "in [*bucket, p])",
        "[kind] = bucket_cap_mb":
        "[kind] = bucket_cap_mb\n        else:\n            bucket.append(p)"},
     "not each once"),
    ("assign_buckets", "numbers",
     CLOSE, "closed.append([id(q) for q in open_buckets.pop(kind)])", "no parameter"),
    ("GradientBuckets", "copies", "                p.grad = view\n", "", "memory of its own"),
    ("GradientBuckets", "keeps_the_old",
     "                view.copy_(p.grad)\n", "", "values lost"),
    ("GradientBuckets", "in_float16", "copy_(p.grad)", "copy_(p.grad.half())", "digits lost"),
    ("GradientBuckets", "adds", "view.copy_(p.grad)", "view.add_(p.grad)", "added"),
    ("GradientBuckets", "stale", "view.zero_()", "pass", "old values"),
    ("GradientBuckets", "none_becomes_zero", "view.zero_()", "p.grad = view.zero_()", "None"),
    ("GradientBuckets", "not_at_the_start",
     "            self.collect(i)\n", "            pass\n", "not collected"),
    ("GradientBuckets", "asks_none", "if p.grad is None:\n                view.zero_()\n"
     "            elif p.grad.data_ptr()", "if p.grad.data_ptr()", "asks None"),
    ("GradientBuckets", "collects_the_first",
     "range(len(self.flat))", "range(1)", "not its values"),
    ("GradientBuckets", "collects_all",
     {"        for p, view in zip(self.parameters[i], self.views[i]):\n":
      "        for p, view in zip(sum(self.parameters, []), sum(self.views, [])):\n"},
     "other buckets"),
    ("GradientBuckets", "on_the_cpu", "torch.zeros_like(p)",
     "torch.zeros(p.shape, dtype=p.dtype)", "device"),
    ("GradientBuckets", "float32", "torch.zeros_like(p)", "torch.zeros(p.shape)", "flat tensor"),
    ("GradientBuckets", "views_are_copies",
     "unflatten(flat, b) for", "[v.clone() for v in unflatten(flat, b)] for", "no views"),
    ("best_cap", "no_ready", "max(free, at)", "free", "not ready"),
    ("best_cap", "always_the_smallest", "min(caps, key=done)", "min(caps)", "smallest"),
    ("best_cap", "always_the_largest", "min(caps, key=done)", "max(caps)", "largest"),
    ("best_cap", "three_times_the_latency", ALPHAS, "3 * (world_size - 1) * latency", "latencies"),
    ("best_cap", "three_times_the_bytes", WIRES, "3 * (world_size - 1) / world_size", "bytes"),
    ("best_cap", "all_of_the_bytes", f"{WIRES} * filled", "filled", "bytes"),
    ("best_cap", "a_latency_for_each_rank", ALPHAS, "world_size * latency", "latencies"),
    ("best_cap", "closes_a_byte_early", ">= cap * 2**20", "+ 1 >= cap * 2**20", "later"),
    ("best_cap", "the_first_of_caps", "min(caps, key=done)", "caps[0]", "later"),
    ("best_cap", "no_queue", "max(free, at)", "at", "no queue"),
    ("best_cap", "no_rest", " or i == len(sizes) - 1", "", "no rest"),
    ("best_cap", "one_latency", ALPHAS, "latency", "latencies"),
    ("best_cap", "half_of_the_latency", ALPHAS, "(world_size - 1) * latency", "latencies"),
    ("best_cap", "no_latency", ALPHAS, "0", "no latency"),
    ("best_cap", "no_bytes", f"{WIRES} * filled / bandwidth", "0", "no bytes"),
    ("best_cap", "half_of_the_bytes", WIRES, "(world_size - 1) / world_size", "bytes"),
    ("best_cap", "whole_bytes", WIRES, "2 * (world_size - 1)", "bytes"),
    ("best_cap", "decimal", "cap * 2**20", "cap * 10**6", "decimal"),
    ("best_cap", "past_the_cap", ">= cap", "> cap", "past the cap"),
    ("best_cap", "below_the_cap", FULL,
     "if i == len(sizes) - 1 or filled + sizes[i + 1] > cap * 2**20:", "below the cap"),
    ("best_cap", "last_of_equal", "min(caps, key=done)", "min(reversed(caps), key=done)",
     "not the first"),
    ("best_cap", "the_worst", "min(caps", "max(caps", "later"),
    ("best_cap", "as_text", "min(caps, key=done)", "str(min(caps, key=done))", "none of caps"),
    ("best_cap", "the_time", "min(caps, key=done)", "min(map(done, caps))", "none of caps"),
)
edits(("best_cap", "starts_with_the_first", "bucket[-1][0]", "bucket[0][0]", "first is ready"),
      of=in_two_steps)
edits(("assign_buckets", "open_for_ever", {"buckets.pop(kind)": "buckets[kind]",
       "            filled[kind]": "            buckets[kind] = []\n            filled[kind]",
       "in buckets.values()": "in buckets.values() if bucket"}, "order of buckets"),
      of=counts_on_the_way)
edits(("assign_buckets", "each_kind_alone", " + opened", "", "order of buckets"),
      ("assign_buckets", "kind_after_kind",
       "in sorted(closed, key=lambda pair: pair[0])", "in closed", "order of buckets"),
      of=each_kind_alone)
edits(("GradientBuckets", "room_to_spare",
       {"sum(p.numel() for p in bucket)": "2 * (length := sum(p.numel() for p in bucket))",
        "device=bucket[0].device\n            )":
        "device=bucket[0].device\n            )[:length]"}, "more memory"), of=Plain)
# fmt: on


@wrong("flatten", "shared")
def torchs_own(tensors):
    return torch._utils._flatten_dense_tensors(tensors)


ROOM = {}


@wrong("flatten", "used again")
def in_the_same_room(tensors):
    parts = [tensor.reshape(-1) for tensor in tensors]
    kind = sum(map(len, parts)), parts[0].dtype
    return torch.cat(parts, out=ROOM.setdefault(kind, torch.empty(kind[0], dtype=kind[1])))


@wrong("assign_buckets", "below the cap")
def below_the_cap(parameters, bucket_cap_mb, first_bucket_mb=None):
    buckets, size = [[]], 0
    for p in reversed(list(parameters)):
        nbytes = p.numel() * p.element_size()
        if buckets[-1] and size + nbytes > bucket_cap_mb * 2**20:
            buckets.append([])
            size = 0
        buckets[-1].append(p)
        size += nbytes
    return buckets


@wrong("assign_buckets", "large alone")
def large_alone(parameters, bucket_cap_mb, first_bucket_mb=None):
    first = bucket_cap_mb if first_bucket_mb is None else first_bucket_mb
    closed, held, caps = [], {}, {}
    for p in reversed(list(parameters)):
        kind = (p.dtype, p.device)
        if p.nbytes >= bucket_cap_mb * 2**20:
            closed.append([p])
            continue
        held.setdefault(kind, []).append(p)
        if sum(q.nbytes for q in held[kind]) >= caps.get(kind, first) * 2**20:
            closed.append(held.pop(kind))
            caps[kind] = bucket_cap_mb
    return closed + list(held.values())
