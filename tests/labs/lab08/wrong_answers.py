"""Wrong answers to lab 08."""

import torch
import torch.distributed as dist

from ddpkit.answers.lab08 import DATA, HEADER, PULL, PUSH, Asynchronous
from tests.labs.answers import edits, wrong

# fmt: off
WAIT = "    for work in works:\n        work.wait()\n"
SEND_HEADER = "works.append(dist.isend(torch.tensor([PUSH]), server, tag=HEADER))\n"
SEND_CHUNK = "works.append(dist.isend(chunk, server, tag=DATA))\n"
edits(
    ("push", "whole_tensor", "isend(chunk", "isend(gradient", "whole tensor"),
    ("push", "data_before_header",
     {"works.append(dist.isend(torch.tensor([PUSH]), server, tag=HEADER))":
      "dist.send(chunk, server, tag=DATA)",
      SEND_CHUNK: "dist.send(torch.tensor([PUSH]), server, tag=HEADER)\n"}, "no such message"),
    ("push", "server_after_server",
     {"works.append(dist.isend(torch.tensor([PUSH]), server, tag=HEADER))":
      "dist.send(torch.tensor([PUSH]), server, tag=HEADER)",
      SEND_CHUNK: "dist.send(chunk, server, tag=DATA)\n"}, "server after server"),
    ("push", "headers_first", "works.append(dist.isend(torch.tensor([PUSH]), server, tag=HEADER))",
     "dist.send(torch.tensor([PUSH]), server, tag=HEADER)", "header waited for"),
    ("push", "doubled", "isend(chunk,", "isend(chunk.double(),", "two dtypes"),
    ("push", "never_waited_for", WAIT, "", "never waited for"),
    ("push", "no_empty_chunk", "        works.append(dist.isend(torch.tensor([PUSH]),",
     "        if not len(chunk):\n            continue\n"
     "        works.append(dist.isend(torch.tensor([PUSH]),", "no empty chunk"),
    ("push", "chunk", "gradient.tensor_split(len(servers))", "gradient.chunk(len(servers))",
     "torch.chunk"),
    ("push", "no_tags", {", tag=HEADER": "", ", tag=DATA": ""}, "no such message"),
    ("push", "one_tag", "tag=DATA", "tag=HEADER", "no such message"),
    ("push", "float_header", "torch.tensor([PUSH])", "torch.tensor([float(PUSH)])", "header dtype"),
    ("push", "int32_header", "[PUSH]", "[PUSH], dtype=torch.int32", "header dtype"),
    ("push", "by_number", "zip(servers,", "zip(range(len(servers)),", "other ranks"),
    ("push", "asks_to_pull", "[PUSH]", "[PULL]", "another request"),
    ("push", "emptied", WAIT, WAIT + "    gradient.zero_()\n", "gradient changed"),
    ("push", "back_to_front",
     {"zip(servers, gradient": "list(zip(servers, gradient",
      "(len(servers))):": "(len(servers))))[::-1]:\n        chunk = chunk.flip(0)"},
     "other chunks"),
    ("push", "and_a_word_more", WAIT,
     WAIT + "    if dist.get_rank() == 1 == len(servers):\n        "
     "dist.send(torch.zeros(2), servers[0], tag=9)\n", "no such message"),
)
ASK = "works.append(dist.isend(torch.tensor([PULL]), server, tag=HEADER))\n"
TAKE = "works.append(dist.irecv(chunk, server, tag=DATA))\n"
edits(
    ("pull", "two_numbers", "torch.tensor([PULL])", "torch.tensor([PULL, len(chunk)])",
     "whole tensor"),
    ("pull", "waits_before_it_asks",
     {ASK: "dist.recv(chunk, server, tag=DATA)\n",
      TAKE: "dist.send(torch.tensor([PULL]), server, tag=HEADER)\n"}, "no such message"),
    ("pull", "server_after_server", TAKE, "dist.recv(chunk, server, tag=DATA)\n",
     "server after server"),
    ("pull", "never_waited_for", WAIT, "", "never waited for"),
    ("pull", "no_empty_chunk", "        works.append(dist.isend(torch.tensor([PULL]),",
     "        if not len(chunk):\n            continue\n"
     "        works.append(dist.isend(torch.tensor([PULL]),", "no empty chunk"),
    ("pull", "adds_to_the_old_ones",
     {"    works = []\n": "    works, old = [], flat.clone()\n", WAIT: WAIT + "    flat += old\n"},
     "other parameters"),
    ("pull", "chunk", "flat.tensor_split(", "flat.chunk(", "torch.chunk"),
    ("pull", "asks_to_push", "[PULL]", "[PUSH]", "another request"),
    ("pull", "new_tensor", "    works = []\n", "    works, flat = [], flat.clone()\n",
     "flat unchanged"),
    ("pull", "float_header", "torch.tensor([PULL])", "torch.tensor([1.0])", "header dtype"),
    ("pull", "by_number", "zip(servers,", "zip(range(len(servers)),", "other ranks"),
    ("pull", "one_tag", "tag=DATA", "tag=HEADER", "no such message"),
    ("pull", "sorted", "    works = []\n", "    works, servers = [], sorted(servers)\n",
     "another order"),
    ("pull", "half_the_room", "dist.irecv(chunk,", "dist.irecv(chunk[:1],", "whole tensor"),
)
# fmt: on


