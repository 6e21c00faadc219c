"""Wrong answers to lab 06."""

import torch
import torch.distributed as dist

from tests.labs.answers import edits, wrong
from tests.labs.lab06.right_answers import ByAccumulators, asks_autograd


@wrong("average", "too large")
def sums_first(bucket):
    class Later:
        def wait(self):
            work.wait()
            bucket.buffer().div_(dist.get_world_size())

    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return Later()


@wrong("average", "several")
def one_for_each_gradient(bucket):
    """Return a handle that waits for all of the all_reduces, so the mean is right."""

    class All:
        def wait(self):
            for work in works:
                work.wait()

    works = []
    for gradient in bucket.gradients():
        gradient /= dist.get_world_size()
        works.append(dist.all_reduce(gradient, async_op=True))
    return All()


# fmt: off
edits(
    ("average", "no_division", "    flat.div_(dist.get_world_size())\n", "", "the sum"),
    ("average", "twice", "dist.get_world_size()", "dist.get_world_size() ** 2", "divided twice"),
    ("average", "waits", "return dist.all_reduce(flat, async_op=True)",
     "work = dist.all_reduce(flat, async_op=True)\n    work.wait()\n    return work", "waits"),
    ("average", "blocking", ", async_op=True", "", "waits"),
    ("average", "nothing_returned", "return dist.all_reduce", "dist.all_reduce", "returned None"),
    ("average", "rank_0_only", "all_reduce(flat", "reduce(flat, 0", "not started"),
    ("average", "a_copy", "bucket.buffer()\n", "bucket.buffer().clone()\n", "a copy"),
    ("average", "whole_numbers", "flat.div_", "flat.floor_divide_", "rounded"),
    ("average", "in_float16", "    flat.div_(dist.get_world_size())\n",
     "    flat.copy_((flat / dist.get_world_size()).half())\n", "rounded"),
    ("average", "one_for_each",
     {"    flat = bucket.buffer()\n": "",
      "    flat.div_(dist.get_world_size())\n": "    for flat in bucket.gradients():\n"
      "        flat.div_(dist.get_world_size())\n",
      "    return dist.all_reduce(flat, async_op=True)":
      "        work = dist.all_reduce(flat, async_op=True)\n    return work"}, "never waited for"),
    ("average", "greatest", "    return dist.all_reduce(flat, async_op=True)",
     "    return dist.all_reduce(flat, dist.ReduceOp.MAX, async_op=True)", "no mean"),
    ("average", "always_two", "dist.get_world_size()", "2", "another number"),
)
edits(
    ("average", "in_wait",
     {"            work.wait()\n": "",
      "_size())\n": "_size())\n            dist.all_reduce(bucket.buffer())\n",
      "    work = dist.all_reduce(bucket.buffer(), async_op=True)\n": ""}, "not started"),
    ("average", "rank_0_divides",
     "bucket.buffer().div_", "dist.get_rank() or bucket.buffer().div_", "rank 0 alone"),
    of=sums_first,
)

