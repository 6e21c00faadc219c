"""The lesser sandbox, for kernels that refuse bubblewrap: another user. Only root can test it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddpkit.grade import store
from ddpkit.grade.sandbox import other_user
from tests.grade.attacks import ROOT, SHIFT, TOKEN, Notebook, answer, before, code, solution

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

# Python may be in a folder of root: bind mounts make it readable. This environment has no bwrap.
SCRIPT = """
home=$(dirname "$(dirname "$2")")
mkdir "$1/python" && mount --bind "$home" "$1/python" && mount -t tmpfs -o mode=755 none /root &&
    mkdir -p "$home" && mount --move "$1/python" "$home" || exit 77
cd "$1/checkout" || exit 1
PATH=/nowhere PYTHONPATH="$1/checkout" TMPDIR="$1/tmp"; export PATH PYTHONPATH TMPDIR
shift 2
exec "$@"
"""
ABUSE = """
import os, subprocess
refused = []
def tries(what):
    try:
        what()
    except (MemoryError, OSError):
        refused.append(what)
place = PLACE
tries(lambda: open(f"{place}/checkout/solutions/00_ranks.ipynb"))
tries(lambda: open(f"{place}/checkout/ddpkit/answers/lab00.py"))
tries(lambda: open(f"{place}/out/secret"))
tries(lambda: os.listdir(f"{place}/in"))
tries(lambda: os.listdir(f"{place}/out"))
tries(lambda: open("/proc/1/environ"))
tries(lambda: open(f"{os.environ['PYTHONPATH']}/ddpkit/errors.py", "a"))
tries(lambda: os.setuid(0))
tries(lambda: os.kill(1, 0))
tries(lambda: bytearray(50 << 30))
number_refused = len(refused)
for folder in ("/tmp", "/dev/shm"):
    open(f"{folder}/ddpkit-test-left", "w").close()
open(f"{place}/open/deep/left", "w").close()
subprocess.Popen(["sleep", "987655"], start_new_session=True)
code = "import ctypes, time; ctypes.CDLL(None).prctl(15, b') Z ', 0, 0, 0); time.sleep(987655)"
subprocess.Popen([__import__("sys").executable, "-c", code], start_new_session=True)
"""
FILL = """
for n in range(4):
    with open(f"{os.environ['TMPDIR']}/full{n}", "wb") as stream:
        stream.write(bytes(100 << 20))
import time
time.sleep(30)
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """Yield a folder that every user may enter, with a checkout that only root may enter."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("not root, or no `unshare`: nobody can run code as another user here")
    place = Path(tempfile.mkdtemp(dir="/tmp", prefix="ddpkit-test-"))
    place.chmod(0o711)
    for name in ("checkout", "in", "tmp"):
        (place / name).mkdir(mode=0o700)
    (place / "tmp").chmod(0o711)
    for name in ("ddpkit", "labs", "solutions"):
        shutil.copytree(ROOT / name, place / "checkout" / name)
    yield place
    shutil.rmtree(place)


def run(place: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    python = Path(sys.executable).resolve()
    command = ["unshare", "-m", "sh", "-c", SCRIPT, "sh", place, python, sys.executable, *arguments]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=500)
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip(f"no mounts of our own here: {done.stderr.strip()[:100]}")
    return done


def abusing(place: Path) -> Notebook:
    made = solution()
    before(made, TOKEN, ABUSE.replace("PLACE", repr(str(place))))
    right = code(made, TOKEN).replace("token.clone()", "token.clone() + 10 - number_refused")
    answer(made, TOKEN, right)
    answer(made, SHIFT, code(made, SHIFT) + FILL)
    return made


def test_another_user_is_shut_in_and_leaves_nothing(place: Path) -> None:
    (place / "in" / "lab.ipynb").write_text(json.dumps(abusing(place)))
    (place / "open" / "deep").mkdir(parents=True)
    (place / "open" / "deep").chmod(0o777)
    done = run(place, "-m", "ddpkit", "grade", place / "in", "--lab", "00", "--out", place / "out")
    assert done.returncode == 0, done.stderr
    (result,) = store.load(place / "out")
    token, shift = result.exercises
    told = "\n".join([*result.notes, *token.feedback, *shift.feedback])
    assert (result.level, token.status, shift.status) == ("user", "pass", "error"), told
    assert "wrote more than 256 MB into files" in told
    assert not [path for path in Path("/tmp").iterdir() if path.name == "ddpkit-test-left"]
    assert not Path("/dev/shm/ddpkit-test-left").exists()
    assert list((place / "open" / "deep").iterdir()) == []
    assert list((place / "tmp").iterdir()) == []
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert "987655" not in listed


def test_a_course_that_others_can_read_is_not_graded(place: Path) -> None:
    (place / "checkout").chmod(0o755)
    (place / "in" / "lab.ipynb").write_text(json.dumps(solution()))
    done = run(place, "-m", "ddpkit", "grade", place / "in", "--lab", "00", "--out", place / "out")
    assert done.returncode == 1
    assert "bwrap is not installed" in done.stderr
    assert f"could read {place}/checkout/ddpkit/answers" in done.stderr
    assert "chmod go=" in done.stderr
    assert not (place / "out").exists()


def test_only_root_can_be_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert other_user.trouble() == "only root can run code as another user"
