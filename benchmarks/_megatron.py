"""Steps of Megatron-LM, predicted from the sizes of a model and of a plan: formulas, no run.

`gpt` predicts rows of table 1 of Narayanan et al. 2021 (arXiv 2104.04473), `llama` dense rows of
NVIDIA's performance pages (Megatron-Bridge, 2025). The kernels of a block are listed as
Megatron fuses them. A machine has the shares that were fitted on MosaicML's steps, and a network
the bandwidths of docs/emulation.md ("Networks by name"); nothing is fitted on rows of these tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from benchmarks._kernels import Kernels, Operations, seconds
from ddpkit.machine import KindCost, MachineModel

# The kit's machine for a system of the tables, and the bytes/s of a GPU inside a host.
SYSTEMS = {
    "A100": ("A100 80GB", 232e9),
    "H100": ("H100 SXM", 370e9),
    "H200": ("H200", 370e9),
    **{system: (system, 722e9) for system in ("B200", "B300", "GB200", "GB300")},
}
BETWEEN = 0.94 * 25e9  # bytes/s of a GPU between hosts: InfiniBand of 200 Gbit/s


@dataclass(frozen=True)
class Step:
    """A published step beside its prediction."""

    name: str
    gpu: str
    predicted: float  # seconds
    published: float


# -- Table 1 of 2021: GPT in float16, attention with a matrix of scores, blocks recomputed

# Megatron-LM, examples/sc21/run_table_1.sh, by 10^9 parameters: micro-batch, parts of a stage in
# the interleaved pipeline, and True if the gradients' all-reduce overlaps the backward.
RUNS = {
    1.7: (16, 1, True),
    3.6: (16, 1, True),
    7.5: (16, 1, True),
    18.4: (8, 1, True),
    39.1: (4, 1, False),
    76.1: (2, 3, False),
    145.6: (2, 2, False),
    310.1: (1, 2, False),
    529.6: (1, 3, False),
    1008.0: (1, 1, False),
}
LENGTH, VOCABULARY = 2048, 51200
ADAM = 32  # bytes a parameter: float16 and float32 weights, a gradient, two moments; read, written


def gpt(rows: Iterable[Mapping[str, str]]) -> list[Step]:
    """Predict rows with the columns of published_megatron_2021.csv, all on A100 80GB."""
    machine = MachineModel.parse(SYSTEMS["A100"][0])
    return [_gpt_step(row, machine) for row in rows]


def _gpt_step(row: Mapping[str, str], machine: MachineModel) -> Step:
    columns = ("d_model", "heads", "layers", "tensor_parallel", "pipeline_parallel", "gpus")
    width, heads, layers, slices, stages, gpus = (int(row[each]) for each in columns)
    size, batch = float(row["parameters_1e9"]), int(row["batch_sequences"])
    micro_batch, parts, overlapped = RUNS[min(RUNS, key=lambda known: abs(known - size))]
    replicas = gpus // (slices * stages)
    passes, tokens = batch // replicas // micro_batch, LENGTH * micro_batch

    forward, backward = gpt_block(tokens, width, heads, slices)
    hidden = 2 * tokens * width  # bytes of a micro-batch's activations
    all_reduce = 2 * (slices - 1) / slices * hidden / SYSTEMS["A100"][1]
    block = seconds(forward + forward + backward, machine) + 6 * all_reduce
    # The last stage has the head, and the pipeline goes at the pace of the slowest stage.
    stage = layers / stages * block + seconds(gpt_head(tokens, width, slices), machine)
    if stages > 1:
        stage += 2 * parts * hidden / slices / BETWEEN  # each slice sends its part
    held = size * 1e9 / (slices * stages)
    gradients = 0 if overlapped else 2 * (replicas - 1) / replicas * 2 * held / BETWEEN
    update = ADAM * held / (machine.bandwidth * machine.efficiency[1])
    step = (passes + (stages - 1) / parts) * stage + gradients + update

    of_tokens = 1 + LENGTH / (6 * width) + VOCABULARY / (16 * layers * width)
    flops = 96 * batch * LENGTH * layers * width**2 * of_tokens  # the paper's equation 3
    published = flops / gpus / (float(row["tflops_per_s_per_gpu"]) * 1e12)
    return Step(f"GPT of {size:g} x 10^9, {gpus} x A100 80GB", "A100 80GB", step, published)


def gpt_block(tokens: int, width: int, heads: int, slices: int) -> tuple[Operations, Operations]:
    """Return the operations of a block on one of `slices` ranks: forward, and backward alone."""
    part, kept = width / slices, tokens * LENGTH * heads / slices  # numbers of a matrix of scores
    linears = ((width, 3 * part), (part, width), (width, 4 * part), (4 * part, width))
    scores = (2 * tokens * LENGTH * part, 2 * tokens * part + kept)
    forward, backward = (Kernels(tokens, "float16") for _ in range(2))
    for rows, columns in linears:
        forward.product(rows, columns)
        backward.product(rows, columns, 2)
    forward.batched(*scores, 2)
    backward.batched(*scores, 4)
    of_scores = kept / tokens
    for moved in (
        *(4 * width, 4 * width),  # two norms
        *(4 * of_scores, 5 * of_scores),  # scale, mask and softmax; dropout with its mask
        *(8 * part, 16 * part),  # heads to the front and back; bias and GELU
        *(7 * width, 7 * width),  # bias, dropout and residual path, twice
    ):
        forward.one_pass(moved)
    for moved in (
        *(6 * width, 6 * width, 6 * of_scores, 5 * of_scores, 8 * part, 24 * part),
        *(5 * width, 5 * width, 6 * width, 6 * width),  # dropout; sums of two gradients
        6 * 12 * width * part / tokens,  # gradients of the weights are added up
    ):
        backward.one_pass(moved)
    return forward.found, backward.found


def gpt_head(tokens: int, width: int, slices: int) -> Operations:
    """Return the operations of the head and of the loss, with the backward."""
    head, part = Kernels(tokens, "float16"), VOCABULARY / slices
    head.product(width, part, 3)
    head.one_pass(20 * part)  # logits to float32, softmax, the loss and its gradient
    return head.found


# -- NVIDIA's performance pages: Llama 3, with Transformer Engine


@dataclass(frozen=True)
class Llama:
    """The sizes of a Llama 3."""

    width: int
    heads: int
    kv_heads: int
    layers: int
    hidden: int
    vocabulary: int = 128256


LLAMAS = {
    "LLAMA3_8B": Llama(4096, 32, 8, 32, 14336),
    "LLAMA3_70B": Llama(8192, 64, 8, 80, 28672),
    "LLAMA3.1_405B": Llama(16384, 128, 8, 126, 53248),
}
# cuDNN's attention on an H100 reaches 600 of 989 TFLOP/s at 8,192 tokens and heads of 128 (Shah et
# al. 2024, arXiv 2407.08608, figure 5). The machines' own share, 0.35, is FlashAttention-2's.
CUDNN = 0.61
# Precision of the products: dtype, bytes of a number, bytes that a cast moves for each number. A
# cast reads 2 bytes and writes two copies, by rows and by columns; scales of a whole tensor need a
# reading of their own, for the largest value.
PRECISIONS = {
    "BF16": ("bfloat16", 2.0, 0),
    "FP8": ("float8_e4m3fn", 1.0, 6),
    "MXFP8": ("float8_e4m3fn", 1.0, 4),
    "NVFP4": ("float4_e2m1fn_x2", 0.5, 5),
}
SHARDED = 30  # bytes a parameter of the distributed optimizer: as ADAM, gradients in float32


def llama(rows: Iterable[Mapping[str, str]]) -> tuple[list[Step], list[str]]:
    """Predict rows with the columns of published_nemo.csv; return the names of the others too."""
    found: list[Step] = []
    others: list[str] = []
    for row in rows:
        name = f"{row['model']}, {row['gpus']} x {row['system']}, {row['precision']}"
        if row["model"] not in LLAMAS:
            others.append(f"{name}: routed experts are not counted")
        elif row["precision"] not in PRECISIONS or row["system"] not in SYSTEMS:
            others.append(f"{name}: this precision or this system is not counted")
        else:
            found.append(_llama_step(row, name))
    return found, others


def _llama_step(row: Mapping[str, str], name: str) -> Step:
    model, system = LLAMAS[row["model"]], row["system"]
    columns = ("gpus", "tp", "pp", "cp", "vp", "micro_batch", "global_batch", "sequence")
    gpus, slices, stages, rings, parts, micro_batch, batch, length = (int(row[c]) for c in columns)
    name_of_machine, inside = SYSTEMS[system]
    machine = MachineModel.parse(name_of_machine)
    attention = KindCost(machine.launch_ns, ((1.0, CUDNN),))
    machine = replace(machine, kinds=dict(machine.kinds) | {"attention": attention})
    replicas = gpus // (slices * stages * rings)
    passes, tokens = batch // replicas // micro_batch, micro_batch * length // rings

    # Sequence parallelism: a gather and a reduce-scatter for each of two layers, and the
    # same again in the backward. No part of the time of these collectives counts as hidden.
    moved = 8 * (slices - 1) / slices * 2 * tokens * model.width
    precision = row["precision"]
    block = seconds(llama_block(model, tokens, length, slices, precision), machine) + moved / inside
    # The slowest stage has the head too, unless the layers leave a place for it (126 on 8 stages).
    head = seconds(llama_head(model, tokens, slices), machine)
    whole = math.ceil(model.layers / stages)
    stage = whole * block if model.layers % stages else whole * block + head
    weights = sum(rows * columns for rows, columns in linears(model, slices))
    held = (model.layers * weights + model.vocabulary * model.width / slices) / stages
    once = held * PRECISIONS[precision][2] + held * SHARDED / (
        replicas * rings
    )  # bytes: casts of the weights, Adam
    update = once / (machine.bandwidth * machine.efficiency[1])
    step = (passes + (stages - 1) / parts) * stage + update
    published = batch * length / gpus / float(row["tokens_per_s_per_gpu"])
    return Step(name, system, step, published)


def linears(model: Llama, slices: int) -> list[tuple[float, float]]:
    """Return the shapes of a block's weights on one of `slices` ranks, without the norms."""
    width, hidden = model.width, model.hidden
    both = width + 2 * width * model.kv_heads / model.heads  # queries, keys and values
    return [
        (width, both / slices),
        (width / slices, width),
        (width, 2 * hidden / slices),
        (hidden / slices, width),
    ]


