"""Pictures of traces. Importing this loads neither matplotlib nor IPython; drawing does.

show         the still pictures in a notebook: `show`, `compare`, `stack`, `heat_map`,
             `show_pipeline`, `show_blocks`, `show_mesh`, `show_attention`,
             `show_routing`, `show_held`
drawing/     what all pictures are made with: pages, plots, bars, colours, words, the widget's shell
timeline/    who did what, when, and where the time went
comparison/  several runs on one axis of time; `what_if` beside the recorded run
stacked/     where typical steps went, as stacked bars in groups
heat/        how long each step of each rank took
player/      `play`: a collective step by step
buckets/     `explore_buckets`: the step under a bucket cap
scaling/     `explore_scaling`: how many ranks are worth having
plan/        `explore_plan`: how many ranks, which batch, and what does it cost?
state/       `explore_state`: what does each rank hold, and does it fit?
blocks/      which rank holds which block of a matrix, and what products make travel
pipeline/    `explore_pipeline`: which micro-batch each stage works on, and when
attention/   `show_attention`: the rank that computes each tile of queries and keys
mesh/        `show_mesh`: the ranks of a mesh, and the groups along each dimension
routing/     `show_routing`: the rows from each rank to each expert
held/        `show_held`: the bytes that a rank holds over time, a line for each run
live_run/    `live`: a run while it trains
explorer/    `explore`: every span, to point at; `write_page`: the same as an HTML file

Each picture is a pure `model` (trace -> numbers), a `figure` (numbers -> Figure) and a thin
`widget` where it can be moved.
"""

from ddpkit.view.blocks.model import Matrix
from ddpkit.view.buckets.widget import explore_buckets
from ddpkit.view.comparison.widget import what_if
from ddpkit.view.drawing.shell import View
from ddpkit.view.explorer.page import write_page
from ddpkit.view.explorer.widget import explore
from ddpkit.view.live_run.widget import Live, live
from ddpkit.view.pipeline.widget import explore_pipeline
from ddpkit.view.plan.widget import explore_plan
from ddpkit.view.player.widget import play
from ddpkit.view.scaling.widget import explore_scaling
from ddpkit.view.show import (
    compare,
    heat_map,
    show,
    show_attention,
    show_blocks,
    show_held,
    show_mesh,
    show_pipeline,
    show_routing,
    stack,
)
from ddpkit.view.state.widget import explore_state
from ddpkit.view.timeline.model import Timeline, timeline_model

__all__ = [
    "Live",
    "Matrix",
    "Timeline",
    "View",
    "compare",
    "explore",
    "explore_buckets",
    "explore_pipeline",
    "explore_plan",
    "explore_scaling",
    "explore_state",
    "heat_map",
    "live",
    "play",
    "show",
    "show_attention",
    "show_blocks",
    "show_held",
    "show_mesh",
    "show_pipeline",
    "show_routing",
    "stack",
    "timeline_model",
    "what_if",
    "write_page",
]