CAN_START = "while len(self.works) < len(self.missing) and not self.missing[len(self.works)]:\n"
COLLECT = "            self.buckets.collect(i)\n"
START = "            self.works.append(self.start(grad_bucket(self.buckets, i)))\n"
edits(
    ("Reducer", "as_they_are_complete",
     CAN_START + "            i = len(self.works)\n",
     "i = self.bucket_of[parameter]\n        if not self.missing[i]:\n", "as they are complete"),
    ("Reducer", "waits_in_the_hook",
     START, START + "            self.works[-1].wait()\n", "waits in the hook"),
    ("Reducer", "one_at_most", "while len(self.works)", "if len(self.works)", "never starts"),
    ("Reducer", "not_collected", COLLECT, "", "not collected"),
    ("Reducer", "collects_late", COLLECT + START, START + COLLECT, "not collected"),
    ("Reducer", "too_early", ".discard(parameter)", ".clear()", "at another time"),
    ("Reducer", "with_the_last_gradient",
     "not self.missing[len(self.works)]:", "not any(self.missing):", "at another time"),
    ("Reducer", "no_order", "        self.order.append(parameter)\n", "", "no order"),
    ("Reducer", "collects_all", "self.buckets.collect(i)",
     "[self.buckets.collect(j) for j in range(len(self.missing))]", "touched"),
    ("Reducer", "adds_the_result", "flat.copy_(result)", "flat.add_(result)", "other values"),
    ("Reducer", "notes_buckets", "self.order.append(parameter)",
     "self.order.append(self.bucket_of[parameter])", "no order"),
    ("Reducer", "starts_average_itself", "self.start(grad_bucket", "average(grad_bucket",
     "no ranks"),
    ("Reducer", "result_dropped", "flat.copy_(result)", "pass", "result dropped"),
    ("Reducer", "copies_true",
     "if isinstance(result, torch.Tensor):", "if result is not None:", "copies True"),
    ("Reducer", "waits_for_the_last",
     "in zip(self.buckets.flat, self.works):", "in [*zip(self.buckets.flat, self.works)][-1:]:",
     "not waited for"),
    ("Reducer", "after_backward",
     {"        " + CAN_START: "\n    def wait(self):\n        for _ in self.missing:\n",
      "    def wait(self) -> None:\n": ""}, "after backward"),
    ("Reducer", "from_the_first", CAN_START + "            i = len(self.works)\n",
     "for i in range(len(self.missing)):\n            if self.missing[i]:\n                break\n",
     "started twice"),
    ("Reducer", "starts_the_incomplete", "        for flat, work in zip(self.buckets.flat",
     "        for i in range(len(self.works), len(self.missing)):\n" + COLLECT + START
     + "        for flat, work in zip(self.buckets.flat", "incomplete"),
    ("Reducer", "starts_nothing", CAN_START, "while False:\n", "starts nothing"),
)

edits(
    ("Reducer", "always_bucket_0", "grad_bucket(self.buckets, i)", "grad_bucket(self.buckets, 0)",
     "another bucket"),
    ("Reducer", "hands_out_the_tensor", "grad_bucket(self.buckets, i)", "self.buckets.flat[i]",
     "no bucket"),
    ("Reducer", "collects_in_wait",
     {COLLECT: "", "            result = work.wait()\n":
      "            result = work.wait()\n            self.buckets.collect(len(self.waited))\n"
      "            self.waited.append(work)\n",
      "        self.works = []": "        self.waited = []\n        self.works = []"},
     "collected late"),
)

BROADCAST = "    dist.broadcast(order, src=0)\n"
edits(
    ("rebuilt_buckets", "own_order", BROADCAST, "", "its own order"),
    ("rebuilt_buckets", "to_rank_1_alone", BROADCAST,
     "    if dist.get_rank() == 1:\n        dist.recv(order, 0)\n"
     "    elif dist.get_rank() == 0 < dist.get_world_size() - 1:\n        dist.send(order, 1)\n",
     "no agreement"),
    ("rebuilt_buckets", "in_a_byte",
     "torch.tensor(ready, device=parameters[0].device)",
     "torch.tensor(ready).to(torch.uint8)", "another order"),
    ("rebuilt_buckets", "in_float16", {"parameters[0].device)": "parameters[0].device).half()",
     "order.tolist()": "order.long().tolist()"}, "rounded"),
    ("rebuilt_buckets", "sorted_in_each_bucket",
     "return assign_buckets(forward_order, bucket_cap_mb, first_bucket_mb)",
     "return [sorted(b, key=torch.Tensor.numel) for b in assign_buckets(forward_order, "
     "bucket_cap_mb, first_bucket_mb)]", "another order"),
    ("rebuilt_buckets", "places_in_time", "order.tolist()", "order.argsort().tolist()",
     "places by number"),
    ("rebuilt_buckets", "last_rank", "src=0", "src=dist.get_world_size() - 1", "another rank's"),
    ("rebuilt_buckets", "rank_1", "src=0", "src=1", "another rank's"),
    ("rebuilt_buckets", "numbers", "return assign_buckets(forward_order, bucket_cap_mb,",
     "return [order.tolist()] or (forward_order, bucket_cap_mb,", "no parameter"),
    ("rebuilt_buckets", "back_to_front",
     "reversed(order.tolist())", "order.tolist()", "back to front"),
    ("rebuilt_buckets", "ignores_ready",
     "[parameters[i] for i in reversed(order.tolist())]", "parameters", "the old order"),
    ("rebuilt_buckets", "no_first",
     "bucket_cap_mb, first_bucket_mb)", "bucket_cap_mb)", "other caps"),
    ("rebuilt_buckets", "the_other_way_round",
     "order.tolist()", "order.argsort().tolist()", "places by number"),
)

