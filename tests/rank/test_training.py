"""The trace and the traffic of real programs, with torch's DDP among them."""

import inspect
import time
from contextlib import suppress

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddpkit import Cluster, span, step
from ddpkit.rank.record.recorder import current
from ddpkit.trace.peers import messages
from ddpkit.trace.traffic import Count

pytestmark = pytest.mark.processes

WIDTH, LAYERS = 256, 4


@pytest.fixture(autouse=True, scope="module")
def by_value(request):
    import cloudpickle

    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)


def ring():
    """Send 3 messages to the right on each rank; a message of rank r has r + 1 elements."""
    rank, size = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % size, (rank + 1) % size
    for _ in range(3):
        work = dist.isend(torch.ones(rank + 1), right)
        dist.recv(torch.empty(left + 1), left)
        work.wait()


def test_traffic_of_messages():
    run = Cluster(3).run(ring)
    traffic = run.traffic
    for rank in range(3):
        assert traffic.messages(rank) == 3
        assert traffic.sent(rank) == 3 * 4 * (rank + 1)
        assert traffic.received(rank) == traffic.sent((rank - 1) % 3)
        assert traffic.peers(rank) == {(rank + 1) % 3: Count(3, 12 * (rank + 1))}
        assert not traffic.collectives(rank)


def from_anybody():
    """Receive two messages from each other rank on rank 0, in any order."""
    rank = dist.get_rank()
    if rank:
        for _ in range(2):
            dist.send(torch.ones(2), dst=0)
        return None
    return [dist.recv(torch.empty(2)) for _ in range(4)]


@pytest.mark.parametrize("link", [None, "1 Gbit/s, 200 us"])
def test_a_recv_from_anybody_is_paired_with_the_rank_that_it_came_from(link):
    run = Cluster(3, link=link).run(from_anybody)
    received = [span for span in run.trace.of(0) if span.name == "recv"]
    assert [span.peer for span in received] == run.results[0]
    pairs = messages(run.trace.spans)
    assert sorted((sent.rank, taken.rank) for sent, taken in pairs) == [
        (1, 0),
        (1, 0),
        (2, 0),
        (2, 0),
    ]
    assert all(sent.start_ns < taken.end_ns for sent, taken in pairs)


def test_traffic_of_collectives():
    def f():
        x, size = torch.ones(6), dist.get_world_size()
        dist.all_reduce(x)
        dist.broadcast(x, 0)
        dist.reduce(x, 0)
        dist.barrier()
        dist.all_gather([torch.empty(6) for _ in range(size)], x)
        dist.all_gather_into_tensor(torch.empty(6 * size), x)
        dist.reduce_scatter_tensor(torch.empty(3), x)
        dist.all_to_all_single(torch.empty(6), x)
        root = dist.get_rank() == 0
        dist.gather(x, [torch.empty(6) for _ in range(size)] if root else None)
        dist.scatter(torch.empty(6), [x] * size if root else None)

    run = Cluster(2).run(f)
    for rank in range(2):
        counts = run.traffic.collectives(rank)
        for name in ("all_reduce", "broadcast", "reduce", "gather", "scatter"):
            assert counts[name] == Count(1, 24), name
        for name in ("all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single"):
            assert counts[name] == Count(1, 24), name
        assert counts["barrier"] == Count(1, 0)
        assert counts["all_gather"] == Count(1, 24)
    assert not run.traffic.messages()


def test_objects_are_gathered_by_two_collectives():
    def f():
        objects = [None, None]
        dist.all_gather_object(objects, {"rank": dist.get_rank()})
        return objects

    run = Cluster(2).run(f)
    assert run.results == [[{"rank": 0}, {"rank": 1}]] * 2
    for rank in range(2):
        counts = run.traffic.collectives(rank)
        (name,) = counts  # all_gather, or since torch 2.15 all_gather_into_tensor
        assert counts[name].times == 2


def test_groups_speak_of_ranks_of_the_whole_job():
    def f():
        group = dist.new_group([1, 2])
        if dist.get_rank() == 1:
            dist.send(torch.ones(2), 2, group=group)
        if dist.get_rank() == 2:
            dist.recv(torch.ones(2), 1, group=group)
            return "got it"
        return None

    run = Cluster(3).run(f)
    assert run.results == [None, None, "got it"]
    assert run.traffic.peers(1) == {2: Count(1, 8)}


