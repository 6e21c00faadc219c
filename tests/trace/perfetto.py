"""Perfetto's own viewer with an opened trace.

The viewer's files come from npm (`make perfetto`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.browser import POLLING_MS, lacks

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route

VIEWER = Path(__file__).parents[2] / ".perfetto" / "package"
LIMIT_MS = 60_000
HOST = "http://perfetto.test/"  # no server listens there: the page's requests are answered below
PAGE = f"""<!doctype html>
<div id="timeline_data_source" hidden>{HOST}trace.json</div>
<div id="timeline_main" style="height: 900px"></div>
<script src="frontend_bundle.js"></script>"""


class Perfetto:
    """Perfetto's viewer with an opened trace file."""

    def __init__(self, browser: Browser, trace: Path) -> None:
        if not VIEWER.exists():
            lacks("Perfetto's viewer (make perfetto)")
        self.trace = trace
        self.page = browser.new_page(viewport={"width": 1400, "height": 900})
        self.page.set_default_timeout(LIMIT_MS)
        self.page.route("**/*", self._answer)
        self.page.goto(HOST)
        self._wait("globals.state.engines[0]?.ready")

    def _wait(self, condition: str) -> None:
        self.page.wait_for_function(f"() => {condition}", polling=POLLING_MS)

    def _answer(self, route: Route) -> None:
        name = route.request.url.removeprefix(HOST)
        if not name:
            route.fulfill(body=PAGE, content_type="text/html")
        elif name == "trace.json":
            route.fulfill(path=self.trace)
        elif (VIEWER / name).is_file():
            route.fulfill(path=VIEWER / name)
        else:
            route.abort()

    def query(self, sql: str) -> list[dict[str, Any]]:
        """Return the rows of an SQL query."""
        ask = """sql => {
            globals.queryResults.clear();
            const asked = { engineId: '0', queryId: 'test', query: sql };
            globals.dispatch(Actions.executeQuery(asked));
        }"""
        self.page.evaluate(ask, sql)
        self._wait("globals.queryResults.has('test')")
        found: dict[str, Any] = self.page.evaluate("() => globals.queryResults.get('test')")
        assert not found.get("error"), found["error"]
        rows: list[dict[str, Any]] = found["rows"]
        return rows

    def close(self) -> None:
        self.page.close()
