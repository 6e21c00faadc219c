"""`make versions`: the small set on the oldest and the newest torch, and on each Python here.

Each environment is made once, in `.versions/`: torch without CUDA's libraries (`stubs`), and the
newest version of each further package, without the pins of constraints.txt. A CPU build of torch
needs no stubs. `make versions ARGS=--fresh` makes the environments again, with the newest packages
of the day; `ARGS="2.10.0:3.11"` tests torch 2.10.0 with Python 3.11.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.versions import stubs

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".versions"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
TOOLS = ("hypothesis", "psutil", "pytest-timeout", "pytest-xdist")  # used by the tests
# Requirements of torch's CUDA build. Ranks on the CPU never load these packages.
OF_CUDA = re.compile(r"nvidia-|cuda-|triton")


class NotMade(Exception):
    """The error if this machine cannot make an environment; the message has the reason."""


def interpreters() -> dict[str, Path]:
    """Return the Pythons of the machine by version: on PATH, or pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    found = {}
    for version in PYTHONS:
        name = f"python{version}"
        on_path = [Path(folder, name) for folder in os.get_exec_path()]
        for path in [Path(sys.executable), *on_path, *sorted(pyenv.glob(f"*/bin/{name}"))]:
            if path.exists() and _version(path) == version:
                found[version] = path
                break
    return found


def _version(python: Path) -> str:
    """Return "3.11", or "" for a file without a Python, such as an empty shim of pyenv."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def torch_range() -> tuple[str, str]:
    """Return pip's specifiers of the oldest and of the newest torch of pyproject.toml."""
    (line,) = (each for each in PROJECT["dependencies"] if each.startswith("torch>"))
    oldest, bound = re.fullmatch(r"torch>=([\d.]+),(<[\d.]+)", line).groups()
    return f"=={oldest}", bound


def made(torch: str, python: Path, folder: Path) -> Path:
    """Return the Python of an environment with a torch ("==2.7.1"); make a missing environment.

    Raises NotMade where a tool is missing or pip fails.
    """
    inside = folder / "bin" / "python"
    if (folder / "made").exists():
        return inside
    shutil.rmtree(folder, ignore_errors=True)
    _do(python, "-m", "venv", folder)
    _pip(inside, "--no-deps", f"torch{torch}")
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(_do(inside, "-c", where).strip())
    if missing := [tool for tool in stubs.TOOLS if shutil.which(tool) is None]:
        raise NotMade(f"not installed: {', '.join(missing)}")
    stubs.add(packages / "torch" / "lib")
    (metadata,) = packages.glob("torch-*.dist-info/METADATA")
    needed = re.findall(r"^Requires-Dist: (.*)$", metadata.read_text("utf-8"), re.MULTILINE)
    needed = [each for each in needed if "extra ==" not in each and not OF_CUDA.match(each)]
    own = [each for each in PROJECT["dependencies"] if not each.startswith("torch>")]
    _pip(inside, *needed, *own, *TOOLS)
    _pip(inside, "--no-deps", "-e", ROOT)
    (folder / "made").write_text(_do(inside, "-m", "pip", "freeze"))
    return inside


def _pip(python: Path, *arguments: str | Path) -> None:
    _do(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *arguments)


def _do(*command: str | Path) -> str:
    # Constraints of the machine would keep pip from the newest packages.
    env = os.environ | {"PIP_CONSTRAINT": os.devnull}
    try:
        return subprocess.run(
            command, env=env, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL
        ).stdout
    except subprocess.CalledProcessError as error:
        raise NotMade("\n".join((error.stderr or error.stdout).splitlines()[-8:])) from error


def tested(python: Path, arguments: list[str]) -> bool:
    """Run the small set with a Python; return True if all tests passed."""
    path = os.pathsep.join(
        filter(None, [str(ROOT / "tests/startup"), os.environ.get("PYTHONPATH")])
    )
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}).returncode == 0


def chosen(names: list[str], pythons: dict[str, Path]) -> Iterator[tuple[str, str, str]]:
    """Yield each environment: a name, pip's specifier of torch and the version of Python."""
    if names:
        for name in names:
            torch, _, python = name.partition(":")
            yield torch, f"=={torch}", python or next(iter(pythons))
        return
    oldest, newest = torch_range()
    yield "oldest", oldest, next(iter(pythons))
    for python in pythons:
        yield "newest", newest, python


def main() -> int:
    parser = argparse.ArgumentParser(prog="make versions", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="TORCH[:PYTHON]", help='such as "2.10.0:3.11"')
    parser.add_argument("--fresh", action="store_true", help="make the environments again")
    parser.add_argument("--tests", nargs="+", default=["tests/versions"], help="other tests")
    options = parser.parse_args()
    pythons = interpreters()
    for version in PYTHONS:
        if version not in pythons:
            print(f"skipped: Python {version} is neither on PATH nor among pyenv's versions")
    failed = []
    for torch, asked, version in chosen(options.names, pythons):
        name = f"torch {torch}, Python {version}"
        if version not in pythons:
            parser.error(f"{name}: this machine has no Python {version}")
        folder = FOLDER / f"{torch}-{version}"
        if options.fresh:
            shutil.rmtree(folder, ignore_errors=True)
        start = time.monotonic()
        try:
            python = made(asked, pythons[version], folder)
        except NotMade as error:
            print(f"{name}: the environment cannot be made\n{error}", flush=True)
            failed.append(name)
            continue
        ready = time.monotonic()
        got = re.search(r"^torch==.*|^torch @.*", (folder / "made").read_text(), re.MULTILINE)[0]
        print(f"== {name}: {got}, made in {ready - start:.0f} s", flush=True)
        if not tested(python, options.tests):
            failed.append(name)
        print(f"== {name}: tested in {time.monotonic() - ready:.0f} s", flush=True)
    print(f"failed: {'; '.join(failed)}" if failed else "All environments passed.")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
