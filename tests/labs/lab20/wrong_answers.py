"""Wrong answers to lab 20."""

from tests.labs.answers import edits, wrong
from tests.labs.lab20.right_answers import Plan, plans_of

# model_flops

RETURN = "return 3 * (shape.layers * block + head) + shape.layers * more[again]"
MORE = '"selective": sum(dense[1:-1:2]), "full": block - dense[-1]'
# fmt: off
edits(
    ("model_flops", "six_n_d", RETURN, "return 6 * shape.parameters * tokens", "6ND"),
    ("model_flops", "no_attention", "attention = 4 * tokens * length * shape.width",
     "attention = 0", "attention"),
    ("model_flops", "half_of_attention", "attention = 4 *", "attention = 2 *", "halved"),
    ("model_flops", "no_head", "* block + head)", "* block)", "head"),
    ("model_flops", "head_and_embedding", "* block + head)", "* block + 2 * head)", "head"),
    ("model_flops", "backward_once", "return 3 *", "return 2 *", "backward"),
    ("model_flops", "again_all_of_it", "block - dense[-1]", "block", "again"),
    ("model_flops", "again_without_attention", "block - dense[-1]", "sum(dense[:-1])", "again"),
    ("model_flops", "again_the_kept", "dense[1:-1:2]", "dense[0:-1:2]", "again"),
    ("model_flops", "again_by_shares",
     {MORE: '"selective": 0, "full": 0', "+ shape.layers * more[again]":
      "* {'none': 1, 'selective': 1.1, 'full': 4 / 3}[again]"}, "again"),
    ("model_flops", "multiply_adds",
     {"dense = [2 *": "dense = [1 *", "attention = 4": "attention = 2",
      "+ attention, 2 *": "+ attention, 1 *"}, "other count"),
    ("model_flops", "kilo", RETURN, RETURN.replace("return ", "return (") + ") // 1000",
     "other count"),
    ("model_flops", "as_text", RETURN, "return str(0)", "no number"),
)

# fits

LOSS = "held + 12 * tokens * shape.vocab"
KEPT = '{"none": inside, "selective": selected, "full": d}[again]'
edits(
    ("fits", "without_logits", LOSS, "held", "no logits"),
    ("fits", "logits_of_four_bytes", LOSS, LOSS.replace("12", "4"), "logits once"),
    ("fits", "logits_of_two_bytes", LOSS, LOSS.replace("12", "2"), "logits once"),
    ("fits", "logits_of_six_bytes", LOSS, LOSS.replace("12", "6"), "logits once"),
    ("fits", "logits_of_eight_bytes", LOSS, LOSS.replace("12", "8"), "logits once"),
    ("fits", "logits_of_ten_bytes", LOSS, LOSS.replace("12", "10"), "logits once"),
    ("fits", "all_on_each_rank", "return 12 * mine", "return 12 * shape.parameters", "not divided"),
    ("fits", "sixteen_bytes", "return 12 * mine", "return 16 * mine", "states"),
    ("fits", "fourteen_bytes", "return 12 * mine", "return 14 * mine", "states"),
    ("fits", "ten_bytes", "return 12 * mine", "return 10 * mine", "states"),
    ("fits", "eight_bytes", "return 12 * mine", "return 8 * mine", "states"),
    ("fits", "keeps_everything", KEPT, "inside", "again"),
    ("fits", "without_working_set", "    loss = held", "    working = 0\n    loss = held",
     "no working set"),
    ("fits", "smaller_working_set", "9 * shape.block", "4 * shape.block", "off"),
    ("fits", "without_the_ends", ", 4 * mine + working)", ")", "off"),
    ("fits", "without_the_root", "+ 2 * shape.root", "", "off"),
    ("fits", "in_gib", "return 12 * mine + 2 * shape.root + max(loss, held + working, "
     "4 * mine + working)", "return (12 * mine + 2 * shape.root + max(loss, held + working, "
     "4 * mine + working)) / 2**30", "off"),
    ("fits", "nothing", "return 12 * mine", "return 'much' or 12 * mine", "no number"),
)

# roof

