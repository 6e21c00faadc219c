"""Each benchmark runs, and prints its rows."""

import importlib
import inspect
import pkgutil
import sys
from pathlib import Path

import pytest

import benchmarks
from benchmarks import cluster
from benchmarks._report import Figure, Sample, as_markdown, as_text, table

ROOT = Path(__file__).parents[2]
MODULES = [m.name for m in pkgutil.iter_modules(benchmarks.__path__) if m.name[0] != "_"]


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_says_what_it_prints(name: str) -> None:
    module = importlib.import_module(f"benchmarks.{name}")
    words = inspect.getdoc(module) or ""
    assert callable(module.main)
    assert "prints" in words.lower()
    assert f"python -m benchmarks.{name}" in words
    assert f"\n{name} " in (benchmarks.__doc__ or ""), "listed in benchmarks/__init__.py"


def test_the_benchmark_of_the_cluster_says_which_ratios_it_prints() -> None:
    assert "the first run ÷ one `import torch`" in " ".join((cluster.__doc__ or "").split())


@pytest.mark.slow
def test_the_benchmark_of_the_cluster_prints_both_tables(monkeypatch, capsys) -> None:
    once = cluster.Extent(1, 1, faults_of_others=False, later=1, models=1, blocks=4, messages=1)
    monkeypatch.setattr(cluster, "QUICK", once)
    monkeypatch.setattr(cluster, "SIZES", (4,))
    # Two processes import torch instead of 24: each job would start new ones.
    monkeypatch.setattr(cluster, "_plan_of_others", lambda faults: [("nothing", 2)])
    monkeypatch.setattr(sys, "argv", ["benchmarks.cluster", "--quick"])
    monkeypatch.chdir(ROOT)
    cluster.main()
    printed = capsys.readouterr().out
    for row in ("first run ÷ import torch", "later run of an empty function, 4 ranks", "÷ plain"):
        assert row in printed
    assert "nan" not in printed


def test_a_figure_compares_medians_with_goal_and_others() -> None:
    figure = Figure("run", "s", Sample.of([0.1, 0.3, 0.2]), {"spawn": Sample.of([2.0])}, goal=0.2)
    assert figure.verdict() == "≤ 0.2 ok"
    assert figure.ratio("spawn") == "10.0 ×"
    assert Figure("run", "s", Sample.of([0.3]), goal=0.2).verdict() == "≤ 0.2 MISSED"


def test_spread_is_the_middle_half_and_the_worst() -> None:
    assert Sample.of([1, 2, 3, 4, 50]).text("ms") == "3 ms (2–4, max 50, n=5)"
    assert Sample.of([0.0814]).text("s") == "0.081 s (max 0.081, n=1)"


def test_a_missing_peer_is_said_in_its_cell() -> None:
    rows = table(
        "what", [Figure("run", "s", Sample.of([1.0]), {"spawn": "not installed"})], ["spawn"]
    )
    assert rows[1][2] == "not installed"
    assert as_text(rows).splitlines()[2].startswith("run ")
    assert as_markdown(rows).splitlines()[1] == "|---|---|---|"
