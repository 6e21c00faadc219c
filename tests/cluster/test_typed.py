"""The standard input of rank 0: a file or pipe itself, or the text typed at a terminal."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from ddpkit.cluster.local import typed

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such terminal")


def given(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> typed.Connection:
    """Return the rank's standard input, if `descriptor` is the launcher's standard input."""
    duplicate = os.dup
    monkeypatch.setattr(os, "dup", lambda _: duplicate(descriptor))
    found = typed.standard_input()
    assert found is not None
    return found


def test_a_pipe_is_read_by_the_rank_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"for the script")
    os.close(writer)
    with given(reader, monkeypatch) as found:
        assert os.read(found.fileno(), 100) == b"for the script"
        assert os.read(found.fileno(), 100) == b""
    os.close(reader)


def test_what_is_typed_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    keyboard, terminal = os.openpty()
    with given(terminal, monkeypatch) as found:
        assert not os.isatty(found.fileno())
        os.write(keyboard, b"yes\n")
        assert os.read(found.fileno(), 100) == b"yes\n"
        os.write(keyboard, b"\x04")  # Ctrl-D
        assert os.read(found.fileno(), 100) == b""
    os.close(keyboard)
    os.close(terminal)


def test_what_is_typed_to_the_shell_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read in the background would stop the process, so the process reads in the foreground."""
    keyboard, terminal = os.openpty()
    asked, in_front = threading.Event(), threading.Event()

    def foreground(_: int) -> int:
        asked.set()
        return os.getpgrp() if in_front.is_set() else -1

    monkeypatch.setattr(os, "tcgetpgrp", foreground)
    monkeypatch.setattr(typed, "LOOK", 0.01)
    with given(terminal, monkeypatch) as found:
        os.write(keyboard, b"mine\n")
        assert asked.wait(30)
        assert not found.poll(0.1)
        in_front.set()
        assert os.read(found.fileno(), 100) == b"mine\n"
        os.write(keyboard, b"\x04")
        assert os.read(found.fileno(), 100) == b""
    os.close(keyboard)
    os.close(terminal)


def test_without_a_standard_input_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(_: int) -> int:
        raise OSError(9, "Bad file descriptor")

    monkeypatch.setattr(os, "dup", closed)
    assert typed.standard_input() is None
