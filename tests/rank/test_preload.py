"""The forkserver imports all that a rank needs, so a run begins in a tenth of a second."""

import os
import platform
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ddpkit import Cluster
from ddpkit.exercises.ranks import call
from ddpkit.rank import compiler
from tests.project.source import ROOT

pytestmark = pytest.mark.processes


def loaded() -> list[str]:
    return list(sys.modules)


def test_a_rank_imports_no_module_of_the_kit_itself():
    """A linter may remove an import that looks unused.

    Then each rank would import the module itself.
    """
    code = "import sys, ddpkit.rank.preload; print(*sys.modules)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    later = {"torch._dynamo.utils", "sympy", "mpmath"}
    (of_a_check,) = call(loaded, world_size=1).returned
    modelled = Cluster(1, link="10 Gbit/s, 50 us", machine="A100")
    with_device = Cluster(1, link="10 Gbit/s, 50 us", machine="device of 1 TFLOP/s")
    clusters = Cluster(1), modelled, with_device
    of_runs = [cluster.run(loaded).results[0] for cluster in clusters]
    in_rank = {*of_a_check, *(name for names in of_runs for name in names)}
    others = {"multiprocessing.popen_forkserver", "numpy.random", "torch.utils.flop_counter"}
    assert others <= in_rank
    kits = others | {name for name in in_rank if name.startswith("ddpkit.")}
    assert sorted(kits - set(done.stdout.split())) == []
    assert "torch.distributed.distributed_c10d" in done.stdout.split()
    assert not later & set(done.stdout.split())


def collapsed() -> None:
    """Print the huge pages of memory that was written in small pages, before and after the
    collapse."""
    import mmap

    from ddpkit.rank import preload

    def huge() -> int:
        said = Path("/proc/self/smaps_rollup").read_text("ascii")
        return int(said.partition("\nAnonHugePages:")[2].split()[0])

    kept = mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE)
    kept[:: mmap.PAGESIZE] = b"x" * (len(kept) // mmap.PAGESIZE)
    before = huge()
    preload._in_huge_pages()
    print(huge() - before >= 4096, kept[:: mmap.PAGESIZE].count(b"x"))


def test_what_is_there_is_put_into_huge_pages():
    """A fork copies an entry for each page, and the end of a rank visits each page."""
    if sys.platform != "linux" or tuple(map(int, platform.release().split(".")[:2])) < (6, 1):
        pytest.skip("needs Linux 6.1 or later")
    if not Path("/sys/kernel/mm/transparent_hugepage").exists():
        pytest.skip("this kernel has no huge pages for what did not ask")
    code = "from tests.rank.test_preload import collapsed; collapsed()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "True 2048\n", done.stderr


def watched() -> bool:
    """Compute under the modes by which a check and a modelled machine see operations."""
    from ddpkit.rank.emulation.counted import OperationCount
    from ddpkit.rank.group.in_flight import InFlight

    with InFlight(0), OperationCount() as operations:
        torch.ones(2).add_(1)
    assert operations.number == 2
    return compiler.is_loaded()


def test_no_compiler_is_loaded_to_look_at_operations():
    """Loading the compiler would take a second in each rank."""
    code = "from tests.rank.test_preload import watched; print(watched())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "False\n", done.stderr


def test_a_compiled_function_leaves_the_modes_out():
    """The modes are entered before the compiler is imported; it must not compile their methods."""
    code = "from tests.rank.test_preload import compiled; compiled()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")


def compiled() -> None:
    from ddpkit.rank.emulation.counted import OperationCount

    with OperationCount() as operations:
        x = torch.ones(2)  # before the compiler is imported
        doubled = torch.compile(lambda x: torch.relu(2 * x), backend="eager")
        doubled(x)
    print(operations.number)


def of_modules() -> tuple[str, bool, list[int]]:
    """Return the file of a module's `__call__`, whether calls are recorded, and a call's result."""
    from ddpkit.rank.record.compute import _way

    called = torch.nn.Module.__call__
    given = torch.nn.Flatten(0)(torch.ones(2, 3)).shape
    return called.__code__.co_filename, _way.leads_to.__code__ is not called.__code__, list(given)


@pytest.mark.parametrize("record", [True, False])
def test_a_rank_records_modules_without_a_change_of_their_class(record):
    """Setting `Module.__call__` would copy memory pages of all its subclasses in each rank."""
    run = Cluster(2, record=record).run(of_modules)
    file = str(ROOT / "ddpkit" / "rank" / "record" / "compute.py")
    assert run.results == [(file, True, [6])] * 2
    spans = [span.name for span in run.trace.spans] if record else []
    assert spans == ["Flatten"] * 2 * record


