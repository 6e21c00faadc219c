"""The canvas in a browser without a notebook: its words about a bar, and its drawing."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from ddpkit.trace import Span, Trace
from ddpkit.view.drawing import style
from ddpkit.view.explorer import canvas, look
from ddpkit.view.explorer.model import SpanColumns, span_columns
from tests.view import examples

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

PAGE = """
<!DOCTYPE html><body style="width: 1000px"><div id="here"></div><script type="module">
CODE
const bytes = Uint8Array.from(atob(PACKED), (letter) => letter.charCodeAt(0));
const given = { picture: PICTURE, spans: bytes };
await render({ model: { get: (name) => given[name] }, el: document.getElementById("here") });
</script>
"""


INKS = """
window.inks = {};
const write = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
  window.inks[text] = this.fillStyle;
  write.call(this, text, ...place);
};
"""


def opened(
    browser: Browser,
    columns: SpanColumns,
    failed: list[str],
    first: str = "",
    few: Sequence[tuple[int, str]] = (),
) -> Page:
    """Return a page with the canvas.

    Errors of its code go to `failed`, and `first` runs before it.
    """
    parts = {
        "CODE": first + look.code().replace("export default { render };", ""),
        "PACKED": json.dumps(base64.b64encode(columns.packed()).decode()),
        "PICTURE": json.dumps(
            {**columns.described(), **canvas.LOOK, "title": "of a test", "few": [*few]}
        ),
    }
    html = PAGE
    for name, text in parts.items():
        html = html.replace(name, text)
    page = browser.new_page()
    page.on("pageerror", lambda error: failed.append(str(error)))
    page.set_content(html)
    page.get_by_role("application").wait_for()
    return page


def test_a_label_is_brown_on_pale_ground_only(browser: Browser) -> None:
    """Regression: brown on orange was dim (3.2 : 1), in each label of a bar with a wait."""
    ms, facts = 1_000_000, {"backend": "gloo", "device": "cpu"}
    spans = [
        Span(0, "comm", "recv", "comm", 0, 50 * ms, 4, 1, ready_ns=ms),
        Span(0, "comm", "broadcast", "comm", 50 * ms, 100 * ms, 4, ready_ns=99 * ms),
    ]
    failed: list[str] = []
    page = opened(browser, span_columns(Trace(spans, 2, facts)), failed, INKS)
    inks = page.evaluate("window.inks")
    named = {
        name: ink for text, ink in inks.items() for name in ("recv", "broadcast") if name in text
    }
    assert named == {"recv": style.INK.lower(), "broadcast": style.WAITING_INK.lower()}
    assert failed == []
    page.close()


def test_it_says_when_an_operation_was_collected(browser: Browser) -> None:
    columns = span_columns(examples.done_early())
    failed: list[str] = []
    page = opened(browser, columns, failed)
    drawn, said = page.get_by_role("application"), page.get_by_role("status")
    first = columns.rows[1]  # rank 0's first isend: done after 1 of 100 ms
    y = 24 + first.top + first.height / 2
    drawn.hover(position={"x": 106, "y": y})
    assert said.inner_text() == (
        "isend · rank 0 · 1 ms, from 0 ms to 1 ms · 4 B · peer: rank 1 · "
        "collected 99 ms after it was done"
    )
    drawn.hover(position={"x": 500, "y": y})
    assert "collected" not in said.inner_text()  # no operation is in progress there
    color = drawn.evaluate(
        """(canvas, y) => [...canvas.getContext("2d").getImageData(500, y, 1, 1).data]""", y
    )
    assert color[:3] == [int(canvas.LOOK["face"]["done"][k : k + 2], 16) for k in (1, 3, 5)]
    assert failed == []
    page.close()
