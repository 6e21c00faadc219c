"""Wrong answers to lab 14."""

import itertools

import torch

from ddpkit.simulate import MeshPlan, plan_time
from tests.labs.answers import edits, wrong

# fmt: off
LINES = "mesh.movedim(axis, -1).reshape(-1, shape[name])"
ALL = "torch.arange(torch.tensor(list(shape.values())).prod())"
edits(
    ("groups_of", "own_group_only", f"{LINES}.tolist()", f"{LINES}[0].tolist()",
     "own group only"),
    ("groups_of", "by_number", "        name: mesh", "        axis: mesh", "names"),
    ("groups_of", "from_1", "name: mesh.", "name: (mesh + 1).", "no such rank"),
    ("groups_of", "first_fastest", ".reshape(*shape.values())",
     ".reshape(*reversed(shape.values())).permute(*reversed(range(len(shape))))",
     "first as neighbours"),
    ("groups_of", "same_index", LINES, "mesh.movedim(axis, 0).reshape(shape[name], -1)", "outside"),
    ("groups_of", "cut_in_pieces", LINES, "mesh.reshape(-1, shape[name])",
     "neighbours everywhere"),
    ("groups_of", "backwards", LINES, f"{LINES}.flip(-1)", "order"),
    ("groups_of", "transposed_wrongly", LINES, "mesh.movedim(0, -1).reshape(-1, shape[name])",
     "other"),
    ("groups_of", "three_dimensions", ".tolist()\n", ".tolist()[: None if len(shape) < 4 else 1]\n",
     "left out"),
    ("groups_of", "only_the_first_half", ".tolist()\n", ".tolist()[:1]\n", "left out"),
)


@wrong("groups_of", "overlap")
def windows(shape):
    """Return all stretches of neighbouring ranks, one beginning at each rank."""
    ranks = list(range(torch.tensor(list(shape.values())).prod()))
    return {
        name: [(ranks + ranks)[first : first + size] for first in ranks]
        for name, size in shape.items()
    }


@wrong("groups_of", "other")
def two_dimensions(shape):
    """Return rows and columns, as if there were two dimensions."""
    sizes = list(shape.values())
    mesh = torch.arange(torch.tensor(sizes).prod()).reshape(sizes[0], -1)
    groups = {name: mesh.reshape(-1, size).tolist() for name, size in shape.items()}
    *_, last = shape
    return groups | {last: mesh.t().reshape(-1, sizes[-1]).tolist()}


