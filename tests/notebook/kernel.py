"""A notebook without a page: a real kernel, cells for the kernel, and messages from the kernel.

Nothing here belongs to ddpkit. A front end builds its page from exactly these messages.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any

import psutil
from jupyter_client.manager import KernelManager
from traitlets.config import Config

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 90.0  # seconds until a wait counts as failed: generous, for a busy machine
SET_UP = """
import os, sys, time
import torch
import torch.distributed as dist
from ddpkit import Cluster

cluster = Cluster(2)
"""


def environment(home: Path) -> dict[str, str]:
    """Return the environment of this process, with another home, and with this clone's ddpkit."""
    # ipykernel hides the output of child processes if it sees this variable of pytest
    kept = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    paths = [str(ROOT), kept.get("PYTHONPATH", "")]
    return kept | {
        "HOME": str(home),
        "IPYTHONDIR": str(home / "ipython"),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }


def connection(folder: Path) -> Config:
    """Put a kernel's sockets into `folder`: ports of kernels that start together could collide."""
    config = Config()
    config.KernelManager.transport = "ipc"
    config.KernelManager.connection_file = str(folder / "kernel.json")
    return config


@dataclass
class Cell:
    """A cell that was sent to the kernel, and all messages about the cell so far."""

    id: str
    count: int = 0  # the number in "In [5]"
    messages: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    idle: bool = False

    def _all(self, kind: str) -> list[dict[str, Any]]:
        return [content for name, content in self.messages if name == kind]

    def stream(self, name: str = "stdout") -> str:
        return "".join(m["text"] for m in self._all("stream") if m["name"] == name)

    @property
    def stream_messages(self) -> int:
        return len(self._all("stream"))

    @property
    def error(self) -> dict[str, Any] | None:
        """The error as the front end gets it: `ename`, `evalue` and the shown `traceback`."""
        return next(iter(self._all("error")), None)

    @property
    def shown_error(self) -> str:
        """The text of the error on the page, without colours; empty without an error."""
        text = "\n".join(self.error["traceback"]) if self.error else ""
        return re.sub(r"\x1b\[[0-9;]*m", "", text)

    @property
    def result(self) -> str:
        """The text beside "Out [5]"; empty without a result."""
        results = self._all("execute_result")
        return results[0]["data"]["text/plain"] if results else ""

    def line(self, number: int) -> str:
        """Return the name of a line of this cell in a message."""
        return f"Cell In[{self.count}], line {number}"


class Notebook:
    """A running kernel and its only client."""

    def __init__(self, cwd: Path | None = None) -> None:
        # a short path, because sockets lie in it
        self.folder = Path(tempfile.mkdtemp(prefix="nb-"))
        self.manager = KernelManager(config=connection(self.folder), kernel_name="python3")
        self._cells: dict[str, Cell] = {}
        self.manager.start_kernel(cwd=str(cwd or self.folder), env=environment(self.folder))
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=LIMIT)
        self.kernel = psutil.Process(self.manager.provisioner.pid)

    def close(self) -> None:
        self.client.stop_channels()
        if self.manager.is_alive():
            self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()
        shutil.rmtree(self.folder, ignore_errors=True)

    # Cells

    def start(self, source: str) -> Cell:
        """Send a cell, and do not wait."""
        # the failure of one cell must not cancel the next cell
        id = self.client.execute(textwrap.dedent(source).strip("\n"), stop_on_error=False)
        return self._cells.setdefault(id, Cell(id))

    def run(self, source: str, within: float = LIMIT) -> Cell:
        """Send a cell, and wait until the kernel is idle again."""
        return self.finish(self.start(source), within)

    def ok(self, source: str) -> Cell:
        """Run a cell that must not fail."""
        cell = self.run(source)
        assert cell.error is None, cell.shown_error
        return cell

    def finish(self, cell: Cell, within: float = LIMIT) -> Cell:
        self.until(lambda: cell.idle, within)
        return cell

    def until(self, condition: Callable[[], bool], within: float = LIMIT) -> None:
        """Read the kernel's messages until the condition is true."""
        deadline = time.monotonic() + within
        while not condition():
            assert time.monotonic() < deadline, f"not within {within} s; so far {self._cells}"
            try:
                self._take(self.client.get_iopub_msg(timeout=0.2))
            except Empty:
                assert self.manager.is_alive() or condition(), "the kernel is dead"

    def _take(self, message: dict[str, Any]) -> None:
        parent, kind = message["parent_header"].get("msg_id"), message["msg_type"]
        cell = self._cells.setdefault(parent, Cell(parent))
        if kind == "status":
            cell.idle |= message["content"]["execution_state"] == "idle"
        elif kind == "execute_input":
            cell.count = message["content"]["execution_count"]
        else:
            cell.messages.append((kind, message["content"]))

    def interrupt(self) -> None:
        """Press the stop button."""
        self.manager.interrupt_kernel()

    # Processes

    def processes(self) -> list[psutil.Process]:
        """Return all processes that the kernel has started."""
        return [process for process in self.kernel.children(recursive=True) if alive(process)]

    def ranks(self) -> list[psutil.Process]:
        """Return the ranks: children of the forkserver, which is a child of the kernel."""
        children = self.kernel.children()
        return [process for process in self.processes() if process not in children]


def alive(process: psutil.Process) -> bool:
    """True if a process runs; a zombie that its parent has not collected does not count."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def gone(processes: list[psutil.Process], within: float = 30.0) -> list[psutil.Process]:
    """Wait until the processes are gone, and return the processes that are still there."""
    deadline = time.monotonic() + within
    while (left := [p for p in processes if alive(p)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left
