"""Pictures of traces. Importing this loads neither matplotlib nor IPython; drawing does.

Each picture is a pure model (`timeline_model`: trace -> numbers), a draw function
(`timeline.draw_timeline`: numbers -> Figure) and a thin shell (`show`).
"""

from ddpkit.view.model import Timeline, timeline_model
from ddpkit.view.show import compare, heat_map, show
from ddpkit.view.widgets import (
    Live,
    View,
    explore,
    explore_buckets,
    explore_scaling,
    live,
    play,
    what_if,
)

__all__ = [
    "Live",
    "Timeline",
    "View",
    "compare",
    "explore",
    "explore_buckets",
    "explore_scaling",
    "heat_map",
    "live",
    "play",
    "show",
    "timeline_model",
    "what_if",
]
