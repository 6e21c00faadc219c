"""pyproject, constraints and environment.yml agree, and every import is declared."""

import importlib.metadata
import re
import sys
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.project.source import ROOT, imports

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
ONLY_TO_MAKE_THE_DATA = {"sklearn"}
ONLY_IN_AN_EXTRA = {  # imported only on request
    "google": ("chakra", "protobuf"),
    **{name: ("slides", name) for name in ("docutils", "nbconvert", "pygments")},
}


def requirements(lines: list[str]) -> dict[str, Requirement]:
    parsed = [Requirement(line) for line in lines]
    return {canonicalize_name(requirement.name): requirement for requirement in parsed}


def pins() -> dict[str, Requirement]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    return requirements([line for line in lines if line and not line.startswith("#")])


def direct() -> list[Requirement]:
    return [Requirement(line) for line in sum(EXTRAS.values(), PROJECT["dependencies"])]


def test_constraints_are_exact_and_plain():
    """A line is `name==version`, without hosts, options and local versions."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    odd = [line for line in lines if not re.fullmatch(r"(#.*|[\w.-]+==[\w.]+)", line)]
    assert odd == []
    assert len(pins()) == len([line for line in lines if not line.startswith("#")]), "a name twice"


@pytest.mark.parametrize("requirement", direct(), ids=str)
def test_direct_dependency_is_pinned_within_its_range(requirement: Requirement):
    pin = pins()[canonicalize_name(requirement.name)]
    (version,) = (specifier.version for specifier in pin.specifier)
    assert requirement.specifier.contains(version)


def test_the_whole_tree_is_pinned():
    """The direct dependencies are pinned, and their dependencies, and so on."""
    todo, seen = list(direct()), set()
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        key = (name, *sorted(requirement.extras))
        if key in seen or not _applies(requirement):
            continue
        seen.add(key)
        try:
            needs = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # a package of an extra, not installed
        for line in needs:
            child = Requirement(line)
            if _applies(child, requirement.extras):
                todo.append(child)
    assert {name for name, *_ in seen} - set(pins()) == set()


def _applies(requirement: Requirement, extras: set[str] = frozenset()) -> bool:
    """True if `requirement` applies to this machine, for a parent with `extras`."""
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in extras or {""})


@pytest.mark.parametrize("version", ["2.7.1", "2.11.0", "2.13.0+cpu", "2.14.1", "2.15.0"])
def test_torch_range_is_wide(version: str):
    assert requirements(PROJECT["dependencies"])["torch"].specifier.contains(version)


def test_torch_range_is_what_was_tested():
    """`make versions` runs the oldest and the newest torch, and doctor names the same two."""
    from ddpkit.commands import diagnosis

    allowed = requirements(PROJECT["dependencies"])["torch"].specifier
    oldest = ".".join(map(str, diagnosis.TORCH))
    major, minor = diagnosis.TORCH_NEWEST
    assert str(allowed) == f"<{major}.{minor + 1},>={oldest}"


def test_torch_is_the_one_that_ci_has():
    assert str(pins()["torch"]) == "torch==2.13.0"


def test_conda_environment_installs_the_same():
    conda = yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))
    (pip,) = (entry["pip"] for entry in conda["dependencies"] if isinstance(entry, dict))
    (python,) = (entry for entry in conda["dependencies"] if str(entry).startswith("python"))

    assert pip[0] == "-c constraints.txt"
    assert f"pip install -c constraints.txt {pip[1]}" in _make_installs()
    assert Requirement(python.replace("=", "==", 1)).specifier.contains("3.11")
    assert PROJECT["requires-python"] == ">=3.11"


def _make_installs() -> str:
    """Return the Makefile with its install lines written out."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    pip = re.search(r"^PIP := (.*)$", makefile, re.MULTILINE)[1]
    pip = re.sub(r".*-m pip install .*(-c constraints.txt)", r"pip install \1", pip)
    return makefile.replace("$(PIP)", pip).replace("'", "")


def test_every_import_is_declared():
    """A library that the package imports is a direct dependency, not only an indirect one."""
    owners = importlib.metadata.packages_distributions()
    declared = {canonicalize_name(r.name) for r in map(Requirement, PROJECT["dependencies"])}
    used = {found.imported.split(".")[0] for found in imports()}
    used -= {"ddpkit", *sys.stdlib_module_names, *ONLY_TO_MAKE_THE_DATA}
    for name, (extra, owner) in ONLY_IN_AN_EXTRA.items():
        assert canonicalize_name(owner) in requirements(EXTRAS[extra])
        used.discard(name)
    undeclared = {
        name for name in used if not declared & {canonicalize_name(o) for o in owners.get(name, [])}
    }
    assert undeclared == set()
