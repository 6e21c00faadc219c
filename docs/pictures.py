"""Take the pictures of README and docs/course.md from the executed solutions.

`make release` runs this module last.
"""

from __future__ import annotations

import base64
import io
from pathlib import Path

import nbformat
from PIL import Image

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
# for each picture, its lesson and the call that draws the picture
TAKEN = {
    "timeline.png": ("06_overlap", "compare(naive, bucketed, overlapped"),
    "ring.png": ("03_all_reduce", 'play(schedule("ring"'),
    "pipeline.png": ("11_pipeline", "show_pipeline(seen, better"),
    "faults.png": ("10_faults", "compare(one_slow, fair"),
    "state.png": ("13_shards", "explore_state(state_bytes, billions=7.5"),
}


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


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    for name, (lesson, call) in TAKEN.items():
        (PICTURES / name).write_bytes(small(drawn_by(lesson, call)))


if __name__ == "__main__":
    main()
