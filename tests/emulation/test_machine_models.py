"""Modelled machines, by name, by numbers and from files; and the cost of an operation."""

import json
import math
from pathlib import Path

import pytest
import torch

from ddpkit import Cluster, ClusterError
from ddpkit.machine import KINDS, KindCost, MachineModel, machine_text, machines_of, named
from ddpkit.rank.emulation.meter import Meter
from ddpkit.rank.mode import PlainMode


def test_each_number_of_a_named_machine_has_a_source():
    for name, machine in named().items():
        numbers = set(machine.as_json()) - {"title", "source", "has_device"}
        assert set(machine.source) == numbers, name
        assert machine.title
        assert machine.peak() > 0
    assert {"V100", "A100", "H100", "T4", "K80", "laptop core"} <= set(named())


TODAY = {  # the grades of labs depend on these numbers
    "V100": ({"float64": 7.8, "float32": 15.7, "float16": 125}, 900, 5000, (0.7, 0.8)),
    "A100": ({"float64": 19.5, "float32": 19.5, "bfloat16": 312}, 2039, 5000, (0.7, 0.8)),
    "H100": ({"float64": 67, "float32": 67, "bfloat16": 989}, 3350, 4000, (0.6, 0.8)),
    "T4": ({"float64": 0.254, "float32": 8.1, "float16": 65}, 320, 6000, (0.5, 0.8)),
    "K80": ({"float64": 1.455, "float32": 4.365}, 240, 10_000, (0.6, 0.7)),
    "laptop core": ({"float64": 0.048, "float32": 0.096}, 12, 3000, (0.7, 0.8)),
}


@pytest.mark.parametrize("name", TODAY)
def test_the_numbers_of_the_machines_of_the_labs_stay(name: str) -> None:
    peaks, bandwidth, launch_ns, efficiency = TODAY[name]
    machine = named()[name]
    assert {dtype: machine.flops[dtype] / 1e12 for dtype in peaks} == peaks
    assert machine.bandwidth / 1e9 == bandwidth
    assert (machine.launch_ns, machine.efficiency, dict(machine.kinds)) == (
        launch_ns,
        efficiency,
        {},
    )


@pytest.mark.parametrize(
    ("name", "dtype", "peak"),
    [
        ("H100 SXM", "float8_e4m3fn", 1979e12),
        ("H100 SXM", "float4_e2m1fn_x2", 1979e12),  # without 4-bit units: computed in 8 bits
        ("H100 PCIe", "float8_e5m2", 1513e12),
        ("B200", "float4_e2m1fn_x2", 9000e12),
        ("GB300", "float4_e2m1fn_x2", 15e15),
        ("MI300X", "float8_e4m3fnuz", 2614.9e12),
        ("MI300X", "float8_e5m2fnuz", 2614.9e12),
        ("TPU v5p", "float16", 76.5e12),
        ("A100", "float8_e5m2", 312e12),  # without 8-bit units: computed in 16 bits
        ("A100 40GB", "float4_e2m1fn_x2", 312e12),
        ("K80", "float8_e4m3fn", 4.365e12),
    ],
)
def test_small_dtypes_have_peaks_where_the_machine_computes_them(
    name: str, dtype: str, peak: float
) -> None:
    assert hasattr(torch, dtype)
    assert named()[name].peak(dtype) == peak


def test_a_machine_with_fitted_shares_has_one_for_attention() -> None:
    h100 = named()["H100 SXM"]
    product, attention = (
        h100.host_and_device_ns(kind, 1e12, 0, "bfloat16") for kind in ("matmul", "attention")
    )
    assert product == (4000, round(1e9 / (989 * 0.64)))
    assert attention == (4000, round(1e9 / (989 * 0.35)))
    copy = h100.host_and_device_ns("copy", 0, 10**9)
    assert copy == (4000, round(1e18 / (3350e9 * 0.4)))


