"""`execute`: a lesson's notebook, run in a fresh kernel, without outputs that vary by machine."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ddpkit.authoring.lesson import Cell, Lesson
from ddpkit.authoring.notebook import Notebook, make_solution, text_of, to_text
from ddpkit.errors import LessonError

if TYPE_CHECKING:
    from nbformat import NotebookNode
    from traitlets.config import Config

CELL_LIMIT_S = 120
# A live widget needs a running kernel: a stored widget only shows "model not found".
_WIDGET = "application/vnd.jupyter.widget-view+json"
_RULES = "ddpkit-live"  # text that marks a live output, see `ddpkit.view.drawing.shell`


def execute(lesson: Lesson, *, cell_limit_s: int = CELL_LIMIT_S) -> Notebook:
    """Return the solution notebook of a lesson, executed. No file of the repository changes.

    Raises LessonError if a cell failed, took longer than `cell_limit_s` or ended the kernel.
    """
    import nbformat

    notebook = make_solution(lesson)
    node = nbformat.reads(to_text(notebook), as_version=4)  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory(prefix="ddpkit-", ignore_cleanup_errors=True) as folder:
        _run(lesson, node, Path(folder), cell_limit_s)
    done = json.loads(nbformat.writes(node))  # type: ignore[no-untyped-call]
    for cell, ran in zip(notebook["cells"], done["cells"], strict=True):
        if cell["cell_type"] == "code":
            cell["execution_count"] = ran["execution_count"]
            cell["outputs"] = tidy(ran["outputs"])
    return notebook


def tidy(outputs: list[Notebook]) -> list[Notebook]:
    """Return the outputs without live widgets, and with adjacent pieces of a stream joined.

    The pieces of a stream depend on the speed of the kernel.
    """
    kept: list[Notebook] = []
    for output in outputs:
        if _WIDGET in output.get("data", {}) or _RULES in str(output.get("data")):
            continue
        stream = output["output_type"] == "stream"
        if stream and kept and kept[-1].get("name") == output["name"]:
            text = text_of(kept[-1]["text"]) + text_of(output["text"])
            kept[-1] = output | {"text": text.splitlines(keepends=True)}
        else:
            kept.append(output)
    return kept


def _run(lesson: Lesson, node: NotebookNode, folder: Path, cell_limit_s: int) -> None:
    """Run the notebook `node`, and fill in its outputs; the kernel works in `folder`/work."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
    from tqdm import tqdm

    (work := folder / "work").mkdir()
    current: Cell | None = None

    def starts(cell: NotebookNode, cell_index: int) -> None:
        nonlocal current
        current = lesson.cells[cell_index]

    cells = sum(cell.kind == "code" for cell in lesson.cells)
    with tqdm(total=cells, desc=lesson.stem, unit="cell", leave=False, disable=None) as bar:
        client = NotebookClient(
            node,
            kernel_name="python3",
            config=private_connection(folder),
            timeout=cell_limit_s,
            resources={"metadata": {"path": str(work)}},
            record_timing=False,
            store_widget_state=False,
            on_cell_execute=starts,
            on_cell_executed=lambda **_: bar.update(),
        )
        try:
            client.execute(env=_environment(lesson, folder))
        except CellExecutionError as error:
            raise _failed(lesson, current, f"raised {error.ename}: {error.evalue}") from error
        except CellTimeoutError as error:
            raise _failed(lesson, current, f"took longer than {cell_limit_s} s") from error
        except (DeadKernelError, RuntimeError) as error:
            raise _failed(lesson, current, f"ended the kernel: {error}") from error


def _failed(lesson: Lesson, cell: Cell | None, what: str) -> LessonError:
    where = lesson.where(cell) if cell else f"{lesson.label}: before its first cell, the kernel"
    return LessonError(f"{where} {what}")


def private_connection(folder: Path) -> Config:
    """Return a kernel's configuration: on POSIX, sockets in `folder` and no open ports."""
    from traitlets.config import Config

    connection = Config()
    if os.name == "posix":
        connection.KernelManager.transport = "ipc"
        connection.KernelManager.connection_file = str(folder / "kernel.json")
    return connection


def _environment(lesson: Lesson, folder: Path) -> dict[str, str]:
    """Return the author's environment without variables that change the outputs."""
    # DDPKIT_SEED makes checks hide expected values; pytest's variable makes ipykernel drop prints.
    dropped = {"DDPKIT_SEED", "PYTEST_CURRENT_TEST"}
    environment = {key: value for key, value in os.environ.items() if key not in dropped}
    root = lesson.path.resolve().parent.parent
    if (root / "ddpkit" / "__init__.py").exists():  # import ddpkit from this clone
        paths = [str(root), os.environ.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return environment | {
        "DDPKIT_PROGRESS": str(folder / "progress.json"),
        "IPYTHONDIR": str(folder / "ipython"),  # no start-up files, no history
    }
