"""Wrong answers to lab 11."""

import torch
import torch.distributed as dist

from tests.labs.answers import edits, wrong

# fmt: off
edits(
    ("ticks", "pairs_swapped", "(stage, t - stage)", "(t - stage, stage)", "pairs swapped"),
    ("ticks", "one_stage_more", "in range(stages) if", "in range(stages + 1) if", "no such stage"),
    ("ticks", "no_end", "0 <= t - stage < pieces", "0 <= t - stage", "no such piece"),
    ("ticks", "from_1", "(stage, t - stage)", "(stage, t - stage + 1)", "no such piece"),
    ("ticks", "one_more", "stages + pieces - 1", "stages + pieces", "an empty tick"),
    ("ticks", "until_all_have_entered", "range(stages + pieces - 1)", "range(pieces)",
     "never leaves"),
    ("ticks", "twice", " if 0 <= t - stage < pieces", " if 0 <= t - stage < pieces for _ in 'ab'",
     "twice"),
    ("ticks", "last_piece_first", "(stage, t - stage)", "(stage, pieces - 1 - t + stage)",
     "other order"),
    ("ticks", "last_stage_first", "(stage, t - stage)", "(stages - 1 - stage, t - stage)",
     "too early"),
    ("ticks", "piece_k_on_stage_k", "if 0 <= t - stage < pieces", "if t == stage < pieces",
     "an empty tick"),
)


@wrong("ticks", "one after the other")
def one_after_the_other(stages, pieces):
    return [[(stage, i)] for i in range(pieces) for stage in range(stages)]


@wrong("ticks", "too early")
def all_at_once(stages, pieces):
    return [[(stage, i) for stage in range(stages)] for i in range(pieces)]


@wrong("ticks", "two at once")
def stage_by_stage(stages, pieces):
    return [[(stage, i) for i in range(pieces)] for stage in range(stages)]


@wrong("ticks", "no ticks")
def in_one_list(stages, pieces):
    return [
        (stage, t - stage)
        for t in range(stages + pieces - 1)
        for stage in range(stages)
        if 0 <= t - stage < pieces
    ]


@wrong("ticks", "never leaves")
def the_diagonal(stages, pieces):
    return [[(i % stages, i)] for i in range(pieces)]


