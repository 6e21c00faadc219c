"""`ddpkit predict` and `ddpkit tune`: from one trace to steps of other runs."""

import contextlib
import io
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from ddpkit.commands.main import main
from ddpkit.errors import TraceError
from ddpkit.machine import KindCost, MachineModel, speed_range
from ddpkit.simulate import Gradient, Step, assign_buckets, forecast
from ddpkit.simulate import replay as replayed
from ddpkit.trace import Trace
from tests.project.source import ROOT

LINK = "1 Gbit/s, 200 us"

MB = 2**20


def a_step(slower: float = 1.0) -> Step:
    some = [Gradient(f"p{i}", MB // 2, (i + 1) * 2_000_000) for i in range(20)]
    return Step(20_000_000, tuple(some), 3_000_000, 500_000, 1_000_000).slowed(slower)


def recorded(factors: list[float], link: object = LINK, ranks: int = 2) -> Trace:
    """Return a trace with one step for each factor; a factor multiplies the step's compute time."""
    spans, at = [], 0
    for factor in factors:
        step = a_step(factor)
        cut = replayed(step, ranks, link, assign_buckets(step.gradients, 2.0)).trace()
        spans += [
            replace(
                span,
                start_ns=span.start_ns + at,
                end_ns=span.end_ns + at,
                ready_ns=None if span.ready_ns is None else span.ready_ns + at,
                blocked_ns=None if span.blocked_ns is None else span.blocked_ns + at,
            )
            for span in cut.spans
        ]
        at = max(span.end_ns for span in spans)
    return replace(cut, spans=tuple(spans))


def said(*arguments: str) -> str:
    ran = CliRunner().invoke(main, [*arguments])
    assert ran.exit_code == 0, ran.output
    return ran.output


@pytest.fixture
def saved(tmp_path: Path) -> str:
    path = tmp_path / "run.json.gz"
    recorded([1.0] * 9).save(path)
    return str(path)


def test_a_forecast_is_the_replay_of_what_was_recorded() -> None:
    model = forecast(recorded([1.0] * 9))
    assert model.step == a_step()
    assert model.ratios == (1.0,) * 3
    for n, link, cap in ((2, LINK, 2.0), (64, "10 Gbit/s, 20 us", 1.0)):
        there = replayed(a_step(), n, link, assign_buckets(a_step().gradients, cap))
        assert model.replay(n, link, cap).step_ns == there.step_ns
    assert model.replay(speed=2.0, link="unlimited").step_ns == a_step(0.5).compute_ns


def test_a_network_by_name_is_predicted_like_its_numbers(saved: str) -> None:
    named = said("predict", saved, "--link", "hosts of 8 H100, InfiniBand 400 Gbit/s per GPU")
    model = forecast(recorded([1.0] * 9))
    hosts = {"hosts of": 8, "inside": "370 GB/s, 3.4 us", "between": "376 GB/s, 9.6 us"}
    for ranks in (16, 64):
        ms = model.replay(ranks, hosts).step_ns / 1e6
        assert re.search(rf"^ *{ranks} .*{ms:.3g}", named, re.MULTILINE), (ms, named)
    ran = CliRunner().invoke(main, ["predict", saved, "--link", "hosts of 8 H100"])
    assert ran.exit_code == 1
    assert "add the network, as in" in ran.output


def test_steps_that_are_held_out_tell_the_error() -> None:
    """After three warm-up steps, the 5th and the 7th step are held out: these take longer."""
    model = forecast(recorded([1, 1, 1, 1, 1.1, 1, 1.3, 1], link="unlimited"))
    assert [round(ratio, 2) for ratio in model.ratios] == [1.1, 1.3]
    assert model.ratio == pytest.approx(1.2, abs=0.01)
    assert forecast(recorded([1])).ratio is None


def test_links_of_single_ranks_tell_nothing_of_others() -> None:
    model = forecast(recorded([1] * 5, link={"default": LINK, 3: "100 Mbit/s"}, ranks=4))
    assert model.replay(4).world_size == 4
    with pytest.raises(TraceError, match="links of 2 ranks are unknown"):
        model.replay(2)
    assert model.replay(2, LINK).world_size == 2
    with pytest.raises(ValueError, match="above 0"):
        model.replay(speed=0)


def test_predict_prints_a_curve_and_its_error(saved: str) -> None:
    text = said("predict", saved, "--link", "100 Gbit/s, 10 us", "--algorithm", "cheapest")
    assert "3 steps held out: measured ÷ predicted 1.00 (1.00 to 1.00)" in text
    assert "4,096" in text
    assert "The efficiency is 80% or more up to " in text
    assert 'ddpkit run -n 8 --link "100 Gbit/s, 10 us" train.py' in text
    some = said("predict", saved, "-n", "2", "-n", "16", "--cap", "0.5", "--speed", "2")
    step = replayed(a_step(0.5), 16, LINK, assign_buckets(a_step().gradients, 0.5)).step_ns
    assert f"{step / 1e6:.4g} ms" in some
    assert "4,096" not in some


def test_predict_on_another_machine_says_both_ends(saved: str, tmp_path: Path) -> None:
    """ "twice" computes twice as fast as the recorded machine, and moves bytes three times as
    fast."""
    was, twice = "1 TFLOP/s, 100 GB/s, 5 us", "2 TFLOP/s, 300 GB/s, 2.5 us"
    text = said("predict", saved, "-n", "4", "--machine", twice, "--recorded-on", was)
    assert "between × 2 and × 3" in text
    for factor in (2, 3):
        step = replayed(a_step(1 / factor), 4, LINK, forecast(Trace.load(saved)).buckets).step_ns
        assert f"{step / 1e6:.4g} ms" in text
    assert f'--machine "{twice}" train.py' in text
    named, path = recorded([1.0] * 5), tmp_path / "named.json.gz"
    replace(named, facts={**named.facts, "machine": was}).save(path)
    assert "between × 1 and × 1 as fast" in said("predict", str(path), "-n", "4", "--machine", was)
    # the recorded machine
    assert f'--machine "{was}" train.py' in said("predict", str(path), "-n", "4")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--machine", "A100"], "does not name the machine"),
        (["--machine", "B17", "--recorded-on", "V100"], "there is no machine"),
        (["--machine", "1 TFLOP/s", "--recorded-on", "V100"], "which the other lacks"),
    ],
)
def test_a_machine_that_cannot_be_compared_is_one_sentence(
    saved: str, arguments: list[str], why: str
) -> None:
    ran = CliRunner().invoke(main, ["predict", saved, *arguments])
    assert (ran.exit_code, why in ran.output) == (1, True)


