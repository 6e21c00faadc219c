"""A stand-in for a notebook, which remembers the displayed objects."""

import pytest


@pytest.fixture
def displayed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return the list of displayed objects; the test runs as if in IPython."""
    import IPython
    import IPython.display

    shown: list[object] = []
    monkeypatch.setattr(IPython, "get_ipython", object)
    monkeypatch.setattr(IPython.display, "display", lambda given, **_: shown.append(given))
    return shown
