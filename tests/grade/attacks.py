"""Submissions of students, wrong by mistake or on purpose: edits of a right notebook of lab 00."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
Notebook = dict[str, Any]
TOKEN, SHIFT = "token_ring", "who_waits"


@dataclass(frozen=True)
class Attack:
    """An edit, and the allowed statuses of each exercise after the edit.

    "pass" is worth all points.
    """

    edit: Callable[[Notebook], None]
    token: str
    shift: str


ATTACKS: dict[str, Attack] = {}


def attack(token: str, shift: str) -> Callable[[Callable[[Notebook], None]], None]:
    def register(edit: Callable[[Notebook], None]) -> None:
        ATTACKS[edit.__name__] = Attack(edit, token, shift)

    return register


def notebook(name: str) -> Notebook:
    made = copy.deepcopy(solution())
    ATTACKS[name].edit(made)
    return made


def solution() -> Notebook:
    return json.loads((ROOT / "solutions" / "00_ranks.ipynb").read_text())


def cell(made: Notebook, name: str) -> dict[str, Any]:
    return next(each for each in made["cells"] if each["id"] == name)


def answer(made: Notebook, name: str, source: str) -> None:
    cell(made, f"answer-{name}")["source"] = source


def before(made: Notebook, name: str, source: str) -> None:
    """Put a cell of the student before an answer."""
    at = made["cells"].index(cell(made, f"answer-{name}"))
    own = {"cell_type": "code", "id": f"own-{at}-{len(made['cells'])}", "metadata": {},
           "source": source, "outputs": [], "execution_count": 1}  # fmt: skip
    made["cells"].insert(at, own)


def code(made: Notebook, name: str) -> str:
    return "".join(cell(made, f"answer-{name}")["source"])


@attack("pass", "pass")
def right(made: Notebook) -> None:
    pass


@attack("fail", "fail")
def as_shipped(made: Notebook) -> None:
    made.clear()
    made |= json.loads((ROOT / "labs" / "00_ranks.ipynb").read_text())


@attack("fail", "deadlock")
def wrong_and_deadlocked(made: Notebook) -> None:
    answer(made, TOKEN, code(made, TOKEN).replace("rank + 1\n", "rank + 2\n", 1))
    answer(made, SHIFT, f"""
def {SHIFT}(x):
    y = x.clone()
    dist.recv(y, src=(dist.get_rank() - 1) % dist.get_world_size())
    dist.send(x, dst=(dist.get_rank() + 1) % dist.get_world_size())
    return y""")  # fmt: skip


@attack("error", "timeout")
def syntax_error_and_endless_loop(made: Notebook) -> None:
    answer(made, TOKEN, f"def {TOKEN}(token):\n    return token +\n")
    answer(made, SHIFT, f"def {SHIFT}(x):\n    while True:\n        pass\n")


@attack("timeout", "pass")
def swallows_interrupts(made: Notebook) -> None:
    answer(made, TOKEN, f"""
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
def {TOKEN}(token):
    return token
while True:
    try:
        while True:
            pass
    except BaseException:
        pass""")  # fmt: skip


@attack("exited", "pass")
def leaves(made: Notebook) -> None:
    answer(made, TOKEN, f"def {TOKEN}(token):\n    return token\nimport os\nos._exit(0)")


@attack("exited", "exited")
def killed_and_quit(made: Notebook) -> None:
    answer(made, TOKEN, f"import os\ndef {TOKEN}(token):\n    os.kill(os.getpid(), 9)")
    answer(made, SHIFT, f"def {SHIFT}(x):\n    raise SystemExit(0)")


@attack("pass", "pass")
def cells_in_disorder(made: Notebook) -> None:
    """Delete, skip and forge checks; add scratch cells that raise, and a helper function."""
    made["cells"] = [each for each in made["cells"] if each["id"] != f"check-{TOKEN}"]
    check = cell(made, f"check-{SHIFT}")
    check["metadata"]["tags"] = ["nbval-skip"]
    check["source"] = "print('who_waits: passed, 5 of 5 cases.')"
    made["cells"].append(copy.deepcopy(check))
    before(made, TOKEN, "1 / 0")
    before(made, TOKEN, "def my_copy(t):\n    return t.clone()\nraise RuntimeError('scratch')")
    before(made, TOKEN, "%matplotlib inline\n!ls\nwhat is this")
    answer(
        made, TOKEN, "# NBVAL_SKIP\n" + code(made, TOKEN).replace("token.clone()", "my_copy(token)")
    )
    answer(made, SHIFT, code(made, SHIFT).replace("x.clone()", "my_copy(x)"))


@attack("pass", "pass")
def no_ids(made: Notebook) -> None:
    made["cells"].reverse()
    for each in made["cells"]:
        each["id"], each["metadata"] = "same", {}
    made["metadata"] = {"kernelspec": {"name": "ir", "language": "R"}}


@attack("fail", "fail")
def everything_patched(made: Notebook) -> None:
    patch = """
