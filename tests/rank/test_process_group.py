"""A recorded process group does all that torch's process group can do, with gloo's own results."""

import pickle

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddpkit import Cluster
from ddpkit.errors import Deadlock
from ddpkit.rank.group.emulated import EmulatedGroup
from ddpkit.rank.group.methods import COLLECTIVES, PAIRWISE, REFUSED
from ddpkit.rank.group.operation import EmulatedWork
from ddpkit.rank.group.recorded import RecordedGroup
from ddpkit.rank.group.work import AllOf, InStream, RecordedWork

pytestmark = pytest.mark.processes

MESSAGES = {"send", "recv", "recv_anysource"}
BY_GATHER = {"gather_single", "gather_into_tensor"}  # gloo lacks both: see the tests of both
OLD_GLOO_REFUSES = {"alltoall", "reduce_scatter"}  # in torch 2.7; the gloo of torch 2.13 has both
HANDLED = COLLECTIVES.keys() | PAIRWISE.keys() | MESSAGES | BY_GATHER
C10D = "c10d's own book-keeping: nothing moves"
NOT_HANDLED = {
    "_start_coalescing": "gloo refuses it; NCCL's is used by `as_one`, on the group inside",
    "_end_coalescing": "gloo refuses it; NCCL's is used by `as_one`, on the group inside",
    "monitored_barrier": "torch refuses it on any backend that is not named gloo",
    "_wait_for_pending_works": "waits for NCCL's",
    "shutdown": "leaves gloo's connections open until the process ends",
    "abort": "ends the group",
    "BackendType": "a class",
    "_pybind11_conduit_v1_": "pybind11's",
    "boxed": "the group as an object of TorchScript",
    "unbox": "the group as an object of TorchScript",
    "use_pg_for_symm_mem_rendezvous": "symmetric memory, of GPUs",
    **dict.fromkeys(
        [
            "_add_ephemeral_timeout",
            "_backend_id",
            "_enable_collectives_timing",
            "_get_backend",
            "_get_backend_name",
            "_get_sequence_number_for_group",
            "_has_hooks",
            "_id",
            "_register_backend",
            "_register_on_completion_hook",
            "_set_default_backend",
            "_set_group_desc",
            "_set_group_name",
            "_set_sequence_number_for_group",
            "get_backend",
            "get_group_store",
            "name",
            "rank",
            "set_timeout",
            "size",
            "unregister_abort_hook",
            "unregister_post_hook",
            "unregister_pre_hook",
        ],
        C10D,
    ),
}


@pytest.fixture(autouse=True, scope="module")
def by_value(request):
    import cloudpickle

    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)


def test_each_method_of_a_process_group_is_handled_or_says_why_not():
    methods = {
        name
        for name in dir(dist.ProcessGroup)
        if callable(getattr(dist.ProcessGroup, name)) and not name.startswith("__")
    }
    explained = REFUSED.keys() | NOT_HANDLED.keys()
    assert methods - HANDLED - explained == set(), "neither handled nor explained"
    assert HANDLED & explained == set()
    assert (HANDLED | REFUSED.keys()) & methods <= vars(RecordedGroup).keys(), (
        "C++ would do these, unrecorded"
    )


def vector(length=4):
    """Return numbers that differ on each rank and in each place: float32[length]."""
    return torch.arange(float(length)) + 10 * dist.get_rank()


def zeros(count, length=4):
    return [torch.zeros(length) for _ in range(count)]


def named(kind, **fields):
    """Return an options object of c10d of this kind, with these fields."""
    options = getattr(torch.distributed.distributed_c10d, kind)()
    for name, value in fields.items():
        setattr(options, name, value)
    return options