SENDS = "            works.append(dist.isend(hidden, dst=rank + 1))\n"
RETURNS = "    for work in works:\n        work.wait()\n    return outputs"
edits(
    ("rnn_layer", "after_the_loop",
     {SENDS: "            works.append(hidden)\n",
      RETURNS: "    for work in works:\n        dist.send(work, dst=rank + 1)\n    return outputs"},
     "all at the end"),
    ("rnn_layer", "all_in_one",
     {"    for x in xs:\n        if rank > 0:\n            x = receive(x, rank - 1)\n":
      "    if rank > 0:\n        xs = receive(torch.stack(xs), rank - 1)\n    for x in xs:\n",
      SENDS: "            works.append(hidden)\n",
      RETURNS: "    if works:\n        dist.send(torch.stack(works), dst=rank + 1)\n"
      "    return outputs"}, "all at the end"),
    ("rnn_layer", "receives_all_first",
     {"    for x in xs:\n        if rank > 0:\n            x = receive(x, rank - 1)\n":
      "    if rank > 0:\n        xs = [receive(x, rank - 1) for x in xs]\n    for x in xs:\n"},
     "all received first"),
    ("rnn_layer", "waits_for_all_first",
     {"    for x in xs:\n        if rank > 0:\n            x = receive(x, rank - 1)\n":
      "    came = [dist.irecv(x, rank - 1) for x in xs if rank > 0]\n"
      "    for work in came:\n        work.wait()\n    for x in xs:\n"}, "all received first"),
    ("rnn_layer", "no_hidden", {"hidden = cell": "output = cell", "isend(hidden": "isend(output",
     "append(hidden)": "append(output)"}, "hidden not carried on"),
    ("rnn_layer", "last_sends_on", "rank < last:", "rank <= last:", "to nobody"),
    ("rnn_layer", "in_a_ring", {"rank < last:": "rank <= last > 0:",
     "dst=rank + 1": "dst=(rank + 1) % (last + 1)"}, "has returned"),
    ("rnn_layer", "one_short", "for x in xs:", "for x in xs[rank:]:", "has returned"),
    ("rnn_layer", "returned_by_all", "        else:\n            outputs.append(hidden)",
     "        outputs.append(hidden)", "everywhere"),
    ("rnn_layer", "stacked", "    return outputs",
     "    return torch.stack(outputs) if outputs else []", "no list"),
    ("rnn_layer", "a_tuple", "return outputs", "return tuple(outputs)", "no list"),
    ("rnn_layer", "one_tensor", "hidden = cell(x, hidden)",
     "hidden = hidden.copy_(cell(x, hidden))", "in flight"),
    ("rnn_layer", "one_tensor_sent_in_time",
     {"hidden = cell(x, hidden)": "hidden = hidden.copy_(cell(x, hidden))",
      SENDS: "            dist.send(hidden, dst=rank + 1)\n"}, "all the last one"),
    ("rnn_layer", "one_message_more", RETURNS,
     "    if rank < last:\n        works.append(dist.isend(hidden, dst=rank + 1))\n" + RETURNS,
     "has returned"),
    ("rnn_layer", "drops_what_came", "x = receive(x,", "receive(x,", "its own input"),
    ("rnn_layer", "sends_its_input", "isend(hidden", "isend(x", "its own input"),
    ("rnn_layer", "from_behind", "receive(x, rank - 1)", "receive(x, (rank + 1) % (last + 1))",
     "stuck"),
    ("rnn_layer", "two_copies",
     {"receive(x, rank - 1)": "receive(torch.stack([x, x]), rank - 1)[0]",
      "isend(hidden,": "isend(torch.stack([hidden, hidden]),"}, "one message"),
    ("rnn_layer", "doubles", "receive(x,", "receive(x.double(),", "two dtypes"),
    ("rnn_layer", "no_wait", RETURNS, "    return outputs", "never waited for"),
    ("rnn_layer", "waits_in_the_loop", SENDS,
     "            dist.isend(hidden, dst=rank + 1).wait()\n", "late on a link"),
    ("rnn_layer", "none_for_a_list", "return outputs", "return outputs or None", "None for []"),
    ("rnn_layer", "last_output_alone", "return outputs", "return outputs[-1:]", "not all outputs"),
    ("rnn_layer", "first_rank_returns_nothing", "        else:\n            outputs.append",
     "        elif rank > 0:\n            outputs.append", "not all outputs"),
    ("rnn_layer", "in_float32", "receive(x,", "receive(torch.empty(x.shape),", "two dtypes"),
    ("rnn_layer", "nothing_returned", "return outputs", "pass", "no list"),
    ("rnn_layer", "a_thread",
     {SENDS: "            works.append(Thread(target=dist.send, args=(hidden, rank + 1)))\n"
      "            works[-1].start()\n", "work.wait()": "work.join()",
      "    outputs, works = [], []\n":
      "    from threading import Thread\n    outputs, works = [], []\n"}, "a thread"),
)


@wrong("rnn_layer", "late on a link")
def sends_and_waits(cell, xs, hidden):
    rank, n = dist.get_rank(), dist.get_world_size()
    outputs = []
    for x in xs:
        if rank:
            dist.recv(x, src=rank - 1)
        hidden = cell(x, hidden)
        if rank + 1 < n:
            dist.send(hidden, dst=rank + 1)
        outputs.append(hidden)
    return outputs if rank + 1 == n else []


