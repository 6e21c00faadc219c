"""All public names: adding a name is a decision, so the name must be added here too."""

import ast
import importlib.metadata

import ddpkit
from ddpkit import errors
from tests.project.source import PACKAGE, ROOT, modules

NOUNS = ["Cluster", "ElasticRun", "PerRank", "Run", "Trace"]
VERBS = [
    *("beside", "busy", "carry", "check", "course"),
    *("same", "show", "span", "stated", "step", "torchrun"),
]
ERRORS = [
    "CallError",
    "ClusterError",
    "DdpkitError",
    "Deadlock",
    "GradeError",
    "LessonError",
    "Mismatch",
    "RankDied",
    "RankError",
    "RunFailed",
    "RunTimeout",
    "TraceError",
    "UnsupportedTorch",
]


def test_public_names():
    assert sorted(ddpkit.__all__) == sorted(NOUNS + VERBS + ERRORS)
    assert len(ddpkit.__all__) == len(set(ddpkit.__all__))


def test_every_public_name_exists_and_says_what_it_is():
    undocumented = [
        name for name in ddpkit.__all__ if not (getattr(ddpkit, name).__doc__ or "").strip()
    ]
    assert undocumented == []


def test_dir_shows_the_public_names():
    """Names are imported when used; completion in a notebook must find the names before that."""
    assert set(ddpkit.__all__) <= set(dir(ddpkit))


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(ddpkit, "Clutser")


def test_every_error_is_public_and_a_ddpkit_error():
    defined = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type)
        and issubclass(value, Exception)
        and value.__module__ == errors.__name__
    }
    assert defined == set(ERRORS)
    assert all(issubclass(getattr(ddpkit, name), ddpkit.DdpkitError) for name in ERRORS)


def test_every_module_says_what_it_is():
    silent = [
        name
        for name, path in modules().items()
        if not ast.get_docstring(ast.parse(path.read_text("utf-8")))
    ]
    assert silent == []


def test_version_is_written_once():
    assert importlib.metadata.version("ddpkit") == ddpkit.__version__, "run `make -B .venv/.ready`"
    sources = [ROOT / "pyproject.toml", *modules().values()]
    written = [path for path in sources if f'"{ddpkit.__version__}"' in path.read_text("utf-8")]
    assert written == [PACKAGE / "__init__.py"]


def test_package_is_marked_as_typed():
    assert (PACKAGE / "py.typed").is_file()