def test_a_machine_without_published_steps_says_whose_shares_it_has() -> None:
    fitted = {"A100 80GB", "A100 40GB", "H100 SXM"}
    for name, machine in named().items():
        if not machine.kinds:
            continue  # the shares are stated by ddpkit
        for number in ("efficiency", "kinds"):
            source = machine.source[number]
            assert ("fitted by ddpkit on" in source) == (name in fitted), name
            if name not in fitted:
                assert "no published step was used" in source
                assert "nearest relative, H100 SXM" in source
                assert machine.efficiency == named()["H100 SXM"].efficiency
                assert machine.kinds == named()["H100 SXM"].kinds


def test_a_name_is_found_in_any_case():
    assert MachineModel.parse("a100") is named()["A100"]
    assert str(MachineModel.parse("A100")) == "A100"
    assert repr(MachineModel.parse("A100")) == "<MachineModel A100>"
    assert MachineModel.parse(named()["T4"]) is named()["T4"]


@pytest.mark.parametrize(
    ("text", "flops", "bandwidth", "memory", "launch_ns"),
    [
        ("1 TFLOP/s, 100 GB/s, 64 MB, 5 us", 1e12, 100e9, 64_000_000, 5000),
        ("5 us, 64 MiB, 100 GB/s, 1 TFLOPS", 1e12, 100e9, 64 * 2**20, 5000),
        ("2.5 GFLOP/s", 2.5e9, math.inf, None, 0),
        ("1e3 flops, 8 Gbit/s", 1e3, 1e9, None, 0),
    ],
)
def test_numbers_are_told_apart_by_their_units(text, flops, bandwidth, memory, launch_ns):
    machine = MachineModel.parse(text)
    found = (machine.peak("float16"), machine.bandwidth, machine.memory, machine.launch_ns)
    assert found == (flops, bandwidth, memory, launch_ns)
    assert machine.peak("float64") == flops
    assert str(machine) == text


@pytest.mark.parametrize("text", ["laptop core", "1 TFLOP/s, 5 us", "mine.json"])
def test_a_device_has_the_costs_of_its_machine(text: str, tmp_path: Path) -> None:
    if text == "mine.json":
        text = str(tmp_path / text)
        Path(text).write_text(json.dumps(named()["laptop core"].as_json()))
    plain, found = MachineModel.parse(text), MachineModel.parse(f"device of {text}")
    assert (plain.has_device, found.has_device) == (False, True)
    assert str(found) == f"device of {plain}"
    host, work = found.host_and_device_ns("matmul", 10**9, 0)
    assert (host, host + work) == (plain.launch_ns, plain.cost_ns("matmul", 10**9, 0))
    (tmp_path / "device.json").write_text(json.dumps(found.as_json()))
    assert MachineModel.parse(tmp_path / "device.json").has_device
    if text != str(tmp_path / "mine.json"):  # the name of the machine in a trace
        assert MachineModel.parse(f"Device of {found}") == found


def test_the_named_gpus_have_devices() -> None:
    assert [name for name, each in named().items() if not each.has_device] == ["laptop core"]
    assert MachineModel.parse("device of A100") == MachineModel.parse("a100")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("device of H10", 'there is no machine "H10". Did you mean "H100"?'),
        ("A10", 'there is no machine "A10". Did you mean "A100"?'),
        ("zebra", "Named are V100, A100"),
        ("1 TB/s", 'has no peak: give one, as in "1 TFLOP/s"'),
        ("0 GFLOP/s", "has no peak"),
        ("1 TFLOP/s, 2 TFLOP/s", "two numbers of one kind"),
        ("1 TFLOP/s, 5 apples", "cannot read '5 apples'"),
        ("1 TFLOP/s, 0 GB/s", "cannot read '0 GB/s'"),
        ("nowhere.json", "cannot read the machine file nowhere.json: No such file"),
        (3, "cannot read the machine 3"),
    ],
)
def test_what_cannot_be_read_is_said_in_a_sentence(text, said):
    with pytest.raises(ValueError, match="machine") as raised:
        MachineModel.parse(text)
    assert said in str(raised.value)
    with pytest.raises(ClusterError):
        Cluster(2, machine=text)


