"""The benchmark of predictions runs, and its predictions are near the simulator."""

import re
import sys

import pytest

from benchmarks import scaling
from benchmarks.scaling import (
    CAPS,
    LINKS,
    MODELS,
    RANKS,
    Case,
    cases,
)

pytestmark = pytest.mark.processes


def test_one_recording_predicts_other_runs(monkeypatch, capsys):
    other = Case("wide", 3, 0.25, LINKS[1])
    monkeypatch.setattr(scaling, "MODELS", {"wide": (2, 64)})
    monkeypatch.setattr(scaling, "cases", lambda quick: [other])
    monkeypatch.setattr(sys, "argv", ["scaling", "--quick"])
    scaling.main()
    printed = capsys.readouterr().out
    (worst,) = re.findall(r"^worst deviation ([\d.]+)% .*: ok\), 1 runs$", printed, re.MULTILINE)
    assert float(worst) < 1  # real ranks against the simulator
    assert "hosts of 8" in printed


def test_all_combinations_are_tried():
    assert len({*cases(quick=False)}) == len(MODELS) * len(RANKS) * len(CAPS) * len(LINKS)
