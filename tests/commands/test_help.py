"""Help is complete at any width, and a command refuses wrong words before any work."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from ddpkit.commands.main import main

FIXTURES = Path(__file__).parents[1] / "trace" / "fixtures"
RECORDED = str(FIXTURES / "nccl.rank0.json")


def said(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, words)
    return done.exit_code, " ".join(done.output.split())


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_summaries_are_whole_at_any_width(width: int) -> None:
    done = CliRunner().invoke(main, ["--help"], terminal_width=width)
    assert "..." not in done.output.replace("[ARGS]...", "")
    assert max(map(len, done.output.splitlines())) <= width
    assert "run your notebook from the top and list which of its exercises pass." in " ".join(
        done.output.lower().split()
    )


@pytest.mark.parametrize("name", main.commands)
def test_each_command_has_an_example(name: str) -> None:
    assert f"Example: ddpkit {name}" in said(name, "--help")[1]


@pytest.mark.parametrize(
    ("late", "suggested"),
    [
        (["train.py", "-n", "2", "--lr", "1"], "ddpkit run -n 2 train.py --lr 1"),
        (["train.py", "-n2"], "ddpkit run -n2 train.py"),
        (["--strict", "train.py", "a b", "-n", "2"], "ddpkit run -n 2 --strict train.py 'a b'"),
    ],
)
def test_options_behind_the_script_are_put_before_it(late: list[str], suggested: str) -> None:
    code, text = said("run", *late)
    assert code == 2
    assert text.endswith(f"all words after the script belong to the script: {suggested}")


def test_a_missing_number_of_ranks_is_still_said() -> None:
    assert "Missing option '-n'" in said("run", "train.py")[1]


def test_an_unreadable_link_is_refused_before_the_trace_is_read() -> None:
    for command in ("predict", "tune"):
        code, text = said(command, "no_such_trace.json", "--link", "fast")
        assert code == 1
        assert "cannot read the link 'fast'" in text


def test_no_folder_is_made_of_a_file_of_another_format(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    code, text = said("trace", RECORDED, "--export", str(target))
    assert (code, target.exists()) == (2, False)
    assert "write FILE.json" in text


def test_check_takes_the_number_of_a_lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from ddpkit.commands import check, lab

    seen: list[Path] = []
    monkeypatch.setattr(check, "run_checks", lambda path, _limit: seen.append(path) or [])
    monkeypatch.chdir(tmp_path)
    assert said("check", "00")[0] == 0
    own = tmp_path / "00_ranks.ipynb"
    own.write_text("{}")
    assert said("check", "0")[0] == 0
    assert [path.resolve() for path in seen] == [lab.lab_named("00", lab.labs()).resolve(), own]
    code, text = said("check", "99")
    assert (code, "There is no lab '99'" in text) == (1, True)


def test_a_shell_completes_labs_and_machines() -> None:
    for words, expected in (("ddpkit lab 0", "00_ranks"), ("ddpkit machine h", "H100")):
        asked = {"_DDPKIT_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "2"}
        done = CliRunner().invoke(main, prog_name="ddpkit", env=asked)
        assert f"plain,{expected}" in done.output.splitlines()
