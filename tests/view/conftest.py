"""A notebook that only remembers what it was given to display."""

import pytest


@pytest.fixture
def displayed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """As if in IPython; what is displayed ends up in this list."""
    import IPython
    import IPython.display

    shown: list[object] = []
    monkeypatch.setattr(IPython, "get_ipython", object)
    monkeypatch.setattr(IPython.display, "display", lambda given, **_: shown.append(given))
    return shown
