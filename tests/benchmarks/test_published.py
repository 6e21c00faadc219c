"""Published steps are read, counted, and priced on ddpkit's machines."""

import statistics
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import _megatron, published
from benchmarks._mpt import Sizes, operations
from ddpkit import Cluster
from ddpkit.machine import named

SIZES = Sizes(64, 2, 3, 256, 500, 32, 4, recomputed=False)


def test_the_rows_in_bfloat16_are_read_and_the_others_named() -> None:
    rows, others = published.read(published.ROWS)
    assert (len(rows), len(others)) == (116, 4)
    assert {row.gpu for row in rows} == set(published.MACHINES)
    assert [other.split(": ")[-1] for other in others] == [
        "its model is not here",
        *["amp_fp8 is not counted"] * 3,
    ]


def test_a_file_of_other_rows_is_read(tmp_path: Path) -> None:
    lines = published.ROWS.read_text("utf-8").splitlines()
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(["# kept by its owner", lines[0], lines[2]]), "utf-8")
    ((row,), others) = published.read(path)
    assert (row.gpus, row.passes, row.sizes.recomputed, others) == (512, 1, True, [])


def test_a_step_is_priced_by_the_machine_without_launches() -> None:
    machine = named()["H100 SXM"]
    micro_batch = Counter(
        {("matmul", "bfloat16", 10**12, 0): 2, ("attention", "bfloat16", 10**12, 0): 1}
    )
    update = Counter({("elementwise", "float32", 0, 10**9): 1})
    row = published.Row("a row", "H100 80GB", SIZES, passes=3, gpus=64, seconds=1.0)
    computing = 3 * (2 * 1e12 / (989e12 * 0.64) + 1e12 / (989e12 * 0.35))
    moving = 1e9 * 8 / 64 / (3350e9 * 0.4)
    found = published.predicted(row, (micro_batch, update), machine)
    assert found == pytest.approx(computing + moving, rel=1e-5)


def test_a_fit_finds_the_shares_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "PRODUCTS", [0.5, 0.6, 0.7])
    monkeypatch.setattr(published, "BANDWIDTH", [0.4, 0.5])
    machine = published.with_shares(named()["A100 40GB"], 0.6, 0.35, 0.5)
    known, rows = {}, []
    for sequence, work in enumerate(("matmul", "attention", "copy"), 1):
        sizes = Sizes(64, 2, 3, 256, 500, sequence, 4, recomputed=False)
        amount = (0, 10**10) if work == "copy" else (10**13, 0)
        known[sizes] = Counter({(work, "bfloat16", *amount): 1}), Counter()
        row = published.Row(work, "A100 40GB", sizes, 1, 8, 0.0)
        seconds = published.predicted(row, known[sizes], machine)
        rows.append(published.Row(work, "A100 40GB", sizes, 1, 8, seconds))
    found = published.fitted(named()["A100 40GB"], rows, known)
    assert (found.efficiency, found.kinds) == (machine.efficiency, machine.kinds)


@pytest.mark.processes
@pytest.mark.parametrize("recomputed", [False, True])
def test_the_products_of_a_micro_batch_are_counted(recomputed: bool) -> None:
    sizes = Sizes(64, 2, 3, 256, 500, 32, 4, recomputed)
    cluster = Cluster(8, machine=published.COUNTING, values=False, alike=1)
    micro_batch, update = cluster.run(operations, sizes, 8).results[0]
    tokens = sizes.sequence * sizes.micro_batch
    down = 2 * tokens * 64 * 256
    block = 2 * tokens * 4 * 64 * 64 + 2 * down
    head = 2 * tokens * 64 * 500
    flops = sum(o[2] * times for o, times in micro_batch.items() if o[0] == "matmul")
    # Forward once, backward twice the FLOPs, and each block's forward again without its last
    # product: torch stops as soon as the backward pass has all its inputs.
    assert flops == 3 * (3 * block + head) + recomputed * 3 * (block - down)
    assert {o[1] for o in micro_batch if o[0] == "attention"} == {"bfloat16"}
    assert not sum(o[2] for o in update)


