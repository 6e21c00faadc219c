"""Make small files in torch.profiler's form, from events with invented numbers."""

import json
from pathlib import Path
from typing import Any


def recording(*events: dict[str, Any], **top: Any) -> dict[str, Any]:
    info = {"backend": "gloo", "rank": 0, "world_size": 1, "pg_count": 1}
    return {"distributedInfo": info, "traceEvents": list(events), **top}


def event(cat: str, name: str, ts: object, dur: object, tid: int = 1, **args: Any) -> Any:
    return {
        "ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur,
        "args": args,
    }  # fmt: skip


def of_rank(rank: Any, world_size: Any, *events: Any, **info: Any) -> dict[str, Any]:
    return recording(*events, distributedInfo={"rank": rank, "world_size": world_size, **info})


def write(folder: Path, *tops: Any) -> list[Path]:
    paths = [folder / f"{number}.json" for number in range(len(tops))]
    folder.mkdir(exist_ok=True)
    for path, top in zip(paths, tops, strict=True):
        path.write_text(json.dumps(top))
    return paths


NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
STEP_US = 1500  # distance between the starts of two steps


def gpu_step(n: int, late: float = 0.0, *, kernel: str = NCCL, **args: Any) -> list[Any]:
    """Return a data-parallel step of 1 ms: forward, backward, all_reduce, three optimizer kernels.

    n       the number of the step, which begins at ``n * STEP_US``
    late    us by which the all_reduce ends later than in other steps
    kernel  the name of the all_reduce's kernel
    args    facts of the all_reduce beside its name, its 1,000 floats and its group
    """
    at = n * STEP_US
    said = {"Collective name": "allreduce", "In msg nelems": 1000, "dtype": "Float", **args}
    said["Process Group Name"] = "0"
    events = [
        event("user_annotation", f"ProfilerStep#{n}", at, 1000),
        event("user_annotation", "Optimizer.step#SGD.step", at + 700, 250),
        event("gpu_user_annotation", f"ProfilerStep#{n}", at + 40, 950, 7),
    ]
    outer = "autograd::engine::evaluate_function: MmBackward0"
    for k, (operator, name, launched, begins, length) in enumerate(
        [
            ("aten::mm", "sgemm", 10, 50, 100),
            (outer, "sgemm_nt", 200, 210, 90),
            ("aten::add_", "sgd", 710, 740, 10),
            ("aten::add_", "sgd", 740, 760, 10),
            ("aten::add_", "sgd", 770, 780, 10),
        ]
    ):
        of_a_graph = {"Sequence number": k} if operator == "aten::mm" else {}
        correlation = 100 * n + k
        events += [
            event("cpu_op", operator, at + launched, 20, **of_a_graph),
            event(
                "cuda_runtime", "cudaLaunchKernel", at + launched + 5, 5, correlation=correlation
            ),
            event("kernel", name, at + begins, length, 7, correlation=correlation),
        ]
    return [
        *events,
        event("kernel", kernel, at + 310, 200 + late, 20, correlation=100 * n + 9, **said),
    ]
