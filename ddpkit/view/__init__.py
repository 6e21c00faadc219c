"""Pictures of traces. Importing this loads neither matplotlib nor IPython; drawing does.

Each picture is a pure model (`timeline_model`: trace -> numbers), a draw function
(`timeline.draw_timeline`: numbers -> Figure) and a thin shell (`show`).
"""

from ddpkit.view.model import Timeline, timeline_model
from ddpkit.view.show import show
from ddpkit.view.widgets import View, explore_buckets, play

__all__ = ["Timeline", "View", "explore_buckets", "play", "show", "timeline_model"]