def test_when_the_peers_came():
    def late():
        if dist.get_rank() == 1:
            time.sleep(1)
        dist.all_reduce(torch.ones(3))

    spans = {s.rank: s for s in Cluster(2).run(late).trace.spans if s.is_comm}
    early, late_one = spans[0], spans[1]
    assert early.ready_ns == late_one.ready_ns == late_one.start_ns
    assert early.ready_ns - early.start_ns > 200_000_000
    assert early.blocked_ns is not None
    assert early.start_ns <= early.blocked_ns < early.end_ns


def test_own_spans_and_no_recording():
    def f():
        with span("mine"):
            time.sleep(0.01)
        torch.nn.Linear(3, 3)(torch.ones(1, 3)).sum().backward()

    names = {(s.rank, s.name, s.kind) for s in Cluster(2).run(f).trace.spans}
    assert {(rank, "mine", "span") for rank in (0, 1)} <= names
    assert {(rank, "Linear", "forward") for rank in (0, 1)} <= names
    silent = Cluster(2, record=False).run(f).trace
    assert {s.kind for s in silent.spans} == {"span"}


def train(steps):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    # A bucket for each layer: with one bucket for all layers, no all_reduce could start early.
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    ready = []
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda _: ready.append(time.perf_counter_ns()))
    x = torch.randn(64, WIDTH)
    for _ in range(steps):
        ready.clear()
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return ready, [p.detach().sum().item() for p in model.parameters()]


@pytest.fixture(scope="module")
def training(by_value):
    return Cluster(2).run(train, 4)


def test_ddp_shows_all_kinds_of_work_on_every_rank(training):
    for rank in range(2):
        spans = training.trace.of(rank)
        kinds = [s.kind for s in spans]
        assert kinds.count("optimizer") == 4
        assert {"forward", "backward", "comm"} <= set(kinds)
        assert [s.name for s in spans if s.kind == "forward"].count("Linear") == 4 * LAYERS
        assert sum(s.name == "all_reduce" for s in spans) >= 1 + 3 * LAYERS
    assert training.results[0][1] == training.results[1][1]
    assert training.trace.steps == 4


def test_the_four_parts_add_up(training):
    for trace in (training.trace, *(training.trace.step(k) for k in range(4))):
        for rank, parts in trace.breakdown().items():
            start, end = trace.window_of(rank)
            four = (parts.compute_only_ns, parts.overlapped_ns, parts.exposed_ns, parts.idle_ns)
            assert sum(four) == end - start == parts.step_ns
            assert min(four) >= 0
            assert parts.hidden is None or 0 <= parts.hidden <= 1


def test_the_first_buckets_are_posted_before_the_last_gradient_is_ready(training):
    for rank, (ready, _) in enumerate(training.results):
        last_step = training.trace.step(3)
        reduces = sorted(
            s.start_ns for s in last_step.of(rank) if s.name == "all_reduce" and s.is_comm
        )
        assert len(reduces) == LAYERS
        assert min(ready) < reduces[0] < reduces[1] < max(ready)
        backward = [s for s in last_step.of(rank) if s.kind == "backward"]
        assert len(backward) >= 2 * LAYERS
        assert min(s.start_ns for s in backward) < reduces[0] < max(s.end_ns for s in backward)


def test_bytes_of_a_step_are_those_of_the_gradients(training):
    gradients = LAYERS * (WIDTH * WIDTH + WIDTH) * 4
    for rank in range(2):
        assert training.trace.step(3).traffic.collectives(rank)["all_reduce"].bytes == gradients


def test_a_failing_forward_does_not_confuse_the_next(by_value):
    class Fails(torch.nn.Module):
        def forward(self, x):
            raise ValueError

    def f():
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), Fails())
        for _ in range(3):
            with suppress(ValueError):
                model(torch.ones(1, 2))
        torch.nn.Sequential(torch.nn.Linear(2, 2))(torch.ones(1, 2))

    names = [s.name for s in Cluster(1).run(f).trace.spans if s.kind == "forward"]
    assert names == ["Linear", "Fails", "Sequential"] * 3 + ["Linear", "Sequential"]