START = "free = max(launched, free) + max(arithmetic, memory)"
edits(
    ("roof", "launch_and_work", START, "free += machine.launch + max(arithmetic, memory)", "added"),
    ("roof", "each_for_itself", START,
     "free += max(machine.launch, max(arithmetic, memory))", "each for itself"),
    ("roof", "without_launches", START, "free += max(arithmetic, memory)", "no launches"),
    ("roof", "arithmetic_and_memory", START, "free = max(launched, free) + arithmetic + memory",
     "both"),
    ("roof", "names_exchanged", '"arithmetic" if arithmetic >= memory else "memory"',
     '"memory" if arithmetic >= memory else "arithmetic"', "upside down"),
    ("roof", "shorter_than_a_launch", "launched > free",
     "machine.launch > max(arithmetic, memory)", "wrong limit"),
    ("roof", "first_launch_at_zero", "launched = number *", "launched = (number - 1) *",
     "other end"),
    ("roof", "the_end_before_the_last", "return limits, free",
     "return limits, free - max(arithmetic, memory) if limits else 0", "other end"),
    ("roof", "waits_at_the_same_moment", "launched > free", "launched >= free", "other end"),
    ("roof", "limits_of_some", "return limits, free", "return limits[:-1], free", "one name each"),
)

# hidden_from

BACKWARD = "(trip(2 * block) + trip(4 * block), 0, 4 * block / flops),"
ROUND = "each if each == math.inf else math.ceil(each)"
edits(
    ("hidden_from", "forward_alone", BACKWARD, "", "backward too"),
    ("hidden_from", "at_one_time", "trip(2 * block) + trip(4 * block), 0",
     "max(trip(2 * block), trip(4 * block)), 0", "backward too"),
    ("hidden_from", "gradients_of_two_bytes",  # the same number as with the forward alone
     {"+ trip(4 * block)": "+ trip(2 * block)", "2 * trip(4 * block)": "2 * trip(2 * block)"},
     "backward too"),
    ("hidden_from", "copies_of_two_bytes", "2 * trip(4 * block)", "2 * trip(2 * block)",
     "two bytes"),
    ("hidden_from", "one_trip", {"2 * trip(4 * block)": "trip(4 * block)",
     "2 * trip(0)": "trip(0)", "per_token = 2 *": "per_token = 1 *"}, "half a ring"),
    ("hidden_from", "without_latency", "latency + nbytes", "nbytes", "no latency"),
    ("hidden_from", "below_zero", "if work > more else math.inf", "", "never"),
    ("hidden_from", "fixed_messages", "per_token, block / n / flops", "0, block / n / flops",
     "never"),
    ("hidden_from", "tokens_of_one_half", "2 * trip(0), per_token, block / n",
     "trip(0), per_token, block / n", "halves"),
    ("hidden_from", "bytes_not_divided", "latency + nbytes / n /", "latency + nbytes /",
     "other number"),
    ("hidden_from", "two_flops_in_backward", BACKWARD, BACKWARD.replace("4 * block / f",
     "2 * block / f"), "other number"),
    ("hidden_from", "forward_and_backward_together",
     {BACKWARD: "", "(trip(2 * block), 0, 2 * block":
      "(2 * trip(2 * block) + trip(4 * block), 0, 6 * block"}, "other number"),
    ("hidden_from", "rounded_down", "math.ceil(each)", "math.floor(each)", "not rounded up"),
    ("hidden_from", "not_rounded", "math.ceil(each)", "each", "not rounded up"),
    ("hidden_from", "half_of_everything", ROUND, "math.inf if each == math.inf else each // 2",
     "other number"),
    ("hidden_from", "as_text", "return max(" + ROUND + " for each in tokens)",
     "return str(tokens)", "no number"),
)

# read_profile

