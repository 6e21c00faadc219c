"""The picture of the rooms in ARCHITECTURE.md agrees with the imports."""

from tests.project import rooms


def test_the_picture_is_made_from_the_imports():
    (drawn,) = rooms.BLOCK.findall(rooms.PAGE.read_text("utf-8"))
    assert drawn == rooms.picture(), "python -m tests.project.rooms"


def test_an_arrow_is_left_out_only_where_others_lead_the_same_way():
    lines = [line.strip().split(" --> ") for line in rooms.picture().splitlines()[1:]]
    arrows = {name: set(others.split(" & ")) for name, others in lines}

    def reached(name: str) -> set[str]:
        return {low for each in arrows.get(name, ()) for low in (each, *reached(each))}

    for name, others in rooms.needed().items():
        assert {each.replace(rooms.PLAIN, f"plain[{rooms.PLAIN}]") for each in others} <= reached(
            name
        )
