"""Copies between host and device are neither compute nor communication."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from ddpkit.commands.main import main
from ddpkit.simulate import Step
from ddpkit.trace import Span, Trace
from ddpkit.trace.copies import copy_totals, direction, from_to
from ddpkit.trace.intervals import subtract, total, union
from ddpkit.view import show, timeline_model
from ddpkit.view.explorer.model import span_columns
from ddpkit.view.explorer.page import page
from ddpkit.view.stacked.model import stacked_steps
from tests.trace.recordings import event, gpu_step, of_rank, write

US = 1000


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "host→device"),
        ("Memcpy DtoH (Device -> Pinned)", "device→host"),
        ("Memcpy DtoD (Device -> Device)", "device→device"),
        ("Memcpy PtoP (Device -> Device)", "device→device"),
        ("Memcpy HtoH (Pinned -> Pinned)", "host→host"),
        ("CopyHostToDevice", "host→device"),
        ("CopyDeviceToDevice", "device→device"),
        ("Memcpy2D DtoH", "device→host"),
        ("urEnqueueUSMMemcpy(M2D)", "host→device"),
        ("Memset (Device)", "memset"),
        ("FillBuffer", "memset"),
        ("Memcpy Unknown", "copy"),
        ("Array to Device copies", "copy"),
        ("", "copy"),
    ],
)
def test_directions(name: str, expected: str) -> None:
    assert direction(name) == expected


def test_kinds_of_memory() -> None:
    assert from_to("Memcpy HtoD (Pageable -> Device)") == {"from": "pageable", "to": "device"}
    assert from_to("Memset (Device)") == {}


def copying_step(n: int) -> list[object]:
    """Return a step of a GPU with a batch of 1 MB copied, and a copy behind the all_reduce."""
    at = 1500 * n
    return [
        *gpu_step(n),
        event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", at + 42, 8, 7, bytes=10**6),
        event("gpu_memcpy", "Memcpy DtoD (Device -> Device)", at + 400, 100, 7, bytes=4000),
    ]


def recorded(folder: Path) -> tuple[Path, Trace]:
    events = [each for n in range(6) for each in copying_step(n)]
    (path,) = write(folder, of_rank(0, 1, *events, backend="nccl"))
    return path, Trace.load(path)


def test_copies_are_a_part_of_their_own(tmp_path: Path) -> None:
    _, trace = recorded(tmp_path)
    part = trace.step(1).breakdown()[0]
    assert part.compute_ns == (100 + 90 + 30) * US
    assert part.exposed_ns == 200 * US  # the copy follows the all_reduce, and hides nothing
    assert part.copy_ns == 8 * US
    assert part.step_ns == 950 * US
    assert part.idle_ns == (950 - 220 - 200 - 8) * US
    copies = [span for span in trace.step(1).spans if span.is_copy]
    assert [(s.name, s.bytes, s.lane) for s in copies] == [
        ("host→device", 10**6, "copy"),
        ("device→device", 4000, "copy"),
    ]
    assert copies[0].args == {"from": "pageable", "to": "device"}


def test_a_copy_among_the_kernels_is_a_copy(tmp_path: Path) -> None:
    names = ["Memcpy HtoD (Pageable -> Device)", "Memset (Device)", "my_Memcpy_kernel"]
    events = [event("kernel", name, 10 * n, 5, 7) for n, name in enumerate(names)]
    (path,) = write(tmp_path, of_rank(0, 1, *events, backend="nccl"))
    assert [span.kind for span in Trace.load(path).spans] == ["copy", "copy", "span"]


def test_a_prediction_keeps_the_time_of_copies(tmp_path: Path) -> None:
    """No link makes a copy shorter, so the copies stay in the step that a rank computes."""
    _, trace = recorded(tmp_path)
    step = Step.typical(trace)
    assert step.forward_ns == (8 + 100) * US
    assert step.optimizer_ns == (100 + 30) * US  # the device's copy is after the backward


def invoked(*args: object) -> Result:
    result = CliRunner().invoke(main, ["trace", *map(str, args)])
    assert result.exit_code == 0, result.output
    return result


def test_the_command_has_copies_in_each_of_its_forms(tmp_path: Path) -> None:
    path, trace = recorded(tmp_path)
    numbers, rows, html = tmp_path / "n.out", tmp_path / "r.csv", tmp_path / "p.html"
    text = invoked(path, "--step", 1, "--json", numbers, "--csv", rows, "--html", html).output
    head = next(line for line in text.splitlines() if "compute only" in line)
    assert head.split()[-5:] == ["comm", "copy", "idle", "hidden", "waiting"]
    assert "Copies of rank 0: host→device ×1, 1 MB, <0.01 ms, 0% hidden; " in text
    assert "device→device ×1, 4 kB, 0.1 ms, 100% hidden." in text
    by_rank = json.loads(numbers.read_text())["step"]["by_rank"][0]
    assert by_rank["copy"] == pytest.approx(8e-6)
    assert by_rank["copies"]["device→device"] == pytest.approx(
        {"times": 1, "bytes": 4000, "seconds": 1e-4, "hidden": 1e-4}
    )
    (row,) = csv.DictReader(rows.open(encoding="utf-8"))
    parts = ("compute_only", "overlapped", "exposed", "copy", "idle")
    assert sum(float(row[name]) for name in parts) == pytest.approx(float(row["seconds"]))
    assert "Copies between host and device" in html.read_text("utf-8")
    assert page(trace).count('<table class="copies">') == 1


def test_pictures_have_a_row_of_copies(tmp_path: Path) -> None:
    _, trace = recorded(tmp_path)
    model = timeline_model(trace, 1)
    assert [bar.kind for bar in model.rows[0].copies] == ["copy", "copy"]
    show(trace, 1)  # must draw without an error
    columns = span_columns(trace, 1)
    assert [row.name for row in columns.rows] == ["compute", "comm", "copy"]
    stacked = stacked_steps([trace], step=1)
    assert "copies" in stacked.text
    assert sum(stacked.bars[0].lengths) == 950 * US


def test_a_trace_without_copies_has_no_word_of_them(tmp_path: Path) -> None:
    (path,) = write(tmp_path, of_rank(0, 1, *gpu_step(0), *gpu_step(1), backend="nccl"))
    numbers, rows, html = tmp_path / "n.out", tmp_path / "r.csv", tmp_path / "p.html"
    text = invoked(path, "--json", numbers, "--csv", rows, "--html", html).output
    written = (text, numbers.read_text(), rows.read_text(), html.read_text("utf-8"))
    assert not any("Copies" in each or "host→device" in each for each in written)
    assert not any("copy" in each for each in written[:3])


def test_copies_alone_are_not_nothing() -> None:
    text = timeline_model(Trace([Span(0, "copy", "memset", "copy", 0, 9)], 1)).text
    assert "Only copies were recorded: no compute and no communication." in text


def test_copies_go_through_files(tmp_path: Path) -> None:
    _, trace = recorded(tmp_path)
    trace.save(tmp_path / "saved.gz")
    again = Trace.load(tmp_path / "saved.gz")
    assert again.spans == trace.spans
    trace.to_chrome(tmp_path / "all.json")
    events = json.loads((tmp_path / "all.json").read_text())["traceEvents"]
    shown = [each for each in events if each.get("cat") == "copy"]
    assert shown[0]["args"] == {"from": "pageable", "to": "device", "bytes": 10**6}


times = st.tuples(st.integers(0, 40), st.integers(0, 10)).map(lambda t: (t[0], t[0] + t[1]))


@given(st.lists(st.tuples(st.sampled_from(["compute", "comm", "copy"]), times)), times)
def test_parts_add_up_and_compute_takes_precedence(
    rows: list[tuple[str, tuple[int, int]]], window: tuple[int, int]
) -> None:
    kinds = {"compute": "forward", "comm": "comm", "copy": "copy"}
    spans = [Span(0, lane, "send", kinds[lane], *time) for lane, time in rows]
    trace = Trace(spans, 1).window(*window)
    part = trace.breakdown()[0]
    inside = [*range(*window)]

    def at(lane: str) -> set[int]:
        every = (range(*time) for each, time in rows if each == lane)
        return {ns for time in every for ns in time} & {*inside}

    compute, comm, copy = map(at, kinds)
    assert part.compute_ns == len(compute)
    assert part.exposed_ns == len(comm - compute)
    assert part.copy_ns == len(copy - compute - comm)
    assert part.step_ns == len(inside)
    others = union([(ns, ns + 1) for ns in compute | comm])
    totals = copy_totals(spans, window, others)
    copied = totals["send"] if totals else None
    assert (copied.ns if copied else 0) == len(copy)
    assert (copied.ns - copied.hidden_ns if copied else 0) == part.copy_ns
    assert total(subtract(union([(ns, ns + 1) for ns in copy]), others)) == part.copy_ns
