"""Make the pictures of README, docs/course.md and docs/pictures.md; `make release` runs this last.

The pictures of README and docs/course.md are taken from the executed solutions. The cells of
docs/pictures.md are run, and each drawing is written to docs/pictures/ and shown below its cell.
"""

from __future__ import annotations

import base64
import html
import io
import re
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook
from PIL import Image

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
PAGE = ROOT / "docs" / "pictures.md"
LIMIT_S = 600
# for each picture, its lesson and the call that draws the picture
TAKEN = {
    "timeline.png": ("06_overlap", "compare(naive, bucketed, overlapped"),
    "ring.png": ("03_all_reduce", 'play(schedule("ring"'),
    "pipeline.png": ("11_pipeline", "show_pipeline(seen, better"),
    "faults.png": ("10_faults", "compare(one_slow, fair"),
    "state.png": ("13_shards", "explore_state(state_bytes, billions=7.5"),
}
CELL = re.compile(
    r"^```python\n(.*?)^```\n(?:\n!\[[^\n]*\]\(pictures/[^\n]*\.svg\)\n)*", re.M | re.S
)


def drawn_by(lesson: str, call: str) -> bytes:
    """Return the PNG that a lesson's cell with this call left.

    Raises ValueError if no cell or more than one cell has left a PNG.
    """
    notebook = nbformat.read(ROOT / "solutions" / f"{lesson}.ipynb", as_version=4)
    drawn: list[str] = [
        output.data["image/png"]
        for cell in notebook.cells
        if cell.cell_type == "code" and call in cell.source
        for output in cell.outputs
        if "image/png" in output.get("data", {})
    ]
    if len(drawn) != 1:
        raise ValueError(f"{lesson}: {len(drawn)} pictures are drawn by {call!r}, and one is taken")
    return base64.b64decode(drawn[0])


def small(png: bytes) -> bytes:
    """Return a picture in 256 colours, which has a third of the bytes and looks the same."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    # Median cut, the default, drops rare colours: the optimizer's green became blue.
    few = picture.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    out = io.BytesIO()
    few.save(out, format="png", optimize=True)
    return out.getvalue()


def with_drawings(page: str) -> tuple[str, dict[str, str]]:
    """Run the cells of a page; return the page with its drawings, and each drawing by its file.

    Raises nbclient's CellExecutionError if a cell fails.
    """
    cells = CELL.findall(page)
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in cells])
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(
            notebook, timeout=LIMIT_S, kernel_name="python3", resources=resources
        ).execute()
    files: dict[str, str] = {}
    done = iter(notebook.cells)

    def shown(match: re.Match[str]) -> str:
        heading = re.findall(r"^##+ (.*)", page[: match.start()], re.MULTILINE)[-1:]
        name = (
            re.sub(r"\W+", "_", heading[0].partition(":")[0].lower()).strip("_")
            if heading
            else "run"
        )
        text = f"```python\n{match[1]}```\n"
        for svg in _drawings(next(done)):
            file = f"{name}.svg" if f"{name}.svg" not in files else f"{name}_{len(files)}.svg"
            files[file] = svg
            words = _short(html.unescape(re.findall(r"aria-label='([^']*)'", svg)[0]))
            text += f"\n![{words}](pictures/{file})\n"
        return text

    return CELL.sub(shown, page), files


def _short(words: str) -> str:
    """Return the finding of a picture's description, without brackets, as Markdown's alt text."""
    found = words.rpartition("Notice: ")[2]
    found = re.split(r"(?<=[a-z)%])\. (?=Replayed|Emulated)", found)[0]
    found = re.sub(r"^Who [^.]*\. ", "", found)
    return found.replace("[", "(").replace("]", ")")


def _drawings(cell: Any) -> list[str]:
    found = [
        re.findall(r"<svg.*?</svg>", output.get("data", {}).get("text/html", ""), re.DOTALL)
        for output in cell.outputs
    ]
    return [svg for svgs in found for svg in svgs]


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    for name, (lesson, call) in TAKEN.items():
        (PICTURES / name).write_bytes(small(drawn_by(lesson, call)))
    page, files = with_drawings(PAGE.read_text("utf-8"))
    for old in PICTURES.glob("*.svg"):
        old.unlink()
    for name, svg in files.items():
        (PICTURES / name).write_text(svg, "utf-8")
    PAGE.write_text(page, "utf-8")


if __name__ == "__main__":
    main()
