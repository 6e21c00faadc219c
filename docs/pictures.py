"""README's pictures, taken from the executed solutions: `make release` runs this after them."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import nbformat
from PIL import Image

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
# The picture, the lesson, and the call in it that draws it.
TAKEN = {
    "timeline.png": ("06_overlap", "compare(naive, bucketed, overlapped"),
    "ring.png": ("03_all_reduce", 'play(schedule("ring"'),
    "pipeline.png": ("11_pipeline", "show_pipeline(seen, better"),
}


def drawn_by(lesson: str, call: str) -> bytes:
    """The PNG that the one cell with this call left. Raises ValueError if that is not one."""
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
    """The same picture in 256 colours: a third of the bytes, and it looks no different."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    # The usual way, by median cut, gives a rare colour up: the optimizer's green became blue.
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
