"""`--json` and `--csv` of trace, predict and tune; the same numbers from Python."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ddpkit.commands.main import main
from ddpkit.errors import TraceError
from ddpkit.simulate import forecast
from ddpkit.trace import Trace
from ddpkit.view import write_page
from tests.view.examples import ddp

TRACE = ddp(3, steps=6)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "run.json.gz"
    TRACE.save(path)
    return path


def invoked(*args: object) -> Result:
    result = CliRunner().invoke(main, [*map(str, args)])
    assert result.exit_code == 0, result.output
    return result


def written(saved: Path, command: str, *args: object) -> tuple[Any, list[dict[str, str]], str]:
    """Return the content of the JSON file, the rows of the CSV file, and the printed text."""
    numbers, rows = saved.with_name("numbers.json"), saved.with_name("rows.csv")
    done = invoked(command, saved, "--json", numbers, "--csv", rows, *args)
    with rows.open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    return json.loads(numbers.read_text("utf-8")), found, done.output


@pytest.mark.parametrize("step", [None, 1, -1])
def test_trace_writes_the_parts_of_each_rank(saved: Path, step: int | None) -> None:
    given = [] if step is None else ["--step", step]
    numbers, rows, _ = written(saved, "trace", *given)
    shown = TRACE if step is None else TRACE.step(step)
    parts = shown.breakdown()
    assert [int(row["rank"]) for row in rows] == [0, 1, 2]
    for row in rows:
        part = parts[int(row["rank"])]
        assert float(row["exposed"]) * 1e9 == pytest.approx(part.exposed_ns)
        assert float(row["seconds"]) * 1e9 == pytest.approx(part.step_ns)
    assert numbers["ranks"] == 3
    assert numbers["steps"] == 6
    if step is not None:
        assert numbers["step"]["number"] == step % 6
        assert numbers["step"]["by_rank"][0]["idle"] * 1e9 == pytest.approx(parts[0].idle_ns)


def test_predict_writes_the_curve(saved: Path) -> None:
    numbers, rows, text = written(saved, "predict", "-n", 2, "-n", 64, "--link", "1 GB/s, 5 us")
    model = forecast(TRACE)
    assert [int(row["ranks"]) for row in rows] == [2, 64]
    assert [each["ranks"] for each in numbers["rows"]] == [2, 64]
    for row, each in zip(rows, numbers["rows"], strict=True):
        assert float(row["step_seconds"]) == each["step_seconds"]
        assert f"{each['step_seconds'] * 1e3:.4g} ms" in text
        assert f"{each['efficiency']:.0%}" in text
    assert numbers["recorded"]["gradients"] == len(model.step.gradients)
    assert numbers["measured_by_predicted"] == model.ratio


def test_predict_on_another_machine_has_rows_for_both_speeds(saved: Path) -> None:
    _, rows, text = written(saved, "predict", "-n", 8, "--machine", "H100", "--recorded-on", "A100")
    assert len({row["speed"] for row in rows}) == 2
    assert all(f"× {float(row['speed']):.3g}" in text for row in rows)


def test_tune_writes_each_cap_from_the_best_on(saved: Path) -> None:
    numbers, rows, text = written(saved, "tune", "-n", 16)
    seconds = [float(row["step_seconds"]) for row in rows]
    assert seconds == sorted(seconds)
    assert [row["bucket_cap_mb"] for row in rows].count("") == 1  # torch's default
    assert numbers["ranks"] == 16
    assert f"{numbers['recorded_buckets']['step_seconds'] * 1e3:.4g} ms" in text


@pytest.mark.parametrize("command", ["trace", "predict", "tune"])
@pytest.mark.parametrize("option", ["--json", "--csv"])
def test_a_file_that_cannot_be_written_is_one_sentence(
    saved: Path, command: str, option: str
) -> None:
    target = saved.parent / "missing" / "numbers"
    result = CliRunner().invoke(main, [command, str(saved), option, str(target)])
    assert result.exit_code == 1
    assert f"{target} cannot be written: No such file or directory." in result.output


def test_the_page_is_written_from_python(saved: Path, tmp_path: Path) -> None:
    page, same = tmp_path / "page.html", tmp_path / "same.html"
    invoked("trace", saved, "--html", page, "--step", 1)
    write_page(Trace.load(saved), same, step=1)
    assert page.read_bytes() == same.read_bytes()
    with pytest.raises(TraceError, match="there is no step 9"):
        write_page(TRACE, same, step=9)
    with pytest.raises(TraceError, match="a run or its trace"):
        write_page("run.json.gz", same)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        write_page(TRACE, tmp_path / "missing" / "page.html")
