"""Unchanged scripts like torch's: FSDP2, a pipeline, checkpoints, worker processes, mp.spawn."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ddpkit import ClusterError, Deadlock, Mismatch, RankError, Run
from ddpkit.commands.summary import summary
from ddpkit.view import write_page
from ddpkit.view.drawing import words
from ddpkit.view.explorer.model import SpanColumns, span_columns
from tests.commands.test_run import ddpkit_run, on, ran

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.processes

LEFT, AXIS = 104, 24  # pixels of canvas.js
EMULATED = {"machine": "A100", "link": "100 Gbit/s, 5 us"}


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DDPKIT_DEVICE", "cpu")


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_fsdp_saves_and_loads(ranks: int, tmp_path: Path) -> None:
    run = on(ranks, "fsdp.py", str(tmp_path / "checkpoint"), **EMULATED)
    assert run.trace.steps == 3
    assert (tmp_path / "checkpoint" / ".metadata").exists()
    if ranks > 1:
        assert run.traffic.collectives(1)["reduce_scatter_tensor"].times == 3 * 3


@pytest.mark.parametrize("how", [{}, EMULATED])
def test_a_pipeline(how: dict[str, Any]) -> None:
    run = on(4, "pipeline.py", **how)
    assert run.trace.steps == 2
    forward = run.traffic.peers(1)
    assert forward[2].times >= 8  # 4 micro-batches in each of 2 steps
    assert forward[0].times >= 8


def test_what_mp_spawn_would_start_are_the_ranks() -> None:
    assert on(2, "spawns.py").traffic.collectives(0)["all_reduce"].times == 1
    with pytest.raises(RankError, match="Start the job with `ddpkit run -n 3`"):
        on(2, "spawns.py", "3")


@pytest.mark.parametrize("how", [{}, EMULATED])
def test_mp_spawn_again_and_for_fewer_processes(how: dict[str, Any], tmp_path: Path) -> None:
    run = on(2, "spawns_again.py", str(tmp_path), **how)
    assert [run.traffic.collectives(rank)["all_reduce"].times for rank in (0, 1)] == [3, 2]


@pytest.mark.parametrize("how", [{}, {"link": "1 Gbit/s, 10 us"}, EMULATED])
def test_two_backends_are_two_queues(how: dict[str, Any]) -> None:
    for rank in (0, 1):
        sums = [
            span.args.get("group_desc", "")
            for span in on(2, "two_backends.py", **how).trace.of(rank)
            if span.name == "all_reduce"
        ]
        assert sorted(sums) == [""] * 4 + ["cpu:gloo [0, 1]"] * 4
    with pytest.raises(Mismatch, match="group cpu:gloo"):
        on(2, "two_backends.py", "mismatch", **how)
    with pytest.raises(Deadlock):
        on(2, "two_backends.py", "other queue", **how)


def test_a_group_of_gloo_beside_nccl_runs_on_no_stream() -> None:
    """A thread's calls and the main thread's calls may come in another order on each rank."""
    run = on(2, "gloo_beside_nccl.py", **EMULATED)
    assert run.traffic.collectives(0)["all_reduce"].times == 6


@pytest.mark.parametrize("link", [None, "1 Gbit/s, 10 us"])
def test_workers_of_a_data_loader(link: str | None) -> None:
    assert on(2, "workers.py", link=link).traffic.collectives(0)["all_reduce"].times == 2


def test_hosts_are_nodes_and_a_mesh_may_have_two_dimensions() -> None:
    hosts = {"hosts of": 2, "inside": "300 GB/s, 3 us", "between": "100 Gbit/s, 10 us"}
    run = on(4, "two_dimensions.py", machine="H100", link=hosts)
    groups = {span.args.get("group_desc") for span in run.trace.of(0)}
    assert {"dp [0, 2]", "tp [0, 1]"} <= groups


def test_counted_compute_is_the_same_in_every_run(tmp_path: Path) -> None:
    traces = []
    for name in ("one.json", "other.json"):
        on(2, "ddp.py", **EMULATED).trace.save(tmp_path / name)
        traces.append(hashlib.sha256((tmp_path / name).read_bytes()).hexdigest())
    assert traces[0] == traces[1]


def test_a_script_that_starts_ranks_itself_is_told_to_use_python(tmp_path: Path) -> None:
    script = tmp_path / "own.py"
    script.write_text("from ddpkit import Cluster\nCluster(2)\n")
    with pytest.raises(RankError, match="a rank cannot start ranks") as failed:
        on(2, str(script))
    assert isinstance(failed.value.__cause__, ClusterError)


def test_a_module_of_the_environment_is_explained_as_ones_own(tmp_path: Path) -> None:
    """The lines of the module are in a library's folder, but the module is still the reader's
    own."""
    package = tmp_path / "site-packages" / "trainer"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "main.py").write_text("from .part import fail\nfail()\n")
    (package / "part.py").write_text("def fail():\n    raise OSError('no such data')\n")
    environ = {"PYTHONPATH": str(package.parent)}
    done = ddpkit_run("-n", "1", "-m", "trainer.main", cwd=tmp_path, **environ)
    assert done.returncode == 1
    assert "main.py, line 2: fail()" in done.stderr
    assert "part.py, line 2: raise OSError" in done.stderr


def test_the_summary_ends_with_a_typical_step() -> None:
    run = on(2, "ddp.py", **EMULATED)
    whole, step = summary(run).split("\n\n")
    assert whole.startswith("Run on 2 ranks")
    assert step.startswith("Step 1 on 2 ranks")
    assert "Machine: A100." in step


def page_of(name: str, tmp_path: Path) -> tuple[Run[None], Path]:
    args = {"fsdp.py": [str(tmp_path / "checkpoint")], "gpu.py": ["modelled"]}.get(name, [])
    run = on(2, name, *args, **EMULATED)
    write_page(run.trace, tmp_path / "run.html")
    return run, tmp_path / "run.html"


def at_the_middle_of(k: int, columns: SpanColumns, last: int) -> list[int]:
    """Return the bars of the first row that include the middle of bar `k`."""
    middle = (columns.start[k] + columns.end[k]) // 2
    return [i for i in range(last) if columns.start[i] <= middle <= columns.end[i]]


@pytest.mark.browser
@pytest.mark.parametrize("name", ["ddp.py", "gpu.py", "fsdp.py", "pipeline.py"])
def test_its_page_is_opened_offline_and_read(
    browser: Browser, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # one of the scripts saves a file in the current folder
    run, path = page_of(name, tmp_path)
    context = browser.new_context(offline=True)
    tab, heard = context.new_page(), list[str]()
    tab.on("pageerror", lambda error: heard.append(str(error)))
    tab.on("console", lambda said: heard.append(said.text))
    tab.goto(path.as_uri())
    drawn = tab.get_by_role("application")
    columns, wide = span_columns(run.trace), drawn.bounding_box()["width"]  # type: ignore[index]
    first = columns.rows[0]
    alone = [k for k in range(first.last) if len(at_the_middle_of(k, columns, first.last)) == 1]
    longest = max(alone, key=lambda k: columns.end[k] - columns.start[k])
    middle = (columns.start[longest] + columns.end[longest]) / 2 / columns.length
    drawn.hover(
        position={"x": LEFT + (wide - LEFT) * middle, "y": AXIS + first.top + first.height / 2}
    )
    said = tab.get_by_role("status").inner_text().split(" · ")
    assert said[:2] == [columns.names[columns.name[longest]], "rank 0"]
    assert "emulated" in tab.get_by_role("heading", level=1).inner_text()
    for rank, parts in run.trace.breakdown().items():
        cells = tab.locator("table.breakdown tr").nth(1 + rank).locator("td").all_inner_texts()
        assert cells[:2] == [f"rank {rank}", words.ms(parts.step_ns)]
        assert cells[4].startswith(words.ms(parts.exposed_ns))
    assert heard == []
    context.close()


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    done = ran("-n", "1", "--html", tmp_path / "run.html", "ddp.py")
    assert f"wrote {tmp_path / 'run.html'}" in done.stderr
    assert "<h1>Run on 1 rank" in (tmp_path / "run.html").read_text("utf-8")