def threads_of_blas() -> int:
    """Return the most threads that a product of matrices uses in this rank."""
    numpy = pytest.importorskip("numpy")
    before = len(os.listdir("/proc/self/task"))
    numpy.ones((400, 400)) @ numpy.ones((400, 400))
    return 1 + len(os.listdir("/proc/self/task")) - before


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_numpys_products_have_one_thread_in_a_rank_as_under_torchrun():
    """Time of other threads would not count as the rank's time, if time is emulated."""
    code = """if True:
        import os
        from ddpkit import Cluster
        from tests.rank.test_preload import threads_of_blas

        print(Cluster(1).run(threads_of_blas).results, os.environ.get("OPENBLAS_NUM_THREADS"))
    """
    env = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    env.pop("OMP_NUM_THREADS", None)
    env.pop("PYTHONPATH", None)  # tests/startup sets the variable for all processes of tests
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env)
    assert done.stdout == "[1] None\n", done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's heap is Linux's")
@pytest.mark.parametrize("given", [None, "glibc.malloc.check=0"])
def test_the_forkserver_has_a_heap_of_huge_pages_and_ranks_have_the_users_settings(given):
    code = """if True:
        import os
        from multiprocessing import forkserver
        from pathlib import Path
        from ddpkit import Cluster

        print(Cluster(1).run(os.environ.get, "GLIBC_TUNABLES").results)
        (mine,) = Path("/proc", str(forkserver._forkserver._forkserver_pid), "environ"),
        print([each for each in mine.read_text().split(chr(0)) if each.startswith("GLIBC")])
        print(os.environ.get("GLIBC_TUNABLES"))
    """
    env = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}
    env |= {"GLIBC_TUNABLES": given} if given else {}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env)
    theirs = f"GLIBC_TUNABLES={given or 'glibc.malloc.hugetlb=1'}"
    assert done.stdout == f"{[given]}\n{[theirs]}\n{given}\n", done.stderr


def has_compiler() -> bool:
    """True if the compiler was present before this rank needed it."""
    there = compiler.is_loaded()
    torch.compile(lambda: 1, backend="eager")
    return there


@pytest.mark.skipif(sys.platform != "linux", reason="the forkserver is Linux's")
@pytest.mark.parametrize("asks", ["by its code", "by its module"])
def test_the_compiler_is_imported_before_the_ranks_that_need_it(asks):
    """With a new forkserver, each rank would import the compiler in the first run of a lesson."""
    code = """if True:
        from ddpkit import Cluster
        from tests.rank.test_preload import has_compiler

        by_its_code = lambda: ["compile", has_compiler()][1]
        print(Cluster(3).run(FUNCTION).results)
    """.replace("FUNCTION", "by_its_code" if asks == "by its code" else "has_compiler")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == f"{[True] * 3}\n", done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="the forkserver is Linux's")
def test_what_ranks_had_to_import_the_next_ones_find():
    """The import of sympy takes a quarter of a second in each rank.

    In a pipeline ranks wait for it in turn.
    """
    code = """if True:
        import sys
        import torch
        from ddpkit import Cluster

        def given(gradient):
            before = len(sys.modules)
            (2 * torch.ones(3, requires_grad=True)).backward(gradient)
            return len(sys.modules) - before < 10  # torch 2.15 has four small ones more

        cluster = Cluster(2)
        print(*(cluster.run(given, torch.ones(3)).results for _ in range(2)))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "[False, False] [True, True]\n", done.stderr


NEEDS = """
import sys, torch, torch.distributed as dist
from ddpkit.rank import compiler

compiler.put_off()

def compiled():
    torch.compile(torch.sin, backend="eager")

def pipeline():
    from torch.distributed import pipelining

def tensor():
    from torch.distributed.tensor import DTensor

def recomputed():
    from torch.utils.checkpoint import checkpoint
    checkpoint(torch.sin, torch.ones(1, requires_grad=True), use_reentrant=False)

def saved():
    import torch.distributed.checkpoint

def functional():
    from torch.distributed import _functional_collectives as functional
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    functional.wait_tensor(functional.all_reduce(torch.ones(1), "sum", dist.group.WORLD))

def none_of_it():
    weight = torch.ones(1, requires_grad=True)
    weight.sum().backward()
    torch.optim.SGD([weight], 1.0).step()
"""
LOADED = """
from ddpkit.cluster.local import launch
from ddpkit.protocol.ship import pack_call

