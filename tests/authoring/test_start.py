"""The start page comes from one page of Markdown and the titles of the lessons."""

import json
import re

import pytest

from ddpkit.answers import TITLES
from ddpkit.authoring import check, parse, pipeline
from ddpkit.authoring.start import make_start
from ddpkit.errors import LessonError
from tests.project.source import ROOT

PAGE = """# Title

Words.

```python
first()
```

After it.

{labs}

## Section

`not a cell`
"""
HEAD = """# ---
# jupyter:
#   ddpkit:
#     builds: sums
#     minutes: 5
#     needs: nothing
# ---

"""
LESSON = '# %% [markdown]\n# # 03 · Case\n\n# %% exercise="f"\ndef f():\n    # BEGIN SOLUTION\n'
LESSON += '    return 1\n    # END SOLUTION\n\n# %% check="f"\ncheck(f)\n'


def lesson(folder, head=HEAD):
    path = folder / "03_case.py"
    path.write_text(head + LESSON)
    return parse(path)


def test_code_and_sections_are_cells_and_the_table_is_there(tmp_path):
    page = make_start(PAGE, [lesson(tmp_path)])
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in page["cells"]]
    assert [kind for kind, _ in cells] == ["markdown", "code", "markdown", "markdown"]
    assert cells[0][1] == "# Title\n\nWords."
    assert cells[1][1] == "first()"
    assert "| [03 case](03_case.ipynb) | sums | 5 | nothing |" in cells[2][1]
    assert cells[3][1] == "## Section\n\n`not a cell`"
    assert len({cell["id"] for cell in page["cells"]}) == 4
    assert page["cells"][1]["outputs"] == []


def test_a_lesson_without_a_head_is_named(tmp_path):
    with pytest.raises(LessonError, match=r"03_case\.py: .*builds, minutes, needs"):
        make_start(PAGE, [lesson(tmp_path, head="")])


def test_release_writes_it_and_check_says_when_it_is_stale(tmp_path):
    for folder in ("solutions", "labs", "ddpkit/answers"):
        (tmp_path / folder).mkdir(parents=True)
    lesson(tmp_path / "solutions")
    page, made = tmp_path / "solutions" / "start.md", tmp_path / "labs" / "start.ipynb"
    page.write_text(PAGE)
    shared = pipeline._shared(tmp_path, [lesson(tmp_path / "solutions")])
    assert json.loads(shared[made])["cells"][0]["source"][0] == "# Title\n"
    made.write_text(shared[made].replace("Words", "Other words"))
    assert any(
        "labs/start.ipynb differs from the one that the lessons make" in x for x in check(tmp_path)
    )
    made.write_text(shared[made])
    assert not any("start.ipynb" in problem for problem in check(tmp_path))


def test_every_lab_has_a_title_and_minutes():
    stems = {path.stem for path in (ROOT / "labs").glob("[0-9][0-9]_*.ipynb")}
    assert {stem for stem, _ in TITLES.values()} == stems
    assert all(minutes.isdigit() for _, minutes in TITLES.values())


def test_links_of_the_start_page_lead_somewhere():
    text = (ROOT / "labs" / "start.ipynb").read_text("utf-8")
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert len(targets) > len(TITLES)
    for target in targets:
        assert target.startswith("https://") or (ROOT / "labs" / target).is_file(), target