FORWARDS, BACKWARDS = '[("F", i) for i in range(micro)]', '[("B", i) for i in range(micro)]'
edits(
    ("gpipe", "forwards_alone", f" + {BACKWARDS}", "", "missing"),
    ("gpipe", "from_1", FORWARDS, '[("F", i + 1) for i in range(micro)]', "no such micro-batch"),
    ("gpipe", "backward_first", f"{FORWARDS} + {BACKWARDS}", f"{BACKWARDS} + {FORWARDS}",
     "backward first"),
    ("gpipe", "twice", BACKWARDS, f'{BACKWARDS} + [("F", 0)]', "twice"),
    ("gpipe", "words", '("F", i)', 'f"F{i}"', "not pairs"),
    ("gpipe", "a_tuple", f"{FORWARDS} + {BACKWARDS}", f"tuple({FORWARDS} + {BACKWARDS})",
     "not pairs"),
    ("gpipe", "an_iterator", f"{FORWARDS} + {BACKWARDS}", f"iter({FORWARDS} + {BACKWARDS})",
     "not pairs"),
    ("gpipe", "small_letters", '("F", i)', '("f", i)', "no operation"),
    ("gpipe", "numbers_as_text", '("F", i)', '("F", str(i))', "no operation"),
    ("gpipe", "one_by_one", f"{FORWARDS} + {BACKWARDS}",
     '[(kind, i) for i in range(micro) for kind in "FB"]', "backward too early"),
    ("gpipe", "newest_first_on_some", FORWARDS,
     '[("F", i) for i in range(micro)[:: -1 if stage % 2 else 1]]', "other order"),
)

FIRST = "first = min(stages - 1 - stage, micro)"
edits(
    ("one_f_one_b", "as_many_on_all", FIRST, "first = min(stages, micro)", "too many first"),
    ("one_f_one_b", "one_more", FIRST, "first = min(stages - stage, micro)", "too many first"),
    ("one_f_one_b", "as_gpipe", FIRST, "first = micro", "too many first"),
    ("one_f_one_b", "turned_round", FIRST, "first = min(stage, micro)", "waits for ever"),
    ("one_f_one_b", "one_short", FIRST, "first = min(max(stages - 2 - stage, 0), micro)",
     "too few first"),
    ("one_f_one_b", "no_limit", FIRST, "first = stages - 1 - stage", "no such micro-batch"),
    ("one_f_one_b", "no_end", ' + [("B", i) for i in range(micro - first, micro)]', "", "missing"),
    ("one_f_one_b", "backward_before_forward", '[("F", first + i), ("B", i)]',
     '[("B", i), ("F", first + i)]', "backward first"),
    ("one_f_one_b", "newest_first",
     {'("F", first + i), ("B", i)': '("F", first + i), ("B", first + i)',
      '[("B", i) for i in range(micro - first, micro)]': '[("B", i) for i in range(first)][::-1]'},
     "newest first"),
    ("one_f_one_b", "rest_newest_first", "in range(micro - first, micro)]",
     "in reversed(range(micro - first, micro))]", "newest first"),
)

SHARE = "(stages - 1) / (micro + stages - 1)"
edits(
    ("bubble", "of_the_ideal", SHARE, "(stages - 1) / micro", "of the ideal"),
    ("bubble", "busy", SHARE, "micro / (micro + stages - 1)", "busy"),
    ("bubble", "all_stages", SHARE, "stages / (micro + stages - 1)", "all stages"),
    ("bubble", "one_slot_more", SHARE, "(stages - 1) / (micro + stages)", "one slot too many"),
    ("bubble", "percent", SHARE, "100 * (stages - 1) / (micro + stages - 1)", "percent"),
    ("bubble", "of_the_forwards", SHARE, "1 - micro / (micro + stages)", "another share"),
    ("bubble", "a_tensor", SHARE, f"torch.tensor({SHARE})", "no float"),
    ("bubble", "a_fraction", SHARE, "__import__('fractions').Fraction(stages - 1, micro + stages "
     "- 1)", "no float"),
    ("bubble", "of_one", SHARE, "(stages - 1) / stages", "without micro-batches"),
)

