"""Wrong answers to lab 05."""

import torch

from tests.mutants import edit, mutant

# flatten


@mutant("flatten", hint="make each 1-D first")
def only_cat(tensors):
    return torch.cat(list(tensors))


@mutant("flatten", hint="reshape copies if it must")
def views(tensors):
    return torch.cat([tensor.view(-1) for tensor in tensors])


@mutant("flatten", hint="dtype of the tensors")
def by_pythons_numbers(tensors):
    return torch.tensor([value for tensor in tensors for value in tensor.reshape(-1).tolist()])


@mutant("flatten", hint="not in the order")
def last_first(tensors):
    return torch.cat([tensor.reshape(-1) for tensor in reversed(tensors)])


@mutant("flatten", hint="must be copied")
def one_is_not_copied(tensors):
    flat = tensors[0].reshape(-1)
    return torch.cat([flat, *(t.reshape(-1) for t in tensors[1:])]) if len(tensors) > 1 else flat


@mutant("flatten", hint="in one dimension, please")
def a_row(tensors):
    return torch.cat([tensor.reshape(1, -1) for tensor in tensors], dim=1)


# unflatten


@mutant("unflatten", hint="Slice, view")
def copies(flat, tensors):
    parts = flat.split([tensor.numel() for tensor in tensors])
    return [part.clone().view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]


@mutant("unflatten", hint="the shape of its tensor")
def stays_flat(flat, tensors):
    return list(flat.split([tensor.numel() for tensor in tensors]))


@mutant("unflatten", hint="where the one before it ends")
def always_from_the_start(flat, tensors):
    return [flat[: tensor.numel()].view(tensor.shape) for tensor in tensors]


@mutant("unflatten", hint="copy nothing into them")
def fills_the_tensors(flat, tensors):
    for part, tensor in zip(flat.split([t.numel() for t in tensors]), tensors, strict=True):
        tensor.copy_(part.view(tensor.shape))
    return tensors


# assign_buckets

edit("assign_buckets", "forward", replace="reversed(list(parameters))", by="list(parameters)",
     hint="reverse order")  # fmt: skip
edit("assign_buckets", "elements", replace="q.numel() * q.element_size()", by="q.numel()",
     hint="counts bytes")  # fmt: skip
edit("assign_buckets", "decimal", replace="* 2**20", by="* 10**6", hint="2**20")
edit("assign_buckets", "mixes_all", replace="kind = (p.dtype, p.device)", by="kind = 0",
     hint="for each dtype and device")  # fmt: skip
edit("assign_buckets", "mixes_dtypes", replace="kind = (p.dtype, p.device)", by="kind = p.device",
     hint="Two dtypes")  # fmt: skip
edit("assign_buckets", "mixes_devices", replace="kind = (p.dtype, p.device)", by="kind = p.dtype",
     hint="Two devices")  # fmt: skip
edit("assign_buckets", "no_rest", replace=" + list(open_buckets.values())", by="",
     hint="open at the end")  # fmt: skip
edit("assign_buckets", "no_first", replace="caps.get(kind, first)", by="bucket_cap_mb",
     hint="first_bucket_mb, if given")  # fmt: skip
edit("assign_buckets", "always_first", replace="caps[kind] = bucket_cap_mb", by="pass",
     hint="first bucket of a kind only")  # fmt: skip
edit("assign_buckets", "one_first", replace="caps[kind] = bucket_cap_mb",
     by="first = bucket_cap_mb", hint="Each kind")  # fmt: skip


@mutant("assign_buckets", hint="still goes in")
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


@mutant("assign_buckets", hint="one bucket: here some are missing")
def closes_before_it_adds(parameters, bucket_cap_mb, first_bucket_mb=None):
    buckets, bucket = [], []
    for p in reversed(list(parameters)):
        if sum(q.numel() * 4 for q in [*bucket, p]) >= bucket_cap_mb * 2**20:
            buckets.append(bucket)
            bucket = []
        else:
            bucket.append(p)
    return buckets


# GradientBuckets

edit("GradientBuckets", "copies", replace="                p.grad = view\n", by="",
     hint="Let it be the view")  # fmt: skip
edit("GradientBuckets", "keeps_the_old", replace="                view.copy_(p.grad)\n", by="",
     hint="has lost its values")  # fmt: skip
edit("GradientBuckets", "stale", replace="view.zero_()", by="pass", hint="still holds old values")
edit("GradientBuckets", "none_becomes_zero", replace="view.zero_()",
     by="p.grad = view.zero_()", hint="stays None")  # fmt: skip
edit("GradientBuckets", "not_at_the_start", replace="            self.collect(i)\n",
     by="            pass\n", hint="have to be collected when")  # fmt: skip
edit("GradientBuckets", "float32", replace="torch.zeros_like(p)",
     by="torch.zeros(p.shape)", hint="of the dtype")  # fmt: skip
edit("GradientBuckets", "adds", replace="view.copy_(p.grad)", by="view.add_(p.grad)",
     hint="has lost its values")  # fmt: skip