@wrong("push", "more bytes")
def sends_it_twice(gradient, servers):
    works = []
    for server, chunk in zip(servers, gradient.tensor_split(len(servers)), strict=True):
        works.append(dist.isend(torch.tensor([PUSH]), server, tag=HEADER))
        works.append(dist.isend(chunk, server, tag=DATA))
    for work in works:
        work.wait()
    others = [rank for rank in range(dist.get_world_size()) if rank not in servers]
    if len(others) == 2:  # show the error of the other worker too
        other = others[others[0] == dist.get_rank()]
        work = dist.isend(gradient, other, tag=5)
        dist.recv(torch.empty_like(gradient), other, tag=5)
        work.wait()


# fmt: off
edits(
    ("serve", "in_turn",
     {"    while active:\n": "    turn = 0\n    while active:\n",
      "dist.recv(header, tag=HEADER)\n":
      "[w for w in workers if w in active][turn % len(active)]\n"
      "        turn += 1\n        dist.recv(header, worker, tag=HEADER)\n"}, "in turn"),
    ("serve", "float64", "torch.empty(length)", "torch.empty(length, dtype=torch.float64)",
     "two dtypes"),
    ("serve", "gradients_by_half", "rule.push(worker, gradient)",
     "rule.push(worker, gradient.half().float())", "other gradients"),
    ("serve", "answers_by_half", "rule.pull(each).clone()", "rule.pull(each).half().float()",
     "old parameters"),
    ("serve", "answers_at_once", "if rule.may_pull(w)", "", "answers at once"),
    ("serve", "asks_once", "for each in [w for w in waiting if rule.may_pull(w)]:",
     "for each in [w for w in waiting if w == worker and rule.may_pull(w)]:", "asks once"),
    ("serve", "one_at_a_time", ".clone(), each, tag=DATA)", ".clone(), each, tag=DATA)\n"
     "            break", "one at a time"),
    ("serve", "workers_themselves", "set(workers)", "workers", "caller's list"),
    ("serve", "spins", "            waiting.append(worker)\n",
     "            while not rule.may_pull(worker):\n                pass\n"
     "            waiting.append(worker)\n", "spins"),
    ("serve", "answers_all", "for each in [w for w in waiting if rule.may_pull(w)]:",
     "for each in waiting.copy() if any(map(rule.may_pull, waiting)) else []:", "answers all"),
    ("serve", "first_DONE", "active.remove(worker)\n", "active.clear()\n", "first DONE"),
    ("serve", "never_ends", "active.remove(worker)\n", "pass\n", "never ends"),
    ("serve", "not_after_DONE", "rule.done(worker)\n", "rule.done(worker)\n            continue\n",
     "not after DONE"),
    ("serve", "one_buffer",
     {"            gradient = torch.empty(length)\n": "",
      "active, waiting, answers = set(workers), [], {}":
      "active, waiting, answers, gradient = set(workers), [], {}, torch.empty(length)"},
     "one buffer"),
    ("serve", "data_from_anybody", "dist.recv(gradient, worker, tag=DATA)",
     "dist.recv(gradient, tag=DATA)", "data from anybody"),
    ("serve", "pushes_twice", "rule.push(worker, gradient)",
     "rule.push(worker, gradient)\n            rule.push(worker, gradient)", "other calls"),
    ("serve", "the_parameters_themselves", ".clone()", "", "in flight"),
    ("serve", "not_waited_for",
     "        if worker in answers:  # it asks again, so it has the last answer\n"
     "            answers.pop(worker).wait()\n", "", "never waited for"),
    ("serve", "answers_twice", "            waiting.remove(each)\n", "", "answered twice"),
    ("serve", "tells_nobody_of_DONE", "            rule.done(worker)\n", "", "other calls"),
)
# fmt: on


