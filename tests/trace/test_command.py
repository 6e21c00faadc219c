"""`ddpkit trace`: the table, the remarks, the export."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ddpkit.commands.main import main
from ddpkit.trace import Trace
from ddpkit.view import timeline_model
from tests.view.examples import ddp

FIXTURES = Path(__file__).parent / "fixtures"
GLOO = [FIXTURES / f"gloo.rank{rank}.json.gz" for rank in (0, 1)]


def command(*args: object) -> Result:
    return CliRunner().invoke(main, ["trace", *map(str, args)])


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "anything.at.all"  # the content decides, not the name
    ddp(3, steps=2).save(path)
    return path


def test_table_of_a_saved_trace(saved: Path) -> None:
    result = command(saved)
    assert result.exit_code == 0, result.output
    assert result.output.startswith(timeline_model(ddp(3, steps=2)).text)
    assert "2 steps: see one with --step 0 to 1." in result.output


@pytest.mark.parametrize(("step", "number"), [("1", 1), ("-1", 1), ("0", 0)])
def test_table_of_a_step(saved: Path, step: str, number: int) -> None:
    result = command(saved, "--step", step)
    assert result.output == timeline_model(ddp(3, steps=2), number).text + "\n"


def test_table_of_profiler_files() -> None:
    result = command(*GLOO)
    assert result.exit_code == 0, result.output
    assert "all-reduces (1.58 MB)" in result.output
    assert "(gloo, CPU)" in result.output
    assert "rank 1" in result.output
    assert "The files hold" not in result.output


def test_one_rank_of_several_is_said() -> None:
    assert "The files hold 1 of 2 ranks: rank 1." in command(GLOO[1]).output


def test_export(saved: Path, tmp_path: Path) -> None:
    folder = tmp_path / "chrome"
    result = command(saved, "--step", "1", "--export", folder)
    assert result.exit_code == 0, result.output
    for rank in range(3):
        assert f"wrote {folder / f'rank{rank}.json'}" in result.output
        top = json.loads((folder / f"rank{rank}.json").read_text())
        steps = [event for event in top["traceEvents"] if event["name"] == "window"]
        start, end = ddp(3, steps=2).step(1).window_of(rank)
        assert steps[1]["ts"] - steps[0]["ts"] == pytest.approx((end - start) / 1000, abs=1)


def test_export_of_all_ranks(saved: Path, tmp_path: Path) -> None:
    file = tmp_path / "all.json"
    result = command(saved, "--export", file)
    assert result.exit_code == 0, result.output
    assert f"wrote {file}\nTo look at it: https://ui.perfetto.dev" in result.output
    assert {event["pid"] for event in json.loads(file.read_text())["traceEvents"]} == {0, 1, 2}


def test_nothing_to_export(tmp_path: Path) -> None:
    Trace((), 2).save(tmp_path / "empty.json")
    result = command(tmp_path / "empty.json", "--export", tmp_path / "all.json")
    assert result.exit_code == 0, result.output
    assert "Nothing was recorded, so nothing was exported." in result.output


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["no/such.json"], "there is no trace file no/such.json"),
        ([__file__], "is not a trace file, or is damaged"),
        ([GLOO[0], GLOO[0]], "both come from rank 0"),
        ([GLOO[0], "--step", "7"], "there is no step 7: this trace has steps 0 to 1"),
    ],
)
def test_errors_are_one_sentence(args: list[object], says: str) -> None:
    result = command(*args)
    assert result.exit_code == 1
    assert says in result.output
    assert result.output.count("\n") == 1


def test_no_files_is_a_usage_error() -> None:
    assert command().exit_code == 2
