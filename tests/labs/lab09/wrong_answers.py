"""Wrong answers to lab 09."""

import math

import numpy as np
import torch

from tests.labs.answers import edits, wrong
from tests.labs.lab09.right_answers import bucketed

START = "max(free, compute.forward + at)"
END = "return free + compute.after"
SOLVED = "rows = torch.tensor(features, dtype=torch.float64) / t[:, None]"
ONES = "torch.ones_like(t)[:, None]"
STEPS = "least_steps * (1 + noise / (n * b))"
SURVIVED = "hours / interval * (1 / danger + restart) * math.expm1(danger * stretch)"
FACTORS = "(1 - a @ b / (2 * a @ a)) * a + (1 - a @ b / (2 * b @ b)) * b"

# fmt: off
edits(
    ("step_time", "without_forward", "compute.forward + at", "at", "no forward"),
    ("step_time", "decimal", "cap * 2**20", "cap * 10**6", "decimal"),
    ("step_time", "no_rest", " or i == len(compute.sizes) - 1", "", "no rest"),
    ("step_time", "no_queue_at_all",
     {"free, filled = 0.0, 0\n": "free, filled, ends = 0.0, 0, []\n", START: "compute.forward + at",
      "            filled = 0\n": "            filled = 0\n            ends.append(free)\n",
      END: "return max(ends) + compute.after"}, "no queue"),
    ("step_time", "without_after", END, "return free", "no after"),
    ("step_time", "after_beside",
     END, "return max(free, compute.forward + at + compute.after)", "no after"),
    ("step_time", "in_ms", END, "return 1000 * (free + compute.after)", "milliseconds"),
    ("step_time", "over_the_cap", "filled >=", "filled >", "past the cap"),
    ("step_time", "after_twice", END, "return free + 2 * compute.after", "other"),
    ("step_time", "waits_for_backward", START, "max(free, compute.forward + compute.ready[-1])",
     "a sum"),

    ("fit", "absolute_errors", {SOLVED: SOLVED.replace(" / t[:, None]", ""), ONES: "t[:, None]"},
     "absolute"),
    ("fit", "times_the_seconds", {SOLVED: SOLVED.replace("/ t", "* t"), ONES: "t[:, None] ** 2"},
     "upside down"),
    ("fit", "by_the_root", {SOLVED: SOLVED.replace("/ t[:, None]", "/ t[:, None].sqrt()"),
                            ONES: "t[:, None].sqrt()"}, "half way"),
    ("fit", "divides_in_place", SOLVED,
     "for i, row in enumerate(features):\n        features[i] = [x / seconds[i] for x in row]\n"
     "    rows = torch.tensor(features, dtype=torch.float64)", "changed"),
    ("fit", "seconds_in_ms", "t = torch", "seconds[:] = [1000 * s for s in seconds]\n"
     "    t = 1e-3 * torch", "changed"),
    ("fit", "with_a_constant",
     "torch.tensor(features,", "torch.tensor([[*f, 1.0] for f in features],", "a constant"),
    ("fit", "a_constant_in_front",
     "torch.tensor(features,", "torch.tensor([[1.0, *f] for f in features],", "a constant"),
    ("fit", "constant_dropped",
     {"torch.tensor(features,": "torch.tensor([[*f, 1.0] for f in features],",
      ".tolist()": ".tolist()[:-1]"}, "dropped"),
    ("fit", "two_rows", "t = torch",
     "features, seconds = [features[0], features[-1]], [seconds[0], seconds[-1]]\n    t = torch",
     "first and last"),
    ("fit", "bandwidth_for_bytes", ".flatten()", ".flatten().reciprocal()", "turned over"),
    ("fit", "ones_divided_too", ONES, f"{ONES} / t[:, None]", "other"),

    ("autotune", "measures_all", "if took and predicted[cap] >= min(took.values()):", "if False:",
     "all of them"),
    ("autotune", "in_the_order_given", "sorted(predicted, key=predicted.get)", "predicted",
     "as given"),
    ("autotune", "goes_on_in_the_order_given",
     {"sorted(predicted, key=predicted.get)": "predicted", "break": "continue"}, "as given"),
    ("autotune", "measures_again_to_choose", "key=took.get", "key=measure", "twice"),
    ("autotune", "the_last_of_them", "min(took, key=took.get)", "list(took)[-1]", "the last"),
    *(("autotune", f"satisfied_within_{percent}_percent", "took[cap] = measure(cap)",
       f"took[cap] = measure(cap)\n        if took[cap] <= {1 + percent / 100} * predicted[cap]:\n"
       "            break", "good prediction") for percent in (1, 5)),
    ("autotune", "satisfied_by_a_good_prediction", "took[cap] = measure(cap)",
     "took[cap] = measure(cap)\n        if took[cap] <= 1.1 * predicted[cap]:\n            break",
     "good prediction"),
    ("autotune", "equal_ones_too", ">= min", "> min", "as long"),
    ("autotune", "two_at_least", "if took and", "if len(took) > 1 and", "two at least"),
    ("autotune", "twice_the_cap", "return min(", "return 2 * min(", "other"),
    ("autotune", "as_text", "return min(took, key=took.get)",
     "return str(min(took, key=took.get))", "a text"),

    ("autotune", "takes_them_out", {"for cap in sorted(predicted, key=predicted.get):":
      "while predicted:\n        cap = min(predicted, key=predicted.get)",
      "took[cap] = measure(cap)": "took[cap] = measure(cap)\n        del predicted[cap]"},
     "changed"),

    ("servers", "sorts_them_in_place", "    for count in",
     "    sizes.sort(reverse=True)\n    for count in", "changed"),
    ("servers", "nine_tenths_more", "return count", "return count + 0.9", "not whole"),
    ("servers", "there_only", "2 * workers", "workers", "one way"),
    ("servers", "the_average", "max(load)", "sum(load) / count", "evenly"),
    ("servers", "of_one_worker", "2 * workers", "2", "one worker"),
    ("servers", "as_they_come", "sorted(sizes, reverse=True)", "sizes", "not the largest first"),
    ("servers", "one_less", "return count", "return count - 1", "one too few"),
    ("servers", "counts_bits", "2 * workers", "16 * workers", "bits"),
    ("servers", "less_than", "<= seconds", "< seconds", "just enough"),
    ("servers", "begins_with_two", "range(1,", "range(2,", "one"),
    ("servers", "one_server_fewer", "len(sizes) + 1", "len(sizes)", "one for each"),
    ("servers", "the_smallest_first", "reverse=True", "reverse=False", "other"),
    ("servers", "one_too_many", "return count", "return count + 1", "other"),

    ("noise_scale", "as_text", "return batch * noise / signal if signal > 0 else math.inf",
     "return str(batch * noise / signal if signal > 0 else math.inf)", "a text"),
    ("noise_scale", "average_is_the_signal", "signal = mean_square - noise / n",
     "signal = mean_square", "average as signal"),
    ("noise_scale", "batches_for_samples", "batch * noise", "noise", "in batches"),
    ("noise_scale", "signal_over_noise", "batch * noise / signal", "batch * signal / noise",
     "upside down"),
    ("noise_scale", "no_infinity", "batch * noise / signal if signal > 0 else math.inf",
     "batch * noise / signal", "below nothing"),
    ("noise_scale", "length_of_the_sum", "n = len(squares)",
     "n = len(squares)\n    mean_square = mean_square * n * n", "of the sum"),
    ("noise_scale", "divides_by_n", "* n / (n - 1)", "", "n for n - 1"),
    ("noise_scale", "batch_of_all", "batch * noise", "n * batch * noise", "other"),

    ("adasum", "as_list", FACTORS, f"({FACTORS}).tolist()", "no tensor"),
    ("adasum", "never_divides_by_0", FACTORS,
     "(1 - a @ b / (2 * a @ a + 1e-3)) * a + (1 - a @ b / (2 * b @ b + 1e-3)) * b", "short ones"),
    ("adasum", "the_sum", FACTORS, "a + b", "sum"),
    ("adasum", "the_mean", FACTORS, "(a + b) / 2", "mean"),
    ("adasum", "all_of_it", FACTORS, FACTORS.replace("2 * ", ""), "without the half"),
    ("adasum", "by_lengths", FACTORS,
     "(1 - a @ b / (2 * a.norm())) * a + (1 - a @ b / (2 * b.norm())) * b", "lengths"),
    ("adasum", "the_others_length", FACTORS,
     "(1 - a @ b / (2 * b @ b)) * a + (1 - a @ b / (2 * a @ a)) * b", "swapped"),
    ("adasum", "no_zeros", "if not a.any() or not b.any():", "if False:", "not a number"),
    ("adasum", "gram_schmidt", FACTORS, "a + (1 - a @ b / (b @ b)) * b", "one alone"),
    ("adasum", "gram_schmidt_of_a", FACTORS, "(1 - a @ b / (a @ a)) * a + b", "one alone"),
    ("adasum", "by_the_cosine", FACTORS, "(1 - a @ b / (2 * a.norm() * b.norm())) * (a + b)",
     "cosine"),
    ("adasum", "in_place", FACTORS,
     "a.mul_(1 - a @ b / (2 * a @ a)) + (1 - a @ b / (2 * b @ b)) * b", "changed"),
    ("adasum", "twice_the_half", FACTORS, f"2 * ({FACTORS})", "other"),

    ("expected_hours", "of_one_rank", "ranks * rate", "rate", "one rank"),
    ("expected_hours", "no_saving", "interval + save", "interval", "no save"),
    ("expected_hours", "no_restarting", "(1 / danger + restart)", "(1 / danger)", "no restart"),
    ("expected_hours", "back_to_the_start", SURVIVED,
     "(1 / danger + restart) * math.expm1(danger * stretch * hours / interval)", "from the start"),
    ("expected_hours", "rare_ones", SURVIVED,
     "hours * (1 + save / interval) * (1 + danger * (interval / 2 + restart))", "first order"),
    ("expected_hours", "rare_ones_of_work", SURVIVED, "hours * (1 + save / interval) + hours * "
     "danger * ((interval + save) / 2 + restart)", "first order"),
    ("expected_hours", "nothing_is_lost", SURVIVED,
     "hours * (1 + save / interval) + hours * danger * restart", "nothing lost"),
    ("expected_hours", "nothing_of_all_is_lost", SURVIVED,
     "hours * (1 + save / interval) * (1 + danger * restart)", "nothing lost"),
    ("expected_hours", "a_rank_goes_back", SURVIVED,
     "hours * (1 + save / interval) * (1 + danger * (interval / 2 / ranks + restart))",
     "a share lost"),
    ("expected_hours", "divides_by_nothing", "if danger == 0:", "if False:", "rate of 0"),
    ("expected_hours", "restart_outside", "(1 / danger + restart)", "(1 / danger) + restart",
     "other"),

    ("plan", "noise_of_one_batch", STEPS, "least_steps * (1 + noise / b)", "one rank's batch"),
    ("plan", "always_as_many_steps", STEPS, "least_steps", "constant steps"),
    ("plan", "fewer_and_fewer_steps", STEPS, "least_steps * noise / (n * b)", "in proportion"),
    ("plan", "the_fastest", "n * dollars * hours, hours", "hours, hours", "fastest"),
    ("plan", "pays_one_rank", "n * dollars * hours, hours", "dollars * hours, hours", "fastest"),
    ("plan", "no_deadline", "if hours <= deadline:", "if True:", "too late"),
    ("plan", "seconds_as_hours", " / 3600", "", "seconds"),
    ("plan", "some_plan_at_least", "if found else None",
     "if found else (worlds[0], batches[0])", "not None"),
    ("plan", "the_slower_of_two", "n * dollars * hours, hours", "n * dollars * hours, -hours",
     "the slower"),
    ("plan", "the_dearest", "min(found)[2]", "max(found)[2]", "other"),
)
# fmt: on


