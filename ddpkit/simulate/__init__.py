"""The simulator: schedules of messages, their cost, and training steps on any emulated network.

The simulator needs only the standard library. Its result is a `Trace`, like the result of real
ranks.

messages/  collectives as schedules of messages, without time
engine/    the times of messages on links and of programs of ranks, simulated event by event
step/      training steps: recorded steps on other clusters, and steps made from numbers
mesh/      a model on a mesh of replicas, stages and slices

In `ddpkit.link`, a `Link` holds the latency and bandwidth of one rank, `Links` those of all ranks.
"""

from ddpkit.link import Link, Links
from ddpkit.simulate.engine.claimed import program_ns
from ddpkit.simulate.engine.operations import collective_ns
from ddpkit.simulate.engine.play import Played, play_program
from ddpkit.simulate.engine.prices import all_reduce_ns, price_of
from ddpkit.simulate.engine.program import (
    After,
    CollectivePart,
    Launch,
    MessageEnd,
    Program,
    Resumed,
    Work,
)
from ddpkit.simulate.engine.queues import Queues
from ddpkit.simulate.engine.rounds import butterfly_ends, ring_ends
from ddpkit.simulate.engine.timing import time_of
from ddpkit.simulate.mesh.plan_time import plan_time
from ddpkit.simulate.mesh.plans import MeshMachine, MeshModel, MeshPlan, mesh_groups
from ddpkit.simulate.messages.by_name import ALGORITHMS, ALL_REDUCE, COLLECTIVES, schedule
from ddpkit.simulate.messages.costs import FORMULAS, Formula, bus_bandwidth, cost
from ddpkit.simulate.messages.executor import execute
from ddpkit.simulate.messages.schedules import Recv, RecvReduce, Schedule, Send
from ddpkit.simulate.step.buckets import Bucket, Gradient, assign_buckets
from ddpkit.simulate.step.data_parallel import AllReduce, Replay, replay, sweep
from ddpkit.simulate.step.events import step_ends, step_program
from ddpkit.simulate.step.forecast import Forecast, forecast
from ddpkit.simulate.step.models import ModelLayer, ModelTable, bert, gpt, resnet
from ddpkit.simulate.step.noise import noisy_steps
from ddpkit.simulate.step.pipeline import (
    PIPELINES,
    Op,
    bubbles,
    held,
    pipeline_plans,
    pipeline_time,
    waits_for_ever,
)
from ddpkit.simulate.step.recorded import Step
from ddpkit.simulate.step.scaling import Scaled, scaling
from ddpkit.simulate.step.servers import Served, parameter_server
from ddpkit.simulate.step.shards import ShardUnit, shard_program
from ddpkit.simulate.step.whatif import fit_link, what_if

__all__ = [
    "ALGORITHMS",
    "ALL_REDUCE",
    "COLLECTIVES",
    "FORMULAS",
    "PIPELINES",
    "After",
    "AllReduce",
    "Bucket",
    "CollectivePart",
    "Forecast",
    "Formula",
    "Gradient",
    "Launch",
    "Link",
    "Links",
    "MeshMachine",
    "MeshModel",
    "MeshPlan",
    "MessageEnd",
    "ModelLayer",
    "ModelTable",
    "Op",
    "Played",
    "Program",
    "Queues",
    "Recv",
    "RecvReduce",
    "Replay",
    "Resumed",
    "Scaled",
    "Schedule",
    "Send",
    "Served",
    "ShardUnit",
    "Step",
    "Work",
    "all_reduce_ns",
    "assign_buckets",
    "bert",
    "bubbles",
    "bus_bandwidth",
    "butterfly_ends",
    "collective_ns",
    "cost",
    "execute",
    "fit_link",
    "forecast",
    "gpt",
    "held",
    "mesh_groups",
    "noisy_steps",
    "parameter_server",
    "pipeline_plans",
    "pipeline_time",
    "plan_time",
    "play_program",
    "price_of",
    "program_ns",
    "replay",
    "resnet",
    "ring_ends",
    "scaling",
    "schedule",
    "shard_program",
    "step_ends",
    "step_program",
    "sweep",
    "time_of",
    "waits_for_ever",
    "what_if",
]