SEND_ON = "sends.append(dist.isend(y.detach(), dst=rank + 1))"
SEND_BACK = "sends.append(dist.isend(x.grad, dst=rank - 1))"
CAME, GRADIENT = "receive(like, rank - 1).requires_grad_()", "receive(y, rank + 1)"
edits(
    ("pipeline_step", "send", {SEND_ON: "dist.send(y.detach(), dst=rank + 1)",
     SEND_BACK: "dist.send(x.grad, dst=rank - 1)"}, "waits for its send"),
    ("pipeline_step", "waits_at_once", {"dst=rank + 1))": "dst=rank + 1).wait())",
     "dst=rank - 1))": "dst=rank - 1).wait())", "        work.wait()": "        pass"},
     "waits for its send"),
    ("pipeline_step", "no_gradient_asked", CAME, "receive(like, rank - 1)", "needs no gradient"),
    ("pipeline_step", "the_sum", " / len(targets)", "", "the sum"),
    ("pipeline_step", "target_first", "loss(y, targets[i])", "loss(targets[i], y)", "target first"),
    ("pipeline_step", "divided_again", GRADIENT, f"{GRADIENT} / len(inputs)", "divided again"),
    ("pipeline_step", "keeps_all", "held.pop(i)", "held[i]", "outputs kept"),
    ("pipeline_step", "sends_the_graph", "isend(y.detach(),", "isend(y,", "outputs kept"),
    ("pipeline_step", "one_buffer", CAME,
     "(dist.recv(like, rank - 1), like.detach().requires_grad_())[1]", "another's input"),
    ("pipeline_step", "zeroed", "    held, sends,", "    stage.zero_grad()\n    held, sends,",
     "zeroed"),
    ("pipeline_step", "gpipe_always", "in plan:", 'in sorted(plan, key=lambda op: op[0] == "B"):',
     "own order"),
    ("pipeline_step", "last_loss", "mean += y.item()", "mean = y.item()", "loss not of the mean"),
    ("pipeline_step", "loss_of_all", "return mean if rank == last else None", "return mean",
     "loss not of the mean"),
    ("pipeline_step", "nothing_back",
     f"            if rank > 0:\n                {SEND_BACK}\n", "", "returns without"),
    ("pipeline_step", "back_to_nobody", "            if rank > 0:\n", "            if rank >= 0:\n",
     "needs no gradient"),
    ("pipeline_step", "on_to_nobody", "if rank < last:", "if rank <= last:", "to nobody"),
    ("pipeline_step", "tags_of_the_sends", {SEND_ON: SEND_ON.replace("+ 1)", "+ 1, tag=i + 1)")},
     "nobody sends"),
    ("pipeline_step", "twice_the_gradient", GRADIENT, f"2 * {GRADIENT}", "other gradients"),
    ("pipeline_step", "barrier", "    return mean", "    dist.barrier()\n    return mean",
     "collective"),
    ("pipeline_step", "two_messages",
     {SEND_ON: "sends += [dist.isend(y.detach(), dst=rank + 1) for _ in range(2)]",
      CAME: "[receive(like, rank - 1) for _ in range(2)][0].requires_grad_()"}, "messages"),
    ("pipeline_step", "steps_too", "    return mean",
     "    torch.optim.SGD(stage.parameters(), 0.1).step()\n    return mean", "more than gradients"),
    ("pipeline_step", "eval_mode", "    held, sends,", "    stage.eval()\n    held, sends,",
     "more than gradients"),
    ("pipeline_step", "sends_on_and_waits", SEND_ON, "dist.send(y.detach(), dst=rank + 1)",
     "late on a link"),
    ("pipeline_step", "threads_send_on",
     {SEND_ON: "sends.append(Thread(target=dist.send, args=(y.detach(), rank + 1)))\n"
      "                sends[-1].start()",
      "work.wait()": "work.join() if isinstance(work, Thread) else work.wait()",
      "    held, sends,": "    from threading import Thread\n    held, sends,"}, "a thread"),
    ("pipeline_step", "a_sum_with_graphs", "mean += y.item()", "mean += y", "graph kept"),
    ("pipeline_step", "a_sum_with_graphs_inside",
     {"mean += y.item()": "mean = mean + y", "return mean if": "return float(mean) if"},
     "graph kept"),
    ("pipeline_step", "length_of_the_plan", "/ len(targets)", "/ (len(plan) / 2)", "no length"),
    ("pipeline_step", "walks_the_plan_twice",
     {"    held, sends,": "    count = sum(kind == 'F' for kind, _ in plan)\n    held, sends,",
      "/ len(targets)": "/ count"}, "walked once"),
    ("pipeline_step", "in_float32", "receive(like,", "receive(torch.empty(like.shape),",
     "two dtypes"),
    ("pipeline_step", "inputs_marked", "x = inputs[i] if", "x = inputs[i].requires_grad_() if",
     "inputs marked"),
    ("pipeline_step", "inputs_by_arrival", "x = inputs[i] if", "x = inputs.pop(0) if",
     "by arrival"),
    ("pipeline_step", "targets_by_arrival",
     {"    held, sends,": "    late, micro = iter(targets), len(targets)\n    held, sends,",
      "targets[i]": "next(late)", "/ len(targets)": "/ micro"}, "by arrival"),
    ("pipeline_step", "no_wait", "    for work in sends:\n        work.wait()\n", "",
     "never waited for"),
)