BUBBLE = "turns = plan.micro + plan.stages - 1"
ADDED = "added = machine.all_reduce(travels, plan.slices, 1)"
TRIP = "step += trip * turns / plan.stages"
REDUCED = "reduced = machine.all_reduce(4 * weights, plan.replicas, plan.stages * plan.slices)"
WAITS = "max(reduced, blocks * reduced - (blocks - 1) * backward)"
SHARDED = "        reduced /= 2\n        step += blocks * reduced\n"
edits(
    ("step_cost", "backward_as_forward", "4 * rows * weights", "2 * rows * weights", "as forward"),
    ("step_cost", "no_backward", "(forward + backward)", "forward", "forward alone"),
    ("step_cost", "multiplications_alone", {"2 * rows * weights": "rows * weights",
     "4 * rows * weights": "2 * rows * weights"}, "half"),
    ("step_cost", "milliseconds", "return step + ", "return 1000 * step + 1000 * ",
     "milliseconds"),
    ("step_cost", "no_turns", BUBBLE, "turns = plan.stages", "one micro-batch"),
    ("step_cost", "whole_batches", "model.batch // (plan.replicas * plan.micro)",
     "model.batch // plan.replicas", "a whole batch each"),
    ("step_cost", "three_matrices", "weights = 2 *", "weights = 3 *", "other"),
    ("step_cost", "batch_for_everybody", "model.batch // (plan.replicas * plan.micro)",
     "model.batch // plan.micro", "batch not shared"),
    ("step_cost", "whole_layers", "model.hidden // plan.slices", "model.hidden",
     "slices not shared"),
    ("step_cost", "shared_by_stages_too", "model.hidden // plan.slices",
     "model.hidden // plan.slices // plan.replicas", "other"),
    ("step_cost", "no_bubble", BUBBLE, "turns = plan.micro", "no bubble"),
    ("step_cost", "all_stages_fill", BUBBLE, "turns = plan.micro + plan.stages", "one turn more"),
    ("step_cost", "all_blocks", "blocks = model.blocks // plan.stages", "blocks = model.blocks",
     "all blocks"),
    ("step_cost", "two_bubbles", BUBBLE, "turns = plan.micro + 2 * (plan.stages - 1)", "other"),
    ("step_cost", "no_sums", ADDED, "added = 0.0", "no sums"),
    ("step_cost", "sums_once_a_step", ADDED, f"{ADDED} / plan.micro", "once a step"),
    ("step_cost", "sums_once_a_stage", ADDED, f"{ADDED} / blocks", "once a micro-batch"),
    ("step_cost", "sums_forward", "4 * rows * weights / machine.flops + added",
     "4 * rows * weights / machine.flops", "half of the sums"),
    ("step_cost", "sums_in_two_bytes", ADDED, "added = machine.all_reduce(travels // 2, "
     "plan.slices, 1)", "half of the sums"),
    ("step_cost", "sums_of_micro_turns", "step = turns * blocks * (forward + backward)",
     "step = turns * blocks * (forward + backward - 2 * added)\n"
     "    step += plan.micro * blocks * 2 * added", "sums of micro turns"),
    ("step_cost", "sums_of_each_stage", "step = turns * blocks * (forward + backward)",
     "step = turns * blocks * (forward + backward + (plan.stages - 1) * 2 * added)", "other"),
    ("step_cost", "sums_twice_backward", "4 * rows * weights / machine.flops + added",
     "4 * rows * weights / machine.flops + 2 * added", "other"),
    ("step_cost", "messages_in_two_bytes", "machine.message(travels, plan",
     "machine.message(travels // 2, plan", "half of the messages"),
    ("step_cost", "hidden_messages", "machine.message(travels, plan",
     "machine.message(4 * rows * model.hidden, plan", "other"),
    ("step_cost", "parameters_of_one_block", "step += blocks * reduced", "step += reduced",
     "one gather"),
    ("step_cost", "always_inside", ADDED,
     "added = machine.all_reduce(travels / plan.slices * 2, 2, 1) * (plan.slices - 1)", "inside"),
    ("step_cost", "hidden_sums", "travels = 4 * rows * model.width",
     "travels = 4 * rows * model.hidden", "other"),
    ("step_cost", "no_messages", TRIP, "", "nothing travels"),
    ("step_cost", "one_way", "trip = 2 * (plan.stages - 1)", "trip = (plan.stages - 1)",
     "half of the messages"),
    ("step_cost", "four_boundaries", "trip = 2 * (plan.stages - 1)", "trip = 2 * plan.stages",
     "a message more"),
    ("step_cost", "one_after_the_other", TRIP, "step += trip * plan.micro",
     "one after the other"),
    ("step_cost", "one_round_trip", TRIP, "step += trip", "one round trip"),
    ("step_cost", "messages_each_stage", TRIP, "step += trip * turns", "other"),
    ("step_cost", "next_stage_beside", "(travels, plan.stages, plan.slices)",
     "(travels, plan.stages, 1)", "stages not apart"),
    ("step_cost", "slices_of_messages", "(travels, plan.stages, plan.slices)",
     "(travels / plan.slices, plan.stages, plan.slices)", "a part of each row"),
    ("step_cost", "no_gradients", f"return step + {WAITS}", "return step", "no gradients"),
    ("step_cost", "neighbours", REDUCED,
     "reduced = machine.all_reduce(4 * weights, plan.replicas, 1)", "no gradients"),
    ("step_cost", "whole_gradients", f"return step + {WAITS}",
     f"return step + plan.stages * {WAITS}", "whole gradients"),
    ("step_cost", "every_micro_batch", f"return step + {WAITS}",
     f"return step + plan.micro * {WAITS}", "each micro-batch"),
    ("step_cost", "half_a_gradient", REDUCED, REDUCED.replace("4 *", "2 *"), "other"),
    ("step_cost", "never_hidden", WAITS, "blocks * reduced", "never hidden"),
    ("step_cost", "always_hidden", WAITS, "max(0, blocks * reduced - 9 * blocks * backward)",
     "always free"),
    ("step_cost", "free_if_it_computes", WAITS,
     "(0 if backward > 1e-9 else blocks * reduced)", "always free"),
    ("step_cost", "hidden_by_all", WAITS, "max(reduced, blocks * (reduced - backward))",
     "all of backward"),
    ("step_cost", "all_micro_batches_hide", WAITS,
     "max(reduced, blocks * reduced - (blocks - 1) * plan.micro * backward)",
     "all micro-batches"),
    ("step_cost", "without_the_max", WAITS, "blocks * reduced - (blocks - 1) * backward",
     "less than nothing"),
    ("step_cost", "numbers_not_bytes", REDUCED, REDUCED.replace("4 * ", ""), "numbers, not bytes"),
    ("step_cost", "half_of_backward_hides", WAITS,
     "max(reduced, blocks * reduced - (blocks - 1) * backward / 2)", "other"),
    ("step_cost", "shards_are_free", f"    if plan.shards:\n{SHARDED}", "", "as without"),
    ("step_cost", "shards_twice", SHARDED, "        step += blocks * reduced\n", "twice"),
    ("step_cost", "shards_never_hidden", SHARDED,
     "        return step + blocks * reduced\n", "all exposed"),
    ("step_cost", "shards_do_not_gather", SHARDED, "        reduced /= 2\n", "other"),
    ("step_cost", "all_have_shards", "if plan.shards:", "if True:", "always shards"),
    ("step_cost", "thirds", "reduced /= 2", "reduced /= 3", "less than both halves"),
    ("step_cost", "sums_in_numbers", "travels = 4 * rows", "travels = rows",
     "a number, not bytes"),
    ("step_cost", "gradients_of_all_slices", REDUCED,
     REDUCED.replace("4 * weights", "4 * weights * plan.slices"), "of all slices"),
    ("step_cost", "last_gradient_hidden", WAITS,
     "max(0, blocks * reduced - (blocks - 1) * backward)", "never the last"),
    ("step_cost", "slices_in_line", "plan.stages * plan.slices)", "plan.stages)", "not apart"),
)

