"""The choice of the blocks of a lesson that its deck shows."""

from __future__ import annotations

from collections.abc import Sequence

from ddpkit.authoring.slides.sections import CLOSING, WAY_OUT, Piece, Section
from ddpkit.authoring.slides.words import count

LEAST, MOST = 12, 20  # least and largest number of slides, for an hour's lecture
# One round of the choice; pictures and exercises come more often than texts.
_ROUND = ("seen", "contract", "text", "seen", "contract", "told")
_TEXT_WORDS = 20  # a section with fewer words has no slide of its own text


def chosen(sections: Sequence[Section], room: int) -> list[Piece]:
    """Return blocks for at most `room` slides, in the order of the lesson.

    The kinds of blocks take turns, so that each deck has pictures, exercises and texts. The blocks
    of one kind are spread over the lesson: the first one, one in the middle, and so on.
    """
    blocks = [block for section in sections for block in _offered(section)]
    waiting = {kind: _spread([each for each in blocks if each.kind == kind]) for kind in _ROUND}
    taken: list[Piece] = []
    while any(waiting.values()):
        for kind in _ROUND:
            if waiting[kind]:
                block = waiting[kind].pop(0)
                if sum(each.slides for each in [*taken, block]) <= room:
                    taken.append(block)
    return [block for block in blocks if any(block is each for each in taken)]


def _offered(section: Section) -> list[Piece]:
    """Return the blocks of a section; return no blocks if the lecture skips the section.

    If the section's texts have enough words, they are the first block.
    """
    if section.optional or section.heading in (WAY_OUT, CLOSING):
        return []
    blocks = [each for each in section.blocks if each.kind != "told" or _tells(each)]
    said = " ".join(section.texts)
    opens = blocks[0].prompt or blocks[0].kind == "contract" if blocks else False
    if count(said) >= _TEXT_WORDS and not opens:
        return [Piece(section.heading, "text", section.texts), *blocks]
    return blocks


def _tells(block: Piece) -> bool:
    """True if the block of a prediction has the answer, printed numbers or a notice."""
    return bool(block.answer or block.printed or block.notice)


def _spread(blocks: Sequence[Piece]) -> list[Piece]:
    """Return the blocks in an order in which, for each k, the first k blocks lie far apart."""
    order: list[int] = []
    step = 1
    while len(order) < len(blocks):
        places = (len(blocks) * part // step for part in range(step))
        order += [place for place in dict.fromkeys(places) if place not in order]
        step *= 2
    return [blocks[place] for place in order]
