"""Steps of a recording on GPUs: by the GPU's marks, otherwise by the CPU's marks and launches."""

from pathlib import Path
from typing import Any

import pytest

from ddpkit.trace import Trace
from tests.trace.recordings import STEP_US, gpu_step, of_rank, write

STEPS = 5


def load(folder: Path, events: list[Any]) -> Trace:
    return Trace.load(*write(folder, of_rank(0, 1, *events, backend="nccl")))


def steps() -> list[Any]:
    return [event for n in range(STEPS) for event in gpu_step(n)]


def windows(trace: Trace) -> list[tuple[float, float]]:
    """Return the start and the end of each step, in us from the start of the job's first step."""
    return [(start / 1000, end / 1000) for start, end in trace.step_windows[0]]


BY_LAUNCHES = [(n * STEP_US + 50, n * STEP_US + 790) for n in range(STEPS)]
BY_THE_GPU = [(n * STEP_US + 40, n * STEP_US + 990) for n in range(STEPS)]


def test_the_marks_of_the_gpu_are_the_steps(tmp_path: Path) -> None:
    assert windows(load(tmp_path, steps())) == BY_THE_GPU


def test_without_them_a_step_has_the_kernels_launched_in_it(tmp_path: Path) -> None:
    """Regression: each kernel of the optimizer counted as the end of a step: 15 steps, not 5."""
    events = [event for event in steps() if event["cat"] != "gpu_user_annotation"]
    assert windows(load(tmp_path, events)) == BY_LAUNCHES


@pytest.mark.parametrize(("length", "expected"), [(16, BY_LAUNCHES), (500, None)])
def test_marks_far_shorter_than_the_cpus_are_none(
    tmp_path: Path, length: int, expected: list[Any] | None
) -> None:
    events = steps()
    for event in events:
        if event["cat"] == "gpu_user_annotation":
            event["dur"] = length
    trace = load(tmp_path, events)
    assert windows(trace) == (expected or [(start, start + 500) for start, _ in BY_THE_GPU])
    for k in range(STEPS):
        kinds = {span.kind for span in trace.step(k).spans}
        assert {"forward", "backward", "comm"} <= kinds


def test_without_profiler_step_a_step_ends_with_its_optimizer(tmp_path: Path) -> None:
    events = [event for event in steps() if not event["name"].startswith("ProfilerStep#")]
    trace = load(tmp_path, events)
    ends = [end for _, end in BY_LAUNCHES]
    assert windows(trace) == list(zip([50, *ends], ends, strict=False))


def test_without_any_launch_the_times_of_the_cpu_count(tmp_path: Path) -> None:
    unwanted = ("gpu_user_annotation", "cuda_runtime")
    events = [event for event in steps() if event["cat"] not in unwanted]
    assert windows(load(tmp_path, events)) == [
        (n * STEP_US, n * STEP_US + 1000) for n in range(STEPS)
    ]


def test_without_any_mark_there_are_no_steps(tmp_path: Path) -> None:
    events = [event for event in steps() if "annotation" not in event["cat"]]
    assert load(tmp_path, events).steps == 0
