import builtins
import subprocess
import sys
import types
from typing import Any

import pytest
from matplotlib.figure import Figure

from ddpkit.view import explore_buckets, show, timeline_model
from ddpkit.view.drawing import style
from tests.view import examples


def test_outside_ipython_the_figure_is_returned_and_the_text_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    trace = examples.ddp(2)
    assert isinstance(show(trace, step=0), Figure)
    assert capsys.readouterr().out == timeline_model(trace, 0).text + "\n"


def test_a_run_is_shown_by_its_trace(capsys: pytest.CaptureFixture[str]) -> None:
    show(types.SimpleNamespace(trace=examples.token_ring(), results=[]))
    assert "8 messages" in capsys.readouterr().out


def test_in_ipython_the_picture_is_displayed_once_and_nothing_returned(
    displayed: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert show(examples.ddp(2)) is None
    drawing, image = displayed
    assert image.data[:4] == b"\x89PNG"
    model = timeline_model(examples.ddp(2))
    assert image.alt == f"{model.title}. {' '.join(model.headline.split())}"
    assert f"role='img' aria-label='{image.alt}'" in drawing["text/html"]
    assert "Communication hidden" in capsys.readouterr().out


def test_without_matplotlib_the_text_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = builtins.__import__

    def missing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] == "matplotlib":
            raise ModuleNotFoundError("no matplotlib", name="matplotlib")
        return real(name, *args, **kwargs)

    for name in [
        n
        for n in sys.modules
        if n.startswith(("ddpkit.view.timeline.figure", "ddpkit.view.drawing.page"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", missing)
    assert show(examples.ddp(2)) is None
    out = capsys.readouterr().out
    assert "Communication hidden" in out
    assert "matplotlib is not installed" in out


@pytest.mark.processes
def test_importing_the_views_loads_no_heavy_library() -> None:
    code = "import sys, ddpkit.view, ddpkit.trace; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"torch", "matplotlib", "IPython", "numpy"}
    assert not heavy & set(run.stdout.split())


def test_plots_of_lessons_have_the_colours_of_the_kit() -> None:
    from matplotlib import rcParams
    from matplotlib import style as sheets
    from matplotlib.colors import to_hex

    with sheets.context("ddpkit.view.plain"):
        curves = [to_hex(each["color"]).upper() for each in rcParams["axes.prop_cycle"]]
        greys = [to_hex(rcParams[key]).upper() for key in ("axes.edgecolor", "grid.color")]
    assert curves == list(style.CURVES)
    assert greys == [style.GREY, style.GRID]


def test_a_terminal_gets_text_and_the_figure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: a terminal got "<IPython.core.display.Image object>" and the words of lost
    controls."""
    shell = type("TerminalInteractiveShell", (), {})
    monkeypatch.setattr("IPython.get_ipython", shell)
    assert isinstance(show(examples.ddp(2)), Figure)
    view = explore_buckets()
    assert view.controls is None
    said = capsys.readouterr().out
    assert "Communication hidden" in said
    assert "Best cap" in said
    assert "object" not in said
    assert "Live only" not in said
