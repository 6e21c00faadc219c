"""A check refuses ways around torch.distributed, and nothing else."""

import asyncio
import importlib
import io
import os
import socket
import subprocess
import sys
import tempfile
import threading
from multiprocessing import shared_memory
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from ddpkit.errors import RankError
from ddpkit.exercises.raised import trouble_of
from ddpkit.exercises.ranks import call


def a_file(path):
    Path(path).write_text("1")


def a_descriptor(path):
    os.open(path, os.O_WRONLY | os.O_CREAT)


def a_tensor_in_a_file(path):
    torch.save(torch.ones(2), path)


def a_mapped_file(path):
    torch.from_file(path, shared=True, size=4)


def a_mapped_storage(path):
    torch.UntypedStorage.from_file(path, True, 4)


def shared_memory_of_a_name(path):
    shared_memory.SharedMemory(f"side{dist.get_rank()}-{os.getpid()}", create=True, size=4)


def a_folder(path):
    os.mkdir(path)


def a_time(path):
    os.utime("/tmp", (1, 1))


def the_store(path):
    from torch.distributed.distributed_c10d import _get_default_store

    _get_default_store().set("mine", "1")


def a_store_of_its_own(path):
    dist.HashStore().add("mine", 1)


def a_socket(path):
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"1", ("127.0.0.1", 9))


def a_listening_socket(path):
    socket.socket(socket.AF_UNIX).bind(path)


def a_process(path):
    subprocess.run(["true"], check=True)


def a_fork(path):
    os.fork()


def in_a_thread(path):
    """Keep the thread's error, and raise the error again."""
    found = []

    def write():
        try:
            a_file(path)
        except RuntimeError as error:
            found.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    thread.join()
    if found:
        raise found[0]


def the_writer_of_imports(path):
    importlib._bootstrap_external._write_atomic(path, b"1")


def the_writer_of_the_compiler(path):
    from torch._inductor.codecache import write_atomic

    write_atomic(path, "1")


REFUSED = (
    the_writer_of_the_compiler,
    a_file,
    a_descriptor,
    a_tensor_in_a_file,
    a_mapped_file,
    a_mapped_storage,
    shared_memory_of_a_name,
    a_folder,
    a_time,
    the_store,
    a_store_of_its_own,
    a_socket,
    a_listening_socket,
    a_process,
    a_fork,
    in_a_thread,
    the_writer_of_imports,
)


@pytest.mark.processes("some")
@pytest.mark.parametrize("way", REFUSED, ids=lambda way: way.__name__)
def test_a_way_past_the_group_is_refused(way, tmp_path):
    path = tmp_path / "side"
    with pytest.raises(RankError) as caught:
        call(way, str(path), world_size=2)
    assert trouble_of(caught.value).kind == "side channel", caught.value
    assert not path.exists()


def writes_where_it_may(path):
    Path(f"{path}{dist.get_rank()}").write_text("1")
    return True


@pytest.mark.processes("some")
def test_a_check_of_checkpoints_lets_files_be_written(tmp_path):
    did = call(writes_where_it_may, str(tmp_path / "side"), world_size=2, files=True)
    assert did.returned == [True, True]
    assert len(list(tmp_path.iterdir())) == 2


def usual_work(path):
    """Print, read, keep in memory, run coroutines and threads, make groups, send objects."""
    torch.save(torch.ones(1), io.BytesIO())
    print(Path(path).read_text())
    with open(os.devnull, "w") as nowhere:
        nowhere.write("1")
    group = dist.new_group([0, 1])
    x = torch.ones(1)
    dist.all_reduce(x, group=group)
    everyone = [None, None]
    dist.all_gather_object(everyone, {"a": 1})
    asyncio.run(asyncio.sleep(0))
    thread = threading.Thread(target=print)
    thread.start()
    thread.join()
    return x


@pytest.mark.processes("some")
def test_usual_work_is_not_refused(tmp_path):
    path = tmp_path / "read"
    path.write_text("words")
    did = call(usual_work, str(path), world_size=2)
    assert [each.item() for each in did.returned] == [2, 2]


def imports_for_the_first_time(folder):
    """Import a module of the reader; Python caches its bytecode."""
    sys.dont_write_bytecode = False
    sys.path.insert(0, folder)
    import own_module_of_a_reader  # type: ignore[import-not-found]

    return own_module_of_a_reader.answer


@pytest.mark.processes("some")
def test_an_import_may_keep_its_bytecode(tmp_path):
    (tmp_path / "own_module_of_a_reader.py").write_text("answer = 42")
    did = call(imports_for_the_first_time, str(tmp_path), world_size=2)
    assert did.returned == [42, 42]
    assert list((tmp_path / "__pycache__").iterdir())


def compiles_and_asks_for_a_folder():
    """Import and run torch's compiler, which writes files, for the first time in a rank."""
    assert Path(tempfile.gettempdir()).is_dir()
    return torch.compile(lambda x: 2 * x, backend="aot_eager")(torch.ones(1))


@pytest.mark.processes("some")
def test_the_compiler_may_write():
    did = call(compiles_and_asks_for_a_folder, world_size=2)
    assert [each.item() for each in did.returned] == [2, 2]


def test_what_is_watched_is_as_before_afterwards():
    from ddpkit.rank.side_channels import no_side_channels

    before = torch.from_file, torch.UntypedStorage.from_file, torch._C.PyTorchFileWriter.__init__
    with no_side_channels(), no_side_channels():
        assert torch.from_file is not before[0]
    after = torch.from_file, torch.UntypedStorage.from_file, torch._C.PyTorchFileWriter.__init__
    assert after[0] is before[0]
    assert after[2] is before[2]
    dist.HashStore().set("mine", "1")