LATER = "lambda: y.backward(gradient, inputs=parameters)"
edits(
    ("split_backward", "not_retained", ", retain_graph=True", "", "graph is gone"),
    ("split_backward", "retained_for_ever", "inputs=parameters", "True, inputs=parameters",
     "never freed"),
    ("split_backward", "of_the_sum", "grad(y, x, gradient,", "grad(y.sum(), x,",
     "another gradient"),
    ("split_backward", "at_once", LATER, "y.backward(gradient, inputs=parameters)",
     "no function"),
    ("split_backward", "a_graph_of_gradients", "retain_graph=True", "create_graph=True",
     "with a graph"),
    ("split_backward", "for_x_too", ", inputs=parameters", "", "in x too"),
    ("split_backward", "a_tuple", "(of_x,) =", "of_x =", "a tuple"),
    ("split_backward", "without_the_gradient", "y.backward(gradient,", "y.sum().backward(",
     "other gradients"),
)
# fmt: on


@wrong("split_backward", "both at once")
def all_in_one(y, x, gradient, parameters):
    y.backward(gradient)
    of_x, x.grad = x.grad, None
    return of_x, lambda: None


@wrong("split_backward", "x twice")
def by_two_backwards(y, x, gradient, parameters):
    y.backward(gradient, inputs=[x], retain_graph=True)
    return x.grad, lambda: y.backward(gradient)


@wrong("split_backward", "overwritten")
def overwrites(y, x, gradient, parameters):
    (of_x,) = torch.autograd.grad(y, x, gradient, retain_graph=True)

    def rest():
        found = torch.autograd.grad(y, parameters, gradient, allow_unused=True)
        for p, g in zip(parameters, found, strict=True):
            p.grad = g

    return of_x, rest


edits(
    ("split_backward", "all_are_used", ", allow_unused=True", "", "unused parameter"),
    (
        "split_backward",
        "zeros_for_unused",
        "p.grad = g",
        "p.grad = (0 * p if p.grad is None else p.grad).detach() + (0 if g is None else g)",
        "unused parameter",
    ),
    (
        "split_backward",
        "stops_at_unused",
        "p.grad = g",
        "if g is None:\n                break\n"
        "            p.grad = g if p.grad is None else p.grad + g",
        "other gradients",
    ),
    of=overwrites,
)
