"""Wrong answers to lab 19: steps between exchanges, the outer optimizer, the stream."""

import torch
import torch.distributed as dist

from tests.labs.answers import edits, wrong
from tests.labs.lab19.right_answers import SumsTheParameters, TorchsSGD, in_a_line

# fmt: off

# steps_between

ROUNDS, PART = "2 * (n - 1) *", "nbytes / n * 8 / gbit / 1e6"
edits(
    ("steps_between", "one_latency", f"{ROUNDS} (latency_ms + {PART})",
     f"latency_ms + 2 * (n - 1) * {PART}", "one latency"),
    ("steps_between", "half_a_ring", ROUNDS, "(n - 1) *", "half a ring"),
    ("steps_between", "whole_line", "nbytes / n *", "nbytes *", "whole line"),
    ("steps_between", "n_rounds", ROUNDS, "2 * n *", "n rounds"),
    ("steps_between", "share_of_the_steps", " * (1 - share) / (share", " / (share",
     "share of time"),
    ("steps_between", "share_of_a_step", "(share * step_ms)", "step_ms", "share of time"),
    ("steps_between", "rounded_down", "math.ceil", "math.floor", "a step short"),
    ("steps_between", "one_more", "math.ceil(", "1 + math.floor(", "a step too many"),
    ("steps_between", "zero", "max(1, ", "max(0, ", "zero"),
    ("steps_between", "bytes_for_bits", "* 8 / gbit", "/ gbit", "bits"),
    ("steps_between", "a_float", "math.ceil(exchange_ms * (1 - share) / (share * step_ms))",
     "exchange_ms * (1 - share) / (share * step_ms)", "no whole number"),
    ("steps_between", "seconds", "1e6", "1e9", "other steps"),
    ("steps_between", "two_steps_more", "max(1, ", "max(1, 2 + ", "other steps"),
)

# Outer

MEAN = "self.start - line(self.parameters)"
SUM = "self.mean / dist.get_world_size()"
STEP = "self.lr * (mean + self.momentum * self.velocity)"
PUT = "put(keep * line(self.parameters) + (1 - keep) * self.start, self.parameters)"
BOTH = f"self.mean = {MEAN}\n        self.work = dist.all_reduce(self.mean, async_op=True)"
edits(
    ("Outer", "uphill", MEAN, "line(self.parameters) - self.start", "uphill"),
    ("Outer", "not_divided", SUM, "self.mean", "not divided"),
    ("Outer", "heavy_ball", STEP, "self.lr * self.velocity", "heavy ball"),
    ("Outer", "damped", "self.momentum * self.velocity + mean",
     "self.momentum * self.velocity + (1 - self.momentum) * mean", "damped"),
    ("Outer", "velocity_forgets", "self.velocity = self.momentum * self.velocity + mean",
     "self.velocity = mean", "no velocity"),
    ("Outer", "plain_sgd", STEP, "self.lr * mean", "no velocity"),
    ("Outer", "velocity_of_before",
     {"self.velocity = self.momentum * self.velocity + mean\n":
      "old = self.momentum * self.velocity\n        self.velocity = old + mean\n",
      STEP: "self.lr * (mean + self.momentum * old)"}, "old velocity"),
    ("Outer", "no_lr", STEP, "(mean + self.momentum * self.velocity)", "no lr"),
    ("Outer", "first_start",
     {"self.start = self.start - ": "start = self.start - ",
      "(1 - keep) * self.start": "(1 - keep) * start"},
     "first start"),
    ("Outer", "not_put_back", PUT, "pass", "not put back"),
    ("Outer", "one_memory", PUT,
     "torch.nn.utils.vector_to_parameters(self.start, self.parameters)", "one memory"),
    ("Outer", "keep_ignored", "keep * line(self.parameters) + (1 - keep) * self.start",
     "self.start", "keep"),
    ("Outer", "keep_turned", "keep * line(self.parameters) + (1 - keep) * self.start",
     "(1 - keep) * line(self.parameters) + keep * self.start", "not put back"),
    ("Outer", "waits_at_once", "async_op=True)",
     "async_op=True)\n        self.work.wait()", "no overlap"),
    ("Outer", "exchanges_in_end",
     {"self.work = dist.all_reduce(self.mean, async_op=True)": "pass",
      "self.work.wait()": "dist.all_reduce(self.mean)"}, "no overlap"),
    ("Outer", "all_of_it_in_end",
     {BOTH: "pass", "self.work.wait()": f"self.mean = {MEAN}\n        dist.all_reduce(self.mean)"},
     "late difference"),
    ("Outer", "own_difference",
     {"self.work.wait()": f"mine = {MEAN}\n        self.work.wait()", SUM: "mine"}, "own step"),
    ("Outer", "forgets_the_work", "self.work = dist", "work = dist", "no such attribute"),
    ("Outer", "twice", "self.work.wait()",
     "self.work.wait()\n        dist.all_reduce(self.mean.clone())", "one by one"),
    ("Outer", "in_float64", {MEAN: f"({MEAN}).double()", SUM: f"({SUM}).float()"}, "more bytes"),
    ("Outer", "step_without_a_mean",
     {"self.velocity = self.momentum * self.velocity + mean\n":
      "mean = getattr(self, 'mean', 0 * mean) / dist.get_world_size()\n"
      "        self.velocity = self.momentum * self.velocity + mean\n"}, "step"),
    ("Outer", "no_step_of_mean", "self.velocity = self.momentum * self.velocity + mean",
     "self.velocity = self.momentum * self.velocity + mean * 1.1", "other step"),
)
edits(
    ("Outer", "averages", "self.step(self.start - self.total / dist.get_world_size(), keep)",
     "self.start = self.total / dist.get_world_size()\n"
     "        parts = self.start.split([p.numel() for p in self.parameters])\n"
     "        for p, part in zip(self.parameters, parts, strict=True):\n"
     "            p.data.copy_(part.view_as(p))", "no outer step"),
    of=SumsTheParameters,
)
# fmt: on


