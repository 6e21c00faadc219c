"""docs/pictures.md is true: its cells run, and every picture is in the page or in a lab."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ddpkit import view
from tests.project.source import ROOT

PAGE = (ROOT / "docs" / "pictures.md").read_text("utf-8")
CELLS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
LABS = "".join(path.read_text("utf-8") for path in sorted((ROOT / "solutions").glob("*.py")))
PICTURES = [
    name
    for name in view.__all__
    if inspect.isfunction(getattr(view, name)) and name != "timeline_model"
]
SAYS = {  # a pattern in the text of each picture
    "heat_map": "the straggler|Notice: .* step",
    "explore": "Step 4 on 2 ranks, ",
    "what_if": "10 Gbit/s, 50 us: ",
    "explore_plan": "In 24 h the cheapest is ",
    "show_held": r"the last: \d+ kB at .*, within the limit of 1 MB",
    "show_roof": "under the slope",
    "show_limits": "by the formula 15,625",
    "live": r"Step 9 on 2 ranks: loss [\d.]+, ",
    "Trace.load": "Run on 2 ranks, ",
}


@pytest.mark.slow
def test_the_cells_of_the_page_run(tmp_path: Path):
    """The page's cells run in order as one script, which prints the text of each picture."""
    (tmp_path / "page.py").write_text("\n\n".join(CELLS), "utf-8")
    command = [sys.executable, "page.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert [name for name, says in SAYS.items() if not re.search(says, ran.stdout)] == []
    assert (tmp_path / "my_run.html").is_file()
    assert (tmp_path / "all_ranks.json").is_file()
    exported = sorted(path.name for path in (tmp_path / "for_hta").iterdir())
    assert exported == ["rank0.json", "rank1.json"]


@pytest.mark.parametrize("name", [*PICTURES, "Trace.load", "to_chrome"])
def test_a_reader_meets_it(name: str):
    """A picture that no lab and no page shows is superfluous."""
    used = re.compile(rf"\b{re.escape(name)}\(")
    assert any(used.search(cell) for cell in CELLS) or used.search(LABS)


@pytest.mark.parametrize(
    "name",
    [
        "heat_map",
        "explore",
        "what_if",
        "explore_plan",
        "show_held",
        "show_roof",
        "show_limits",
        "live",
    ],
)
def test_each_picture_says_when_to_use_it(name: str):
    _, about = PAGE.split(f"## `{name}`: ")
    assert re.search(rf"^.*\bUse (the\b|`{name}`)", about.partition("```")[0], re.MULTILINE)


def test_each_picture_of_the_page_is_shown_below_its_cell():
    """Regression: the page once had only words."""
    shown = re.findall(r"^```\n\n!\[([^]]+)\]\((pictures/\w+\.svg)\)$", PAGE, re.MULTILINE)
    draws = re.compile(
        r"^(?:show|show_\w+|heat_map|stack|explore|explore_\w+|what_if)\(|^with live", re.M
    )
    assert len(shown) == sum(draws.search(cell) is not None for cell in CELLS)
    for words, path in shown:
        assert len(words) > 20, path
        drawn = (ROOT / "docs" / path).read_text("utf-8")
        assert drawn.startswith("<svg xmlns='http://www.w3.org/2000/svg' role='img'"), path