HELD = "held = min(plan.stages, plan.micro)"
ADAM = "8 * mine // (plan.replicas if plan.shards else 1)"
ROWS = "model.batch // (plan.replicas * plan.micro)"
edits(
    ("plan_bytes", "all_held", HELD, "held = plan.micro", "all held"),
    ("plan_bytes", "one_held", HELD, "held = 1", "one held"),
    ("plan_bytes", "over_all_ranks", "(plan.replicas if", "(plan.ranks if", "over all ranks"),
    ("plan_bytes", "no_shards", ADAM, "8 * mine", "shards ignored"),
    ("plan_bytes", "all_is_shared", "8 * mine + 8 * mine", "16 * mine", "all is shared"),
    ("plan_bytes", "batch_of_a_replica", ROWS, "model.batch // plan.replicas", "whole batch"),
    ("plan_bytes", "everybodys_rows", ROWS, "model.batch // plan.micro", "other replicas' rows"),
    ("plan_bytes", "state_alone", " + held * (model.blocks // plan.stages) * rows * kept * 4", "",
     "no activations"),
    ("plan_bytes", "four_bytes", f"8 * mine + {ADAM}", "4 * mine", "parameters alone"),
    ("plan_bytes", "without_adam", f" + {ADAM}", "", "no optimizer"),
    ("plan_bytes", "whole_matrices", "(plan.stages * plan.slices)", "plan.stages",
     "slices not counted"),
    ("plan_bytes", "hidden_whole", "model.hidden // plan.slices", "model.hidden", "hidden whole"),
    ("plan_bytes", "all_blocks", "(model.blocks // plan.stages)", "model.blocks", "all blocks"),
    ("plan_bytes", "as_many_as_stages", HELD, "held = plan.stages", "more than there are"),
    ("plan_bytes", "shards_at_any_rate", ADAM, "8 * mine // plan.replicas", "always shards"),
    ("plan_bytes", "replicas_share", "(plan.stages * plan.slices)", "plan.ranks",
     "replicas share all"),
    ("plan_bytes", "inputs_in_slices", "kept = model.width + model.hidden // plan.slices",
     "kept = (model.width + model.hidden) // plan.slices", "inputs in slices"),
    ("plan_bytes", "one_stage_less", HELD, "held = min(plan.stages - 1, plan.micro)", "other"),
    ("plan_bytes", "the_larger", HELD, "held = max(plan.stages, plan.micro)", "other"),
    ("plan_bytes", "numbers_not_bytes", "* kept * 4", "* kept", "other"),
    ("plan_bytes", "adam_of_12", "8 * mine + 8 * mine //", "4 * mine + 12 * mine //", "other"),
    ("plan_bytes", "outputs_too", "kept = model.width + ", "kept = 2 * model.width + ", "other"),
    ("plan_bytes", "no_inputs", "kept = model.width + ", "kept = ", "other"),
)

