"""JupyterLab as a student sees it: a server, and a page in a headless browser."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import psutil
from nbformat.sign import NotebookNotary
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tests.browser import POLLING_MS
from tests.notebook.kernel import environment

if TYPE_CHECKING:
    from playwright.sync_api import Page, ViewportSize

LIMIT_MS = 120_000
WINDOW: ViewportSize = {"width": 1200, "height": 900}
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)"}}
# turn off the questions and downloads of Lab's first start; render all cells, for screenshots
SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "notebook-extension/tracker": {"windowingMode": "none"},
}


def write(path: Path, *sources: str) -> None:
    """Write a notebook with these code cells."""
    cells = [new_code_cell(textwrap.dedent(source).strip()) for source in sources]
    title = new_markdown_cell(f"# {path.stem.title()}")
    nbformat.write(new_notebook(cells=[title, *cells], metadata=KERNEL), path)


def write_together(path: Path, saved: Sequence[Path], title: str) -> int:
    """Write a notebook of all cells with pictures in saved notebooks; return how many pictures."""
    cells, pictures = [new_markdown_cell(f"# {title}")], 0
    for each in saved:
        for cell in nbformat.read(each, as_version=4).cells:
            shown = sum("image/png" in out.get("data", ()) for out in cell.get("outputs", ()))
            cells += [cell] * bool(shown)
            pictures += shown
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    nbformat.write(new_notebook(cells=cells, metadata=KERNEL), path)
    return pictures


class Lab:
    """A JupyterLab server on a free port, with its own home folder, showing `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.opened = folder, 0
        self.home = Path(tempfile.mkdtemp(prefix="lab-"))  # a short path, because sockets lie in it
        for name, settings in SETTINGS.items():
            path = self.home / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(settings))
        self.log = (self.home / "log").open("w+b")
        # reserves the port: this socket is bound to the port too, so no other test gets it
        self.port = socket.socket()
        self.port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.port.bind(("127.0.0.1", 0))
        arguments = [
            *("--no-browser", "--allow-root", f"--notebook-dir={folder}"),
            *("--ServerApp.ip=127.0.0.1", f"--ServerApp.port={self.port.getsockname()[1]}"),
            *("--LabApp.expose_app_in_browser=True", "--LabApp.extension_manager=readonly"),
            *(f"--LabApp.user_settings_dir={self.home / 'settings'}", "--LabApp.news_url="),
            f"--LabApp.workspaces_dir={self.home / 'workspaces'}",
            "--KernelManager.transport=ipc",
        ]
        self.process = psutil.Popen(
            [sys.executable, "-m", "jupyterlab", *arguments],
            cwd=self.home,
            env=environment(self.home),
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )

    def url(self, notebook: str) -> str:
        """Return the address of a notebook in a new workspace, once the server answers."""
        deadline = time.monotonic() + LIMIT_MS / 1000
        while not self._answers():  # the server writes its address before it listens
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.1)
        (file,) = self.home.glob("runtime/jpserver-*.json")
        server = json.loads(file.read_text())
        self.opened += 1
        path = f"lab/workspaces/test{self.opened}/tree/{notebook}"
        return f"{server['url']}{path}?token={server['token']}"

    def _answers(self) -> bool:
        try:
            socket.create_connection(self.port.getsockname(), timeout=10).close()
        except OSError:
            return False
        return True

    def trust(self, path: Path) -> None:
        """Sign a notebook, as if it had been run here."""
        (self.home / "data").mkdir(exist_ok=True)
        notary = NotebookNotary(data_dir=str(self.home / "data"))
        notary.sign(nbformat.read(path, as_version=4))
        notary.store.close()

    def said(self) -> str:
        return (self.home / "log").read_text(errors="replace")[-5000:]

    def processes(self) -> list[psutil.Process]:
        return [self.process, *self.process.children(recursive=True)]

    def stop(self) -> None:
        """Stop the server, as Ctrl-C in the terminal of `make lab` does, or kill it."""
        self.process.terminate()
        try:
            self.process.wait(30)
        except psutil.TimeoutExpired:
            self.process.kill()
        self.log.close()
        self.port.close()
        shutil.rmtree(self.home, ignore_errors=True)


class NotebookPage:
    """A page of Lab with notebooks, controlled by Lab's application object in the page."""

    def __init__(self, page: Page, lab: Lab, notebook: str) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.on("console", lambda message: self._hear(message.type, message.text))
        page.on("pageerror", lambda error: self._hear("error", str(error)))
        page.set_default_timeout(LIMIT_MS)
        page.goto(lab.url(notebook))
        self.wait_for_notebook(notebook)

    def open(self, notebook: str) -> None:
        """Open another notebook, in a window of the first size, and forget earlier complaints."""
        self.complaints.clear()
        self.page.set_viewport_size(WINDOW)
        self.command("docmanager:open", path=notebook)
        self.wait_for_notebook(notebook)

    def close_all(self) -> None:
        """Close all notebooks without saving."""
        self.page.evaluate(
            "() => [...jupyterapp.shell.widgets('main')].forEach(widget => widget.dispose())"
        )

    def wait_for_notebook(self, notebook: str) -> None:
        """Wait until a notebook is in front and its kernel is idle."""
        self.wait(f"window.jupyterapp && {PANEL}?.context?.path === {notebook!r}")
        self.wait(f"{PANEL}.sessionContext.isReady")
        self.wait(f"{PANEL}.content.widgets.length > 0 && {IDLE}")

    def _hear(self, kind: str, text: str) -> None:
        network = ("favicon", "net::ERR", "Failed to load resource")
        if kind == "error" and not any(words in text for words in network):
            self.complaints.append(text)

    def wait(self, condition: str, limit_ms: int = LIMIT_MS) -> None:
        self.page.wait_for_function(f"() => !!({condition})", timeout=limit_ms, polling=POLLING_MS)

    def command(self, name: str, **args: str) -> None:
        """Start a command of Lab, as its menu does, without waiting for the end."""
        self.page.evaluate(
            "([name, args]) => { window.done = false;"
            " jupyterapp.commands.execute(name, args).finally(() => { window.done = true; }); }",
            [name, args],
        )

    def run_all(self, below: int = -1, limit_ms: int = LIMIT_MS) -> None:
        """Run all cells, or all cells below one, until the last cell or until a cell fails."""
        self.page.evaluate(f"n => {{ {PANEL}.content.activeCellIndex = n; }}", below + 1)
        self.command("notebook:run-all-below" if below >= 0 else "notebook:run-all-cells")
        self.wait(f"window.done && {IDLE}", limit_ms)
        # after an error, the kernel is idle but refuses cells for a moment
        self.page.evaluate(
            f"""async () => {{
                const kernel = {PANEL}.sessionContext.session.kernel;
                const asked = () => kernel.requestExecute({{ code: '', silent: true }}).done;
                while ((await asked()).content.status === 'aborted');
            }}"""
        )

    def run_cell(self, index: int) -> None:
        """Run one cell, as Ctrl-Enter does."""
        self.page.evaluate(f"n => {{ {PANEL}.content.activeCellIndex = n; }}", index)
        self.command("notebook:run-cell")
        self.wait(f"window.done && {IDLE}")

    def shut_down(self) -> None:
        """End the kernel, and wait: a page that opens earlier would get the ending kernel."""
        self.command("kernelmenu:shutdown")
        self.wait(f"window.done && !{PANEL}.sessionContext.session")

    def cells(self) -> list[dict[str, Any]]:
        """Return the code cells: position, source, number beside "In", and outputs."""
        found: list[dict[str, Any]] = self.page.evaluate(
            f"""() => {PANEL}.content.widgets.map((cell, index) => ({{
                index,
                type: cell.model.type,
                source: cell.model.sharedModel.getSource(),
                count: cell.model.executionCount,
                outputs: cell.model.type === 'code' ? cell.model.outputs.toJSON() : [],
            }})).filter(cell => cell.type === 'code')"""
        )
        return found

    def theme(self, name: str) -> None:
        """Choose "Light" or "Dark", and wait until the page has the theme."""
        self.command("apputils:change-theme", theme=f"JupyterLab {name}")
        light = str(name == "Light").lower()
        self.page.wait_for_selector(f"[data-jp-theme-light={light}]", state="attached")

    def screenshot(self, path: Path) -> None:
        """Save a picture of the whole notebook, in a window as high as the notebook."""
        self.page.set_viewport_size({**WINDOW, "height": self._height() + 150})
        self.page.evaluate(f"() => {{ {PANEL}.content.activeCellIndex = 0; }}")
        self.page.evaluate(f"() => {{ {PANEL}.content.outerNode.scrollTop = 0; }}")
        self.page.wait_for_timeout(1000)  # until Lab has arranged the page again
        path.parent.mkdir(exist_ok=True)
        self.page.screenshot(path=path)

    def _height(self) -> int:
        """Return the height of all cells in pixels, at most 15,000: larger images are useless."""
        heights = f"{PANEL}.content.widgets.map(cell => cell.node.offsetHeight)"
        total: int = self.page.evaluate(f"() => {heights}.reduce((sum, height) => sum + height, 0)")
        return min(total, 15_000)


PANEL = "jupyterapp.shell.currentWidget"
IDLE = f"{PANEL}.sessionContext.session?.kernel?.status === 'idle'"
