"""Slides of a lab for a lecture, made by rules from the lesson and from its executed figures.

    lesson, executed notebook, page for teachers
    └── sections   prompts, figures, contracts and texts of each section of the lesson
        └── choice     at most MOST slides of these, spread over the lesson
            └── deck       the slides as a notebook, with the metadata of Jupyter's slide shows
                └── page       one HTML file, by nbconvert and reveal.js; it loads nothing else

words     sentences for a slide, and formulas as MathML

Nobody edits a deck: a change of the lesson changes the deck.
"""

from ddpkit.authoring.slides.deck import make_deck
from ddpkit.authoring.slides.page import missing, to_page

__all__ = ["make_deck", "missing", "to_page"]