PRICED = "return min(fitting, key=lambda plan: cost(plan, model, machine))"
FITS = " and size(plan, model) <= machine.memory"
edits(
    ("best_plan", "memory_ignored", FITS, "", "memory ignored"),
    ("best_plan", "dearest", PRICED, PRICED.replace("min(", "max("), "the dearest"),
    ("best_plan", "one_micro_batch", "divisors(model.batch)):", "[1]):", "one micro-batch"),
    ("best_plan", "first_that_fits",
     {PRICED: "return fitting[0]", "in product(divisors(ranks), divisors(ranks),":
      "in product(divisors(ranks)[::-1], divisors(ranks)[::-1],"}, "first that fits"),
    ("best_plan", "fewest_bytes", PRICED, "return min(fitting, key=lambda plan: size(plan, model))",
     "fewest bytes"),
    ("best_plan", "no_mixtures", FITS,
     f"{FITS} and max(plan.replicas, plan.stages, plan.slices) == ranks", "one kind alone"),
    ("best_plan", "no_shards", "(False, True) if replicas > 1 else (False,)", "(False,)",
     "no shards"),
    ("best_plan", "rows_left_over", "model.batch % (replicas * micro)", "model.batch % replicas",
     "rows left over"),
    ("best_plan", "uneven_slices", "model.hidden % plan.slices == 0 and ", "", "uneven slices"),
    ("best_plan", "floats", "ranks // (replicas * stages)", "ranks / (replicas * stages)",
     "no ints"),
    ("best_plan", "every_stage", " or model.blocks % stages", "", "does not divide"),
    ("best_plan", "all_ranks_thrice",
     "plan = MeshPlan(replicas, stages, ranks // (replicas * stages), micro, shards)",
     "plan = MeshPlan(replicas, stages, ranks, micro, shards)", "other ranks"),
    ("best_plan", "idle_ranks",
     {"if ranks % (replicas * stages) or": "if replicas * stages > ranks or",
      "for shards in (False, True) if replicas > 1 else (False,):":
      "for slices, shards in product(divisors(ranks), (False, True)[: 1 + (replicas > 1)]):",
      "stages, ranks // (replicas * stages), micro": "stages, slices, micro",
      "if model.hidden %": "if plan.ranks <= ranks and model.hidden %"}, "other ranks"),
    ("best_plan", "a_tuple", PRICED,
     "best = min(fitting, key=lambda plan: cost(plan, model, machine))\n"
     "    return best.replicas, best.stages, best.slices, best.micro, best.shards", "no plan"),
    ("best_plan", "half_of_the_memory", "<= machine.memory", "<= machine.memory / 3", "no plan"),
    ("best_plan", "a_little_more_memory", "<= machine.memory", "<= 1.3 * machine.memory",
     "does not fit"),
    ("best_plan", "less_than_all", "<= machine.memory", "< machine.memory", "not to the brim"),
    ("best_plan", "shards_only", "(False, True) if replicas > 1 else (False,)", "(replicas > 1,)",
     "always shards"),
    ("best_plan", "powers_of_two", "divisors(model.batch)):", "[1, 2, 4, 8, 16, 32]):",
     "powers of two"),
    ("best_plan", "nothing", "    if not fitting:\n        raise ValueError(f\"no plan of {ranks} "
     "ranks fits into {machine.memory} bytes\")", "    if not fitting:\n        return None",
     "must raise"),
    ("best_plan", "another_error", "raise ValueError(", "raise RuntimeError(", "another error"),
    ("best_plan", "few_micro_batches", "divisors(model.batch)):", "divisors(ranks)):", "no plan"),
    ("best_plan", "cost_of_the_best", PRICED,
     "return min(cost(plan, model, machine) for plan in fitting)", "no plan"),
    ("best_plan", "some_plan", "        raise ValueError(f\"no plan of {ranks} ranks fits into "
     "{machine.memory} bytes\")", "        return MeshPlan()", "must raise"),
    ("best_plan", "dearest_but_one", PRICED,
     "return sorted(fitting, key=lambda plan: cost(plan, model, machine))[len(fitting) > 1]",
     "other"),
)
# fmt: on


