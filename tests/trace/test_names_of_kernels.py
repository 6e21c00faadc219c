"""Names of kernels and categories since 2021: of NCCL, of RCCL, and of torch 1.8."""

from pathlib import Path
from typing import Any

import pytest

from ddpkit.trace import Span, Trace
from tests.trace.recordings import event, of_rank, write


def operation(folder: Path, kernel: str, *around: Any, **args: Any) -> str:
    """Return the name of the only operation of a file with this kernel."""
    events = [*around, event("kernel", kernel, 100, 50, 20, correlation=7, **args)]
    trace = Trace.load(*write(folder, of_rank(0, 1, *events)))
    (span,) = (span for span in trace.spans if span.is_comm)
    return span.name


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_reduce"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_gather"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevComm*, ulong)", "reduce_scatter"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclDevComm*, ulong)", "reduce"),
        ("ncclDevKernel_Broadcast_RING_LL(ncclDevComm*, unsigned long)", "broadcast"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, ulong, ncclWork*)", "all_reduce"),
        ("ncclSymkDevKernel_AllReduce_AGxLL_R_sum_f32(ncclSymkDevWorkArgs)", "all_reduce"),
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "all_reduce"),
        ("ncclAllGatherRingLLKernel_copy_i8(ncclColl)", "all_gather"),
        ("void ncclReduceScatterTreeLLKernel_sum_f32(ncclColl)", "reduce_scatter"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "sendrecv"),
        ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", "nccl_operation"),
        ("ncclDevKernel_Generic(ncclDevComm*, channelMasks, ncclWork*)", "nccl_operation"),
        ("mscclKernel_Sum_float_Simple_false(ncclDevComm*, mscclAlgo*)", "nccl_operation"),
    ],
)
def test_an_operation_is_named_by_its_kernel(tmp_path: Path, kernel: str, name: str) -> None:
    assert operation(tmp_path, kernel) == name


@pytest.mark.parametrize(
    ("kernel", "annotation", "name"),
    [
        ("ncclDevKernel_Generic(ncclDevComm*)", "nccl:all_reduce", "all_reduce"),
        ("ncclDevKernel_Generic(ncclDevComm*)", "nccl:_all_gather_base", "all_gather_into_tensor"),
        ("ncclDevKernel_SendRecv(ncclDevComm*)", "nccl:send 0->1", "send"),
        ("ncclDevKernel_SendRecv(ncclDevComm*)", "nccl:recv 0<-1", "recv"),
        ("ncclDevKernel_AllReduce_Sum_f32(ncclDevComm*)", "nccl:coalesced", "all_reduce"),
    ],
)
def test_a_vague_kernel_is_named_by_its_launch(
    tmp_path: Path, kernel: str, annotation: str, name: str
) -> None:
    around = (
        event("user_annotation", annotation, 10, 30),
        event("cuda_runtime", "hipExtLaunchKernel", 12, 5, correlation=7),
    )
    assert operation(tmp_path, kernel, *around) == name


def test_the_collective_name_takes_precedence(tmp_path: Path) -> None:
    said = {"Collective name": "reduce_scatter_tensor_coalesced"}
    assert operation(tmp_path, "ncclDevKernel_Generic(x)", **said) == "reduce_scatter_tensor"


@pytest.mark.parametrize(
    "kernel",
    [
        "void at::native::reduce_kernel<512, 1>(ReduceOp<float>)",
        "sgemm_ncclDevKernel_AllReduce",
        "void my::Kernel<ncclDevKernelArgsStorage<4096ul>>(int)",
        "ncclCommInit",
    ],
)
def test_other_kernels_are_compute(tmp_path: Path, kernel: str) -> None:
    (path,) = write(tmp_path, of_rank(0, 1, event("kernel", kernel, 100, 50, 20)))
    assert [span.kind for span in Trace.load(path).spans] == ["span"]


def of_2021() -> list[Any]:
    """Return a step in the form of torch 1.8: on the CPU, each annotation is an "Operator"."""
    return [
        event("Operator", "ProfilerStep#8", 0, 900),
        event("Operator", "aten::mm", 10, 20, **{"Sequence number": 3}),
        event("Runtime", "cudaLaunchKernel", 12, 5, correlation=1),
        event("Operator", "MmBackward", 100, 20, tid=2),
        event("Runtime", "cudaLaunchKernel", 102, 5, tid=2, correlation=2),
        event("Operator", "Optimizer.step#SGD.step", 300, 50),
        event("Operator", "aten::add_", 310, 20),
        event("Runtime", "cudaLaunchKernel", 312, 5, correlation=3),
        event("Kernel", "volta_sgemm", 50, 40, 7, correlation=1),
        event("Memcpy", "Memcpy HtoD (Pageable -> Device)", 95, 5, 7, correlation=9),
        event("Kernel", "volta_sgemm_nt", 150, 60, 7, correlation=2),
        event("Kernel", "ncclAllReduceRingLLKernel_sum_f32(ncclColl)", 200, 100, 20),
        event("Kernel", "elementwise", 320, 30, 7, correlation=3),
        event("Memset", "Memset (Device)", 360, 1, 7, correlation=8),
        event("Trace", "Iteration Start: PyTorch Profiler", 0, 0),
    ]


def test_the_categories_of_2021_are_those_of_today(tmp_path: Path) -> None:
    trace = Trace.load(*write(tmp_path, of_rank(0, 1, *of_2021(), backend="nccl")))
    assert trace.facts["device"] == "cuda"
    assert trace.steps == 1
    compute = {span.name: span.kind for span in trace.spans if span.is_compute}
    assert compute == {
        "volta_sgemm": "forward",
        "volta_sgemm_nt": "backward",
        "elementwise": "optimizer",
    }
    assert [span.name for span in trace.spans if span.is_copy] == ["host→device", "memset"]
    assert [span.name for span in trace.spans if span.is_comm] == ["all_reduce"]


def test_the_old_categories_on_a_cpu(tmp_path: Path) -> None:
    """Annotations are not compute: only the operators inside annotations are."""
    events = [raw for raw in of_2021() if raw["cat"] in ("Operator", "Trace")]
    trace = Trace.load(*write(tmp_path, of_rank(0, 1, *events)))
    kinds = {span.name: span.kind for span in trace.spans}
    assert kinds == {
        "step": "step",
        "aten::mm": "forward",
        "MmBackward": "backward",
        "aten::add_": "optimizer",
    }


def test_unknown_categories_stay_unread(tmp_path: Path) -> None:
    events = [event("Operators", "aten::mm", 0, 9), event("kernels", "x", 0, 9)]
    spans: tuple[Span, ...] = Trace.load(*write(tmp_path, of_rank(0, 1, *events))).spans
    assert spans == ()
