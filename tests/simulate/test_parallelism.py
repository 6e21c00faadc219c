"""The kinds of parallelism in a recorded step; a forecast knows only all-reduces of gradients."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from ddpkit.commands.main import main
from ddpkit.simulate.step.parallelism import seen
from ddpkit.trace import Span, Trace

MB = 1_000_000
GATHER, SCATTER = "all_gather_into_tensor", "reduce_scatter_tensor"
PHASES = {"forward": 10, "backward": 50, "after": 85}  # ms in a step of 100 ms
DDP = ("all_reduce", "backward", 4 * MB, 2)


def trace_of(*calls: tuple[str, str, int, int], ms: int = 20) -> Trace:
    """Return a trace of 2 ranks and 5 steps, with calls of `ms` ms.

    A call is (name, phase, bytes, group size).
    """
    spans = []
    for rank in (0, 1):
        for step in range(5):
            at = step * 100

            def add(kind: str, start: int, end: int, name: str = "", **more: object) -> None:
                lane = "comm" if kind == "comm" else "compute"
                times = (at + start) * MB, (at + end) * MB  # noqa: B023
                spans.append(Span(rank, lane, name or kind, kind, *times, **more))  # noqa: B023

            add("forward", 0, 40)
            add("backward", 40, 80, bytes=4 * MB, args={"gradient": "w"})
            add("optimizer", 90, 100)
            for n, (name, phase, nbytes, group) in enumerate(calls):
                add(
                    *("comm", PHASES[phase], PHASES[phase] + ms, name),
                    bytes=nbytes,
                    seq=step * len(calls) + n,
                    args={"group_size": group},
                )
    return Trace(tuple(spans), 2)


@pytest.mark.parametrize(
    ("calls", "kind"),
    [
        ([("all_reduce", "forward", MB, 2)], "tensor parallelism"),
        ([("all_reduce", "forward", MB, 2), DDP], "tensor parallelism"),
        (
            [(GATHER, "forward", MB, 2), (SCATTER, "forward", MB, 2)],
            "tensor parallelism",
        ),
        (
            [(GATHER, "forward", MB, 2), (SCATTER, "backward", MB, 2)],
            "sharded data parallelism",
        ),
        ([DDP, ("broadcast", "after", 4 * MB, 2)], "ZeRO-1"),
        ([("send", "forward", MB, 2)], "pipeline parallelism"),
        ([("all_to_all_single", "backward", MB, 2), DDP], "expert or context parallelism"),
        ([("all_reduce", "backward", 4 * MB, 1)], "data parallelism in groups of some ranks"),
    ],
)
def test_a_kind_without_a_model_is_refused(
    calls: list[tuple[str, str, int, int]], kind: str, tmp_path: Path
) -> None:
    trace = trace_of(*calls)
    found = seen(trace)
    assert not found.is_data_parallel
    assert kind in found.kind
    trace.save(path := tmp_path / "run.json.gz")
    for command in ("predict", "tune"):
        ran = CliRunner().invoke(main, [command, str(path)])
        assert ran.exit_code == 1
        assert ran.output.startswith(f"Error: run.json.gz: this run has {found.kind}")


@pytest.mark.parametrize(
    "calls",
    [
        [DDP],
        [("all_reduce", "after", 4 * MB, 2)],  # a call between backward and optimizer
        [DDP, ("broadcast", "forward", 4_000, 2)],  # buffers
        [],
    ],
)
def test_data_parallelism_is_not_refused(calls: list[tuple[str, str, int, int]]) -> None:
    assert seen(trace_of(*calls, ms=4)).is_data_parallel


def test_predict_says_the_parallelism_and_the_calls_left_out(tmp_path: Path) -> None:
    trace_of(DDP, ("broadcast", "forward", 4_000, 2), ms=4).save(path := tmp_path / "run.json.gz")
    said = CliRunner().invoke(main, ["predict", "--link", "1 Gbit/s", str(path)]).output
    assert (
        "Seen: data parallelism, 1 all-reduce, 4 MB a step. Not in the model, and short: " in said
    )
    assert "broadcast ×1, 4 kB, in the forward." in said
