"""Pictures that can be moved. Each has a model (numbers), a drawing, and a thin shell.

film, scheduled, recorded   a collective as moments: of a schedule, or of real ranks' messages
stage, arrows, player_figure   a moment as a figure
play                        `play`: step through it
bucket_model, strip, bucket_figure   a step under one bucket cap, beside all caps
explore                     `explore_buckets`: move cap, link, compute and ranks
shell                       `View`: a still picture and text first, then controls if there are any
"""

from ddpkit.view.widgets.explore import explore_buckets
from ddpkit.view.widgets.play import play
from ddpkit.view.widgets.shell import View

__all__ = ["View", "explore_buckets", "play"]