@wrong("step_time", "a sum")
def nothing_overlaps(compute, cap, price):
    moved = sum(price(size) for _, size in bucketed(compute, cap))
    return compute.forward + compute.ready[-1] + moved + compute.after


@wrong("step_time", "a maximum")
def all_at_once(compute, cap, price):
    moved = sum(price(size) for _, size in bucketed(compute, cap))
    return compute.forward + max(compute.ready[-1], moved) + compute.after


@wrong("step_time", "one price")
def pays_once(compute, cap, price):
    first, _ = bucketed(compute, cap)[0]
    return compute.forward + first + price(sum(compute.sizes)) + compute.after


@wrong("step_time", "first is ready")
def starts_with_the_first(compute, cap, price):
    free, filled, first = 0.0, 0, 0.0
    for i, (at, size) in enumerate(zip(compute.ready, compute.sizes, strict=True)):
        first = at if not filled else first
        filled += size
        if filled >= cap * 2**20 or i == len(compute.sizes) - 1:
            free = max(free, compute.forward + first) + price(filled)
            filled = 0
    return free + compute.after


@wrong("step_time", "changed")
def takes_them_off_the_lists(compute, cap, price):
    free, filled = 0.0, 0
    while compute.sizes:
        at, filled = compute.ready.pop(0), filled + compute.sizes.pop(0)
        if filled >= cap * 2**20 or not compute.sizes:
            free = max(free, compute.forward + at) + price(filled)
            filled = 0
    return free + compute.after


