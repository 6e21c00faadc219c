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

TOOLS = ("gcc", "ldd", "nm")
OF_CUDA = re.compile(r"(cu|nccl|nv|__cuda|__nv)")  # beginnings of names without a version


def add(lib: Path) -> list[str]:
    """Write a stub of each missing library on which torch's libraries in `lib` depend.

    Return the names of the stubs: none for a build without CUDA. Raises CalledProcessError if
    a tool of `TOOLS` fails.
    """
    libraries = sorted(lib.glob("*.so*"))
    missing = sorted(set(re.findall(r"(\S+) => not found", _said("ldd", *libraries))))
    if missing:
        wanted = _wanted(libraries)
        for name in missing:
            _write(lib / name, wanted[name], [s for s in wanted[""] if OF_CUDA.match(s)])
    return missing


def _wanted(libraries: Iterable[Path]) -> dict[str, list[str]]:
    """Return the undefined functions by version; a version is the name of a missing library."""
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


def _write(path: Path, versioned: list[str], plain: list[str]) -> None:
    """Compile a library in which every function returns cudaErrorNoDevice, 100.

    Functions with a leading "_" register code during the import of torch; these return 0, a null
    pointer.
    """
    functions = {*versioned, *plain}
    source = "".join(
        f"long {f}(void) {{ return {0 if f[0] == '_' else 100}; }}\n" for f in functions
    )
    with tempfile.TemporaryDirectory() as folder:
        options = []
        if versioned:
            script = Path(folder, "versions")
            script.write_text(f"{path.name} {{ {' '.join(f'{f};' for f in versioned)} }};")
            options = [f"-Wl,--version-script={script}"]
        command = ["gcc", "-w", "-shared", "-fPIC", f"-Wl,-soname,{path.name}", *options]
        subprocess.run([*command, "-o", path, "-xc", "-"], input=source, text=True, check=True)


def _said(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