BEFORE = "            nodes += [before for before, _ in node.next_functions]\n"
edits(
    ("unused_parameters", "recursive",
     {"    while nodes:\n        node = nodes.pop()\n": "    def visit(node):\n",
      BEFORE: "            for before, _ in node.next_functions:\n                visit(before)\n"
              "    for node in nodes:\n        visit(node)\n"}, "recursion"),
    ("unused_parameters", "by_size", "return [p for p in parameters if id(p) not in reached]",
     "return sorted((p for p in parameters if id(p) not in reached), key=torch.Tensor.numel)",
     "in another order"),
    ("unused_parameters", "walks_each_path", " and node not in seen", "", "each path"),
    ("unused_parameters", "used", "not in reached]", "in reached]", "the used ones"),
    ("unused_parameters", "first_tensor", "in tensors]\n    while", "in tensors[:1]]\n    while",
     "used"),
    ("unused_parameters", "one_level", BEFORE,
     "            reached |= {id(getattr(b, 'variable', None)) for b, _ in node.next_functions}\n",
     "used"),
    ("unused_parameters", "by_equal_values", "if id(p) not in reached]",
     "if not any(torch.equal(p, n.variable) for n in seen if hasattr(n, 'variable'))]", "unused"),
    ("unused_parameters", "none_is_a_node", "node is not None and ", "", "None"),
    ("unused_parameters", "back_to_front", "for p in parameters", "for p in reversed(parameters)",
     "in another order"),
    ("unused_parameters", "by_value", "if id(p) not in reached]",
     "if p not in [getattr(n, 'variable', None) for n in seen] + tensors]", "by value"),
    ("unused_parameters", "of_one_tensor",
     "[leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor)]", "[output]",
     "no tensor"),
    ("unused_parameters", "by_id", "return [p for", "return [id(p) for", "no parameter"),
    ("unused_parameters", "one_at_a_time", {"return [p for": "return (p for",
     "not in reached]": "not in reached)"}, "no list"),
)
edits(
    ("unused_parameters", "by_a_backward",
     {"found = torch.autograd.grad(leaves, parameters, ones, retain_graph=True, allow_unused=True)":
      "torch.autograd.backward(leaves, ones, retain_graph=True)",
      "for p, g in zip(parameters, found, strict=True) if g": "for p in parameters if p.grad"},
     "a backward"),
    ("unused_parameters", "uses_the_graph_up", "retain_graph=True, ", "", "a backward"),
    of=asks_autograd,
)

FLAG = "ddp.require_backward_grad_sync"
BACK = f"        {FLAG} = before\n"
FINALLY = f"    try:\n        yield\n    finally:\n{BACK}"
edits(
    ("no_sync", "nothing_set", f"    {FLAG} = False\n", "", "not False"),
    ("no_sync", "no_finally", FINALLY, f"    yield\n    {FLAG} = before\n", "no finally"),
    ("no_sync", "after_some_exceptions", f"    finally:\n{BACK}",
     f"    except Exception:\n{BACK}        raise\n    else:\n{BACK}", "no finally"),
    ("no_sync", "always_true_afterwards", f"{FLAG} = before", f"{FLAG} = True", "always True"),
    ("no_sync", "never_set_back", BACK, "        pass\n", "not set back"),
    ("no_sync", "without_gradients",
     "        yield\n", "        with torch.no_grad():\n            yield\n", "no gradients"),
    ("no_sync", "swallows", "    finally:", "    except Exception:\n        pass\n    finally:",
     "swallows"),
    ("no_sync", "toggles", {f"{FLAG} = False": f"{FLAG} = not {FLAG}",
                            f"{FLAG} = before": f"{FLAG} = not {FLAG}"}, "not False"),
    ("no_sync", "no_context", {"@contextmanager\n": "", FINALLY: ""}, "returned None"),
    ("no_sync", "no_yield", FINALLY, "", "not for with"),
)

