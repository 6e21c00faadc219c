"""The shell: with a front end, without a front end, and in a saved notebook."""

import base64
import types

import nbformat
import pytest
from matplotlib.figure import Figure
from nbclient import NotebookClient

from ddpkit.simulate import schedule
from ddpkit.view import play
from tests.view import examples


def test_without_a_front_end_it_is_figures_and_text(capsys: pytest.CaptureFixture[str]) -> None:
    view = play(schedule("ring", 2, 8), length=1000)
    assert "Step 1 of 2" in capsys.readouterr().out
    assert isinstance(view.figure(step=2), Figure)
    assert view.png(step=2)[:4] == b"\x89PNG"
    assert "Step 2 of 2" in view.text(step=2)
    assert "0→1 +B" in view.table()
    assert view.controls is None


def test_wrong_steps_and_lengths_are_refused() -> None:
    view = play(schedule("ring", 2, 8))
    with pytest.raises(ValueError, match="no step 3: choose 0 to 2"):
        view.figure(step=3)
    with pytest.raises(ValueError, match="length= applies to schedules"):
        play(examples.token_ring(), length=8)


def test_a_run_is_played_by_its_trace() -> None:
    view = play(types.SimpleNamespace(trace=examples.token_ring(3)))
    assert "Round 1 of 6" in view.text()


def test_the_controls_move_the_picture(displayed: list[object]) -> None:
    view = play(schedule("ring", 2, 8))
    assert [type(each).__name__ for each in displayed] == ["dict", "Image", "dict", "dict"]
    panel = view.controls
    assert panel.controls["step"]["words"] == ["before the first", "1 of 2", "2 of 2"]
    assert panel.values() == {"step": 1}
    panel.choose(step=2)
    assert panel.picture == view.html(step=2) != view.html()
    assert "Step 2 of 2" in panel.said


@pytest.mark.processes
def test_a_saved_notebook_keeps_picture_and_text(tmp_path) -> None:
    code = (
        "from ddpkit.simulate import schedule\nfrom ddpkit.view import play\n"
        "play(schedule('ring', 4, 1000))"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": tmp_path}}).execute()
    outputs = notebook.cells[0].outputs
    kinds = [output.output_type for output in outputs]
    assert kinds == ["display_data", "display_data", "stream", "display_data", "display_data"]
    assert base64.b64decode(outputs[1].data["image/png"])[:4] == b"\x89PNG"
    assert "Step 1 of 6" in outputs[2].text
    assert "Notice" in outputs[2].text
    assert "application/vnd.jupyter.widget-view+json" in outputs[4].data
