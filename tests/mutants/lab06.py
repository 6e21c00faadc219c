"""Wrong answers to lab 06."""

from contextlib import contextmanager

import torch
import torch.distributed as dist

from tests.mutants import edit, mutant

# average

edit("average", "no_division", replace="    flat.div_(dist.get_world_size())\n", by="",
     hint="That is the sum")  # fmt: skip
edit("average", "twice", replace="flat.div_(dist.get_world_size())",
     by="flat.div_(dist.get_world_size() ** 2)", hint="divided twice")  # fmt: skip
edit("average", "waits", replace="return dist.all_reduce(flat, async_op=True)",
     by="work = dist.all_reduce(flat, async_op=True)\n    work.wait()\n    return work",
     hint="before it returns")  # fmt: skip
edit("average", "blocking", replace="return dist.all_reduce(flat, async_op=True)",
     by="return dist.all_reduce(flat)", hint="before it returns")  # fmt: skip
edit("average", "nothing_returned", replace="return dist.all_reduce", by="dist.all_reduce",
     hint="Return the Work")  # fmt: skip
edit("average", "rank_0_only", replace="dist.all_reduce(flat, async_op=True)",
     by="dist.reduce(flat, 0, async_op=True)", hint="a reduce tells rank 0 alone")  # fmt: skip
edit("average", "a_copy", replace="flat = bucket.buffer()", by="flat = bucket.buffer().clone()",
     hint="not a copy of it")  # fmt: skip


@mutant("average", hint="Divide first")
def sums_first(bucket):
    class Later:
        def wait(self):
            work.wait()
            bucket.buffer().div_(dist.get_world_size())

    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return Later()


# Reducer

edit("Reducer", "as_they_are_complete",
     replace="while len(self.works) < len(self.missing) and not self.missing[len(self.works)]:\n"
     "            i = len(self.works)\n",
     by="i = self.bucket_of[parameter]\n        if not self.missing[i]:\n",
     hint="the order in which they are complete")  # fmt: skip
edit("Reducer", "waits_in_the_hook",
     replace="self.works.append(self.start(grad_bucket(self.buckets, i)))",
     by="self.works.append(self.start(grad_bucket(self.buckets, i)))\n"
     "            self.works[-1].wait()",
     hint="It waits inside the hook")  # fmt: skip
edit("Reducer", "one_at_most", replace="while len(self.works)", by="if len(self.works)",
     hint="A bucket never starts")  # fmt: skip
edit("Reducer", "not_collected", replace="            self.buckets.collect(i)\n", by="",
     hint="collect(i) before")  # fmt: skip
edit("Reducer", "too_early", replace=".discard(parameter)", by=".clear()",
     hint="A bucket starts with its last gradient")  # fmt: skip
edit("Reducer", "no_order", replace="        self.order.append(parameter)\n", by="",
     hint="add each")  # fmt: skip
edit("Reducer", "result_dropped", replace="flat.copy_(result)", by="pass",
     hint="may return a new tensor")  # fmt: skip
edit("Reducer", "waits_for_the_last",
     replace="for flat, work in zip(self.buckets.flat, self.works):",
     by="for flat, work in list(zip(self.buckets.flat, self.works))[-1:]:",
     hint="wait once for each")  # fmt: skip


@mutant("Reducer", hint="All is started after backward")
class after_backward:
    def __init__(self, buckets, start):
        self.buckets, self.start = buckets, start

    def begin(self):
        self.order = []

    def ready(self, parameter):
        self.order.append(parameter)

    def wait(self):
        for i, flat in enumerate(self.buckets.flat):
            self.buckets.collect(i)
            bucket = type("Bucket", (), {"buffer": lambda _, f=flat: f, "index": lambda _, n=i: n})
            flat.copy_(self.start(bucket()).wait())


# rebuilt_buckets

edit("rebuilt_buckets", "own_order", replace="    dist.broadcast(order, src=0)\n", by="",
     hint="order that it saw itself")  # fmt: skip
edit("rebuilt_buckets", "last_rank", replace="src=0", by="src=dist.get_world_size() - 1",
     hint="the last rank's order")  # fmt: skip
edit("rebuilt_buckets", "back_to_front", replace="in reversed(order.tolist())",
     by="in order.tolist()", hint="back to front")  # fmt: skip
edit("rebuilt_buckets", "ignores_ready",
     replace="[parameters[i] for i in reversed(order.tolist())]", by="parameters",
     hint="That is the old order")  # fmt: skip
edit("rebuilt_buckets", "no_first", replace="bucket_cap_mb, first_bucket_mb)", by="bucket_cap_mb)",
     hint="pass both caps on")  # fmt: skip

# unused_parameters


def _leaves(output):
    if isinstance(output, torch.Tensor):
        return [output]
    values = output.values() if isinstance(output, dict) else output
    nested = isinstance(output, dict | list | tuple)
    return [leaf for value in values for leaf in _leaves(value)] if nested else []


