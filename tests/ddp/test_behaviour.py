"""Guarantees of `DistributedDataParallel` to users, beyond right gradients."""

import copy

import pytest
import torch
import torch.distributed as dist
from torch import nn

from ddpkit import Cluster, RankError
from ddpkit.simulate import Step
from ddpkit.simulate.step.recorded import recorded_buckets
from tests.ddp.models import Branches, batch, conv, equal, ours, torchs, wide

pytestmark = pytest.mark.processes


def loss_of(ddp, step=0):
    x, y = batch(step, dist.get_rank())
    return nn.functional.cross_entropy(ddp(x), y)


def gradients(ddp):
    return [p.grad.clone() for p in ddp.parameters()]


def reduced(run, rank=0):
    """Return (start in ns, bytes) of each all_reduce, in order."""
    return sorted((s.start_ns, s.bytes) for s in run.trace.of(rank) if s.name == "all_reduce")


# the start


def test_all_ranks_start_with_rank_0s_parameters_and_buffers():
    def start():
        torch.manual_seed(dist.get_rank())
        model = conv()
        model[1].weight.requires_grad_(False)
        with torch.no_grad():
            for tensor in model.state_dict().values():
                tensor += dist.get_rank()
        return ours(model).state_dict()

    first, *others = Cluster(3).run(start).results
    assert all(equal(dict(first), dict(other)) for other in others)


def test_each_forward_that_will_average_begins_with_rank_0s_buffers():
    def running_mean(broadcast_buffers):
        torch.manual_seed(0)
        ddp = ours(conv(), broadcast_buffers=broadcast_buffers)
        for step in range(3):
            loss_of(ddp, step).backward()
        with torch.no_grad():
            # the next forward leaves the buffers as they are at its begin
            ddp.module[2].momentum = 0.0
        loss_of(ddp, 3)
        return ddp.module[2].running_mean

    run = Cluster(2).run(running_mean, True)
    assert torch.equal(*run.results)
    run = Cluster(2).run(running_mean, False)
    assert not torch.equal(*run.results)


def test_a_module_without_gradients_is_refused_with_a_sentence():
    def wrap():
        ours(wide().requires_grad_(False))

    with pytest.raises(RankError, match="no parameter of this module requires one"):
        Cluster(2).run(wrap)


# gradients, and their memory


@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_are_views_and_memory_holds_them_once(set_to_none):
    def held():
        ddp, found = ours(wide()), []
        for step in range(3):
            ddp.zero_grad(set_to_none=set_to_none)
            loss_of(ddp, step).backward()
            tensors = [*gradients_of(ddp), *ddp.reducer.buckets.flat]
            storages = {t.untyped_storage().data_ptr(): t.untyped_storage() for t in tensors}
            found.append(sum(storage.nbytes() for storage in storages.values()))
        return found

    def gradients_of(ddp):
        return [p.grad for p in ddp.parameters()]

    once = sum(p.numel() * 4 for p in wide().parameters())
    assert Cluster(2).run(held).results == [[once] * 3] * 2


@pytest.mark.parametrize("how", ["forward, backward", "both forwards first", "one graph twice"])
def test_two_backwards_add_up_to_twice_the_mean(how):
    def twice():
        torch.manual_seed(0)
        ddp = ours(wide())
        losses = [loss_of(ddp)]
        if how == "forward, backward":
            losses[0].backward()
            once = gradients(ddp)
            loss_of(ddp).backward()
        elif how == "both forwards first":
            losses.append(loss_of(ddp))
            losses[0].backward()
            once = gradients(ddp)
            losses[1].backward()
        else:
            loss_of(ddp)  # this forward expects a second backward
            losses[0].backward(retain_graph=True)
            once = gradients(ddp)
            losses[0].backward()
        for a, b in zip(once, gradients(ddp), strict=True):
            torch.testing.assert_close(2 * a, b)
        return gradients(ddp)

    one, other = Cluster(2).run(twice).results
    assert equal(one, other)


def test_a_second_wrapper_of_a_module_takes_over():
    def again():
        module = wide()
        for cap in (0.1, 100.0, None):
            ddp = ours(module, bucket_cap_mb=cap)
            for step in range(2):
                ddp.zero_grad()
                loss_of(ddp, step).backward()
        return gradients(ddp), module.state_dict()

    def once():
        ddp = torchs(wide())
        loss_of(ddp, 1).backward()
        return gradients(ddp), ddp.module.state_dict()

    run, expected = Cluster(2).run(again), Cluster(2).run(once)
    assert equal(run.results[0][0], expected.results[0][0])
    assert len(reduced(run)) == 2 * (2 + 1 + 1), "two backwards each, by the newest alone"