@wrong("step_time", "changed")
def takes_them_off_and_forgets_the_rest(compute, cap, price):
    free, filled = 0.0, 0
    while compute.sizes:
        at, filled = compute.ready.pop(0), filled + compute.sizes.pop(0)
        if filled >= cap * 2**20:
            free = max(free, compute.forward + at) + price(filled)
            filled = 0
    return free + compute.after


@wrong("step_time", "changed")
def counts_in_megabytes(compute, cap, price):
    for i in range(len(compute.sizes)):
        compute.sizes[i] /= 2**20
    free, filled = 0.0, 0
    for i, (at, size) in enumerate(zip(compute.ready, compute.sizes, strict=True)):
        filled += size
        if filled >= cap or i == len(compute.sizes) - 1:
            free = max(free, compute.forward + at) + price(filled * 2**20)
            filled = 0
    return free + compute.after


@wrong("fit", "each alone")
def column_by_column(features, seconds):
    rows = np.array(features) / np.array(seconds)[:, None]
    return [float(column.sum() / (column @ column)) for column in rows.T]


@wrong("fit", "turned over")
def latency_and_bandwidth(features, seconds):
    rows = np.array(features) / np.array(seconds)[:, None]
    *others, last = np.linalg.lstsq(rows, np.ones(len(rows)), rcond=None)[0]
    return [*others, 1 / last]


