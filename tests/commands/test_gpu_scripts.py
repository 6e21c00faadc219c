"""Scripts for GPUs on a machine without one: "cuda" means the CPU, and no value is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddpkit import RankError
from ddpkit.commands.run import explanation
from tests.commands.test_run import SCRIPTS, ddpkit_run, on, ran

pytestmark = pytest.mark.processes


@pytest.fixture(autouse=True)
def no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DDPKIT_DEVICE", "cpu")


def test_a_training_for_gpus_runs_and_says_once_that_there_is_none(tmp_path: Path) -> None:
    done = ran("-n", "2", SCRIPTS / "gpu.py", cwd=tmp_path)
    assert done.stdout.startswith("loss ")
    said = [line for line in done.stderr.splitlines() if line.startswith("ddpkit run: ")]
    assert said == [
        "ddpkit run: no GPU here: cuda means the CPU",
        "ddpkit run: torch.cuda.max_memory_allocated() is 0: nothing is on a GPU",
    ]
    assert "pin_memory" not in done.stderr


def test_in_emulated_time() -> None:
    run = on(2, "gpu.py", link="10 Gbit/s, 20 us")
    assert run.trace.steps == 2
    assert run.traffic.collectives(0)["all_reduce"].times == 3


def test_memory_is_that_of_a_modelled_machine() -> None:
    of_64_mb = {"machine": "1 TFLOP/s, 100 GB/s, 64 MB, 5 us"}
    on(1, "memory.py", str(64_000_000), **of_64_mb)
    with pytest.raises(RankError, match="OutOfMemoryError.* has 64 MB of memory"):
        on(1, "memory.py", str(64_000_000), "too much", **of_64_mb)


def test_streams_and_events_are_those_of_a_device() -> None:
    run = on(2, "streams.py", machine="device of 2 GFLOP/s, 5 us", link="20 MB/s")
    sums = [span for span in run.trace.of(0) if span.name == "all_reduce"]
    assert [span.end_ns - span.start_ns for span in sums] == [5_000_000, 5_000_000]


def test_a_model_on_a_gpu_is_held_as_parameters() -> None:
    run = on(2, "pipeline.py", machine="A100", link="100 Gbit/s, 5 us")
    peak = run.trace.peak(0)
    assert peak is not None
    assert peak.of("parameters") == 4 * (16 * 16 + 16)


def test_moves_copy_as_they_do_on_a_gpu() -> None:
    assert on(1, "gpu_copies.py").traffic.collectives(0)["barrier"].times == 1


def test_torchscript_knows_what_is_stood_in_for() -> None:
    assert on(1, "scripted.py").traffic.collectives(0)["broadcast"].times > 0


def test_torchs_allocator_reserves_segments_and_has_a_snapshot(tmp_path: Path) -> None:
    ran("-n", "1", "--machine", "A100", SCRIPTS / "reserved.py", cwd=tmp_path)


def test_what_scripts_ask_of_autocast_memory_and_fsdp() -> None:
    run = on(2, "gpu_words.py", machine="A100", link="100 Gbit/s, 5 us")
    assert run.traffic.collectives(0)["all_gather"].times > 0


def test_nested_tensors_and_types_of_old_scripts() -> None:
    run = on(2, "gpu_types.py", machine="A100", link="100 Gbit/s, 5 us")
    assert run.traffic.collectives(0)["all_reduce"].times == 1


@pytest.mark.parametrize(
    ("call", "says"),
    [("causal", "Pad the sequences with to_padded_tensor"), ("storage", "Make a tensor, and call")],
)
def test_what_these_types_cannot_do_has_its_line(call: str, says: str) -> None:
    with pytest.raises(RankError) as raised:
        on(1, "gpu_types.py", call, machine="A100")
    said = explanation(raised.value)
    assert "ddpkit run: gpu_types.py, line " in said
    assert says in said


@pytest.mark.parametrize("how", [[], ["modelled"]])
def test_calls_that_scripts_make_once_or_twice(how: list[str]) -> None:
    machine = {"machine": "A100", "link": "100 Gbit/s, 5 us"} if how else {}
    assert on(2, "gpu_calls.py", *how, **machine).traffic.collectives(0)["all_reduce"].times > 3


def test_each_public_call_of_torch_cuda_ends_in_a_result_or_in_a_sentence(tmp_path: Path) -> None:
    done = ran("-n", "1", "--machine", "A100", SCRIPTS / "gpu_walk.py", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert found["errors"] == {}
    assert found["number"] > 100


TORCHS_OWN = {  # torch raises these errors on real GPUs too
    "fsdp.LocalStateDictConfig",
    "algorithms.ddp_comm_hooks.powerSGD_hook.batched_powerSGD_hook",
    "algorithms.ddp_comm_hooks.quantization",
}


SLOW_CALLS = "checkpoint", "fsdp", "pipelining"  # each takes a tenth of the walk or more


@pytest.mark.parametrize(
    "calls", [*((each,) for each in SLOW_CALLS), ("except", *SLOW_CALLS)], ids=" ".join
)
def test_each_public_call_of_torch_distributed_ends_in_a_result_or_in_a_sentence(
    tmp_path: Path, calls: tuple[str, ...]
) -> None:
    how = ("-n", "2", "--machine", "A100", "--link", "100 Gbit/s, 10 us")
    done = ran(*how, SCRIPTS / "dist_walk.py", *calls, cwd=tmp_path)
    found = next(line for line in done.stdout.splitlines() if line.startswith("errors "))
    errors = json.loads(found.removeprefix("errors "))
    assert {name: text for name, text in errors.items() if name not in TORCHS_OWN} == {}


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("graph", "has no replacement for torch.cuda.CUDAGraph: a graph replays kernels"),
        (
            "device",
            'line 25: no GPU here, but this call needs a real GPU. Write torch.device("cuda',
        ),
        ("backend", "line 26: no GPU here, but this call needs a real GPU. Call dist's functions"),
        ("comm", "has no replacement for torch.cuda.comm.broadcast: such copies need several"),
    ],
)
def test_a_refusal_names_the_line_and_a_way_round(call: str, says: str, tmp_path: Path) -> None:
    done = ddpkit_run("-n", "1", SCRIPTS / "gpu_calls.py", call, cwd=tmp_path)
    assert done.returncode == 1
    assert says in done.stderr
    assert "gpu_calls.py" in done.stderr


def test_a_gpt_accumulates_gradients_as_on_gpus(tmp_path: Path) -> None:
    """Two micro-batches a step, and only the second is reduced; tied weights are reduced once."""
    run = on(2, "gpt.py", machine="A100", link="100 Gbit/s, 5 us")
    sums = [span for span in run.trace.of(0) if span.name == "all_reduce"]
    assert len(sums) == run.trace.steps == 3
    block = 16 * 48 + 48 + 16 * 16 + 16 + 16 * 64 + 64 + 64 * 16 + 16
    assert {span.bytes for span in sums} == {4 * (33 * 16 + 8 * 16 + 3 * 32 + block)}


def test_fsdp_with_offloaded_parameters_trains_where_there_is_one_memory() -> None:
    on(2, "fsdp_offload.py")
    on(2, "fsdp_offload.py", machine="laptop core", link="1 Gbit/s")


def test_fsdp_with_offloaded_parameters_is_refused_beside_a_device() -> None:
    """Given by position, the option passed, and the first forward failed: "cannot pin"."""
    with pytest.raises(RankError) as caught:
        on(2, "fsdp_offload.py", machine="A100", link="100 Gbit/s, 5 us")
    text = " ".join(str(caught.value).split())
    assert "has no replacement for FSDP(cpu_offload=CPUOffload(offload_params=True)): " in text
    assert "take fully_shard with CPUOffloadPolicy()" in text
    line = "assert trained(None, ShardingStrategy.FULL_SHARD, offloads) == on_the_gpu"
    number = (SCRIPTS / "fsdp_offload.py").read_text("utf-8").splitlines().index(line) + 1
    assert f"fsdp_offload.py, line {number}: {line}" in text


def test_tensor_and_loss_parallel() -> None:
    moved = on(2, "tensor_parallel.py", machine="A100", link="100 Gbit/s, 5 us").traffic
    assert moved.collectives(0)["reduce_scatter_tensor"].times > 0
    assert moved.collectives(0)["all_gather_into_tensor"].times > 0