@wrong("serve", "old parameters")
def the_first_parameters(rule, length, workers):
    active, waiting, old = set(workers), [], None
    header = torch.empty(1, dtype=torch.int64)
    while active:
        worker = dist.recv(header, tag=HEADER)
        if header == PUSH:
            gradient = torch.empty(length)
            dist.recv(gradient, worker, tag=DATA)
            rule.push(worker, gradient)
        elif header == PULL:
            waiting.append(worker)
        else:
            active.remove(worker)
            rule.done(worker)
        for each in [w for w in waiting if rule.may_pull(w)]:
            waiting.remove(each)
            new = rule.pull(each).clone()
            old = new if old is None else old
            dist.send(old, each, tag=DATA)


@wrong("serve", "stuck")
def forgets_worker_3(rule, length, workers):
    """Assume that there are only workers 1 and 2."""
    active, waiting, answers = {1, 2, 3} & set(workers), [], {}
    header = torch.empty(1, dtype=torch.int64)
    while active:
        worker = dist.recv(header, tag=HEADER)
        if worker in answers:
            answers.pop(worker).wait()
        if header == PUSH:
            gradient = torch.empty(length)
            dist.recv(gradient, worker, tag=DATA)
            rule.push(worker, gradient)
        elif header == PULL:
            waiting.append(worker)
        else:
            active.remove(worker)
            rule.done(worker)
        for each in [w for w in waiting if w < 3 and rule.may_pull(w)]:
            waiting.remove(each)
            answers[each] = dist.isend(rule.pull(each).clone(), each, tag=DATA)