@mutant("unused_parameters", hint="keep a list of nodes")
def recursive(output, parameters):
    seen = set()

    def visit(node):
        if node is not None and node not in seen:
            seen.add(node)
            for before, _ in node.next_functions:
                visit(before)

    leaves = _leaves(output)
    for leaf in leaves:
        visit(leaf.grad_fn)
    reached = {id(getattr(node, "variable", None)) for node in seen} | {id(x) for x in leaves}
    return [p for p in parameters if id(p) not in reached]


edit("unused_parameters", "used", replace="if id(p) not in reached", by="if id(p) in reached",
     hint="that are used")  # fmt: skip
edit("unused_parameters", "first_tensor",
     replace="nodes = [tensor.grad_fn for tensor in tensors]",
     by="nodes = [tensor.grad_fn for tensor in tensors[:1]]",
     hint="every tensor of the output")  # fmt: skip
edit("unused_parameters", "one_level",
     replace="nodes += [before for before, _ in node.next_functions]",
     by="reached |= {id(getattr(b, 'variable', None)) for b, _ in node.next_functions}",
     hint="look through all nodes")  # fmt: skip
edit("unused_parameters", "none_is_a_node", replace="node is not None and node not in seen",
     by="node not in seen", hint="may hold None")  # fmt: skip
edit("unused_parameters", "back_to_front", replace="for p in parameters if",
     by="for p in reversed(parameters) if", hint="in the order of")  # fmt: skip
edit("unused_parameters", "by_value", replace="if id(p) not in reached]",
     by="if p not in [getattr(n, 'variable', None) for n in seen] + tensors]",
     hint="element by element")  # fmt: skip

# no_sync

edit("no_sync", "nothing_set", replace="    ddp.require_backward_grad_sync = False\n", by="",
     hint="must be False")  # fmt: skip


@mutant("no_sync", hint="in a `finally:`")
@contextmanager
def no_finally(ddp):
    before = ddp.require_backward_grad_sync
    ddp.require_backward_grad_sync = False
    yield
    ddp.require_backward_grad_sync = before


@mutant("no_sync", hint="must stay so afterwards")
@contextmanager
def always_true_afterwards(ddp):
    ddp.require_backward_grad_sync = False
    try:
        yield
    finally:
        ddp.require_backward_grad_sync = True


@mutant("no_sync", hint="must be what it was before")
@contextmanager
def never_set_back(ddp):
    ddp.require_backward_grad_sync = False
    yield


@mutant("no_sync", hint="lets it pass")
@contextmanager
def swallows(ddp):
    before = ddp.require_backward_grad_sync
    ddp.require_backward_grad_sync = False
    try:
        yield
    except Exception:
        pass
    finally:
        ddp.require_backward_grad_sync = before


# DistributedDataParallel

DDP = "DistributedDataParallel"
edit(DDP, "no_broadcast", replace="        broadcast_parameters(module)\n", by="",
     hint="must begin with rank 0's")  # fmt: skip
edit(DDP, "buffers_forgotten", replace="broadcast_parameters(module)",
     by="[dist.broadcast(p.detach(), 0) for p in module.parameters()]",
     hint="parameters and buffers")  # fmt: skip
edit(DDP, "frozen_forgotten", replace="broadcast_parameters(module)",
     by="[dist.broadcast(t.detach(), 0) for t in (*self.trained, *module.buffers())]",
     hint="frozen ones too")  # fmt: skip
edit(DDP, "no_cap", replace="assign_buckets(self.trained, *self.caps)",
     by="assign_buckets(self.trained, 25)", hint="Do the caps reach")  # fmt: skip
edit(DDP, "no_hooks", by="*self.caps)))\n", hint="has to tell the reducer",
     replace="*self.caps)))\n        for p in self.trained:\n"
     "            p.register_post_accumulate_grad_hook(self.gradient_ready)\n")  # fmt: skip
edit(DDP, "sync_inside_no_sync", replace="        if not self.expected:\n            return\n",
     by="", hint="Inside no_sync the hook does nothing")  # fmt: skip
edit(DDP, "never_finishes", replace="            queue_callback(self.finish)\n", by="",
     hint="queue `finish`")  # fmt: skip
edit(DDP, "waits_in_the_hook", replace="        self.reducer.ready(parameter)\n",
     by="        self.reducer.ready(parameter)\n        self.reducer.wait()\n",
     hint="A hook waits")  # fmt: skip
edit(DDP, "does_not_wait", replace="        self.reducer.wait()\n", by="", hint="queue `finish`")
edit(DDP, "unused_hangs",
     replace="            for p in self.unused:\n                self.reducer.ready(p)\n", by="",
     hint="ready from the start")  # fmt: skip
edit(DDP, "unused_not_shared", replace="            share_unused(self.reducer.buckets)\n",
     by="            pass\n", hint="share_unused")  # fmt: skip
edit(DDP, "no_word_of_missing",
     replace="        if any(self.reducer.missing):\n"
     "            raise self.missing_gradients()\n", by="",
     hint="raise missing_gradients()")  # fmt: skip
edit(DDP, "never_rebuilt",
     replace="        if self.first_order is None:\n"
     "            self.first_order = self.reducer.order\n", by="",
     hint="never rebuilt")  # fmt: skip

# Of a stubborn student