@wrong("Outer", "one by one")
class EachParameter(TorchsSGD):
    def begin(self):
        self.mean = (self.start.detach() - in_a_line(self.parameters)) / self.n
        parts = self.mean.split([p.numel() for p in self.parameters])
        self.works = [dist.all_reduce(part, async_op=True) for part in parts]

    def end(self, keep=0.0):
        for work in self.works:
            work.wait()
        self.step(self.mean, keep)


@wrong("Outer", "ranks differ")
class FromItsOwnParameters(SumsTheParameters):
    """An outer optimizer that moves the rank's own parameters: alike only up to rounding."""

    def step(self, mean, keep=0.0):
        own = in_a_line(self.parameters)
        super().step(mean, keep)
        with torch.no_grad():
            parts = (own + (in_a_line(self.parameters) - own)).split(
                [p.numel() for p in self.parameters]
            )
            for p, part in zip(self.parameters, parts, strict=True):
                p.copy_(part.view_as(p))


@wrong("Outer", "start")
class ShowsTheParameters(TorchsSGD):
    """An outer optimizer with a `start` that stays the first start; the real one is hidden."""

    def __init__(self, parameters, lr=0.7, momentum=0.9):
        super().__init__(parameters, lr, momentum)
        self.real, self.first = self.start, self.start.detach().clone()
        self.start = self.first

    def begin(self):
        self.start = self.real
        super().begin()

    def step(self, mean, keep=0.0):
        self.start = self.real
        super().step(mean, keep)
        self.start = self.first


# fmt: off

# stream

FIRST = "(k + 1) * every // fragments for k"
edits(
    ("stream", "all_at_once", FIRST, "every for k", "all at once"),
    ("stream", "from_0", FIRST, "k * every // fragments for k", "first time"),
    ("stream", "a_step_late", FIRST, "(k + 1) * every // fragments + 1 for k", "first time"),
    ("stream", "never_again", "(t - f) % every == 0", "t == f", "first time"),
    ("stream", "before_it_has_begun", "t >= f and ", "", "ends first"),
    ("stream", "no_delay", "due(step - delay)", "due(step)", "delay"),
    ("stream", "ends_before", "due(step - delay)", "due(step + delay)", "ends first"),
    ("stream", "a_step_early", "due(step - delay)", "due(step - delay + 1)", "delay"),
    ("stream", "a_step_later", "due(step - delay)", "due(step - delay - 1)", "delay"),
    ("stream", "exchanged", "due(step), due(step - delay)", "due(step - delay), due(step)",
     "exchanged"),
    ("stream", "reversed", FIRST, "(fragments - k) * every // fragments for k", "other fragment"),
    ("stream", "numbers", "due(step), due(step - delay)",
     "len(due(step)), len(due(step - delay))", "no lists"),
)
# fmt: on


@wrong("stream", "drifts")
def by_turns(step, fragments, every, delay):
    turn = every // fragments

    def due(t):
        return [(t // turn - 1) % fragments] if t > 0 and t % turn == 0 else []

    return due(step), due(step - delay)