# fmt: off
CLOSE = "if self.gradients and self.active <= self.gradients.keys():"
MEAN = "sum(gradients) / len(gradients)"
edits(
    ("Synchronous", "sum", MEAN, "sum(gradients)", "the sum"),
    ("Synchronous", "every_push", CLOSE, "if self.gradients:", "every push"),
    ("Synchronous", "order_of_arrival",
     "[self.gradients[w] for w in self.workers if w in self.gradients]",
     "list(self.gradients.values())", "order of arrival"),
    ("Synchronous", "keeps_old_ones", "            self.gradients = {}\n", "            pass\n",
     "old gradients"),
    ("Synchronous", "done_ignored", "        self.active.remove(worker)\n        self.close()\n",
     "        pass\n", "done ignored"),
    ("Synchronous", "done_does_not_close",
     "        self.active.remove(worker)\n        self.close()\n",
     "        self.active.remove(worker)\n", "done ignored"),
    ("Synchronous", "may_always", "worker not in self.gradients", "True", "never waits"),
    ("Synchronous", "may_never", "worker not in self.gradients", "False", "nobody goes on"),
    ("Synchronous", "counts_pushes",
     {"self.gradients[worker] = gradient\n":
      "self.gradients[worker] = gradient\n        "
      "self.count = getattr(self, 'count', 0) + 1\n",
      CLOSE: "if self.gradients and getattr(self, 'count', 0) >= len(self.active):",
      "            self.gradients = {}\n": "            self.gradients, self.count = {}, 0\n"},
     "counts pushes"),
    ("Synchronous", "those_at_the_start", MEAN, "sum(gradients) / len(self.workers)",
     "those at the start"),
    ("Synchronous", "forgets_who_is_done",
     {"        self.active.remove(worker)\n":
      "        self.active.remove(worker)\n        self.gradients.pop(worker, None)\n"},
     "another round"),
    ("Synchronous", "divides_by_the_active_ones", MEAN,
     "sum(gradients) / max(1, len(self.active))", "another round"),
    ("Synchronous", "as_many_as_are_active", CLOSE,
     "if self.gradients and len(self.gradients) == len(self.active):", "another round"),
    ("Synchronous", "two_halves", "            self.update(self.flat, sum(gradients)",
     "            for _ in (1, 2):\n                self.update(self.flat, sum(gradients) / 2",
     "too many updates"),
    ("Synchronous", "updates_a_copy", "self.flat, self.update, self.workers = flat,",
     "self.flat, self.update, self.workers = flat.clone(),", "a copy"),
    ("Synchronous", "zeros_do_not_count",
     "[self.gradients[w] for w in self.workers if w in self.gradients]",
     "[self.gradients[w] for w in self.workers if w in self.gradients and self.gradients[w].any()]",
     "old ones in the mean"),
    ("Synchronous", "in_sorted_order", "for w in self.workers if w in",
     "for w in sorted(self.workers) if w in", "another order"),
    ("Synchronous", "its_own_update", "self.update(self.flat, sum(gradients) / len(gradients))",
     "self.flat = self.flat - sum(gradients) / len(gradients)", "never updates"),
    ("Synchronous", "updates_with_nothing", CLOSE,
     "if self.active <= self.gradients.keys():", "divides by nothing"),
    ("Synchronous", "zero_update",
     {CLOSE: "if self.active <= self.gradients.keys():",
      MEAN: "sum(gradients) / max(1, len(gradients))"}, "too many updates"),
    ("Synchronous", "gone",
     {CLOSE: "if self.gradients and len(self.gradients) >= len(self.active):",
      "for w in self.workers if w in self.gradients]":
      "for w in self.workers if w in self.active]"}, "gone"),
    ("Synchronous", "twice_the_first", "            self.update(",
     "            gradients += gradients[:1]\n            self.update(", "old ones in the mean"),
    ("Synchronous", "first_number", MEAN, "(sum(gradients) / len(gradients))[0]", "no mean"),
)
AGE = "self.version - self.seen[worker]"
edits(
    ("Asynchronous", "since_the_last_push",
     {"        self.seen[worker] = self.version\n        return": "        return",
      "        self.version += 1\n":
      "        self.version += 1\n        self.seen[worker] = self.version\n"},
     "all 0"),
    ("Asynchronous", "never_counts", "        self.version += 1\n", "", "all 0"),
    ("Asynchronous", "one_less", AGE, "max(0, " + AGE + " - 1)", "all 0"),
    ("Asynchronous", "updates_a_copy", "self.flat, self.update = flat, update",
     "self.flat, self.update = flat.clone(), update", "a copy"),
    ("Asynchronous", "too_late",
     {"        self.version += 1\n": "",
      "        self.staleness.append(":
      "        self.version += 1\n        self.staleness.append("}, "too late"),
    ("Asynchronous", "counts_pulls",
     {"        self.version += 1\n": "",
      "        return self.flat\n": "        self.version += 1\n        return self.flat\n"},
     "counts pulls"),
    ("Asynchronous", "one_for_all",
     {"self.seen[worker] = self.version": "self.seen = self.version",
      AGE: "self.version - self.seen",
      "self.seen = dict.fromkeys(workers, 0)  # the version that a worker has pulled":
      "self.seen = 0"}, "one for all"),
    ("Asynchronous", "averages", "self.update(self.flat, gradient)",
     "self.update(self.flat, gradient / len(self.seen) / 2)", "gradients averaged"),
    ("Asynchronous", "one_mean_for_all", "self.update(self.flat, gradient)",
     "self.update(self.flat, gradient.mean())", "gradients averaged"),
    ("Asynchronous", "the_first_number", "self.update(self.flat, gradient)",
     "self.update(self.flat, gradient[:1])", "gradients averaged"),
    ("Asynchronous", "half_the_digits", "self.update(self.flat, gradient)",
     "self.update(self.flat, gradient.half())", "gradients averaged"),
    ("Asynchronous", "no_ages", "        self.staleness.append((worker, " + AGE + "))\n", "",
     "no ages"),
    ("Asynchronous", "never_updates", "        self.update(self.flat, gradient)\n", "",
     "not applied"),
    ("Asynchronous", "old_parameters",
     {"        return self.flat\n": "        return self.start\n",
      "        self.flat, self.update = flat, update\n":
      "        self.flat, self.update, self.start = flat, update, flat.clone()\n"}, "pulled"),
    ("Asynchronous", "the_age_alone", "append((worker, " + AGE + "))", "append(" + AGE + ")",
     "no pairs"),
    ("Asynchronous", "twice_the_age", AGE, "2 * (" + AGE + ")", "other ages"),
)
LEAD = "self.clock[worker] - min(self.clock.values()) <= self.bound"
edits(
    ("Bounded", "less_than", "<= self.bound", "< self.bound", "less than"),
    ("Bounded", "never_waits", LEAD, "True", "never waits"),
    ("Bounded", "the_slow_wait", LEAD,
     "max(self.clock.values()) - self.clock[worker] <= self.bound",
     "the slow wait"),
    ("Bounded", "with_the_mean", "min(self.clock.values())",
     "sum(self.clock.values()) / len(self.clock)", "the mean"),
    ("Bounded", "done_ones_too", "del self.clock[worker]", "pass", "done ones count"),
    ("Bounded", "on_age", LEAD, "self.version - self.seen[worker] <= self.bound", "bound on age"),
    ("Bounded", "no_infinity", LEAD,
     "self.clock[worker] - min(self.clock.values()) in range(self.bound + 1)", "no infinity"),
    ("Bounded", "barrier", LEAD,
     "self.bound == float('inf') or self.clock[worker] // max(1, self.bound) <= "
     "min(self.clock.values()) // max(1, self.bound)", "a barrier"),
    ("Bounded", "less_than_a_bound_above_0", LEAD,
     "self.clock[worker] - min(self.clock.values()) < max(self.bound, 1)", "another rule"),
    ("Bounded", "not_applied", "        super().push(worker, gradient)\n", "",
     "not applied at once"),
    ("Bounded", "twice_the_bound", "<= self.bound", "<= 2 * self.bound", "another rule"),
    ("Bounded", "gone", "self.clock[worker] - min(self.clock.values())",
     "self.clock[worker] - min(self.clock[w] for w in self.seen)", "gone worker"),
)
# fmt: on


