"""Published steps are read, counted, and priced on ddpkit's machines."""

from collections import Counter
from pathlib import Path

import pytest

from benchmarks import published
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