def ratios(
    file: str, capsys: pytest.CaptureFixture[str], monkeypatch, *options: str
) -> list[float]:
    path = published.ROWS.with_name(file)
    monkeypatch.setattr("sys.argv", ["published", "--rows", str(path), *options])
    published.main()
    lines = capsys.readouterr().out.splitlines()
    return [float(line.rpartition(" ")[2]) for line in lines if ": predicted " in line]


def test_megatrons_table_to_which_nothing_was_fitted(capsys, monkeypatch) -> None:
    found = ratios("published_megatron_2021.csv", capsys, monkeypatch)
    assert len(found) == 5
    assert statistics.median(found) == pytest.approx(1, abs=0.05)
    assert found == pytest.approx([1] * 5, abs=0.15)
    (small,) = ratios("published_megatron_2021.csv", capsys, monkeypatch, "--only", "GPT of 1.7 ")
    assert small == found[0]


def test_nvidias_dense_rows_to_which_nothing_was_fitted(capsys, monkeypatch) -> None:
    found = ratios("published_nemo.csv", capsys, monkeypatch)
    assert len(found) == 4
    assert found == pytest.approx([1] * 4, abs=0.15)


def test_the_published_systems_are_in_the_right_order() -> None:
    steps, others = _megatron.llama(published.table(published.ROWS.with_name("published_nemo.csv")))
    slow, fast = (step for step in steps if step.name.startswith("LLAMA3_70B"))
    assert (slow.gpu, fast.gpu) == ("H100", "GB200")
    assert slow.predicted > 1.4 * fast.predicted  # for twice the tokens of a step
    assert [other.partition(": ")[2] for other in others] == ["routed experts are not counted"] * 4


def test_rows_of_other_sizes_precisions_and_systems_are_predicted(tmp_path: Path) -> None:
    """These rows are made up: a smaller number of bytes is faster, and a newer GPU is faster."""
    row = published.table(published.ROWS.with_name("published_nemo.csv"))[0]
    found = [
        _megatron.llama([row | {"precision": precision, "system": system}])[0][0].predicted
        for system in ("H100", "H200", "B200", "GB300")
        for precision in ("BF16", "FP8", "MXFP8")
    ]
    assert sorted(found, reverse=True)[0] == found[0]
    assert found[:3] == sorted(found[:3], reverse=True)
    assert found[2::3] == sorted(found[2::3], reverse=True)
    assert _megatron.llama([row | {"system": "TPU v7"}])[1] == [
        "LLAMA3_8B, 8 x TPU v7, FP8: this precision or this system is not counted"
    ]


def test_a_block_of_megatron_does_the_papers_arithmetic() -> None:
    """Equation 2 of arXiv 2104.04473: 72 B s l h² (1 + s / 6h) without recomputation and head."""
    tokens, width = 2 * _megatron.LENGTH, 1024
    parts = [_megatron.gpt_block(tokens, width, 16, slices) for slices in (1, 4)]
    flops = [sum(o[2] * times for part in both for o, times in part.items()) for both in parts]
    assert flops[0] == 72 * tokens * width**2 * (1 + _megatron.LENGTH / (6 * width))
    assert flops[1] == flops[0] / 4


def test_a_block_of_llama_does_the_arithmetic_of_its_sizes() -> None:
    model, tokens = _megatron.LLAMAS["LLAMA3_8B"], 8192
    found = _megatron.llama_block(model, tokens, 8192, 1)
    weights = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    by_kind = Counter()
    for (kind, _, flops, _), times in found.items():
        by_kind[kind] += flops * times
    assert by_kind["matmul"] == 6 * tokens * weights
    assert by_kind["attention"] == 3.5 * 4 * tokens * 8192 * 4096 / 2  # causal, the backward 2.5
    sharded = _megatron.llama_block(model, tokens, 8192, 4)
    assert sum(o[2] * times for o, times in sharded.items()) == sum(by_kind.values()) / 4