def test_marked_steps_win(by_value):
    """A step has two optimizers, so only the marks can delimit steps."""

    def f():
        model = torch.nn.Linear(3, 3)
        optimizers = [torch.optim.SGD([p], lr=0.1) for p in model.parameters()]
        for _ in range(3):
            with step():
                model(torch.ones(1, 3)).sum().backward()
                dist.all_reduce(model.weight.grad)
                for optimizer in optimizers:
                    optimizer.step()

    trace = Cluster(2).run(f).trace
    assert trace.steps == 3
    for k in range(3):
        assert [s.kind for s in trace.step(k).of(0)].count("optimizer") == 2
        assert trace.step(k).traffic.collectives(1)["all_reduce"].times == 1


def test_an_optimizer_in_another_ends_no_step_of_its_own(by_value):
    """A sharded optimizer steps a local optimizer, as torch's ZeroRedundancyOptimizer does."""

    def f():
        from torch.distributed.optim import ZeroRedundancyOptimizer

        model = torch.nn.Linear(3, 3)
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
        for _ in range(3):
            model(torch.ones(1, 3)).sum().backward()
            optimizer.step()

    trace = Cluster(2).run(f).trace
    assert trace.steps == 3
    for k in range(3):
        names = [s.name for s in trace.step(k).of(0) if s.kind == "optimizer"]
        assert names == ["ZeroRedundancyOptimizer"]
        assert trace.step(k).traffic.collectives(1)["broadcast"].times == 2


def test_a_long_run_keeps_its_last_steps_and_counts_all(by_value):
    def f():
        current().log._limit = 100
        model = DistributedDataParallel(torch.nn.Linear(3, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        rank = dist.get_rank()
        for _ in range(50):
            model(torch.ones(1, 3)).sum().backward()
            optimizer.step()
            if rank:
                dist.send(torch.ones(2), 0)
            else:
                dist.recv(torch.empty(2), 1)

    run = Cluster(2).run(f)
    assert 5 <= run.trace.steps < 40
    assert run.trace.facts["kept"] == f"the last {run.trace.steps} of 50 steps"
    assert len(run.trace.of(0)) <= 100
    for rank in range(2):
        assert run.traffic.collectives(rank)["all_reduce"] == Count(50, 50 * 48)
    assert run.traffic.peers(1) == {0: Count(50, 400)}
    bucket = [s for s in run.trace.step(0).spans if s.name == "all_reduce"]
    assert len({s.seq for s in bucket}) == 1
    assert {s.rank for s in bucket} == {0, 1}
    sends = [s for s in run.trace.spans if s.name == "send"]
    assert sends[-1].ready_ns is not None


def test_a_bucket_of_the_reducer_is_known_by_its_line(training):
    """DDP has gloo's own handle and waits in C++; the line is the user's backward()."""
    (line,) = {s.args["line"] for s in training.trace.step(3).spans if s.name == "all_reduce"}
    source, first = inspect.getsourcelines(train)
    assert ".backward()" in source[line - first]


def test_the_wait_for_a_late_peer_is_exposed(by_value):
    """The wait is inside DDP's C++ code, in the middle of a backward."""

    def late():
        model = DistributedDataParallel(torch.nn.Linear(3, 3))
        for _ in range(3):
            loss = model(torch.ones(1, 3)).sum()
            if dist.get_rank() == 1:
                time.sleep(0.4)
            loss.backward()

    parts = Cluster(2).run(late).trace.breakdown()
    assert parts[0].exposed_ns > 600_000_000
    assert parts[0].compute_ns < 600_000_000


def test_a_module_that_is_compiled_still_runs(by_value):
    def f():
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
        compiled = torch.compile(model, backend="eager")
        x = torch.ones(1, 3)
        torch.testing.assert_close(compiled(x), model(x))

    Cluster(1).run(f)


def test_each_new_model_is_seen_though_it_has_the_address_of_one_before():
    def f():
        addresses = []
        for _ in range(30):
            model = torch.nn.Linear(3, 2)
            addresses.append(id(model.weight))
            model(torch.ones(1, 3)).sum().backward()
            del model
        return len(set(addresses))

    run = Cluster(1).run(f)
    ready = [s.bytes for s in run.trace.spans if s.kind == "backward" and s.bytes]
    assert run.results[0] < 30
    assert sorted(ready) == [8] * 30 + [24] * 30