@wrong("Bounded", "counts pulls")
class CountsPulls(Asynchronous):
    def __init__(self, flat, update, workers, bound):
        super().__init__(flat, update, workers)
        self.bound, self.clock = bound, dict.fromkeys(workers, 0)

    def pull(self, worker):
        self.clock[worker] += 1
        return super().pull(worker)

    def may_pull(self, worker):
        return self.clock[worker] - min(self.clock.values()) <= self.bound

    def done(self, worker):
        del self.clock[worker]


# fmt: off
edits(
    ("seconds_per_round", "all_wait",
     "compute + 3 * latency + others + 2 * own",
     "compute + 3 * latency + 2 * workers * own / servers", "all wait"),
    ("seconds_per_round", "own_link", "+ 2 * own", "+ 2 * own / servers", "own link"),
    ("seconds_per_round", "average_worker", "+ others", "+ others / 2", "average worker"),
    ("seconds_per_round", "first_worker", " + others", "", "first worker"),
    ("seconds_per_round", "one_server", " / servers", "", "one server"),
    ("seconds_per_round", "each_workers_latency", "3 * latency", "3 * workers * latency",
     "latency of each worker"),
    ("seconds_per_round", "each_servers_latency", "3 * latency", "3 * servers * latency",
     "latency of each server"),
    ("seconds_per_round", "two_latencies", "3 * latency", "2 * latency", "two latencies"),
    ("seconds_per_round", "half_duplex", "+ others", "+ 2 * others", "half duplex"),
    ("seconds_per_round", "compute_shared", "compute +", "compute / workers +", "compute shared"),
    ("seconds_per_round", "text", "return compute + 3 * latency + others + 2 * own",
     "return f'{compute + 3 * latency + others + 2 * own} s'", "no number"),
    ("seconds_per_round", "bits", "nbytes / bandwidth", "8 * nbytes / bandwidth",
     "another formula"),
)
# fmt: on