def test_a_measured_machine_has_a_range_over_its_kinds() -> None:
    near, far = KindCost(1000, ((1e6, 0.2), (1e9, 0.5))), KindCost(500, ((1e6, 0.4), (1e9, 0.5)))
    mine = MachineModel("mine", {"float32": 1e12}, 1e11, None, 1000, kinds={"matmul": near})
    other = MachineModel("other", {"float32": 1e12}, 1e11, None, 1000, kinds={"matmul": far})
    assert speed_range(mine, other) == (1.0, 2.0)
    assert speed_range(other, mine) == (0.5, 1.0)
    for flops in (10**5, 10**7, 10**10):  # the factor of any operation is between the two
        costs = [machine.cost_ns("matmul", flops, 100) for machine in (mine, other)]
        assert 1.0 <= costs[0] / costs[1] <= 2.0


def test_tune_names_the_best_cap_and_the_order_to_measure(saved: str) -> None:
    text = said("tune", saved)
    rows = [re.split(r"  +", line.strip()) for line in text.splitlines() if "× " in line]
    times = [float(row[-1].removeprefix("× ")) for row in rows]
    assert times[0] == 1.0
    assert times[:-1] == sorted(times[:-1])
    assert "left out (torch's default: 1, then 25)" in [row[0] for row in rows]
    assert f"bucket_cap_mb={rows[0][0]}." in text
    assert "On 64 ranks, 10 Gbit/s, 20 us" in said(
        "tune", saved, "-n", "64", "--link", "10 Gbit/s, 20 us"
    )


def test_what_docs_run_md_does_with_a_trace(saved: str, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "run.md").read_text("utf-8").split("Two more commands read")[1]
    monkeypatch.chdir(Path(saved).parent)
    commands = re.findall(r"^ddpkit (.*run\.json\.gz.*)$", page, re.MULTILINE)
    assert [shlex.split(command)[0] for command in commands] == ["predict", "tune"]
    for command in commands:
        assert "a step by the model" in said(*shlex.split(command, comments=True))
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        exec(page.split("```python\n")[1].split("```")[0], {})
    assert "replayed" in shown.getvalue()


def test_torchs_default_has_a_first_bucket_of_its_own() -> None:
    """A stated cap of 25 gives one bucket of 20 MB, and the default gives two."""
    gradients = tuple(Gradient(f"p{k}", MB, k * 1000) for k in range(20))
    step = Step(0, gradients, 0)
    model = replace(forecast(recorded([1.0] * 9)), step=step)
    assert len(model.replay(bucket_cap_mb=25).all_reduces) == 1
    assert len(model.replay(first_bucket_mb=1).all_reduces) == 2


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--link", "fast"], "cannot read the link"),
        (["--speed", "0"], "above 0"),
    ],
)
@pytest.mark.parametrize("command", ["predict", "tune"])
def test_what_is_wrong_is_one_sentence(
    saved: str, command: str, arguments: list[str], why: str
) -> None:
    ran = CliRunner().invoke(main, [command, saved, *arguments])
    assert ran.exit_code == 1
    assert why in ran.output
    assert len(ran.output.splitlines()) <= 4
