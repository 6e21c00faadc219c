"""Published numbers, checked: the lessons' statements about them follow from the numbers."""

import numpy as np
import pytest

from ddpkit.data import published
from ddpkit.data.published import HETSEQ_ROWS, OVERLAP, SERVER_RATES, SKIPPING_8, SLOWER_AT_256
from ddpkit.simulate import Step, replay, resnet

DAY = 86_400


def test_hetseqs_first_row_does_not_fit_itself() -> None:
    days = [row.steps * row.step_s / DAY for row in HETSEQ_ROWS]
    assert [round(each, 2) for each in days] == [8.04, 4.16, 2.16, 1.21]
    assert abs(days[0] - HETSEQ_ROWS[0].days) > 0.8
    assert all(abs(d - row.days) < 0.08 for d, row in zip(days[1:], HETSEQ_ROWS[1:], strict=True))


def test_hetseqs_speed_ups_rest_on_the_days_that_it_says() -> None:
    for row in HETSEQ_ROWS:
        assert row.speed_up == pytest.approx(HETSEQ_ROWS[0].days / row.days, abs=0.01)
        assert row.expansion == pytest.approx(row.speed_up / row.nodes, abs=0.01)
    took = [row.steps * row.step_s for row in HETSEQ_ROWS]
    assert [round(took[0] / each, 2) for each in took] == [1, 1.93, 3.72, 6.65]


def test_hetseqs_batches_and_steps_are_one_amount_of_work() -> None:
    samples = [row.batch * row.steps for row in HETSEQ_ROWS]
    assert max(samples) - min(samples) < 1024


@pytest.mark.parametrize("model", ["ResNet-50", "BERT"])
def test_no_gain_is_above_the_ceiling_of_overlap(model: str) -> None:
    """Backward is 2/3 of compute: less than 40 % of a step can be hidden, on any network."""
    for backend in ("NCCL", "gloo"):
        assert OVERLAP[model, backend].value < 40
    assert OVERLAP[model, "gloo"].value < OVERLAP[model, "NCCL"].value


def test_the_ceiling_of_resnet_50() -> None:
    """All of torch's buckets but the last can be hidden, so the ceiling is a little below 40 %."""
    step = Step.of_model(resnet(50), 100_000_000)
    gains = []
    for share in np.linspace(0.3, 1.2, 46):
        ns_per_byte = share * step.compute_ns / step.bytes
        with_overlap = replay(step, 32, "unlimited", price=lambda b, x=ns_per_byte: round(b * x))
        gains.append(1 - with_overlap.step_ns / (step.compute_ns * (1 + share)))
    assert 0.37 < max(gains) < 0.40


def test_a_step_that_is_twice_as_long_tells_what_skipping_saves() -> None:
    slower = SLOWER_AT_256["ResNet-50", "NCCL"].value
    saved = 100 * (1 - (8 - 1 + slower) / (8 * slower))
    assert saved == pytest.approx(43.75)
    assert abs(saved - SKIPPING_8.value) < 6


def test_two_coefficients_explain_four_servers() -> None:
    """1 / capacity = a * tensors + b * bytes fits, by relative errors; bytes alone do not fit."""
    capacity = np.array([max(each.one_server) for each in SERVER_RATES])
    both = np.array([(each.tensors, each.bytes) for each in SERVER_RATES], dtype=float)
    fitted, *_ = np.linalg.lstsq(both * capacity[:, None], np.ones(4), rcond=None)
    assert np.abs(1 / (both @ fitted) / capacity - 1).max() < 0.15
    assert 0.09e-3 < fitted[0] < 0.13e-3  # s a tensor
    alone, *_ = np.linalg.lstsq(both[:, 1:] * capacity[:, None], np.ones(4), rcond=None)
    assert np.abs(1 / (both[:, 1:] @ alone) / capacity - 1).max() > 0.3


def test_a_second_server_never_helped_twofold() -> None:
    gains = [max(each.two_servers) / max(each.one_server) for each in SERVER_RATES]
    assert all(1 < gain < 2 for gain in gains)


def test_there_are_96_rates_and_k80s_are_too_slow_to_drown_a_server() -> None:
    """Each curve is a straight line: eight K80s reach at least 90 % of eight times one."""
    tables = [
        rates for each in SERVER_RATES for rates in (each.one_server, each.two_servers, each.k80)
    ]
    assert sum(map(len, tables)) == 96
    for each in SERVER_RATES:
        efficiency = [rate / (n * each.k80[0]) for n, rate in enumerate(each.k80, 1)]
        assert all(0.9 < share < 1.01 for share in efficiency)
        assert each.k80[-1] < max(each.one_server)


def test_every_number_has_a_source_and_where_it_was_read() -> None:
    for each in (*OVERLAP.values(), *SLOWER_AT_256.values(), SKIPPING_8):
        assert each.source == published.DDP_PAPER
        assert "2026" in each.checked
        assert each.unit