def test_each_rank_may_have_its_own():
    found = machines_of({"default": "V100", 3: "K80"}, 4)
    assert [machine.name for machine in found] == ["V100", "V100", "V100", "K80"]
    assert machine_text(found) == "V100; rank 3: K80"
    assert machine_text(()) == ""
    assert machines_of({0: "T4", 1: "T4"}, 2) == machines_of("T4", 2)


@pytest.mark.parametrize("spec", [{4: "K80", "default": "T4"}, {"x": "T4"}, {0: "T4"}])
def test_a_rank_that_is_not_there_and_one_without_a_machine_are_named(spec):
    with pytest.raises(ValueError, match=r"machine="):
        machines_of(spec, 2)


def test_the_more_of_flops_and_bytes_counts_and_the_dtype_says_which_peak():
    a100 = named()["A100"]
    slow = 1e12 / (19.5e12 * 0.7)
    assert a100.cost_ns("matmul", 1e9, 0) == round(5000 + 1e6 * slow)
    assert a100.cost_ns("matmul", 1e12, 0, "bfloat16") == round(5000 + 1e9 / (312 * 0.7))
    assert a100.cost_ns("matmul", 1e12, 0, "int64") == a100.cost_ns("matmul", 1e12, 0)
    assert a100.cost_ns("copy", 0, 10**9) == round(5000 + 1e18 / (2039e9 * 0.8))
    assert named()["K80"].peak("float16") == named()["K80"].peak("float32")
    assert named()["V100"].peak("bfloat16") == named()["V100"].peak("float32")


def test_an_efficiency_between_two_sizes_lies_between_theirs():
    cost = KindCost(100.0, ((1e3, 0.1), (1e5, 0.5)))
    assert [cost.efficiency(work) for work in (1, 1e3, 1e5, 1e9)] == [0.1, 0.1, 0.5, 0.5]
    assert cost.efficiency(1e4) == pytest.approx(0.3)


def test_a_file_holds_a_machine(tmp_path: Path):
    kinds = {"matmul": {"launch_us": 2, "efficiency": [[1e6, 0.5], [1e3, 0.25]]}}
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"flops": {"float32": 1e9}, "bandwidth": 1e9, "kinds": kinds}))
    machine = MachineModel.parse(path)
    assert machine.name == "mine"
    assert machine.cost_ns("matmul", 1e6, 0) == 2000 + 2_000_000
    assert machine.cost_ns("copy", 0, 1000) == 1000
    path.write_text(json.dumps(machine.as_json()))
    assert MachineModel.parse(str(path)) == machine


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "{}",
        "[]",
        '{"flops": {"float16": 1}}',
        '{"flops": {"float32": 0}}',
        '{"flops": {"float32": 1}, "kinds": {"other": {"launch_us": 1, "efficiency": []}}}',
    ],
)
def test_a_file_that_is_none_is_named(tmp_path: Path, content: str):
    path = tmp_path / "mine.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"mine\.json"):
        MachineModel.parse(path)


