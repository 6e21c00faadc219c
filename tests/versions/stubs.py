"""Stub libraries in place of CUDA's, so that torch's CUDA build loads without CUDA.

Most bytes of an installation belong to CUDA's libraries, and ranks on the CPU call no function of
CUDA. But the loader requires each library and each function to exist.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

TOOLS = ("gcc", "ldd", "nm", "objdump")
OF_CUDA = re.compile(r"(cu|nccl|nv|__cuda|__nv)")  # beginnings of names without a version


def add(lib: Path) -> list[str]:
    """Write a stub of each missing library on which torch's libraries in `lib` depend.

    Return the names of the stubs: none for a build without CUDA. Raises CalledProcessError if
    a tool of `TOOLS` fails.
    """
    libraries = sorted(lib.glob("*.so*"))
    missing = sorted(set(re.findall(r"(\S+) => not found", _said("ldd", *libraries))))
    if missing:
        wanted, versions = _wanted(libraries), _versions(libraries)
        plain = [name for name in wanted[""] if OF_CUDA.match(name)]
        for name in missing:
            _write(lib / name, {each: wanted[each] for each in versions[name]}, plain)
    return missing


def _wanted(libraries: Iterable[Path]) -> dict[str, list[str]]:
    """Return the undefined functions by version, such as "libcublas.so.13" or "NVSHMEM"."""
    undefined, defined = defaultdict(set), set()
    for line in _said("nm", "-D", *libraries).splitlines():
        if len(words := line.split()) < 2:
            continue  # the name of a library, or an empty line
        kind, name = words[-2:]
        name, _, version = name.partition("@")
        if kind in "Uvw":
            undefined[name].add(version)
        else:
            defined.add(name)
    wanted = defaultdict(list)
    for name in sorted(undefined.keys() - defined):
        for version in undefined[name]:
            wanted[version].append(name)
    return wanted


def _versions(libraries: Iterable[Path]) -> dict[str, set[str]]:
    """Return the versions that libraries require, by the name of the required library."""
    versions: dict[str, set[str]] = defaultdict(set)
    name = ""
    for line in _said("objdump", "-p", *libraries).splitlines():
        if required := re.match(r"\s+required from (\S+):", line):
            name = required[1]
        elif version := re.match(r"\s+0x[0-9a-f]+ 0x\S+ \d+ (\S+)$", line):
            versions[name].add(version[1])
    return versions


def _write(path: Path, versioned: dict[str, list[str]], plain: list[str]) -> None:
    """Compile a library in which every function returns cudaErrorNoDevice, 100.

    Functions with a leading "_" register code during the import of torch; these return 0, a null
    pointer.
    """
    functions = {*plain, *(name for names in versioned.values() for name in names)}
    source = "".join(
        f"long {f}(void) {{ return {0 if f[0] == '_' else 100}; }}\n" for f in functions
    )
    with tempfile.TemporaryDirectory() as folder:
        options = []
        if versioned:
            script = Path(folder, "versions")
            nodes = [f"{v} {{ {' '.join(f'{f};' for f in fs)} }};" for v, fs in versioned.items()]
            script.write_text("\n".join(nodes))
            options = [f"-Wl,--version-script={script}"]
        command = ["gcc", "-w", "-shared", "-fPIC", f"-Wl,-soname,{path.name}", *options]
        subprocess.run([*command, "-o", path, "-xc", "-"], input=source, text=True, check=True)


def _said(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
