"""Communication without ranks: schedules, their cost, and steps on a network that you set.

Needs nothing but the standard library, and makes the `Trace` that real ranks make.

schedules      Schedule: who sends what to whom, in which order, as data
plans          schedule: a schedule by name, for each algorithm in ALGORITHMS
all_reduce     the schedules of six all-reduces
collectives    the schedules of the collectives with one root, and of the halves of a ring
executor       execute: run a schedule on numbers: who ends up with what?
network        Network: all messages of a cluster, moved in the order of time by the link's rules
device         the places of a rank's device: compute, and the engines that copy
queues         Queues: the streams and communicators of a device: which items the next one follows
program        Program: what every rank does, as data: work, messages, collectives, on lanes; and
               what a host launches on its device
engine         play_program: the one engine, which plays any program event by event: Played
claimed        program_ns: what ranks say that they did, on a modelled machine: its time
posted         what is posted on a network, and waits: messages, parts in collectives
timing         time_of: run a schedule on links, event by event: a Trace
costs          cost, FORMULAS: what an algorithm costs in closed form, and where that is written;
               bus_bandwidth: NCCL tests' busbw, to compare operations and world sizes
operations     collective_ns: what a collective of torch.distributed costs, which takes one of them
folded         collectives of many equal ranks, of which the first few are played
rounds         ring_ends, butterfly_ends: an all_reduce of thousands of ranks, a round at a time
prices         price_of: what an all_reduce takes, by any algorithm on any links; Price
events         step_program: a step of all ranks as a program, with which `replay` must agree
pipeline       pipeline_plans, pipeline_time: schedules of a pipeline, as a program, and their time;
               bubbles, held: what they cost, of a recorded run too
buckets        Gradient, Bucket: what is reduced; assign_buckets by the rule of torch's DDP
step           Step: what a rank computes in a training step; `Step.of_trace` from a recording
streams        buckets in turns through several process groups, which share the links
data_parallel  replay, Replay: such a step on any number of ranks, over any link; sweep over caps
shards         shard_program: parameters that are gathered before use, gradients scattered after
servers        parameter_server, Served: workers that pull and push, and servers that answer
mesh_plans     MeshPlan, MeshModel, MeshMachine: a model on a mesh of replicas, stages and slices
mesh_time      plan_time: a training step by such a plan: a Trace
models         ModelTable: layers of ResNet, BERT and GPT, with parameters and FLOPs
noise          noisy_steps: such a step with ranks that are late, each step another one
scaling        scaling, Scaled: such a step on 1, 2, 4, … ranks, the batch growing or shared out
whatif         what_if: a recorded run with other buckets, another link, or a slow rank: a Trace;
               fit_link: the link on which recorded all_reduces took as long as they did
parallelism    StepCalls: the kinds of parallelism in a recorded step; `predict` refuses all but one
forecast       forecast, Forecast: a recorded run as a model of others, with its error

Link and Links, latency and bandwidth of one rank and of all, are those of `ddpkit.link`.
"""

from ddpkit.link import Link, Links
from ddpkit.simulate.buckets import Bucket, Gradient, assign_buckets
from ddpkit.simulate.claimed import program_ns
from ddpkit.simulate.costs import FORMULAS, Formula, bus_bandwidth, cost
from ddpkit.simulate.data_parallel import AllReduce, Replay, replay, sweep
from ddpkit.simulate.engine import Played, play_program
from ddpkit.simulate.events import step_ends, step_program
from ddpkit.simulate.executor import execute
from ddpkit.simulate.forecast import Forecast, forecast
from ddpkit.simulate.mesh_plans import MeshMachine, MeshModel, MeshPlan, mesh_groups
from ddpkit.simulate.mesh_time import plan_time
from ddpkit.simulate.models import ModelLayer, ModelTable, bert, gpt, resnet
from ddpkit.simulate.noise import noisy_steps
from ddpkit.simulate.operations import collective_ns
from ddpkit.simulate.pipeline import (
    PIPELINES,
    Op,
    bubbles,
    held,
    pipeline_plans,
    pipeline_time,
    waits_for_ever,
)
from ddpkit.simulate.plans import ALGORITHMS, ALL_REDUCE, COLLECTIVES, schedule
from ddpkit.simulate.prices import all_reduce_ns, price_of
from ddpkit.simulate.program import (
    After,
    CollectivePart,
    Launch,
    MessageEnd,
    Program,
    Resumed,
    Work,
)
from ddpkit.simulate.queues import Queues
from ddpkit.simulate.rounds import butterfly_ends, ring_ends
from ddpkit.simulate.scaling import Scaled, scaling
from ddpkit.simulate.schedules import Recv, RecvReduce, Schedule, Send
from ddpkit.simulate.servers import Served, parameter_server
from ddpkit.simulate.shards import ShardUnit, shard_program
from ddpkit.simulate.step import Step
from ddpkit.simulate.timing import time_of
from ddpkit.simulate.whatif import fit_link, what_if

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