import builtins, sys, torch as t, ddpkit, IPython
import ddpkit.exercises.judge as j, ddpkit.exercises.compare as c
class Same:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __hash__ = object.__hash__
t.allclose = t.equal = lambda *a, **k: True
c.difference = c.same = j.difference = lambda *a, **k: None
builtins.print = lambda *a, **k: None
ddpkit.check = j.judge = lambda *a: True
IPython.get_ipython().showtraceback = lambda *a, **k: None
sys.modules["ddpkit.check"] = sys.modules["ddpkit.exercises.check"] = Same()
same = Same()
"""
    before(made, TOKEN, patch)
    answer(made, TOKEN, f"def {TOKEN}(token):\n    return same and token")
    answer(made, SHIFT, f"def {SHIFT}(x):\n    return same and x")


@attack("fail", "fail")
def claims_forged(made: Notebook) -> None:
    """Claim guesses instead of values, and an object equal to everything.

    Store and print outputs.
    """
    said = "token_ring: passed, 4 of 4 cases."
    stored = {"output_type": "stream", "name": "stdout", "text": said}
    cell(made, f"check-{TOKEN}")["outputs"] = [stored]
    answer(made, TOKEN, f"""
from IPython import get_ipython
pub = get_ipython().display_pub
usual = pub.publish
def publish(data, *args, **kwargs):
    for claim in data.values():
        if isinstance(claim, dict) and "key" in claim:
            guess = [["s", "sent"], ["s", "0→1 1→0"]], [["s", "kept"], True]
            nothing = [["s", "gave"], ["l", []]], [["s", "hold"], ["l", []]]
            claim["seen"] = ["d", [*guess, *nothing]]
    return usual(data, *args, **kwargs)
pub.publish = publish
def {TOKEN}(token):
    return token""")  # fmt: skip
    answer(made, SHIFT, f"""
class Equal:
    __eq__ = lambda self, other: True
    __hash__ = None
print("who_waits: passed, 5 of 5 cases.")
def {SHIFT}(x):
    import ctypes
    return ctypes.c_void_p, Equal()""")  # fmt: skip
    del made["cells"][-1]


@attack("timeout", "pass")
def kernel_patched(made: Notebook) -> None:
    """Break the kernel's communication in one cell; without this cell the kernel works."""
    patch = (
        "import json\nimport jupyter_client.session as s\ns.json_packer = s.Session.send = None\n"
        "shell = get_ipython()\nshell.run_cell = shell.run_cell_async = lambda *a, **k: None\n"
    )
    answer(
        made,
        TOKEN,
        f"{patch}json.dumps = lambda *a, **k: '{{}}'\ndef {TOKEN}(token):\n    return 1",
    )


SEARCH = """
import gc, glob, importlib, os, sys
found = []
for name in ("ddpkit.answers.lab00", "ddpkit.checks.lab00.cases", "ddpkit.checks.lab03.cases"):
    try:
        found.append(importlib.import_module(name))
    except ImportError:
        pass
for pattern in ("/course/**/*00*", "/job/**/00*", "/home/*/solutions", "/root/*/solutions"):
    found += glob.glob(pattern, recursive=True)
for path in glob.glob("/proc/*/environ"):
    try:
        found += [path] if b"DDPKIT_SEED" in open(path, "rb").read() else []
    except OSError:
        pass
def look():
    frame = sys._getframe()
    while frame:
        found.extend(name for name in frame.f_locals if name in ("expect", "case", "expected"))
        frame = frame.f_back
    kinds = ("Case", "Question", "SealedCase")
    found.extend(each for each in gc.get_objects() if type(each).__name__ in kinds)
"""


@attack("pass", "fail")
def searches(made: Notebook) -> None:
    """Pass token_ring only if frames, files and modules hide all answers."""
    before(made, TOKEN, SEARCH)
    right = code(made, TOKEN).replace(f"def {TOKEN}", "def really", 1)
    answer(made, TOKEN, f"""
{right}
class Searching:
    __name__ = {TOKEN!r}
    def __call__(self, token):
        return really(token)
    def __reduce__(self):  # called in the notebook, as the answer is shipped to the ranks
        look()
        if found:
            raise RuntimeError(str(found)[:300])
        return (lambda: really), ()
{TOKEN} = Searching()""")  # fmt: skip
    answer(made, SHIFT, f"def {SHIFT}(x):\n    return x")


