"""The output of ranks: labelled, in rank order, and limited."""

import os
import subprocess
import sys
import time

import pytest
import torch
import torch.distributed as dist

from ddpkit import Mismatch
from ddpkit.cluster.output import HEAD, TAIL, WIDTH, Output, RankOutput


def lines_of(*chunks: bytes) -> list[str]:
    output = RankOutput()
    for chunk in chunks:
        output.feed(chunk)
    output.feed(b"", final=True)
    return output.text()


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"one\ntwo\n", ["one", "two"]),
        (b"partial", ["partial"]),
        (b"windows\r\n", ["windows"]),
        (b"10%\r50%\r100%\n", ["100%"]),
        (b"10%\r50%\r", ["50%"]),
        (b"50%\r\nnext", ["50%", "next"]),
        (b"50%\r\r\n", ["50%"]),
        (b"caf\xc3\xa9\n", ["café"]),
        (b"bad \xff\xfe\n", ["bad \ufffd\ufffd"]),
        (b"cut \xc3", ["cut \ufffd"]),
        (b"a\x00b\n", ["a\x00b"]),
    ],
)
def test_lines_do_not_depend_on_how_they_arrive(data, lines):
    assert lines_of(data) == lines
    assert lines_of(*(data[i : i + 1] for i in range(len(data)))) == lines
    assert lines_of(data[: len(data) // 2], data[len(data) // 2 :]) == lines


def test_a_long_line_is_cut():
    (line,) = lines_of(*[b"x" * 1000] * 10)
    assert line == "x" * WIDTH + " ... (line cut)"


def test_many_lines_keep_head_and_tail_and_say_how_many_are_gone():
    output = RankOutput()
    for i in range(100_000):
        output.feed(b"%d\n" % i)
    text = output.text()
    assert len(text) == HEAD + 1 + TAIL
    assert (text[0], text[HEAD - 1], text[-1]) == ("0", f"{HEAD - 1}", "99999")
    assert text[HEAD] == f"... {100_000 - HEAD - TAIL:,} lines left out ..."
    exact = RankOutput()
    exact.feed(b"x\n" * (HEAD + TAIL))
    assert exact.omitted == 0
    assert exact.text() == ["x"] * (HEAD + TAIL)


def test_each_line_is_shown_once(capsys):
    output = Output(2)
    output.feed(1, b"one\npar")
    output.feed(0, b"zero\n")
    output.show()
    output.feed(1, b"tial\n" + b"more\n" * (HEAD + TAIL + 3))
    output.show()
    output.show(final=True)
    shown = capsys.readouterr().out.splitlines()
    shown.remove("[rank 1] ... more is shown when the run has ended ...")
    assert shown[:3] == ["[rank 0] zero", "[rank 1] one", "[rank 1] partial"]
    assert sorted(shown) == sorted(str(output).splitlines())
    assert shown.count("[rank 1] ... 5 lines left out ...") == 1


GLOO = (
    b"terminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
    b"  what():  [enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 16 vs 8.\n"
)


@pytest.mark.parametrize("explained", [True, False])
def test_lines_of_gloos_are_left_out_where_they_are_explained(capsys, explained):
    output = Output(1)
    output.feed(0, b"mine\n" + GLOO, final=True)
    output.show()
    assert capsys.readouterr().out == "[rank 0] mine\n"
    if explained:
        output.leave_out_gloos_lines()
    output.show(final=True)
    assert len(capsys.readouterr().out.splitlines()) == (0 if explained else 2)
    assert len(str(output).splitlines()) == (1 if explained else 3)


@pytest.mark.parametrize("printed", [GLOO + b"mine\n", GLOO + GLOO + b"mine\n", GLOO[:69] * 2])
def test_what_a_reader_prints_alike_stays_in_its_place(printed):
    output = Output(1)
    output.feed(0, printed + b"end\n", final=True)
    output.leave_out_gloos_lines()
    assert output.ranks[0].text() == [*printed.decode().splitlines(), "end"]


@pytest.mark.processes
def test_a_message_of_the_wrong_size_is_explained_alone(cluster, capsys):
    def uneven():
        rank = dist.get_rank()
        print("mine")
        if rank == 0:
            dist.send(torch.ones(4), 1)
        else:
            dist.recv(torch.ones(2), 0)

    with pytest.raises(Mismatch, match="A message does not fit") as failed:
        cluster.run(uneven)
    assert failed.value.run.output == "[rank 0] mine\n[rank 1] mine"
    assert capsys.readouterr().out == "[rank 0] mine\n[rank 1] mine\n"


@pytest.mark.processes
def test_output_of_a_run(cluster, capsys):
    def prints():
        rank = dist.get_rank()
        time.sleep(0.1 * (1 - rank))  # rank 1 prints first
        print("from print", rank)
        print("to stderr", file=sys.stderr)
        os.write(1, b"from C \xff\n")
        subprocess.run(["echo", "from a child"], check=True)
        print("no newline", end="")

    run = cluster.run(prints)
    lines = ["from print {}", "to stderr", "from C \ufffd", "from a child", "no newline"]
    expected = [f"[rank {rank}] {line.format(rank)}" for rank in (0, 1) for line in lines]
    assert run.output.splitlines() == expected
    assert capsys.readouterr().out.splitlines() == expected


@pytest.mark.processes
def test_a_hundred_thousand_lines_do_not_freeze(cluster, capsys):
    def floods():
        for i in range(100_000):
            print(i)
        return True

    run = cluster.run(floods)
    assert run.results == [True, True]
    lines = run.output.splitlines()
    assert len(lines) == 2 * (HEAD + 1 + TAIL)
    assert lines[-1] == "[rank 1] 99999"
    assert f"[rank 0] ... {100_000 - HEAD - TAIL:,} lines left out ..." in lines
    shown = [line for line in capsys.readouterr().out.splitlines() if "more is shown" not in line]
    assert sorted(shown) == sorted(lines)


@pytest.mark.processes
def test_lines_are_shown_while_the_ranks_run(cluster, monkeypatch, tmp_path):
    """The ranks go on only after their first line has been shown."""
    shown = tmp_path / "shown"
    monkeypatch.setattr(sys, "stdout", Page(shown))

    def work():
        print("early")
        while not shown.exists():
            time.sleep(0.01)
        return True

    assert cluster.run(work, timeout=60).results == [True, True]


class Page:
    def __init__(self, shown):
        self.shown = shown

    def write(self, text):
        if "early" in text:
            self.shown.touch()

    def flush(self):
        pass


@pytest.mark.processes
def test_input_is_empty(cluster):
    assert cluster.run(lambda: sys.stdin.read()).results == ["", ""]
