"""The pictures of README are equal to the present pictures in the solutions of lessons."""

import importlib.util
import io

import numpy as np
import pytest
from PIL import Image

from tests.project.source import ROOT

spec = importlib.util.spec_from_file_location("pictures", ROOT / "docs" / "pictures.py")
pictures = importlib.util.module_from_spec(spec)
spec.loader.exec_module(pictures)

README = (ROOT / "README.md").read_text("utf-8")
COURSE = (ROOT / "docs" / "course.md").read_text("utf-8")


@pytest.mark.parametrize("name", pictures.TAKEN)
def test_a_picture_is_the_one_in_the_lesson(name: str):
    path = pictures.PICTURES / name
    shown = Image.open(io.BytesIO(pictures.drawn_by(*pictures.TAKEN[name]))).convert("RGB")
    taken = Image.open(path).convert("RGB")
    assert taken.size == shown.size, "old: `make release` takes it anew"
    off = np.abs(np.asarray(taken, dtype=int) - np.asarray(shown, dtype=int))
    assert off.max() <= 16, "old, or a colour is lost: `make release` takes it anew"
    assert path.stat().st_size < 150_000
    assert f"](docs/pictures/{name})" in README or f"](pictures/{name})" in COURSE


def test_a_call_that_draws_nothing_is_no_picture():
    with pytest.raises(ValueError, match="06_overlap: 0 pictures are drawn by 'no such call'"):
        pictures.drawn_by("06_overlap", "no such call")