@wrong("groups_of", "other")
def names_in_reverse(shape):
    mesh = torch.arange(torch.tensor(list(shape.values())).prod()).reshape(*shape.values())
    axes = reversed(range(len(shape)))
    return {
        name: mesh.movedim(axis, -1).reshape(-1, shape[name]).tolist()
        for name, axis in zip(shape, axes, strict=True)
    }


@wrong("groups_of", "other")
def as_far_apart_as_there_are_groups(shape):
    ranks = range(int(torch.tensor(list(shape.values())).prod()))
    return {
        name: [list(ranks[at :: len(ranks) // size]) for at in range(len(ranks) // size)]
        for name, size in shape.items()
    }


@wrong("groups_of", "names")
def without_groups_of_one(shape):
    mesh = torch.arange(torch.tensor(list(shape.values())).prod()).reshape(*shape.values())
    return {
        name: mesh.movedim(axis, -1).reshape(-1, shape[name]).tolist()
        for axis, name in enumerate(shape)
        if shape[name] > 1
    }


@wrong("step_cost", "not your own")
def the_simulator(plan, model, machine):
    return plan_time(plan, model, machine).end_ns / 1e9


@wrong("best_plan", "other")
def one_dimension_after_the_other(model, machine, ranks, cost, size):
    """Choose the best replicas first, then stages for these, then micro-batches."""
    sizes = [n for n in range(1, ranks + 1) if ranks % n == 0]

    def least(plans):
        good = []
        for plan in plans:
            try:
                model.check(plan)
            except ValueError:
                continue
            if size(plan, model) <= machine.memory:
                good.append(plan)
        if not good:
            raise ValueError("nothing fits")
        return min(good, key=lambda plan: cost(plan, model, machine))

    every = [
        MeshPlan(r, s, ranks // (r * s), micro, shards)
        for r, s in itertools.product(sizes, sizes)
        if ranks % (r * s) == 0
        for micro in range(1, model.batch + 1)
        for shards in (False, True)[: 1 + (r > 1)]
    ]
    one = least(every)
    micro = min(plan.micro for plan in every if plan.stages == one.stages)
    try:
        return least([plan for plan in every if plan.micro in (micro, 2, 4)])
    except ValueError:
        return one
