"""The gradients of a recording are autograd's gradients, not the kernels of a backward."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ddpkit.commands.main import main
from ddpkit.simulate import forecast
from ddpkit.simulate.step.recorded import MOST_READY, ready_of
from ddpkit.trace import Span, Trace
from ddpkit.trace.span import READY
from tests.trace.recordings import NCCL, event, of_rank, write

OUTER = "autograd::engine::evaluate_function: "
GRADIENTS, KERNELS = 4, 5  # gradients in a step, kernels for each gradient


def step(n: int, *, gpu: bool, accumulates: bool = True) -> Iterator[Any]:
    """Yield a step of 4 gradients, each of 5 kernels, and one all_reduce after the last."""
    at, key = 2000 * n, 1000 * n
    yield event("user_annotation", f"ProfilerStep#{n}", at, 1900)
    yield event("cpu_op", "aten::mm", at + 1, 5, **{"Sequence number": 1})
    if gpu:
        yield event("cuda_runtime", "cudaLaunchKernel", at + 2, 1, correlation=key)
        yield event("kernel", "sgemm", at + 5, 90, 7, correlation=key)
    for g in range(GRADIENTS):
        begin = at + 100 + 50 * g
        yield event("cpu_op", f"{OUTER}MmBackward0", begin, 30, tid=2)
        for k in range(KERNELS if gpu else 0):
            key += 1
            yield event("cuda_runtime", "cudaLaunchKernel", begin + 5 * k, 1, 2, correlation=key)
            launched = at + 200 + 100 * g + 20 * k
            yield event("kernel", "sgemm_nt", launched, 20, 7, correlation=key)
        if accumulates:
            yield event("cpu_op", f"{OUTER}torch::autograd::AccumulateGrad", begin + 32, 4, tid=2)
    said = {"Collective name": "allreduce", "In msg nelems": 1000, "dtype": "Float"}
    if gpu:
        yield event("cuda_runtime", "cudaLaunchKernel", at + 288, 1, 2, correlation=key + 1)
        yield event("kernel", NCCL, at + 610, 100, 20, correlation=key + 1, **said)


def load(folder: Path, **how: Any) -> Trace:
    events = [each for n in range(8) for each in step(n, **how)]
    return Trace.load(*write(folder, of_rank(0, 2, *events, backend="nccl")))


def test_a_gpus_gradients_are_those_of_autograd(tmp_path: Path) -> None:
    trace = load(tmp_path, gpu=True)
    model = forecast(trace)
    assert [gradient.ready_ns for gradient in model.step.gradients] == [
        100_000 * (g + 1) for g in range(GRADIENTS)
    ]
    assert [gradient.bytes for gradient in model.step.gradients] == [1000] * GRADIENTS
    ran = CliRunner().invoke(main, ["predict", str(tmp_path / "0.json")])
    assert "4 gradients of 4 kB in 1 bucket" in ran.output


def test_gradients_without_kernels_of_their_own_count(tmp_path: Path) -> None:
    """Two gradients behind the same kernel are both counted."""
    events = [each for n in range(8) for each in step(n, gpu=True)]
    name = f"{OUTER}torch::autograd::AccumulateGrad"
    events += [event("cpu_op", name, 2000 * n + 186.5, 2, tid=2) for n in range(8)]
    trace = Trace.load(*write(tmp_path, of_rank(0, 2, *events, backend="nccl")))
    gradients = forecast(trace).step.gradients
    assert [gradient.ready_ns // 100_000 for gradient in gradients] == [1, 2, 2, 3, 4]


@pytest.mark.parametrize("odd", ["x", -3, 1.5, 10**12])
def test_a_damaged_number_of_gradients_is_not_believed(odd: Any) -> None:
    span = Span(0, "compute", "k", "backward", 0, 9, args={READY: odd})
    assert ready_of(span) in (0, MOST_READY)


def test_the_count_changes_no_time(tmp_path: Path) -> None:
    with_them, without = (
        load(folder, gpu=True, accumulates=accumulates)
        for folder, accumulates in ((tmp_path, True), (tmp_path, False))
    )
    assert with_them.breakdown() == without.breakdown()


def test_without_autograds_own_operators_kernels_count(tmp_path: Path) -> None:
    """Every kernel but the last counts as a gradient in such recordings."""
    model = forecast(load(tmp_path, gpu=True, accumulates=False))
    assert len(model.step.gradients) == GRADIENTS * KERNELS - 1


def test_gradients_of_a_cpu_are_counted_alike(tmp_path: Path) -> None:
    assert len(forecast(load(tmp_path, gpu=False)).step.gradients) == GRADIENTS
