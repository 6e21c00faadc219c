"""docs/run.md lists the calls that are real, stood in for and refused; each list is true."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks._packaged import PACKAGED
from benchmarks.scripts import PROGRAMS, outcome, written
from ddpkit.rank.script.gpu_calls import REFUSED
from ddpkit.rank.script.gpus import WANTS_A_GPU
from tests.commands.test_run import SCRIPTS, ran
from tests.project.source import ROOT

PAGE = (ROOT / "docs" / "run.md").read_text()
SECTION = PAGE.partition("### What is real, what is stood in for, what is refused\n")[2]
SECTION = SECTION.partition("\n## ")[0]
STOOD_IN, _, LISTED = SECTION.partition("ddpkit refuses these calls")
LISTED = LISTED.partition("`python -m benchmarks.scripts")[0]
TOO_OLD = (
    "NCCL has no such type",
    "has compute capability 8.0, and",
    "no kernel of attention on A100",
)
TABLE = [
    line.strip("| ").split(" | ")
    for line in SECTION.splitlines()
    if line.startswith("| ") and not line.startswith(("| program", "| ---"))
]


@pytest.mark.processes
def test_each_call_of_the_page_is_refused_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DDPKIT_DEVICE", "cpu")
    script = SCRIPTS / "gpu_refused.py"
    done = ran("-n", "1", "--machine", "A100", script, cwd=tmp_path)
    said = json.loads(done.stdout)
    tried = set(re.findall(r'^    "(.*?)": lambda', script.read_text(), re.MULTILINE))
    assert tried == {*said}
    words = ("`ddpkit run` has no replacement for", *WANTS_A_GPU, "to bfloat16 for this", *TOO_OLD)
    assert [name for name, text in said.items() if not any(each in text for each in words)] == []
    assert [name for name in tried if name not in LISTED] == []
    named = set(re.findall("^- `([^`]+)`", LISTED, re.MULTILINE)) - {"flex_attention"}
    assert named - tried == set()


def test_the_page_lists_each_refusal_of_the_kit() -> None:
    assert [name for name in REFUSED if name.rpartition(".")[2] not in LISTED] == []


def test_scripts_of_the_tests_make_each_call_that_is_stood_in_for() -> None:
    made = "".join(path.read_text() for path in SCRIPTS.glob("*.py"))
    made += (ROOT / "tests" / "emulation" / "test_machine_models.py").read_text()
    names = [re.findall(r"\w+", each)[-1] for each in re.findall("`([^`]+)`", STOOD_IN)]
    names = [name for name in names if name not in ("machine", "False")]
    assert len(names) > 20
    assert [name for name in names if name not in made] == []


def test_the_table_has_a_row_for_each_program() -> None:
    assert [row[0] for row in TABLE] == [*PROGRAMS, *PACKAGED]
    assert len(TABLE) >= 25
    assert {row[1].partition(":")[0] for row in TABLE} <= {"runs", "refused"}


def test_a_new_row_replaces_the_row_of_its_program_alone() -> None:
    first, second = TABLE[:2]
    page = written(PAGE, [[first[0], "runs", "9 s", "1%", "2 MB"]])
    assert f"| {first[0]} | runs | 9 s | 1% | 2 MB |" in page
    assert f"| {' | '.join(second)} |" in page
    assert len(page.splitlines()) == len(PAGE.splitlines())
    with pytest.raises(ValueError, match="put the head of the table there"):
        written("a page", [])


def test_an_error_of_torch_is_no_refusal() -> None:
    assert outcome("RuntimeError: `ddpkit run` has no replacement for x: y\nseed 1") == (
        "refused: `ddpkit run` has no replacement for x: y"
    )
    assert outcome("AttributeError: no x\nseed 1") == "fails: AttributeError: no x"