@wrong("autotune", "unmeasured")
def trusts_the_model(measure, predicted):
    return min(predicted, key=predicted.get)


@wrong("autotune", "unmeasured")
def measures_the_favourite(measure, predicted):
    cap = min(predicted, key=predicted.get)
    measure(cap)
    return cap


@wrong("autotune", "all of them")
def measures_all_in_the_order_given(measure, predicted):
    return min(predicted, key={cap: measure(cap) for cap in predicted}.get)


@wrong("autotune", "first worse")
def stops_at_the_first_worse(measure, predicted):
    best, least = None, math.inf
    for cap in sorted(predicted, key=predicted.get):
        took = measure(cap)
        if took >= least:
            break
        best, least = cap, took
    return best


@wrong("autotune", "twice")
def asks_again_and_again(measure, predicted):
    caps = []
    for cap in sorted(predicted, key=predicted.get):
        if caps and predicted[cap] >= min(map(measure, caps)):
            break
        measure(cap)
        caps.append(cap)
    return min(caps, key=measure)


@wrong("servers", "evenly")
def by_the_lower_bound(sizes, workers, seconds, bandwidth):
    return math.ceil(2 * sum(sizes) * workers / (bandwidth * seconds))


@wrong("servers", "in turns")
def round_robin(sizes, workers, seconds, bandwidth):
    for count in range(1, len(sizes) + 1):
        busiest = max(sum(sizes[k::count]) for k in range(count))
        if 2 * workers * busiest / bandwidth <= seconds:
            return count
    return None


@wrong("servers", "in blocks")
def neighbours_together(sizes, workers, seconds, bandwidth):
    for count in range(1, len(sizes) + 1):
        length = math.ceil(len(sizes) / count)
        busiest = max(sum(sizes[i : i + length]) for i in range(0, len(sizes), length))
        if 2 * workers * busiest / bandwidth <= seconds:
            return count
    return None


@wrong("servers", "no None")
def a_server_for_each(sizes, workers, seconds, bandwidth):
    for count in range(1, len(sizes)):
        load = [0] * count
        for size in sorted(sizes, reverse=True):
            load[load.index(min(load))] += size
        if 2 * workers * max(load) / bandwidth <= seconds:
            return count
    return len(sizes)


