"""The benchmark of modelled machines runs, and prints right numbers."""

import sys

import pytest

from benchmarks import machines
from benchmarks.machines import MODELS, Extent, against_replay, against_torch, counting, traces

pytestmark = [pytest.mark.processes, pytest.mark.slow]


def test_the_benchmark_prints_all_its_parts(monkeypatch, capsys):
    programs = {"torch's DDP": machines.PROGRAMS["torch's DDP"]}
    monkeypatch.setattr(machines, "PROGRAMS", programs)
    monkeypatch.setattr(machines, "QUICK", Extent((2,), 2, 2))
    monkeypatch.setattr(sys, "argv", ["machines", "--quick", "--machine", "A100"])
    machines.main()
    printed = capsys.readouterr().out
    assert "torch's DDP, 2 ranks: different traces" in printed
    for model in MODELS:
        assert f"{model}: counted ÷ measured" in printed


def test_counting_takes_time_and_traces_are_equal():
    assert 0 < counting().ours.median < 1000
    assert traces("lab 06's DDP", 2, 2).ours.median == 1


def test_lab_06s_class_costs_what_torchs_does_and_its_replay():
    assert against_torch(2).ours.median <= machines.CLASS
    assert 1 / machines.CLASS <= against_replay(2).ours.median <= machines.CLASS


def test_what_is_too_late_is_not_begun_and_said(monkeypatch, capsys):
    monkeypatch.setattr(
        sys, "argv", ["machines", "--part", "repeat", "--repeat", "20", "--minutes", "0"]
    )
    machines.main()
    printed = capsys.readouterr().out
    assert printed.count("not run: 0 minutes were over") == 2 * 4 + 7 * 2
