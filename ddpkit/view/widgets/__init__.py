"""Pictures that can be moved. Each has a model (numbers), a drawing, and a thin shell.

film, scheduled, recorded   a collective as moments: of a schedule, or of real ranks' messages
stage, arrows, player_figure   a moment as a figure
play                        `play`: step through it
bucket_model, bucket_figure   a step under one bucket cap, beside all caps
buckets                     `explore_buckets`: move cap, link, compute and ranks
scaling_model, scaling_figure, scaling   `explore_scaling`: how many ranks are worth having
what_if                     `what_if`: a recorded run with another cap, link or a slow rank
scene, canvas, canvas.js    every span as columns of numbers; drawn in the browser
explore                     `explore`: point at them, move and zoom
live_model, live_figure, watch   `live`: loss, throughput and late ranks while they train
shell                       `View`: a still picture and text first, then controls if there are any
"""

from ddpkit.view.widgets.buckets import explore_buckets
from ddpkit.view.widgets.explore import explore
from ddpkit.view.widgets.play import play
from ddpkit.view.widgets.scaling import explore_scaling
from ddpkit.view.widgets.shell import View
from ddpkit.view.widgets.watch import Live, live
from ddpkit.view.widgets.what_if import what_if

__all__ = [
    "Live",
    "View",
    "explore",
    "explore_buckets",
    "explore_scaling",
    "live",
    "play",
    "what_if",
]