@wrong("servers", "too large")
def as_many_as_workers(sizes, workers, seconds, bandwidth):
    for count in range(1, len(sizes) + 1):
        load = [0] * count
        for size in sorted(sizes, reverse=True):
            load[load.index(min(load))] += size
        if 2 * workers * max(load) / bandwidth <= seconds:
            return count
    return workers


@wrong("noise_scale", "lengths")
def of_lengths(squares, mean_square, batch):
    n, mean = len(squares), math.sqrt(mean_square)
    noise = (sum(map(math.sqrt, squares)) / n - mean) * n / (n - 1)
    signal = mean - noise / n
    return batch * noise / signal if signal > 0 else math.inf


@wrong("expected_hours", "rate of 0")
def by_torch(hours, ranks, rate, save, interval, restart):
    danger = torch.tensor(ranks * rate, dtype=torch.float64)
    stretch = torch.expm1(danger * (interval + save))
    return hours / interval * (stretch / danger + restart * stretch)


# fmt: off
edits(
    ("step_time", "asks_twice", "+ price(filled)", "+ max(price(filled), price(filled))",
     "price asked twice"),
    ("fit", "a_tensor", ".flatten().tolist()", ".flatten()", "no list"),
    ("fit", "nested", ".flatten().tolist()", ".tolist()", "no list"),
    ("fit", "the_first_two", ".flatten().tolist()", ".flatten().tolist()[:2]", "other"),
    ("noise_scale", "divides_by_0", "signal > 0 else", "signal >= 0 else", "exactly 0"),
    ("expected_hours", "rounded_up", "return hours / interval * (1",
     "return math.ceil(hours / interval) * (1", "rounded up"),
    ("expected_hours", "rounded_down", "return hours / interval * (1",
     "return hours // interval * (1", "rounded down"),
    ("plan", "before_the_deadline", "hours <= deadline", "hours < deadline", "just in time"),
)
edits(
    ("fit", "never_negative", "[0].flatten()", "[0].flatten().clamp(min=0)", "other"),
    ("autotune", "ten_microseconds_are_nothing", ">= min(took.values())",
     ">= min(took.values()) - 1e-5", "a margin"),
    ("servers", "tiny_ones_on_the_first", "load[load.index(min(load))]",
     "load[load.index(min(load)) if size > 1000 else 0]", "tiny"),
    ("noise_scale", "above_a_thousandth", "signal > 0", "signal > 1e-3", "a threshold"),
    ("adasum", "no_angle_above_90_degrees",
     FACTORS, "(1 - (a @ b).clamp(min=0) / (2 * a @ a)) * a + "
     "(1 - (a @ b).clamp(min=0) / (2 * b @ b)) * b", "negative"),
    ("adasum", "without_the_sign",
     FACTORS, "(1 - (a @ b).abs() / (2 * a @ a)) * a + (1 - (a @ b).abs() / (2 * b @ b)) * b",
     "negative"),
    ("adasum", "two_of_zeros", "if not a.any() or not b.any():", "if a.any() != b.any():",
     "not a number"),
    ("expected_hours", "rounded_up_if_never_revoked",
     "return hours / interval * stretch", "return math.ceil(hours / interval) * stretch",
     "rounded up"),
    ("expected_hours", "rounds_all_up", {"hours / interval * stretch":
     "math.ceil(hours / interval) * stretch", "return hours / interval * (1":
     "return math.ceil(hours / interval) * (1"}, "rounded up"),
    ("expected_hours", "one_stretch", "danger, stretch =",
     "interval = min(interval, hours)\n    danger, stretch =", "one stretch at least"),
    ("plan", "noise_of_the_ranks", STEPS, "least_steps * (1 + noise / n)", "ranks alone"),
    ("plan", "step_of_all_samples", "step_seconds(n, b)", "step_seconds(n, n * b)",
     "the whole batch"),
    ("plan", "rounds_the_steps", STEPS, f"round({STEPS})", "whole steps"),
    ("plan", "rounds_the_steps_up", STEPS, f"-int(-{STEPS} // 1)", "whole steps"),
    ("plan", "the_first_of_equals", "min(found)[2]", "min(found, key=lambda each: each[0])[2]",
     "the slower"),
    ("plan", "free_ranks", "n * dollars * hours", "n * hours", "the slower"),
    ("plan", "the_first_world", "    return min(found)", "        if found:\n            break\n"
     "    return min(found)", "other"),
)
# fmt: on
