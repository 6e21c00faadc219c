"""A pytest plugin in the sandbox, which lets nbval run the notebook and reports each cell.

The plugin writes lines of JSON to the pipe `DDPKIT_RECORD`. nbval runs the cells; without the
plugin, nbval would only print the errors. The plugin also changes nbval in two ways: a dead kernel
is noticed at once, and the kernel's sockets are files instead of ports. The plugin protects this
process, above all its pipe, from the process of the kernel (`ddpkit.grade.inside.kernel`).
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, NoReturn

import nbval.kernel
import pytest

from ddpkit.grade.inside import MIME

# nbval imports jsonschema later. jsonschema would build a parser of international web addresses,
# which takes half a second of each submission, and no notebook needs this parser.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
KERNEL = "ddpkit.grade.inside.kernel"
RECORD = int(os.environ.pop("DDPKIT_RECORD", "1"))  # popped, so that the kernel inherits no copy
MOST_TEXT = 1000
_writing = threading.Lock()
_watched = _last = False


class _KernelManager(nbval.kernel.KernelManager):  # type: ignore[misc]
    def format_kernel_cmd(self, extra_arguments: list[str] | None = None) -> list[str]:
        command = super().format_kernel_cmd(extra_arguments)
        return [KERNEL if word == "ipykernel_launcher" else word for word in command]


nbval.kernel.KernelManager = functools.partial(_KernelManager, transport="ipc")


def _write(**line: object) -> None:
    data = (json.dumps(line) + "\n").encode()
    with _writing:
        while data:
            data = data[os.write(RECORD, data) :]


def _end(**line: object) -> NoReturn:
    _write(**line)
    os._exit(0)  # the remaining processes end with the sandbox


def pytest_configure() -> None:
    """Protect this process from the kernel's process, which starts later.

    Also let the kernel's process import all of ddpkit.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
    os.set_inheritable(RECORD, False)
    _, _, os.environ["PYTHONPATH"] = os.environ["PYTHONPATH"].partition(os.pathsep)


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Switch nbval's own time limits off, because the limits outside the sandbox count."""
    for item in items:
        item.output_timeout = 3600  # seconds that nbval waits for a cell's last output


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: Any) -> Iterator[None]:
    """Write the start of a cell to the record, and then its end with a claim or an error."""
    global _watched
    if not _watched:  # the kernel has started by now
        _watched = True
        process = item.parent.kernel.km.provisioner.process
        threading.Thread(target=_watch, args=(process,), daemon=True).start()
    _write(begins=item.cell_num)
    yield
    outputs = item.test_outputs or []
    claims = [out["data"][MIME] for out in outputs if MIME in out.get("data", {})]
    errors = [
        [str(out["ename"])[:MOST_TEXT], str(out["evalue"])[:MOST_TEXT], _where(out["traceback"])]
        for out in outputs
        if out["output_type"] == "error"
    ]
    _write(ends=item.cell_num, claims=claims[:1], errors=errors[:1])
    if _last:  # exit before nbval ends the kernel, because this end would be recorded as a death
        _end(done=True)


def _where(traceback: list[Any]) -> str:
    """Return the last entry of a traceback, which names the line of the cell."""
    return "\n".join(map(str, traceback))[-2 * MOST_TEXT :]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: Any, nextitem: Any) -> Iterator[None]:
    """Store in `_last` if this cell is the last one."""
    global _last
    _last = nextitem is None
    yield


def pytest_sessionfinish() -> None:
    """Write the end of the session to the record, for example if pytest collected no cells."""
    _end(done=False)


def _watch(process: Any) -> None:
    while process.poll() is None:
        time.sleep(0.05)
    _end(died=process.returncode)