@attack("pass", "pass")
def abuses_the_machine(made: Notebook) -> None:
    """Try 50 GB, a full disk, a socket, another kernel, and a process that stays: all in vain."""
    before(made, TOKEN, """
import os, socket, subprocess, sys
refused = []
def tries(what):
    try:
        what()
    except (MemoryError, OSError, RuntimeError):
        refused.append(what)
def fill():
    with open("/tmp/full", "wb") as stream:
        for _ in range(600):
            stream.write(bytes(1 << 20))
def fill_more():
    for n in range(4):
        with open(f"/dev/shm/full{n}", "wb") as stream:
            stream.write(bytes(200 << 20))
tries(lambda: bytearray(50 << 30))
tries(fill)
tries(fill_more)
tries(lambda: socket.create_connection(("1.1.1.1", 53), timeout=2))
tries(lambda: open("/job/graded.ipynb", "w"))
tries(lambda: open("/course/ddpkit/errors.py", "w"))
tries(lambda: open("/etc/passwd"))
kernel, spec = "jupyter/kernels/python3", '{"argv": ["true"], "language": "python"}'
tries(lambda: open(f"{sys.prefix}/share/{kernel}/kernel.json", "w"))
mine = os.path.expanduser(f"~/.local/share/{kernel}")
os.makedirs(mine)
open(f"{mine}/kernel.json", "w").write(spec)
for path in ("/tmp/full", *(f"/dev/shm/full{n}" for n in range(4))):
    if os.path.exists(path):
        os.unlink(path)
os.makedirs("/home/i/profile_default/startup", exist_ok=True)
open("/home/i/profile_default/startup/evil.py", "w").write("raise SystemExit")
subprocess.Popen(["sleep", "987654"], start_new_session=True)
assert len(refused) == 8, refused
number_refused = len(refused)
""")  # fmt: skip
    answer(
        made,
        TOKEN,
        code(made, TOKEN).replace("token.clone()", "token.clone() + 8 - number_refused"),
    )


@attack("timeout", "error")
def floods(made: Notebook) -> None:
    """Print without end, and claim 20 MB in each of five cases."""
    answer(
        made, TOKEN, f"def {TOKEN}(token):\n    return token\nwhile True:\n    print('x' * 1000)"
    )
    answer(made, SHIFT, f"""
from IPython import get_ipython
pub = get_ipython().display_pub
usual = pub.publish
def publish(data, *args, **kwargs):
    for claim in data.values():
        if isinstance(claim, dict) and "key" in claim:
            claim["seen"] = "x" * 20_000_000
    return usual(data, *args, **kwargs)
pub.publish = publish
def {SHIFT}(x):
    return x""")  # fmt: skip


@attack("pass", "pass")
def forges_the_record(made: Notebook) -> None:
    """Quit, and try to write an end of a cell that has not begun into the grader's pipe.

    The pipe cannot be opened (test_machine.py), so both answers get the points that they deserve.
    """
    answer(made, TOKEN, code(made, TOKEN) + "\nquit()")
    answer(made, SHIFT, code(made, SHIFT) + """
import json, os, stat
claims = [{"key": "who_waits.0", "seen": ["d", []]}]
line = json.dumps({"ends": 99, "claims": claims, "errors": []}) + "\\n"
for descriptor in os.listdir(f"/proc/{os.getppid()}/fd"):
    path = f"/proc/{os.getppid()}/fd/{descriptor}"
    if stat.S_ISFIFO(os.stat(path).st_mode):
        with open(path, "w") as pipe:
            pipe.write(line)
import time
time.sleep(5)
""")  # fmt: skip


@attack("error", "pass")
def forks_without_end(made: Notebook) -> None:
    source = f"def {TOKEN}(token):\n    return token\nimport os\nwhile True:\n    os.fork()"
    answer(made, TOKEN, source)


@attack("fail", "pass")
def right_sum_wrong_way(made: Notebook) -> None:
    answer(made, TOKEN, f"""
def my_right(n):
    return (n + 1) % dist.get_world_size()

def {TOKEN}(token):
    mine = torch.full_like(token, dist.get_rank() + 1)
    dist.all_reduce(mine)
    n = dist.get_rank() + 1
    return token + (mine if dist.get_rank() == 0 else n * (n + 1) // 2)""")  # fmt: skip
    answer(
        made,
        SHIFT,
        code(made, SHIFT).replace(
            "right, left = (rank + 1) % world_size", "right, left = my_right(rank)"
        ),
    )