# fmt: off
ANSWERED = "    if kind == \"raised\":\n        raise value\n    return value\n"
edits(
    ("call", "server_0",
     {"(name, args), server)": "(name, args), 0)", "recv_bytes(server)": "recv_bytes(0)"},
     "another server"),
    ("call", "the_pair", ANSWERED, "    return kind, value\n", "the pair"),
    ("call", "the_pair_of_an_error", "raise value", "return kind, value", "the pair"),
    ("call", "error_returned", "raise value", "return value", "not raised"),
    ("call", "error_ignored", "raise value", "return None", "not raised"),
    ("call", "from_anybody", "recv_bytes(server)", "recv_bytes()", "from anybody"),
    ("call", "no_answer_taken",
     {"    _, (kind, value) = recv_bytes(server)\n": "", ANSWERED: "    return None\n"},
     "no answer taken"),
    ("call", "no_tuple_of_arguments", "(name, args)", "(name, *args)", "no pair"),
    ("call", "no_arguments", "(name, args)", "(name, ())", "other request"),
    ("call", "true_values_alone", "return value", "return value or None", "nothing for 0"),
    ("call", "looks_at_the_value", 'if kind == "raised":', "if isinstance(value, Exception):",
     "returned, not raised"),
    ("call", "always_a_ValueError", "raise value", "raise ValueError(*value.args)",
     "another class"),
    ("call", "returns_nothing", "return value", "return None", "other value"),
)
TRIED = "except Exception as error:\n                answer = \"raised\", error\n"
edits(
    ("serve_calls", "clients_themselves", "set(clients)", "clients", "caller's list"),
    ("serve_calls", "error_kills", TRIED, "finally:\n                pass\n", "dies"),
    ("serve_calls", "four_classes", "except Exception as error",
     "except (ValueError, TypeError, AttributeError, KeyError) as error", "dies of another"),
    ("serve_calls", "error_as_value", 'answer = "raised", error', 'answer = "ok", error',
     "an ok error"),
    ("serve_calls", "text_of_the_error", 'answer = "raised", error',
     'answer = "raised", str(error)', "an ok error"),
    ("serve_calls", "first_shutdown", "active.remove(client)", "active.clear()",
     "first shutdown"),
    ("serve_calls", "shutdown_unanswered", "active.remove(client)\n",
     "active.remove(client)\n            continue\n", "shutdown unanswered"),
    ("serve_calls", "looks_outside_of_try",
     {"            try:\n": "            method = getattr(target, name)\n            try:\n",
      "getattr(target, name)(*args)": "method(*args)"}, "no such method"),
    ("serve_calls", "the_objects_shutdown", "active.remove(client)\n",
     "active.remove(client)\n            answer = 'ok', target.shutdown()\n", "other answer"),
    ("serve_calls", "two_shutdowns", "while active:",
     "while len(active) > max(0, len(clients) - 2):", "nobody is answered"),
    ("serve_calls", "None_unanswered", "        send_bytes(answer, client)\n",
     "        if answer != (\"ok\", None) or name == \"shutdown\":\n"
     "            send_bytes(answer, client)\n", "None unanswered"),
    ("serve_calls", "one_client_first",
     "recv_bytes()", "recv_bytes((clients := [*clients[1:], clients[0]])[-1])",
     "certain client"),
    ("serve_calls", "to_the_first_client", "send_bytes(answer, client)",
     "send_bytes(answer, clients[0])", "nobody is answered"),
    ("serve_calls", "called_twice", "answer = \"ok\", getattr(target, name)(*args)",
     "getattr(target, name)(*args)\n                "
     "answer = \"ok\", getattr(target, name)(*args)", "other total"),
    ("serve_calls", "no_value", "answer = \"ok\", getattr(target, name)(*args)",
     "getattr(target, name)(*args)", "other answer"),
    ("serve_calls", "error_unanswered", 'answer = "raised", error', "continue",
     "nobody is answered"),
)
FETCH = 'return call(server, "rows", ids)'
PUT = 'call(ctx.server, "add_gradient", ctx.ids, gradient)'
edits(
    ("RemoteRows", "gradient_of_the_anchor", "return None, None, None",
     "return gradient.sum().reshape(1), None, None", "the anchor"),
    ("RemoteRows", "plus_the_anchor", FETCH, FETCH + " + anchor", "other rows"),
    ("RemoteRows", "makes_the_step_too", PUT, PUT + "\n        call(ctx.server, 'step', 0.1)",
     "other calls"),
    ("RemoteRows", "gradient_first", "ctx.ids, gradient)", "gradient, ctx.ids)", "swapped"),
    ("RemoteRows", "too_few", "return None, None, None", "return None", "too few"),
    ("RemoteRows", "whole_table", FETCH,
     'return call(server, "rows", torch.arange(10))[ids]', "whole table"),
    ("RemoteRows", "float_ids", FETCH, 'return call(server, "rows", ids.float())', "float ids"),
    ("RemoteRows", "no_gradient", "        " + PUT + "\n", "", "no gradient"),
    ("RemoteRows", "twice", PUT, PUT + "\n        " + PUT, "gradient twice"),
    ("RemoteRows", "unique_ids", PUT,
     'n = len(ctx.ids.unique())\n        '
     'call(ctx.server, "add_gradient", ctx.ids[:n], gradient[:n])',
     "duplicates lost"),
    ("RemoteRows", "kept_by_the_class",
     {"ctx.ids, ctx.server = ids, server": "RemoteRows.ids, RemoteRows.server = ids, server",
      "call(ctx.server, \"add_gradient\", ctx.ids,":
      "call(RemoteRows.server, \"add_gradient\", RemoteRows.ids,"}, "one for both"),
    ("RemoteRows", "mean", PUT,
     'call(ctx.server, "add_gradient", ctx.ids, gradient / len(gradient))', "other gradient"),
    ("RemoteRows", "asks_twice", FETCH,
     'call(server, "rows", ids)\n        return call(server, "rows", ids)', "other calls"),
    ("RemoteRows", "other_rows", FETCH, 'return 0 * call(server, "rows", ids) + 1', "other rows"),
    ("RemoteRows", "not_read", PUT,
     'send_bytes(("add_gradient", (ctx.ids, gradient)), ctx.server)', "no answer read"),
    ("RemoteRows", "no_way_back", "    @staticmethod\n    def backward",
     "    @staticmethod\n    def apply(anchor, ids, server):\n"
     "        return call(server, 'rows', ids)\n\n    @staticmethod\n    def backward", "cut off"),
)
# fmt: on