edit("GradientBuckets", "views_are_copies",
     replace="unflatten(flat, b) for", by="[v.clone() for v in unflatten(flat, b)] for",
     hint="are views of flat")  # fmt: skip

# best_cap

edit("best_cap", "no_ready", replace="max(free, at)", by="free", hint="cannot start before")
edit("best_cap", "no_queue", replace="max(free, at)", by="at", hint="one after the other")
edit("best_cap", "no_rest", replace=" or i == len(sizes) - 1", by="", hint="left at the end")
edit("best_cap", "one_latency", replace="2 * (world_size - 1) * latency", by="latency",
     hint="so many latencies")  # fmt: skip
edit("best_cap", "no_latency", replace="2 * (world_size - 1) * latency", by="0",
     hint="smallest cap always wins")  # fmt: skip
edit("best_cap", "no_bytes", replace="2 * (world_size - 1) / world_size * filled / bandwidth",
     by="0", hint="largest cap always wins")  # fmt: skip


@mutant("best_cap", hint="one of `caps`")
def the_time(caps, ready, sizes, latency, bandwidth, world_size):
    return min(max(ready) + sum(sizes) / bandwidth + latency for _ in caps)


# Of a stubborn student


@mutant("flatten", hint="must be copied")
def torchs_own(tensors):
    return torch._utils._flatten_dense_tensors(tensors)


@mutant("unflatten", hint="cut by numel()")
def equal_pieces(flat, tensors):
    pieces = flat.chunk(len(tensors))
    return [piece.view(tensor.shape) for piece, tensor in zip(pieces, tensors, strict=True)]


edit("assign_buckets", "past_the_cap", replace=">= caps", by="> caps", hint="reach the cap: no")
edit("assign_buckets", "one_is_left", replace="list(open_buckets.values())",
     by="list(open_buckets.values())[:1]", hint="here some are missing")  # fmt: skip
edit("assign_buckets", "an_empty_one", replace="list(open_buckets.values())",
     by="list(open_buckets.values()) + [[]]", hint="A bucket is empty")  # fmt: skip
edit("assign_buckets", "back_in_order", replace="closed.append(open_buckets.pop(kind))",
     by="closed.append(open_buckets.pop(kind)[::-1])", hint="Within a bucket")  # fmt: skip
edit("assign_buckets", "four_bytes", replace="q.element_size()", by="4",
     hint="A bucket of a kind stays open")  # fmt: skip
edit("best_cap", "last_of_equal", replace="min(caps, key=done)", by="min(reversed(caps), key=done)",
     hint="it is the first")  # fmt: skip
edit("best_cap", "decimal", replace="cap * 2**20", by="cap * 10**6", hint="2**20")


@mutant("best_cap", hint="that of the first is too early")
def starts_with_the_first(caps, ready, sizes, latency, bandwidth, world_size):
    def done(cap):
        free, filled, began = 0.0, 0, 0.0
        for i, (at, size) in enumerate(zip(ready, sizes, strict=True)):
            began = began if filled else at
            filled += size
            if filled >= cap * 2**20 or i == len(sizes) - 1:
                wire = 2 * (world_size - 1) / world_size * filled / bandwidth
                free = max(free, began) + 2 * (world_size - 1) * latency + wire
                filled = 0
        return free

    return min(caps, key=done)


# Of a student at midnight


@mutant("unflatten", hint="Give back a list")
def one_at_a_time(flat, tensors):
    parts = flat.split([tensor.numel() for tensor in tensors])
    return (part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True))


edit("assign_buckets", "zero_is_nothing", hint="0 is one too",
     replace="bucket_cap_mb if first_bucket_mb is None else first_bucket_mb",
     by="first_bucket_mb or bucket_cap_mb")  # fmt: skip
edit("assign_buckets", "rest_back_to_front", replace="list(open_buckets.values())",
     by="list(open_buckets.values())[::-1]", hint="at the end as they were opened")  # fmt: skip
edit("best_cap", "past_the_cap", replace=">= cap", by="> cap", hint="reach the cap: no more")
edit("best_cap", "below_the_cap", replace="if filled >= cap * 2**20 or i == len(sizes) - 1:",
     by="if i == len(sizes) - 1 or filled + sizes[i + 1] > cap * 2**20:",
     hint="the gradient that reaches it")  # fmt: skip
edit("best_cap", "half_of_the_latency", replace="2 * (world_size - 1) * latency",
     by="(world_size - 1) * latency", hint="so many latencies")  # fmt: skip
edit("best_cap", "half_of_the_bytes", replace="2 * (world_size - 1) / world_size",
     by="(world_size - 1) / world_size", hint="go over each link")  # fmt: skip
edit("best_cap", "whole_bytes", replace="2 * (world_size - 1) / world_size",
     by="2 * (world_size - 1)", hint="go over each link")  # fmt: skip
edit("best_cap", "the_worst", replace="min(caps", by="max(caps", hint="with the best cap after")


@mutant("flatten", hint="no float()")
def all_as_float32(tensors):
    return torch.cat([tensor.flatten().float() for tensor in tensors])
