"""The picture of the rooms in ARCHITECTURE.md, made from the imports by this command:

    python -m tests.project.rooms

An arrow leads from a room to a room that it imports. An arrow is left out if other arrows lead the
same way: commands import errors directly, but also through each other room.
"""

from __future__ import annotations

import re
from collections import defaultdict

from tests.project.source import ROOT, imports
from tests.project.test_layers import layer

PAGE = ROOT / "ARCHITECTURE.md"
BLOCK = re.compile(r"(?<=```mermaid\n).+?(?=```\n)", re.DOTALL)
PLAIN = "plain things"  # modules below layer 2: link, machine, errors, data and the like


def room(module: str) -> str:
    """Return the room of a module; "" for the page of public names, which imports all rooms."""
    if module in ("ddpkit", "ddpkit.__main__"):
        return ""
    return PLAIN if layer(module) < 2 else module.split(".")[1]


def needed() -> dict[str, set[str]]:
    """Return for each room the rooms that its modules import."""
    found: dict[str, set[str]] = defaultdict(set)
    for each in imports():
        importer = room(each.importer)
        if importer and each.imported.startswith("ddpkit."):
            found[importer] |= {room(each.imported)} - {importer, ""}
    return found


def picture() -> str:
    """Return the picture as a Mermaid flowchart."""
    direct = needed()

    def below(name: str) -> set[str]:
        return {low for each in direct[name] for low in (each, *below(each))}

    lines = ["flowchart TD\n"]
    for name in sorted(direct):
        longer = {low for each in direct[name] for low in below(each)}
        arrows = [_node(each) for each in sorted(direct[name] - longer)]
        if arrows:
            lines.append(f"    {_node(name)} --> {' & '.join(arrows)}\n")
    return "".join(lines)


def _node(name: str) -> str:
    """Return a room's name for Mermaid, which allows no space in a node's name."""
    return f"plain[{name}]" if name == PLAIN else name


def main() -> None:
    PAGE.write_text(BLOCK.sub(picture(), PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