def llama_block(
    model: Llama, tokens: float, length: int, slices: int, precision: str = "FP8"
) -> Operations:
    """Return a block's operations on one of `slices` ranks, forward and backward."""
    dtype, size, cast = PRECISIONS[precision]
    width, hidden = model.width, model.hidden / slices
    keys = width * (1 + model.kv_heads / model.heads) / slices  # queries and keys of a token
    products, rest = Kernels(tokens, dtype, size), Kernels(tokens)
    for rows, columns in linears(model, slices):
        products.product(rows, columns, 2)
        products.product(rows, columns, added=8)  # the weight's gradient is added up in float32
        rest.one_pass(cast * rows)  # the input
        rest.one_pass(cast * columns)  # the gradient of the output
    scores = 2 * tokens * length * width / slices  # two products, causal
    rest.attention(scores, 2 * tokens * keys)
    rest.attention(2.5 * scores, 4 * tokens * keys)
    for moved in (
        *(4 * width / slices, 6 * width / slices) * 2,  # two norms
        *(4 * keys, 4 * keys),  # rotary positions
        *(6 * hidden, 10 * hidden),  # SwiGLU
        *(6 * width / slices,) * 4,  # two residual paths
    ):
        rest.one_pass(moved)
    return products.found + rest.found


def llama_head(model: Llama, tokens: float, slices: int) -> Operations:
    """Return the operations of the head, in bfloat16, and of the loss, with the backward."""
    head, part = Kernels(tokens), model.vocabulary / slices
    head.product(model.width, part, 3)
    head.one_pass(12 * part)  # a fused loss: logits read, softmax kept in float32, gradient written
    return head.found