def calls(group):
    """Return method -> function that calls it and returns (outputs, Work)."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    last, right, left = size - 1, (rank + 1) % size, (rank - 1) % size
    rooted = {"rootRank": last}

    def call(method, outputs, *args):
        return outputs, getattr(group, method)(*args)

    def in_place(method, tensors, options):
        return call(method, tensors, tensors, options)

    def gather():
        lists = [zeros(size)] if rank == last else []
        return call("gather", lists, lists, [vector()], named("GatherOptions", **rooted))

    def scatter():
        out, lists = zeros(1), [[vector(4) + i for i in range(size)]] if rank == last else []
        return call("scatter", out, out, lists, named("ScatterOptions", **rooted))

    def all_gather(method="allgather"):
        lists = [zeros(size)]
        return call(method, lists, lists, [vector()])

    def all_gather_coalesced():
        lists = [[torch.zeros(2), torch.zeros(3)] for _ in range(size)]
        return call("allgather_coalesced", lists, lists, [vector(2), vector(3)])

    def gathered(method):
        out = torch.zeros(4 * size)
        return call(method, [out], out, vector(), named("AllgatherOptions"))

    def gathered_pairs(method):
        outs = [torch.zeros(2 * size), torch.zeros(3 * size)]
        return call(method, outs, outs, [vector(2), vector(3)], named("AllgatherOptions"))

    def reduce_scatter():
        (out,), parts = zeros(1), [vector() + i for i in range(size)]
        return call("reduce_scatter", [out], [out], [parts], named("ReduceScatterOptions"))

    def scattered(method):
        out = torch.zeros(4)
        return call(method, [out], out, vector(4 * size), named("ReduceScatterOptions"))

    def scattered_pairs(method):
        outs, ins = [torch.zeros(2), torch.zeros(3)], [vector(2 * size), vector(3 * size)]
        largest = named("ReduceScatterOptions", reduceOp=dist.ReduceOp.MAX)
        return call(method, outs, outs, ins, largest)

    def all_to_all():
        outs = zeros(size)
        return call("alltoall", outs, outs, [vector() + i for i in range(size)])

    def all_to_all_single(method):
        """Send i + 1 numbers from each rank to rank i."""
        sent, received = [i + 1 for i in range(size)], [rank + 1] * size
        out = torch.zeros(sum(received))
        return call(method, [out], out, vector(sum(sent)), received, sent, named("AllToAllOptions"))

    def message(method):
        """Send to the right in a ring; a rank alone cannot send to itself, and calls a barrier."""
        if size == 1:
            return [], group.barrier()
        out = zeros(1)
        works = [group.send([vector()], right, 3)]
        works.append(
            group.recv_anysource(out, 3) if method.endswith("e") else group.recv(out, left, 3)
        )
        works[0].wait()
        return out, works[1]

    one = {
        "allreduce": lambda: in_place("allreduce", [vector()], named("AllreduceOptions")),
        "allreduce_coalesced": lambda: in_place(
            "allreduce_coalesced", [vector(2), vector(3)], named("AllreduceCoalescedOptions")
        ),
        "broadcast": lambda: in_place("broadcast", [vector()], named("BroadcastOptions", **rooted)),
        # only the root's result is defined; gloo leaves anything on the other ranks
        "reduce": lambda: (
            (tensors := [vector()])[: rank == last],
            group.reduce(tensors, named("ReduceOptions", **rooted)),
        ),
        "gather": gather,
        "scatter": scatter,
        "allgather": all_gather,
        "allgather_coalesced": all_gather_coalesced,
        "reduce_scatter": reduce_scatter,
        "alltoall": all_to_all,
        "barrier": lambda: ([], group.barrier(named("BarrierOptions"))),
    }
    several = {
        gathered: ["_allgather_base", "all_gather_single"],
        gathered_pairs: ["allgather_into_tensor_coalesced", "all_gather_single_coalesced"],
        scattered: ["_reduce_scatter_base", "reduce_scatter_single"],
        scattered_pairs: ["reduce_scatter_tensor_coalesced", "reduce_scatter_single_coalesced"],
        all_to_all_single: ["alltoall_base", "all_to_all_single"],
        message: ["recv", "recv_anysource"],
    }
    for make, methods in several.items():
        one |= {method: lambda make=make, method=method: make(method) for method in methods}
    return one


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_each_handled_method_gives_what_gloo_alone_gives(world_size):
    def both(there_are):
        """Return method -> results and Works of the recorded group and of a plain torch group."""
        plain = dist.new_group.__wrapped__(backend="gloo")  # torch's own function
        assert type(plain) is dist.ProcessGroup, "the twin must be torch's"
        results = {}
        for method in there_are:
            given, completed = [], []
            for group in (dist.group.WORLD, plain):
                try:
                    outputs, work = calls(group)[method]()
                except RuntimeError as error:
                    outputs, done = str(error), None
                else:
                    assert work.wait()
                    done = work.is_completed()
                completed.append(done)
                given.append(outputs)
            results[method] = given, completed
        return results

    compared = HANDLED - {"send"} - BY_GATHER
    there_are = sorted(name for name in compared if hasattr(dist.ProcessGroup, name))
    run = Cluster(world_size).run(both, there_are)
    for rank, results in enumerate(run.results):
        assert results.keys() == set(there_are)
        for method, ((ours, gloos), (done, gloo_is_done)) in results.items():
            # gloo's reduce_scatter never reports its completion
            assert done == gloo_is_done, method
            if gloo_is_done is None:
                assert ours == gloos, "the same refusal"
                continue
            torch.testing.assert_close(ours, gloos, rtol=0, atol=0, msg=f"{method}, rank {rank}")
    refused = {method for method, (_, (_, done)) in run.results[0].items() if done is None}
    assert refused <= OLD_GLOO_REFUSES
    assert not refused or torch.__version__ < "2.13"
    names = {span.name for span in run.trace.spans if span.kind == "comm"}
    expected = {COLLECTIVES[name] for name in there_are if name in COLLECTIVES}
    assert expected - {COLLECTIVES[name] for name in refused} <= names, "not recorded"


@pytest.mark.parametrize("method", sorted(REFUSED))
def test_a_method_that_no_trace_could_hear_of_is_refused_with_a_sentence(method):
    """The C++ code would end the process (split_group), or move bytes and call hooks unrecorded."""

    def asks():
        with pytest.raises(RuntimeError, match=f"process groups do not support {method}: "):
            getattr(dist.group.WORLD, method)([0])
        group = dist.group.WORLD
        return group.supports_reconfigure, group.supports_window

    assert Cluster(1).run(asks).results == [(False, False)]


def gathers_into_one(shape, root, async_op):
    """Do the same as `dist.gather_single` of torch 2.15; torch 2.13 has no such function."""
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = torch.arange(6.0).view(2, 3) + 10 * rank
    whole = torch.zeros(shape) if rank == root else torch.zeros(0)
    parts = [torch.zeros(2, 3) for _ in range(size)] if rank == root else None
    options = named("GatherOptions", rootRank=root)
    if not async_op:
        options.asyncOp = False
    dist.barrier()
    if hasattr(dist, "gather_single"):
        into = whole if rank == root else None
        work = dist.gather_single(mine, into, dst=root, async_op=async_op)
    else:
        work = dist.group.WORLD.gather_single(whole, mine, options)
    if work is not None:
        work.wait()
    dist.barrier()
    dist.gather(mine, parts, dst=root)
    return whole, parts


@pytest.mark.parametrize("async_op", [False, True])
@pytest.mark.parametrize("shape", [(18,), (6, 3), (3, 2, 3)])
@pytest.mark.parametrize("cluster", [{}, {"link": "1 Gbit/s, 50 us", "machine": "laptop core"}])
def test_a_gather_into_one_tensor_is_a_gather(shape, async_op, cluster):
    if not async_op and not hasattr(dist.distributed_c10d.GatherOptions(), "asyncOp"):
        pytest.skip(f"a gather of torch {torch.__version__} cannot be asked to block")
    run = Cluster(3, **cluster).run(gathers_into_one, shape, 1, async_op)
    whole, parts = run.results[1]
    torch.testing.assert_close(whole.view(3, 2, 3), torch.stack(parts), rtol=0, atol=0)
    gathers = [span for span in run.trace.spans if span.is_comm and span.name != "barrier"]
    spans = [[span for span in gathers if span.rank == rank] for rank in range(3)]
    for single, plain in spans:
        what = [(span.name, span.bytes, span.args["root"]) for span in (single, plain)]
        assert what == [("gather", 24, 1)] * 2
    if cluster:
        single, plain = spans[1]
        assert single.end_ns - single.start_ns == plain.end_ns - plain.start_ns > 50_000


def test_a_gather_into_a_tensor_of_another_size_is_refused():
    def gathers():
        into = torch.zeros(5)
        options = named("GatherOptions", rootRank=0)
        with pytest.raises(ValueError, match="2 ranks give 3 elements each, .* 5 instead of 6"):
            dist.group.WORLD.gather_single(into, torch.zeros(3), options)

    both = Cluster(2).run(lambda: gathers() if dist.get_rank() == 0 else None)
    assert both.results == [None, None]


def test_pairs_are_recorded_one_by_one_with_the_line_that_asked():
    def gathers():
        from torch.distributed import _functional_collectives as functional

        name = "all_gather_into_tensor_coalesced"  # the name until torch 2.13
        gather = getattr(functional, "all_gather_single_coalesced", None)
        gather = gather or getattr(functional, name)
        return [t + 0 for t in gather([vector(2), vector(3)], dist.group.WORLD)]

    run = Cluster(2).run(gathers)
    both = [torch.cat([torch.arange(n), torch.arange(n) + 10.0]) for n in (2.0, 3.0)]
    for result in run.results:
        torch.testing.assert_close(result, both, rtol=0, atol=0)
    spans = [span for span in run.trace.spans if span.kind == "comm" and span.rank == 0]
    assert [(span.name, span.bytes) for span in spans] == [
        ("all_gather_into_tensor", 8),
        ("all_gather_into_tensor", 12),
    ]
    line = gathers.__code__.co_firstlineno + 6
    assert {span.args["line"] for span in spans} == {line}
    assert {span.args["dtype"] for span in spans} == {"float32"}
    assert not any("reduce" in span.args for span in spans)


def test_a_trace_knows_what_was_reduced_and_how():
    def reduces():
        dist.all_reduce(torch.ones(2, dtype=torch.float16), dist.ReduceOp.MAX)
        dist.barrier()

    reduced, barrier = (s for s in Cluster(1).run(reduces).trace.spans if s.is_comm)
    assert (reduced.args["dtype"], reduced.args["reduce"]) == ("float16", "MAX")
    assert not {"dtype", "reduce"} & set(barrier.args)


def test_pairs_that_do_not_match_are_refused():
    def gathers():
        with pytest.raises(ValueError, match="longer|shorter"):
            dist.group.WORLD.allgather_into_tensor_coalesced([torch.zeros(4)] * 2, [vector(2)])

    Cluster(2).run(gathers)


def test_a_work_of_several_pairs_waits_for_all_and_has_one_future():
    def gathers():
        outs = [torch.zeros(4), torch.zeros(6)]
        pairs = outs, [vector(2), vector(3)]
        work = dist.group.WORLD.allgather_into_tensor_coalesced(*pairs)
        values = work.get_future().wait()
        return work.wait(), work.is_completed(), work.is_success(), outs, values

    for waited, completed, success, outs, values in Cluster(2).run(gathers).results:
        assert (waited, completed, success) == (True, True, True)
        torch.testing.assert_close(outs[1], torch.tensor([0.0, 1, 2, 10, 11, 12]))
        torch.testing.assert_close(torch.cat(values), torch.cat(outs))


def test_bytes_of_tensors_that_move_as_one_are_counted_together():
    def reduces():
        with dist._coalescing_manager():
            dist.all_reduce(torch.ones(2))
            dist.all_reduce(torch.ones(3))

    spans = [span for span in Cluster(2).run(reduces).trace.spans if span.kind == "comm"]
    assert {(span.name, span.bytes) for span in spans} == {("all_reduce_coalesced", 20)}


# Named groups


def test_a_device_meshs_groups_are_named_and_keep_their_ids():
    def on_a_mesh():
        from torch.distributed.device_mesh import init_device_mesh

        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        for name in ("dp", "tp"):
            dist.all_reduce(torch.ones(2), group=mesh[name].get_group())
        dist.all_reduce(torch.ones(2), group=dist.new_group([0, 1, 2, 3], group_desc="all"))
        dist.all_reduce(torch.ones(2), group=dist.new_group([0, 1, 2, 3]))
        dist.barrier()
        return mesh["dp"].get_group().group_name

    run = Cluster(4).run(on_a_mesh)
    for rank in range(4):
        spans = [span for span in run.trace.spans if span.is_comm and span.rank == rank]
        dp, tp, everyone, unnamed, barrier = spans
        assert dp.args["group_desc"] == f"dp {[rank % 2, rank % 2 + 2]}"
        assert tp.args["group_desc"] == f"tp {[rank // 2 * 2, rank // 2 * 2 + 1]}"
        assert everyone.args["group_desc"] == "all [0, 1, 2, 3]"
        assert "group_desc" not in unnamed.args.keys() | barrier.args.keys()
        assert dp.group == run.results[rank]
        assert len({span.group for span in spans}) == 5, "ids are unique"


def test_a_deadlock_tells_groups_of_a_mesh_apart():
    def crossed():
        from torch.distributed.device_mesh import init_device_mesh

        mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("dp", "tp"))
        groups = [mesh["dp"].get_group(), dist.new_group([0, 1], group_desc="pp")]
        for group in groups if dist.get_rank() else groups[::-1]:
            dist.all_reduce(torch.ones(2), group=group)

    with pytest.raises(Deadlock) as caught:
        Cluster(2).run(crossed, timeout=60)
    assert "all_reduce(float32[2]) of group pp [0, 1]" in str(caught.value)


def test_a_buckets_all_reduce_names_the_group():
    def trains():
        group = dist.new_group([0, 1], group_desc="dp")
        model = DistributedDataParallel(torch.nn.Linear(2, 2), process_group=group)
        model(torch.ones(1, 2)).sum().backward()

    reduced = [s for s in Cluster(2).run(trains).trace.spans if s.name == "all_reduce"]
    assert reduced
    assert {span.args["group_desc"] for span in reduced} == {"dp [0, 1]"}


# a work that C++ waits for after the release in Python


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("by_initial_size", [True, False])
def test_join_gives_the_gradients_of_plain_torch(world_size, by_initial_size):
    """Rank 0 has 3 batches, rank 1 has 1, rank 2 has 2; rank r's gradient is r + 1."""

    def joined():
        rank = dist.get_rank()
        plain = dist.new_group.__wrapped__(backend="gloo")  # torch's own function
        both = []
        for group in (None, plain):
            model = torch.nn.Linear(1, 1, bias=False)
            torch.nn.init.zeros_(model.weight)
            ddp = DistributedDataParallel(model, process_group=group)
            both.append([])
            with ddp.join(divide_by_initial_world_size=by_initial_size):
                for _ in range([3, 1, 2][rank]):
                    ddp.zero_grad()
                    (ddp(torch.ones(1, 1)) * (rank + 1)).sum().backward()
                    both[-1].append(model.weight.grad.item())
        return both

    results = Cluster(world_size).run(joined, timeout=60).results
    for ours, torchs in results:
        assert ours == torchs
    expected = {
        (2, True): [1.5, 0.5, 0.5],
        (2, False): [1.5, 1, 1],
        (3, True): [2, 4 / 3, 1 / 3],
        (3, False): [2, 2, 1],
    }[world_size, by_initial_size]
    assert results[0][0] == pytest.approx(expected)


def test_works_that_nobody_waits_for_do_not_pile_up():
    def abandons():
        from ddpkit.rank.group.work import Alive, alive

        for _ in range(3 * Alive.LIMIT):
            dist.all_reduce(torch.ones(1), async_op=True)
        kept = len(alive._pending)
        for work in [dist.all_reduce(torch.ones(1), async_op=True) for _ in range(4)]:
            work.wait()
        return kept == Alive.LIMIT, len(alive._pending)

    assert Cluster(2).run(abandons).results == [(True, 60)] * 2


@pytest.mark.parametrize(
    "kind", [RecordedGroup, EmulatedGroup, RecordedWork, EmulatedWork, AllOf, InStream]
)
def test_classes_are_pickled_by_their_names(kind: type):
    """An answer may contain such a class.

    Cloudpickle cannot rebuild classes of torch's metaclass.
    """
    assert kind.__name__ in ("ProcessGroup", "Work")
    assert pickle.loads(pickle.dumps(kind)) is kind