# the times at which data is sent


def test_a_bucket_is_on_its_way_before_the_last_gradient_is_ready():
    def steps():
        ddp = ours(wide(), bucket_cap_mb=0.2)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            loss_of(ddp, step).backward()
            optimizer.step()

    run = Cluster(2).run(steps)
    for rank in run.trace.ranks:
        for k in range(3):
            spans = run.trace.step(k).of(rank)
            ready = max(s.end_ns for s in spans if s.kind == "backward" and s.bytes)
            posted = [s.start_ns for s in spans if s.name == "all_reduce"]
            assert len(posted) == 2
            assert min(posted) < ready
            assert all(s.end_ns <= max(t.end_ns for t in spans if t.kind == "backward")
                       for s in spans if s.name == "all_reduce")  # fmt: skip


def test_a_recording_tells_which_gradients_went_into_which_bucket():
    """A gradient is recorded as ready before its bucket is sent, although the hook for sending
    comes first."""

    def steps():
        ddp = ours(wide(), bucket_cap_mb=0.2)
        for step in range(3):
            loss_of(ddp, step).backward()
            torch.optim.SGD(ddp.parameters(), lr=0.1).step()

    trace = Cluster(2).run(steps).trace
    sizes = {gradient.name: gradient.bytes for gradient in Step.of_trace(trace, 2).gradients}
    buckets = recorded_buckets(trace, 2)
    assert len(buckets) == 2
    for bucket in buckets:
        assert sum(sizes[name] for name in bucket.gradients) == bucket.bytes


def test_ranks_whose_gradients_come_in_different_orders_agree():
    orders = [[0, 1, 2, 3], [3, 1, 0, 2]]

    def steps(wrap):
        torch.manual_seed(0)
        ddp = wrap(Branches(), bucket_cap_mb=0.0001)
        for step in range(3):
            ddp.zero_grad()
            ddp(batch(step, dist.get_rank())[0], orders[dist.get_rank()]).sum().backward()
        return gradients(ddp)

    one, other = Cluster(2).run(steps, ours), Cluster(2).run(steps, torchs)
    assert equal(one.results[0], other.results[0])
    assert equal(one.results[0], one.results[1])