def test_a_kind_that_a_file_has_not_is_counted_like_another():
    cost = KindCost(100.0, ((1e3, 0.5),))
    old = MachineModel("old", {"float32": 1e9}, 1e9, kinds={"elementwise": cost, "copy": cost})
    assert old.cost_ns("reduction", 0, 1000) == old.cost_ns("elementwise", 0, 1000) == 2100
    assert old.cost_ns("transposed", 0, 1000) == 2100
    assert old.cost_ns("matmul", 0, 1000) == 1000


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        (lambda x: x + 1, "elementwise"),
        (lambda x: x.sum(0), "reduction"),
        (lambda x: x.softmax(1), "reduction"),
        (lambda x: torch.nn.functional.layer_norm(x, [4]), "reduction"),
        (lambda x: x.clone(), "copy"),
        (lambda x: x.t().contiguous(), "transposed"),
        (lambda x: x + x[:, :1].expand(4, 4), "elementwise"),  # one column is read again and again
        (lambda x: x + x.t(), "transposed"),
        (lambda x: x.t() + x.t(), "elementwise"),  # both operands have the same other order
    ],
)
def test_operations_are_of_a_kind(what, kind):
    kinds = {name: KindCost(number, ((1.0, 1.0),)) for number, name in enumerate(KINDS, 1)}
    meter = Meter(MachineModel("numbered", {"float32": math.inf}, kinds=kinds), speed=1.0)

    class Kinds(PlainMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            counted.append(meter.ns(func, args, kwargs or {}, out))
            return out

    counted = []
    with Kinds():
        what(torch.empty(4, 4))
    found = {KINDS[number - 1] for number in counted if number}
    assert found == {kind}


def test_a_device_has_a_bus_and_a_host(tmp_path):
    text = "device of 400 TFLOP/s, 5 us; bus 25 GB/s; host 70 GFLOP/s, 20 GB/s, 64 GB"
    machine = MachineModel.parse(text)
    assert (str(machine), machine.bus) == (text, 25e9)
    assert machine.host is not None
    assert (machine.host.peak(), machine.host.bandwidth, machine.host.memory) == (
        70e9,
        20e9,
        64_000_000_000,
    )
    assert machine.copy_ns(100_000_000, pinned=True) == 4_000_000
    assert machine.copy_ns(100_000_000, pinned=False) == 8_000_000
    assert MachineModel.parse("device of 1 TFLOP/s").copy_ns(10**9, pinned=False) == 0
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(machine.as_json()))
    found = MachineModel.parse(path)
    assert (found.bus, found.host) == (machine.bus, machine.host)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("device of 1 TFLOP/s; bus 5 us", "bus 25 GB/s"),
        ("device of 1 TFLOP/s; bus", "cannot read"),
        ("device of 1 TFLOP/s; cable 5 GB/s", "after a semicolon"),
        ("device of 1 TFLOP/s; host 20 GB/s", "has no peak"),
    ],
)
def test_a_bus_or_a_host_that_cannot_be_read_is_named(text: str, words: str):
    with pytest.raises(ValueError, match=words):
        MachineModel.parse(text)


@pytest.mark.parametrize(
    ("machine", "peak"), [("A100", 156e12), ("H100", 494.5e12), ("V100", 15.7e12)]
)
def test_tf32_has_half_of_the_peak_of_bfloat16(machine: str, peak: float) -> None:
    assert MachineModel.parse(machine).peak("tf32") == peak


@pytest.mark.parametrize("allowed", ["allow_tf32", "precision"])
def test_matrix_products_in_tf32_are_cheaper(allowed: str) -> None:
    meter, product = Meter(MachineModel.parse("A100"), 1.0), torch.ops.aten.mm.default
    x = torch.ones(1024, 1024)
    before = meter.ns(product, (x, x), {}, x)
    try:
        if allowed == "precision":
            torch.set_float32_matmul_precision("high")
        else:
            torch.backends.cuda.matmul.allow_tf32 = True
        work = meter.ns(product, (x, x), {}, x) - meter.launch_ns
    finally:
        torch.set_float32_matmul_precision("highest")
    assert work == round(2 * 1024**3 / (156e12 * 0.7) * 1e9)
    assert before == round(2 * 1024**3 / (19.5e12 * 0.7) * 1e9) + meter.launch_ns


def test_convolutions_use_tf32_unless_the_program_forbids_it() -> None:
    meter, convolve = Meter(MachineModel.parse("A100"), 1.0), torch.ops.aten.convolution.default
    x, weight = torch.ones(64, 64, 32, 32), torch.ones(64, 64, 3, 3)
    given = x, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1
    before = meter.ns(convolve, given, {}, x) - meter.launch_ns
    had = torch.backends.cudnn.allow_tf32
    try:
        torch.backends.cudnn.allow_tf32 = False
        after = meter.ns(convolve, given, {}, x) - meter.launch_ns
    finally:
        torch.backends.cudnn.allow_tf32 = had
    assert before == round(2 * x.numel() * 64 * 9 / (156e12 * 0.7) * 1e9)
    assert after == round(2 * x.numel() * 64 * 9 / (19.5e12 * 0.7) * 1e9)
