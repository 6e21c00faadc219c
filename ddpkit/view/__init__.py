"""Pictures of traces. Importing this module loads neither matplotlib nor IPython; drawing does.

show         the still pictures in a notebook: `show`, `compare`, `stack`, `heat_map`,
             `show_pipeline`, `show_blocks`, `show_mesh`, `show_attention`,
             `show_routing`, `show_held`, `show_roof`, `show_limits`
drawing/     parts of all pictures: pages, plots, bars, colours, words, the widget's shell
timeline/    the spans of each rank, and the parts of each rank's time
comparison/  several runs on one axis of time; `what_if` beside the recorded run
stacked/     the parts of typical steps, as stacked bars in groups
heat/        the time of each step on each rank
player/      `play`: a collective step by step
buckets/     `explore_buckets`: the step under a bucket cap
scaling/     `explore_scaling`: the efficiency of more and more ranks
plan/        `explore_plan`: the hours and dollars of a training, by ranks and batch
state/       `explore_state`: the bytes of state on each rank, and the rank's memory
blocks/      the blocks of matrices on ranks, and the bytes that products send
pipeline/    `explore_pipeline`: the micro-batch that each stage works on, over time
attention/   `show_attention`: the rank that computes each tile of queries and keys
mesh/        `show_mesh`: the ranks of a mesh, and the groups along each dimension
routing/     `show_routing`: the rows from each rank to each expert
held/        `show_held`: the bytes that a rank holds over time, a line for each run
roof/        `show_roof`: operations under the roofs of a machine
limits/      `show_limits`: the exposed communication's share of a step, by tokens per rank
live_run/    `live`: a run while it trains
explorer/    `explore`: a timeline to zoom and to point at; `write_page`: the same as an HTML file

Each picture is a pure `model` (trace -> numbers), a `figure` (numbers -> Figure) and, if
readers can change its settings, a thin `widget`.
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
    show_limits,
    show_mesh,
    show_pipeline,
    show_roof,
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
    "show_limits",
    "show_mesh",
    "show_pipeline",
    "show_roof",
    "show_routing",
    "stack",
    "timeline_model",
    "what_if",
    "write_page",
]
