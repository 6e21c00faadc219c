"""The canvas itself, in a browser without a notebook: what it says of a bar, and what it draws."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ddpkit.view.explorer import canvas
from ddpkit.view.explorer.model import span_columns
from tests.view import examples

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

PAGE = """
<!DOCTYPE html><body style="width: 1000px"><div id="here"></div><script type="module">
CODE
const bytes = Uint8Array.from(atob(PACKED), (letter) => letter.charCodeAt(0));
const given = { picture: PICTURE, spans: bytes };
await render({ model: { get: (name) => given[name] }, el: document.getElementById("here") });
</script>
"""


def test_it_says_when_an_operation_was_collected(browser: Browser) -> None:
    columns = span_columns(examples.done_early())
    code = Path(canvas.__file__).with_name("canvas.js").read_text("utf-8")
    parts = {
        "CODE": code.replace("export default { render };", ""),
        "PACKED": json.dumps(base64.b64encode(columns.packed()).decode()),
        "PICTURE": json.dumps({**columns.described(), **canvas.LOOK, "title": "done early"}),
    }
    html = PAGE
    for name, text in parts.items():
        html = html.replace(name, text)
    page = browser.new_page()
    failed: list[str] = []
    page.on("pageerror", lambda error: failed.append(str(error)))
    page.set_content(html)
    drawn, said = page.get_by_role("application"), page.get_by_role("status")
    drawn.wait_for()
    first = columns.rows[1]  # rank 0's first isend: done after 1 of 100 ms
    y = 24 + first.top + first.height / 2
    drawn.hover(position={"x": 106, "y": y})
    assert said.inner_text() == (
        "isend · rank 0 · 1 ms, from 0 ms to 1 ms · 4 B · peer: rank 1 · "
        "collected 99 ms after it was done"
    )
    drawn.hover(position={"x": 500, "y": y})
    assert "collected" not in said.inner_text()  # nothing moves there
    color = drawn.evaluate(
        """(canvas, y) => [...canvas.getContext("2d").getImageData(500, y, 1, 1).data]""", y
    )
    assert color[:3] == [int(canvas.LOOK["face"]["done"][k : k + 2], 16) for k in (1, 3, 5)]
    assert failed == []
    page.close()