DDP = "DistributedDataParallel"
START_ALIKE = "broadcast_parameters(module)"
ASSIGN = "assign_buckets(self.trained, *self.caps)"
HOOKS = ("*self.caps)))\n        for p in self.trained:\n"
         "            p.register_post_accumulate_grad_hook(self.gradient_ready)\n")
READY = "        self.reducer.ready(parameter)\n"
QUEUE = "            queue_callback(self.finish)\n"
NOTE_ORDER = ("        if self.first_order is None:\n"
              "            self.first_order = self.reducer.order\n")
edits(
    (DDP, "no_broadcast", f"        {START_ALIKE}\n", "", "own start"),
    (DDP, "no_sync_after_a_lone_forward", "            self.expected = 0\n",
     "            pass\n", "no_sync too"),
    (DDP, "buffers_forgotten", START_ALIKE,
     "[dist.broadcast(p.detach(), 0) for p in module.parameters()]", "own start"),
    (DDP, "frozen_forgotten", START_ALIKE,
     "[dist.broadcast(t.detach(), 0) for t in (*self.trained, *module.buffers())]", "own start"),
    (DDP, "no_cap", ASSIGN, "assign_buckets(self.trained, 25)", "too few leave"),
    (DDP, "one_cap", ASSIGN, "assign_buckets(self.trained, self.caps[0])", "one cap"),
    (DDP, "frozen_in_buckets",
     ASSIGN, "assign_buckets(module.parameters(), *self.caps)", "some are not ready"),
    (DDP, "only_sums", f"({ASSIGN})",
     f"({ASSIGN}), lambda bucket: dist.all_reduce(bucket.buffer(), async_op=True)", "the sum"),
    (DDP, "divides_twice", f"({ASSIGN})",
     f"({ASSIGN}), lambda b: [b.buffer().div_(dist.get_world_size()), average(b)][1]",
     "divided twice"),
    (DDP, "divides_by_another_number", f"({ASSIGN})",
     f"({ASSIGN}), lambda b: dist.all_reduce(b.buffer().div_(7), async_op=True)", "no mean"),
    (DDP, "averages_nothing", f"({ASSIGN})",
     f"({ASSIGN}), lambda bucket: dist.all_reduce(bucket.buffer().clone(), async_op=True)",
     "own gradients"),
    (DDP, "each_hook_twice", HOOKS,
     HOOKS + "            p.register_post_accumulate_grad_hook(self.gradient_ready)\n",
     "ready twice"),
    (DDP, "raises_first",
     "        self.reducer.wait()\n        if any(self.reducer.missing):\n"
     "            raise self.missing_gradients()\n",
     "        if any(self.reducer.missing):\n            raise self.missing_gradients()\n"
     "        self.reducer.wait()\n", "never waited for"),
    (DDP, "no_hooks", HOOKS, "*self.caps)))\n", "none leaves"),
    (DDP, "hooks_for_all",
     HOOKS, HOOKS.replace("self.trained", "module.parameters()"), "frozen hooked"),
    (DDP, "before_it_is_added",
     {HOOKS: HOOKS.replace("post_accumulate_grad_hook(self", "hook(lambda _, p=p: self"),
      "p=p: self.gradient_ready": "p=p: self.gradient_ready(p)"}, "not yet averaged"),
    (DDP, "sync_inside_no_sync",
     "        if not self.expected:\n            return\n", "", "later steps"),
    (DDP, "never_finishes", QUEUE, "", "never waited for"),
    (DDP, "finishes_each_time", f"        if not self.reducer.order:\n{QUEUE}",
     "        queue_callback(self.finish)\n        if not self.reducer.order:\n",
     "some are not ready"),
    (DDP, "waits_in_the_hook",
     READY, f"{READY}        self.reducer.wait()\n", "waits in a hook"),
    (DDP, "all_at_the_end", READY,
     "        self.reducer.order.append(parameter)\n"
     "        if len(self.reducer.order) == len(self.trained):\n"
     "            order, self.reducer.order = self.reducer.order, []\n"
     "            for p in order:\n"
     "                self.reducer.ready(p)\n", "all at the end"),
    (DDP, "unused_hangs",
     "            for p in self.unused:\n                self.reducer.ready(p)\n", "",
     "unused are missing"),
    (DDP, "expected_for_ever", "        self.expected -= 1\n", "", "one average each"),
    (DDP, "does_not_wait", "        self.reducer.wait()\n", "", "never waited for"),
    (DDP, "no_word_of_missing",
     "        if any(self.reducer.missing):\n            raise self.missing_gradients()\n", "",
     "says nothing"),
    (DDP, "starts_the_incomplete",
     "        self.reducer.wait()\n", "        for i in range(len(self.reducer.works), "
     "len(self.reducer.missing)):\n            self.reducer.buckets.collect(i)\n"
     "            self.reducer.works.append(\n"
     "                self.reducer.start(grad_bucket(self.reducer.buckets, i)))\n"
     "        self.reducer.wait()\n", "incomplete"),
    (DDP, "unused_not_shared", "share_unused(self.reducer.buckets)", "pass", "not shared"),
    (DDP, "zeros_for_none", "            share_unused(self.reducer.buckets)\n",
     "            for p in self.trained:\n"
     "                p.grad = torch.zeros_like(p) if p.grad is None else p.grad\n"
     "            share_unused(self.reducer.buckets)\n", "None stays"),
    (DDP, "parameters_before_each_forward", "        self.expected += 1\n",
     "        self.expected += 1\n        broadcast_parameters(self.module)\n",
     "rebuilt each time"),
    (DDP, "always_shares", "        if self.find_unused_parameters:\n            share_unused(",
     "        if True:\n            share_unused(", "more than the buckets"),
    (DDP, "never_rebuilt", NOTE_ORDER, "", "never rebuilt"),
    (DDP, "rebuilt_each_time", "if self.first_order is None:", "if True:", "rebuilt each time"),
    (DDP, "asks_all_each_time", "        if self.first_order:\n",
     "        if self.first_order == []:\n"
     "            dist.all_gather_object([None] * dist.get_world_size(), 0)\n"
     "        if self.first_order:\n", "rebuilt each time"),
    (DDP, "order_in_numbers",
     "= self.reducer.order\n", "= list(range(len(self.trained)))\n", "no parameters"),
    (DDP, "small_ones_first", "= self.reducer.order\n",
     "= sorted(self.reducer.order, key=torch.numel)\n", "another order"),
    (DDP, "copies_in_the_end", NOTE_ORDER,
     f"{NOTE_ORDER}        for p in self.trained:\n            p.grad = p.grad.clone()\n",
     "other memory"),
    (DDP, "begins_once", "order\n        self.reducer.begin()", "order", "one average each"),
)
edits(
    (DDP, "raises_before_it_waits",
     {"        self.reducer.wait()\n        if sum": "        if sum",
      "            raise self.missing_gradients()\n":
      "            raise self.missing_gradients()\n        self.reducer.wait()\n"},
     "never waited for"),
    of=ByAccumulators,
)
# fmt: on


@wrong(DDP, "torch's own")
class TorchsInside(torch.nn.Module):
    def __init__(self, module, **options):
        super().__init__()
        options.setdefault("bucket_cap_mb", 25)
        self.ddp = torch.nn.parallel.DistributedDataParallel(module, **options)
        self.module = module
        self.no_sync = self.ddp.no_sync

    def forward(self, *args, **kwargs):
        return self.ddp(*args, **kwargs)