edit("average", "always_two", replace="dist.get_world_size()", by="2", hint="With 4 ranks")


@mutant("average", hint="In wait() that is too late")
def in_wait(bucket):
    class Later:
        def wait(self):
            bucket.buffer().div_(dist.get_world_size())
            dist.all_reduce(bucket.buffer())

    return Later()


edit("Reducer", "copies_true", replace="if isinstance(result, torch.Tensor):",
     by="if result is not None:", hint="is True, and no tensor")  # fmt: skip
edit("Reducer", "collects_late", hint="collect(i) before",
     replace="            self.buckets.collect(i)\n"
     "            self.works.append(self.start(grad_bucket(self.buckets, i)))",
     by="            self.works.append(self.start(grad_bucket(self.buckets, i)))\n"
     "            self.buckets.collect(i)")  # fmt: skip
edit("Reducer", "with_the_last_gradient", replace="not self.missing[len(self.works)]:",
     by="not any(self.missing):", hint="A bucket starts with its last gradient")  # fmt: skip
edit("rebuilt_buckets", "the_other_way_round", replace="reversed(order.tolist())",
     by="reversed(order.argsort().tolist())", hint="ready[0] is the place")  # fmt: skip


@mutant("unused_parameters", hint="run none")
def by_a_backward(output, parameters):
    tensors = [leaf for leaf in _leaves(output) if leaf.requires_grad]
    if tensors:
        torch.autograd.backward(tensors, [torch.ones_like(t) for t in tensors], retain_graph=True)
    return [p for p in parameters if p.grad is None]


@mutant("unused_parameters", hint="run none")
def uses_the_graph_up(output, parameters):
    tensors = [leaf for leaf in _leaves(output) if leaf.requires_grad]
    if not tensors:
        return parameters
    ones = [torch.ones_like(t) for t in tensors]
    found = torch.autograd.grad(tensors, parameters, ones, allow_unused=True)
    return [p for p, g in zip(parameters, found, strict=True) if g is None]


@mutant("no_sync", hint="Inside, ddp.require_backward_grad_sync")
@contextmanager
def toggles(ddp):
    ddp.require_backward_grad_sync = not ddp.require_backward_grad_sync
    try:
        yield
    finally:
        ddp.require_backward_grad_sync = not ddp.require_backward_grad_sync


@mutant("no_sync", hint="keep @contextmanager")
def no_context(ddp):
    ddp.require_backward_grad_sync = False


edit(DDP, "expected_for_ever", replace="        self.expected -= 1\n", by="",
     hint="Each forward asks for one average")  # fmt: skip
edit(DDP, "begins_once", replace="order\n        self.reducer.begin()", by="order",
     hint="Each forward asks for one average")  # fmt: skip
edit(DDP, "rebuilt_each_time", replace="if self.first_order is None:", by="if True:",
     hint="again and again")  # fmt: skip
edit(DDP, "frozen_in_buckets", replace="assign_buckets(self.trained,",
     by="assign_buckets(module.parameters(),", hint="hold self.trained")  # fmt: skip
edit(DDP, "all_at_the_end", hint="All buckets leave after the last gradient",
     replace="        self.reducer.ready(parameter)\n",
     by="        self.reducer.order.append(parameter)\n"
     "        if len(self.reducer.order) == len(self.trained):\n"
     "            order, self.reducer.order = self.reducer.order, []\n"
     "            for p in order:\n"
     "                self.reducer.ready(p)\n")  # fmt: skip

# Of a student at midnight


@mutant("unused_parameters", hint="take those among tree_leaves")
def of_one_tensor(output, parameters):
    nodes, seen = [output.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is not None and node not in seen:
            seen.add(node)
            nodes += [before for before, _ in node.next_functions]
    reached = {id(getattr(node, "variable", None)) for node in seen}
    return [p for p in parameters if id(p) not in reached]


@mutant("no_sync", hint="yield in between")
@contextmanager
def no_yield(ddp):
    ddp.require_backward_grad_sync = False


edit(DDP, "one_cap", replace="assign_buckets(self.trained, *self.caps)",
     by="assign_buckets(self.trained, self.caps[0])", hint="Both caps")  # fmt: skip
edit(DDP, "always_shares", hint="More is reduced than the buckets",
     replace="        if self.find_unused_parameters:\n            share_unused(",
     by="        if True:\n            share_unused(")  # fmt: skip
edit(DDP, "finishes_each_time", hint="queued once",
     replace="        if not self.reducer.order:\n            queue_callback(self.finish)\n",
     by="        queue_callback(self.finish)\n        if not self.reducer.order:\n")  # fmt: skip
edit(DDP, "before_it_is_added", hint="register_post_accumulate_grad_hook comes after",
     replace="p.register_post_accumulate_grad_hook(self.gradient_ready)\n\n    @torch",
     by="p.register_hook(lambda _, p=p: self.gradient_ready(p))\n\n    @torch")  # fmt: skip
edit(DDP, "order_in_numbers", hint="first_order lists them",
     replace="self.first_order = self.reducer.order",
     by="self.first_order = list(range(len(self.trained)))")  # fmt: skip
