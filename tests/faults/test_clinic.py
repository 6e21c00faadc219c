"""Each patient of the clinic shows its fault; the wards have all named causes."""

import pytest
import torch

from ddpkit.checks.lab10.clinic import DIAGNOSES
from ddpkit.errors import Deadlock, LessonError, Mismatch
from ddpkit.faults import CAUSES, patient
from ddpkit.faults.patients import ILL

FAILS = {
    "A": "send",
    "B": "shape",
    "C": "shape",
    "D": "shape",
    "E": "returned",
    "F": "dtype",
    "J": "members",
}


@pytest.mark.processes
@pytest.mark.parametrize("name", ILL)
def test_what_is_seen_of_a_patient_tells_its_fault(name, capfd):
    run = patient(name).run()
    said = capfd.readouterr().out
    if name in FAILS:
        assert isinstance(run.error, Deadlock | Mismatch)
        kind = run.error.cause if isinstance(run.error, Deadlock) else run.error.kind
        assert kind == FAILS[name]
        assert f"patient_{name}.py, line" in said
        return
    assert run.error is None
    assert "the tensor of" not in said, "the diagnosis is the reader's work"
    assert "differs between ranks" not in said
    assert ("in one process, of whole batches" in said) == (name not in "KL")
    models = [each["model"] for each in run.results]
    alike = all(torch.equal(models[0], model) for model in models)
    assert alike == (name not in "HM") == ("All ranks have the same model." in said)
    assert said.count("first step: images") == (len(models) if name == "G" else 0)
    assert said.count(", result: ") == {"K": 4, "L": 3}.get(name, 0)
    if name == "K":
        assert len({line for line in said.splitlines() if "result" in line}) == 1, (
            "one row, 4 times"
        )
    if name == "L":
        assert said.count("result: [[0.0, 0.0, 0.0], ") == 3, "nothing has come yet"


def test_all_have_a_diagnosis_of_the_list():
    assert DIAGNOSES.keys() == ILL.keys()
    for name, (cause, rank) in DIAGNOSES.items():
        assert cause in CAUSES
        assert rank is None or rank in range(ILL[name].ranks)


def test_a_mend_replaces_lines_and_keeps_their_indentation():
    mended = patient("B").mended({8: "if True:", 10: "a()\nif b:\n    c()"})
    assert mended.program.splitlines()[7] == "    if True:"
    assert mended.program.splitlines()[9:12] == ["        a()", "        if b:", "            c()"]
    assert str(patient("B")).splitlines()[7] == " 8      if rank == 0:"


@pytest.mark.parametrize("mend", [None, ["x"], {99: ""}, {0: ""}, {"1": ""}, {1: None}, {True: ""}])
def test_what_is_no_mend_is_refused(mend):
    with pytest.raises(LessonError):
        patient("A").mended(mend)


def test_an_unknown_patient():
    with pytest.raises(LessonError, match="There is no patient 'Z': the patients are A, B"):
        patient("Z")