edits(
    ("read_profile", "whole_calls",
     "moving = subtract([(o.ready_ns, o.end_ns) for o in ops], busy)",
     "moving = subtract(asked, busy)", "waiting is not moving"),
    ("read_profile", "all_idle_time", "for start, end in idle if end in late",
     "for start, end in idle", "idle"),
    ("read_profile", "without_bubbles", '("straggler", True), ("bubble", False)',
     '("straggler", True),', "who is waited for"),
    ("read_profile", "bubbles_are_stragglers", "if o.is_collective == collective",
     'if name == "straggler"', "who is waited for"),
    ("read_profile", "all_of_memory", 'max(0, 1 - s.args["flops"] / s.args["bytes"] / ridge)',
     's.args["flops"] / s.args["bytes"] < ridge', "all of it"),
    ("read_profile", "hidden_messages", "for o in ops], busy)", "for o in ops], [])",
     "hidden too"),
    ("read_profile", "sums_of_ranks", "most |= ", "most += ", "of one rank"),
    ("read_profile", "one_by_one", "total(subtract(posted, busy + moving))",
     "sum(total(subtract([each], busy + moving)) for each in posted)", "other limit"),
    ("read_profile", "rank_0_alone", "for rank in trace.ranks:", "for rank in [0]:",
     "other limit"),
    ("read_profile", "the_whole_step", "return most.most_common(1)[0]",
     "return most.most_common(1)[0][0], trace.window_of(0)[1] - trace.window_of(0)[0]",
     "other limit"),
    ("read_profile", "milliseconds", "return most.most_common(1)[0]",
     "name, ns = most.most_common(1)[0]\n    return name, ns / 1e6", "other limit"),
    ("read_profile", "a_name_for_a_number", "return most.most_common(1)[0]",
     "return most.most_common(1)[0][0], 'much'", "a name and a number"),
)

# choose

FITS = " and size(plan) <= memory"
edits(
    ("choose", "memory_ignored", FITS, "", "does not fit"),
    ("choose", "below_the_memory", FITS, " and size(plan) < memory", "slower"),
    ("choose", "key_heads_ignored", " and shape.kv_heads % slices == 0", "", "does not divide"),
    ("choose", "layers_ignored", "divisors(shape.layers)", "range(1, shape.layers + 1)",
     "does not divide"),
    ("choose", "hosts_ignored", "divisors(host)", "range(1, 65)", "does not divide"),
    ("choose", "slices_up_to_a_host", "divisors(host)", "range(1, host + 1)", "does not divide"),
    ("choose", "batch_ignored", "batch % (plan.replicas * micro) == 0 and ", "",
     "does not divide"),
    ("choose", "no_stages", "divisors(shape.layers)", "[1]", "slower"),
    ("choose", "nothing_again", "divisors(host), AGAIN", "divisors(host), AGAIN[:1]", "slower"),
    ("choose", "micro_batches_of_one", "AGAIN, divisors(batch)", "AGAIN, [1]", "slower"),
    ("choose", "one_plan_for_both", "cheapest = min(found, key=lambda each: (each[0] * each[1], "
     "each[0]))", "cheapest = fastest", "more expensive"),
    ("choose", "fewest_gpus", "(each[0] * each[1], each[0])", "(each[1], each[0])",
     "more expensive"),
    ("choose", "price_alone", "(each[0] * each[1], each[0])", "each[0] * each[1]",
     "slower of equals"),
    ("choose", "fewest_of_equals", "(each[0] * each[1], each[0])", "(each[0] * each[1], each[1])",
     "slower of equals"),
    ("choose", "seconds_for_all", "if divides and batch",
     "if divides and seconds(plan) > 0 and batch", "asks too many"),
    ("choose", "none", 'raise ValueError(f"no plan fits into {memory} bytes")',
     "return None", "nothing fits"),
    ("choose", "always_gives_up", "    if not found:\n", "    if True:\n", "gave up"),
    ("choose", "one_plan", "return fastest[2], cheapest[2]", "return [fastest[2]]", "two plans"),
)
# fmt: on


@wrong("choose", "does not divide")
def hosts_and_layers_ignored(shape, batch, gpus, host, memory, seconds, size):
    found = [Plan(n // 5, 5, 1, "full", 1) for n in (10,)]
    return found[0], found[0]


@wrong("choose", "slower")
def the_first_that_fits(shape, batch, gpus, host, memory, seconds, size):
    fit = [plan for plan in plans_of(shape, batch, gpus, host) if size(plan) <= memory]
    if not fit:
        raise ValueError("none")
    return fit[0], fit[0]
