"""The benchmark of emulated time runs, and finds no cell outside the goal."""

import math
import sys

import pytest

from benchmarks import emulation
from benchmarks.emulation import LINKS, OPERATIONS, Extent, Ratios, cells_of, events_ns, took
from ddpkit.link import Links

pytestmark = pytest.mark.processes


def test_every_operation_is_exact_on_every_link():
    for link in LINKS:
        measured = took(2, link, [(operation, 4096) for operation in OPERATIONS], math.inf)
        links = Links.parse(link, 2)
        assert measured == {cell: events_ns(cell[0], 2, cell[1], links) for cell in measured}


def test_what_does_not_fit_is_left_out_and_said():
    cells, left_out = cells_of(32, (4096, 32 * 1024**2))
    assert left_out == [("all_to_all", 32 * 1024**2)]
    assert len(cells) == 2 * len(OPERATIONS) - 1


def test_a_cell_that_is_off_is_counted():
    ratios = Ratios({(0, 2, ("ring", 4096)): [1.0, 1.002]}, equal=1)
    assert ratios.verdict().startswith("1 of 2 within 0.999 to 1.001")
    assert ratios.row(0, 2)[:3] == ["1 Gbit/s, 200 us", "2", "1.000000–1.002000"]


@pytest.mark.slow
def test_the_benchmark_prints_all_its_parts(monkeypatch, capsys):
    monkeypatch.setattr(emulation, "QUICK", Extent((2,), (4096,), 3, (2,), 2, 8))
    monkeypatch.setattr(sys, "argv", ["benchmarks.emulation", "--quick"])
    emulation.main()
    printed = capsys.readouterr().out
    assert "42 of 42 within 0.999 to 1.001" in printed
    assert "exact 540 ms ok" in printed
    assert "1 order and times in 2 runs ok" in printed
    for words in ("an all_reduce of 1 MB on 3 ranks", "a training step, 2 of DDP", "left out"):
        assert words in printed