def test_buckets_follow_the_order_of_the_first_backward():
    def steps():
        ddp = ours(Branches(), bucket_cap_mb=0.0001)
        for step in range(3):
            ddp(batch(step, 0)[0], [2, 0, 3, 1]).sum().backward()
        place = {id(p): i // 2 for i, p in enumerate(ddp.module.parameters())}
        return [place[id(p)] for bucket in ddp.reducer.buckets.parameters for p in bucket]

    order = Cluster(2).run(steps).results[0]
    assert list(dict.fromkeys(order)) == [1, 3, 0, 2]


# no_sync


def test_no_sync_is_silent_and_the_next_backward_averages_the_sum():
    def steps(wrap):
        torch.manual_seed(0)
        ddp = wrap(wide())
        with ddp.no_sync():
            loss_of(ddp, 0).backward()
            own = gradients(ddp)
            loss_of(ddp, 1).backward()
        before = dist.get_rank(), gradients(ddp)
        loss_of(ddp, 2).backward()
        return own, before, gradients(ddp)

    def silent():
        ddp = ours(conv())
        dist.barrier()
        with ddp.no_sync():
            for step in range(3):
                loss_of(ddp, step).backward()

    one, other = Cluster(2).run(steps, ours).results, Cluster(2).run(steps, torchs).results
    assert equal(one[0][2], other[0][2])
    assert equal(one[0][2], one[1][2])
    assert not equal(one[0][0], one[1][0]), "inside, each rank has gradients of its own"
    run = Cluster(2).run(silent)
    barrier = next(s.start_ns for s in run.trace.of(0) if s.name == "barrier")
    assert [s for s in run.trace.of(0) if s.is_comm and s.start_ns > barrier] == []


def test_no_sync_ends_when_what_is_inside_fails():
    def fail():
        ddp = ours(wide())
        try:
            with ddp.no_sync():
                loss_of(ddp).backward()
                raise KeyError("inside")
        except KeyError:
            pass
        ddp.zero_grad()
        loss_of(ddp).backward()
        return gradients(ddp)

    one, other = Cluster(2).run(fail).results
    assert equal(one, other)


def test_what_counts_is_where_forward_was():
    """torch's documentation of `no_sync` says so."""

    def forward_outside(wrap):
        torch.manual_seed(0)
        ddp = wrap(wide())
        loss = loss_of(ddp)
        with ddp.no_sync():
            loss.backward()
        outside = gradients(ddp)
        ddp.zero_grad()
        with ddp.no_sync():
            loss = loss_of(ddp)
        loss.backward()
        return outside, gradients(ddp)

    assert equal(Cluster(2).run(forward_outside, ours).results[1],
                 Cluster(2).run(forward_outside, torchs).results[1])  # fmt: skip


# errors


def test_a_gradient_that_never_comes_is_named_and_nothing_hangs():
    def leave_out():
        ddp = ours(Branches())
        ddp(batch(0, 0)[0], [0, 2]).sum().backward()

    with pytest.raises(RankError, match=r"layers\.1\.weight.*find_unused_parameters=True"):
        Cluster(2).run(leave_out)


def test_after_a_backward_that_failed_the_next_one_is_right():
    def fail_once():
        torch.manual_seed(0)
        ddp = ours(Branches(), bucket_cap_mb=0.0001)
        try:
            ddp(batch(0, 0)[0], [0, 2]).sum().backward()
        except RuntimeError:
            ddp.zero_grad()
        ddp(batch(0, dist.get_rank())[0], [0, 1, 2, 3]).sum().backward()
        return gradients(ddp)

    def right():
        torch.manual_seed(0)
        ddp = torchs(Branches(), bucket_cap_mb=0.0001)
        ddp(batch(0, dist.get_rank())[0], [0, 1, 2, 3]).sum().backward()
        return gradients(ddp)

    assert equal(Cluster(2).run(fail_once).results, Cluster(2).run(right).results)


def test_evaluation_between_forward_and_backward_changes_nothing():
    def evaluate():
        ddp = ours(wide())
        loss = loss_of(ddp)
        if dist.get_rank() == 0:  # one rank alone may evaluate, because that needs no communication
            with torch.no_grad():
                ddp.eval()(batch(1, 0)[0])
        ddp.train()
        loss.backward()
        return gradients(ddp)

    assert equal(*Cluster(2).run(evaluate).results)


def test_a_copy_has_hooks_of_its_own():
    """Without hooks, the copy's gradients would silently differ between ranks."""

    def copied():
        ddp = ours(wide())
        loss_of(ddp).backward()
        other = copy.deepcopy(ddp)
        before = gradients(ddp)
        loss_of(other, 1).backward()
        assert equal(before, gradients(ddp)), "the first one's are left alone"
        return gradients(other)

    assert equal(*Cluster(2).run(copied).results)


def test_backward_may_make_a_graph_again_and_again():
    def twice():
        torch.manual_seed(0)
        ddp, found = ours(wide()), []
        for _ in range(2):
            loss_of(ddp).backward(create_graph=True)
            found.append([g.detach() for g in gradients(ddp)])
        for p in ddp.parameters():
            p.grad = None  # otherwise parameter and gradient keep each other alive
        return found

    (once, both), other = Cluster(2).run(twice).results
    assert equal([once, both], other)
    for a, b in zip(once, both, strict=True):
        torch.testing.assert_close(2 * a, b)


def test_torchs_ddp_sums_sparse_gradients_here():
    """Our DDP refuses sparse gradients (lab 06); a run must carry those of torch's DDP."""

    def embedding():
        torch.manual_seed(0)
        ddp = torchs(nn.EmbeddingBag(6, 3, mode="sum", sparse=True))
        ddp(torch.tensor([[1, 2 + dist.get_rank()]])).sum().backward()
        return ddp.module.weight.grad.to_dense()[:, 0].tolist()

    assert Cluster(2).run(embedding).results == [[0, 1, 0.5, 0.5, 0, 0]] * 2


@pytest.mark.gpu
def test_gradients_on_a_gpu_stay_there():
    def steps(wrap):
        torch.manual_seed(0)
        ddp = wrap(wide().cuda())
        for step in range(3):
            ddp.zero_grad()
            x, y = (t.cuda() for t in batch(step, dist.get_rank()))
            nn.functional.cross_entropy(ddp(x), y).backward()
        assert all(p.grad.is_cuda for p in ddp.parameters())
        return [g.cpu() for g in gradients(ddp)]

    one, other = Cluster(2).run(steps, ours).results, Cluster(2).run(steps, torchs).results
    assert equal(one, other)
