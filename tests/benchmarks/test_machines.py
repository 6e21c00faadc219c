"""The benchmark of modelled machines measures what it says."""

import sys

import pytest

from benchmarks import machines
from benchmarks.machines import MODELS, Extent, against_torch, counting, traces

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


def test_lab_06s_class_costs_what_torchs_does():
    assert against_torch(2).ours.median <= machines.CLASS
