"""The layers of ARCHITECTURE.md, read from its table: a module imports only from lower layers."""

import graphlib
import re
import subprocess
import sys

import pytest

from tests.project.source import ROOT, Import, all_imports, imports, modules

PUBLIC = "ddpkit"  # the page of public names: above the modules that it names, below the commands
JUPYTER = 7  # the first layer with Jupyter


def _table() -> dict[str, float]:
    """Return module or folder -> layer, from the table in ARCHITECTURE.md."""
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    (rows,) = re.findall(r"^layer  +modules.*\n((?:[\d.]+ .*\n)+)```", text, re.MULTILINE)
    layers = {PUBLIC: 10.5}
    for row in rows.splitlines():
        number, names, *_ = re.split(r"  +", row)
        for name in names.split():
            layers[f"ddpkit.{name.rstrip('/').replace('/', '.')}"] = float(number)
    return layers


# A module belongs to the longest prefix in the table. Modules of one entry may import each other,
# without cycles.
LAYERS = _table()

HEAVY = (
    "torch",
    "matplotlib",
    "IPython",
    "ipywidgets",
    "jupytext",
    "nbformat",
    "nbclient",
    "nbval",
)
# A GPU server without Jupyter runs these layers: besides the standard library they load only these
# packages.
ON_A_SERVER = {"torch", "numpy", "cloudpickle"}


def entry(module: str) -> str:
    """Return the table's entry for `module`; "" if there is none.

    The entry `ddpkit` stands only for ddpkit/__init__.py.
    """
    parts = module.split(".")
    prefixes = [".".join(parts[:length]) for length in range(len(parts), 1, -1)]
    return next((prefix for prefix in [module, *prefixes] if prefix in LAYERS), "")


def layer(module: str) -> float:
    return LAYERS.get(entry(module), 99)  # test_every_module_has_a_layer reports unknown modules


def own_imports() -> list[Import]:
    return [found for found in imports() if found.imported.split(".")[0] == "ddpkit"]


def test_every_module_has_a_layer():
    assert [module for module in modules() if not entry(module)] == []


def test_every_layer_has_a_module():
    """A line of the table without a module would be wrong about the package."""
    assert set(LAYERS) - {entry(module) for module in modules()} == set()


def test_imports_go_down():
    upward = []
    for found in own_imports():
        importer, imported = entry(found.importer), entry(found.imported)
        if importer != imported and layer(found.importer) <= layer(found.imported):
            upward.append(f"{found.where}: {found.importer} imports {found.imported}")
    assert upward == []


def test_no_cycle_between_modules():
    """Not even for types: a reader of one module in the cycle would have to read all of them."""
    needs: dict[str, set[str]] = {module: set() for module in modules()}
    for found in all_imports():
        if found.imported.split(".")[0] == "ddpkit":
            needs[found.importer].add(found.imported)
    try:
        graphlib.TopologicalSorter(needs).prepare()
    except graphlib.CycleError as error:
        pytest.fail("modules import each other: " + " -> ".join(reversed(error.args[1])))


def test_what_a_trace_is_does_not_know_its_files():
    """`trace.trace` joins traces and their files; this module and its users are above `files`."""
    above = {"ddpkit.trace", "ddpkit.trace.trace", "ddpkit.trace.dropped"}
    users = {
        found.importer
        for found in all_imports()
        if found.imported.startswith("ddpkit.trace.files")
        and found.importer.startswith("ddpkit.trace")
        and not found.importer.startswith("ddpkit.trace.files")
    }
    assert users <= above


def test_the_checks_of_a_lab_know_no_other_lab():
    """checks/shared has the parts that the checks of several labs use."""
    labs = re.compile(r"ddpkit\.checks\.(lab\d\d)\b")
    pairs = [(labs.match(found.importer), labs.match(found.imported)) for found in all_imports()]
    found = {(one[1], other[1]) for one, other in pairs if one and other and one[1] != other[1]}
    assert found == set()


def test_only_carry_uses_the_answers():
    """`ddpkit.answers` is generated: only carry (and tests and benchmarks) may depend on it.

    The map of the course, and `find`, read the index, which names the lab of each exercise.
    """
    users = {
        found.importer
        for found in own_imports()
        if entry(found.imported) == "ddpkit.answers" != entry(found.importer)
    }
    assert users <= {f"ddpkit.exercises.{name}" for name in ("carry", "course", "exercise")}


def test_a_server_without_jupyter_can_load_the_lower_layers():
    foreign = [
        f"{found.where}: {found.imported}"
        for found in imports()
        if found.at_import
        and layer(found.importer) < JUPYTER
        and not entry(found.importer).startswith("ddpkit.view")
        and (top := found.imported.split(".")[0]) not in {"ddpkit", *sys.stdlib_module_names}
        and top not in ON_A_SERVER
        and found.importer != "ddpkit.data.make_digits"  # a tool for people, run by hand
    ]
    assert foreign == []


@pytest.mark.processes
def test_import_ddpkit_is_light():
    code = "import sys, ddpkit; print(*sys.modules)"
    command = [sys.executable, "-c", code]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert set(HEAVY) & set(loaded) == set()
