"""The output of ranks arrives in the cell that started them, during the run, and limited."""

from pathlib import Path

import pytest

from tests.notebook.kernel import Notebook

pytestmark = pytest.mark.processes


def test_output_is_live(notebook: Notebook, tmp_path: Path):
    """The ranks go on only after the test has seen their first line."""
    seen = tmp_path / "seen"
    cell = notebook.start(f"""
        def work():
            print("first")
            while not os.path.exists({str(seen)!r}):
                time.sleep(0.01)
            print("second")

        cluster.run(work)
    """)
    notebook.until(lambda: {"[rank 0] first", "[rank 1] first"} <= set(cell.stream().splitlines()))
    assert "second" not in cell.stream()
    assert not cell.idle

    seen.touch()
    notebook.finish(cell)

    assert {"[rank 0] second", "[rank 1] second"} <= set(cell.stream().splitlines())


def test_short_run_is_shown_in_the_order_of_the_ranks(notebook: Notebook):
    cell = notebook.ok("""
        def work():
            time.sleep(0.05 * (1 - dist.get_rank()))
            print("one")
            print("two", file=sys.stderr)
            os.write(1, b"three, from below Python\\n")

        run = cluster.run(work)
        run.output
    """)

    lines = ["one", "two", "three, from below Python"]
    assert cell.stream().splitlines() == [f"[rank {r}] {text}" for r in (0, 1) for text in lines]
    assert cell.result == repr("\n".join(cell.stream().splitlines()))


def test_a_hundred_thousand_lines_do_not_flood_the_page(notebook: Notebook):
    cell = notebook.ok("""
        def chatter():
            for i in range(50_000):
                print("line", i)

        run = cluster.run(chatter)
        run.output.count("\\n")
    """)

    # The first lines of a rank may appear before or after the end of the run.
    lines = [line for line in cell.stream().splitlines() if "more is shown" not in line]
    # 100,000 lines were printed; a message holds all lines that came together
    assert cell.stream_messages < 700
    assert len(lines) < 700
    for rank in (0, 1):
        assert f"[rank {rank}] line 0" in lines
        assert f"[rank {rank}] line 49999" in lines
        assert f"[rank {rank}] ... 49,700 lines left out ..." in lines
    assert int(cell.result) == len(lines) - 1


def test_one_endless_line_does_not_flood_the_page(notebook: Notebook):
    cell = notebook.ok("""
        def chatter():
            for i in range(1000):
                sys.stdout.write("." * 1000)
            print()

        cluster.run(chatter)
    """)

    assert len(cell.stream()) < 20_000
    assert "(line cut)" in cell.stream()


def test_progress_bar_becomes_its_last_state(notebook: Notebook):
    cell = notebook.ok("""
        def work():
            for i in range(5):
                sys.stdout.write(f"\\r{20 * (i + 1)} %")
            print()

        cluster.run(work)
    """)

    assert cell.stream().splitlines() == ["[rank 0] 100 %", "[rank 1] 100 %"]


def test_letters_of_any_alphabet(notebook: Notebook):
    cell = notebook.ok("cluster.run(lambda: print('Größe ∇ 梯度 🙂'))")

    assert cell.stream().splitlines() == [f"[rank {rank}] Größe ∇ 梯度 🙂" for rank in (0, 1)]
