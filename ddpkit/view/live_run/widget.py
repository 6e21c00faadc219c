"""`live`: a run's loss, throughput and slow ranks, while the run trains."""

from __future__ import annotations

import shutil
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO

from ddpkit.rank.emulation import machine
from ddpkit.view.drawing.display import display_picture, in_ipython, picture_html
from ddpkit.view.drawing.shell import display_live
from ddpkit.view.live_run.model import Report, RunProgress, progress_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RECORD = struct.Struct("<3d?")  # the bytes of a `Report`
EVERY_S = 1.0  # seconds between two pictures, or more if drawing would use a tenth of a core


class Reporter:
    """The part of a `Live` on a rank; it writes reports to a folder of the notebook's machine."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._file: BinaryIO | None = None

    def report(self, loss: float, samples: int = 1) -> None:
        """Report a step: each rank calls this after each step, with the samples of its own batch.

        Raises ValueError outside of `with live()`.
        """
        if not self._folder:
            raise ValueError(
                "no picture watches this run: start the run inside `with live() as watch:`"
            )
        if self._file is None:
            rank = sys.modules["torch"].distributed.get_rank()
            self._file = open(Path(self._folder, str(rank)), "ab", buffering=0)  # noqa: SIM115
        if (emulated := machine.current()) is None:
            self._write(time.perf_counter(), loss, samples, emulated=False)
            return
        clock = emulated.clocks.mine
        with clock.stopped():  # the rank's emulated time does not include the report
            self._write(clock.now() / 1e9, loss, samples, emulated=True)

    def _write(self, at_s: float, loss: float, samples: int, *, emulated: bool) -> None:
        assert self._file is not None
        self._file.write(RECORD.pack(at_s, float(loss), samples, emulated))


class Live(Reporter):
    """A monitor of a run: a context manager around the run, and an argument for the ranks::

        with live() as watch:
            cluster.run(train, watch)  # where train(watch) calls watch.report(loss, samples)

    In a notebook a picture follows the run, and the run can be interrupted like any cell. When the
    run ends or is interrupted, the last picture and its text stay as outputs of the cell.
    """

    def __init__(self) -> None:
        super().__init__("")
        self.view: Any = None  # a widget, once it is displayed
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._last = progress_of({})

    def __reduce__(self) -> tuple[type[Reporter], tuple[str]]:
        return Reporter, (self._folder,)

    def __enter__(self) -> Live:
        self._folder, self._file = tempfile.mkdtemp(prefix="ddpkit-live-"), None
        self._over.clear()
        if in_ipython():
            self._display()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        self._last = self.progress()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = ""
        if self.view is not None:
            self.view.close()
            display_picture(self.figure(), self._last.title, self._last.text)
        print(self._last.text)

    def progress(self) -> RunProgress:
        """Return the progress, from the reports until now."""
        if not self._folder:
            return self._last
        reports = {}
        for path in Path(self._folder).iterdir():
            data = path.read_bytes()
            whole = len(data) - len(data) % RECORD.size  # the last record may be half written
            reports[int(path.name)] = [Report(*each) for each in RECORD.iter_unpack(data[:whole])]
        return progress_of(reports)

    def figure(self) -> Figure:
        """Return the picture of the reports until now."""
        from ddpkit.view.live_run.figure import draw_progress

        return draw_progress(self.progress())

    def _drawn(self) -> tuple[str, str]:
        text = self.progress().text
        return picture_html(self.figure(), text), text

    def _display(self) -> None:
        from ddpkit.view.drawing.panel import Panel

        self.view = Panel(draw=self._drawn)
        display_live(self.view)
        self._thread = threading.Thread(target=self._follow, args=(self.view,), daemon=True)
        self._thread.start()

    def _follow(self, panel: Any) -> None:
        pause = EVERY_S
        while not self._over.wait(pause):
            began = time.thread_time()
            panel.show(*self._drawn())
            pause = max(EVERY_S, 10 * (time.thread_time() - began))


def live() -> Live:
    """Return a monitor that shows a run while it trains: see `Live`."""
    return Live()