called, asked = globals()[sys.argv[1]], []
launch.warm_up = launch._server = lambda: asked.append(1) or [launch.os.getpid()]
launch.os.kill = lambda *_: None
launch.load_compiler_for(pack_call(called, (), {})[0], "", values=True)
called()
print(bool(asked), bool(compiler.loaded_parts()))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the forkserver is Linux's")
@pytest.mark.parametrize("name", re.findall(r"def (\w+)", NEEDS))
def test_who_loads_the_compiler_is_seen_in_its_code(name):
    """Code may also need only half of the compiler: sympy, the half that all of it needs."""
    done = subprocess.run(
        [sys.executable, "-c", NEEDS + LOADED, name], capture_output=True, text=True, cwd=ROOT
    )
    needs = name != "none_of_it"
    assert done.stdout == f"{needs} {needs}\n", done.stderr


def in_parts(folder: str) -> None:
    """Import parts; the first takes long and meanwhile asks for all parts. Print the events."""
    from ddpkit.rank import preload

    first = "import os, signal\nprint('first begins')\n"
    first += "os.kill(os.getpid(), signal.SIGUSR2)\nprint('first ends')\n"
    names = {"first_part": first, "second_part": "print('second')", "third_part": "print('3')"}
    for name, text in names.items():
        Path(folder, f"{name}.py").write_text(text)
    sys.path.insert(0, folder)
    preload.to_import[:] = names
    os.kill(os.getpid(), signal.SIGURG)
    print(preload.to_import)


@pytest.mark.skipif(sys.platform == "win32", reason="the forkserver is Linux's")
def test_who_asks_for_all_parts_in_the_middle_of_one_gets_them_after_it(tmp_path):
    code = f"from tests.rank.test_preload import in_parts; in_parts({str(tmp_path)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "first begins\nfirst ends\nsecond\n3\n[]\n", done.stderr


def one_part(folder: str) -> None:
    """Report a part that ranks have imported; print the import, and the parts that remain."""
    from ddpkit.rank import preload

    for name in ("first_part", "second_part"):
        Path(folder, f"{name}.py").write_text(f"print({name!r})")
    sys.path.insert(0, folder)
    preload.to_import[:] = ["first_part", "second_part"]
    signal.setitimer(signal.ITIMER_REAL, 0)
    os.kill(os.getpid(), signal.SIGURG)
    print(preload.to_import, 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= preload.IDLE)


@pytest.mark.skipif(sys.platform != "linux", reason="the forkserver is Linux's")
def test_of_what_ranks_import_themselves_one_part_comes(tmp_path):
    code = f"from tests.rank.test_preload import one_part; one_part({str(tmp_path)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "first_part\n['second_part'] True\n", done.stderr


def put_off() -> None:
    """Print whether a fork delays the timer: a running timer, an expired timer, and in a rank."""
    from ddpkit.rank import preload

    for seconds, pid in ((1000, os.getpid()), (0, os.getpid()), (1000, 1)):
        preload.FORKSERVER = pid
        signal.setitimer(signal.ITIMER_REAL, seconds)
        if not os.fork():
            os._exit(0)
        print(0 < signal.getitimer(signal.ITIMER_REAL)[0] <= preload.IDLE)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the forkserver is Linux's")
def test_one_run_after_the_other_puts_the_huge_pages_off():
    code = "from tests.rank.test_preload import put_off; put_off()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "True\nFalse\nFalse\n", done.stderr


def asked_late(folder: str) -> None:
    """Ask for all imports while memory is put into huge pages."""
    from ddpkit.rank import preload

    def pages() -> None:
        print("pages")
        os.kill(os.getpid(), signal.SIGUSR2)

    Path(folder, "late_part.py").write_text("print('late')")
    sys.path.insert(0, folder)
    preload.to_import[:] = ["late_part"]
    vars(preload)["_in_huge_pages"] = pages
    os.kill(os.getpid(), signal.SIGALRM)
    print(preload.to_import)


@pytest.mark.skipif(sys.platform != "linux", reason="the forkserver is Linux's")
def test_who_asks_while_pages_are_made_huge_is_heard(tmp_path):
    code = f"from tests.rank.test_preload import asked_late; asked_late({str(tmp_path)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "pages\nlate\n[]\n", done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="the forkserver is Linux's")
def test_who_asks_again_when_all_is_there_changes_nothing():
    code = """if True:
        import os, signal
        from ddpkit.rank import preload

        preload.to_import.clear()
        vars(preload)["_ready"] = lambda: print("made ready")
        os.kill(os.getpid(), signal.SIGURG)
        os.kill(os.getpid(), signal.SIGUSR2)
        print("as it was")
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "as it was\n", done.stderr
