"""The table of peaks agrees with runs; the check's formulas agree with torch's counts."""

import random

import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from ddpkit.checks.lab20 import limits, sizes, training
from ddpkit.checks.lab20.both_sides import exposed


@pytest.mark.slow  # minutes
@pytest.mark.processes
@pytest.mark.parametrize("step", list(sizes.PEAKS), ids=lambda step: step.words)
def test_the_table_has_the_peaks_of_runs(step: sizes.ShardedStep) -> None:
    assert training.peaks((step,)) == [sizes.PEAKS[step]]


@pytest.mark.parametrize("step", list(sizes.PEAKS), ids=lambda step: step.words)
def test_the_formula_is_near_each_peak(step: sizes.ShardedStep) -> None:
    assert sizes.fits(step) == pytest.approx(sizes.PEAKS[step], rel=0.02)


@pytest.mark.parametrize("again", sizes.AGAIN)
@pytest.mark.parametrize("make", [sizes.gated, sizes.plain])
def test_flops_are_those_of_torchs_counter(make: object, again: str) -> None:
    shape = make(random.Random(3), 2, 512)
    with torch.device("meta"):
        model = training.TransformerModel(
            shape, lambda block: training._checkpointed(block, again)
        ).bfloat16()
        ids = torch.zeros(2, 256, dtype=torch.long)
        with FlopCounterMode(display=False) as counter:
            F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
    assert sizes.flops((shape, 2, 256), again) == counter.get_total_flops()


@pytest.mark.processes
@pytest.mark.parametrize("ask", [
    limits.Hidden("copies", (2048, 2048), 8, 400, 50, 5),
    limits.Hidden("slices", (8192, 28672), 8, 400, 450, 3),
], ids=lambda ask: ask.words)  # fmt: skip
def test_a_run_is_exposed_below_the_limit_and_hidden_above(ask: limits.Hidden) -> None:
    tokens = limits.limit(ask)
    (_, below), (_, above) = exposed(ask, (int(0.97 * tokens), int(1.03 * tokens) + 1))
    assert below > 0.01
    assert above < 0.0005
