"""Results come back from a rank unchanged."""

import pickle
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pipe
from threading import Thread
from types import CodeType

import cloudpickle
import numpy as np
import pytest
import torch
from torch.distributed._functional_collectives import AsyncCollectiveTensor

from ddpkit.errors import ClusterError
from ddpkit.protocol.raised import Raised
from ddpkit.protocol.reply import Reply, receive_reply, send_reply
from ddpkit.protocol.ship import (
    IN_BAND,
    pack_call,
    pack_result,
    unpack_call,
    unpack_result,
)
from ddpkit.trace import Dropped, Span

Pair = namedtuple("Pair", "a b")


@dataclass
class Box:
    tensor: torch.Tensor


SPAN = Span(0, "comm", "send", "comm", 1, 2)


def there_and_back(value):
    """Send a value through a real pipe, as a reply, and return the received value."""
    receiver, sender = Pipe(duplex=False)
    reply = Reply([SPAN], Dropped(), result=pack_result(value))
    thread = Thread(target=send_reply, args=(sender, reply))
    thread.start()
    received = receive_reply(receiver)
    thread.join()
    assert (received.spans, received.dropped, received.raised) == ([SPAN], Dropped(), None)
    receiver.close()
    sender.close()
    return unpack_result(received.result)


def same(one, other):
    assert type(one) is type(other)
    assert (one.dtype, one.shape, one.requires_grad) == (
        other.dtype,
        other.shape,
        other.requires_grad,
    )
    a, b = (t.detach().resolve_conj().resolve_neg() for t in (one, other))
    assert torch.equal(a, b)


DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.float8_e4m3fn,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (7, 5), (300, 301)], ids=str)
def test_tensors(dtype, shape):
    tensor = torch.randint(0, 2, shape).to(dtype)
    back = there_and_back(tensor)
    if dtype == torch.float8_e4m3fn:  # torch cannot compare 8-bit floats
        assert back.dtype == dtype
        tensor, back = tensor.view(torch.uint8), back.view(torch.uint8)
    same(tensor, back)
    back.zero_()  # the receiver owns the tensor, and can write to it


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12).reshape(3, 4).t(),
        torch.arange(100_000)[::3],
        torch.ones(3).expand(4, 3),
        torch.randn(3, requires_grad=True),
        torch.randn(3, requires_grad=True) * 2,
        torch.nn.Parameter(torch.randn(200, 200)),
        torch.nn.Parameter(torch.arange(3), requires_grad=False),
        torch.randn(3, dtype=torch.complex64).conj(),
        torch.randn(3, dtype=torch.complex64).conj().imag,
        torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        torch.arange(9)[::3][:1],  # one element is contiguous with any strides
        # an empty tensor is contiguous too
        torch.from_numpy(np.sum([np.zeros(0, np.int64)] * 3, axis=0)),
    ],
    ids=lambda tensor: f"{tuple(tensor.shape)}-{tensor.stride()}",
)
def test_unusual_tensors(tensor):
    same(tensor, there_and_back(tensor))


def test_tensors_that_torch_packs_itself():
    sparse = torch.eye(3).to_sparse()
    assert torch.equal(there_and_back(sparse).to_dense(), torch.eye(3))
    quantized = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    assert torch.equal(there_and_back(quantized).dequantize(), quantized.dequantize())
    assert there_and_back(torch.empty(3, device="meta")).is_meta


def test_a_result_that_nobody_has_waited_for_is_waited_for():
    """Before the wait, the tensor of a functional collective holds anything."""
    under_way = AsyncCollectiveTensor(torch.arange(3))
    back = there_and_back(under_way)
    assert (type(back), back.tolist(), under_way.completed) == (torch.Tensor, [0, 1, 2], True)


def test_containers():
    big = torch.randn(1000, 1000)
    value = {"a": [big, (1, "two", None)], "b": Pair(big, Box(big[0])), "c": OrderedDict(x={1, 2})}
    back = there_and_back(value)
    assert torch.equal(back["a"][0], big)
    assert back["a"][0] is back["b"].a  # one tensor stays one tensor
    assert torch.equal(back["b"].b.tensor, big[0])
    assert type(back["b"]) is Pair
    assert (back["a"][1], back["c"]) == (value["a"][1], value["c"])


@pytest.mark.parametrize("shape", [(), (0,), (3,), (400, 300)])
@pytest.mark.parametrize("dtype", ["f8", "i4", "?", "c16", "U3", "M8[s]"])
def test_numpy(shape, dtype):
    array = np.zeros(shape, dtype)
    for value in (array, array.T, np.asfortranarray(array), array[..., None][..., ::-1]):
        back = there_and_back(value)
        assert (back.dtype, back.shape) == (value.dtype, value.shape)
        assert np.array_equal(back, value)
        assert back.flags.writeable


def test_modules_with_tied_parameters():
    model = torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.Linear(300, 300))
    model[1].weight = model[0].weight
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 300)).sum().backward()
    optimizer.step()
    back, state, optimizer_state = there_and_back(
        (model, model.state_dict(), optimizer.state_dict())
    )
    assert back[1].weight is back[0].weight
    for name, value in model.state_dict().items():
        assert torch.equal(back.state_dict()[name], value)
        assert torch.equal(state[name], value)
    assert torch.equal(
        optimizer_state["state"][0]["exp_avg"], optimizer.state_dict()["state"][0]["exp_avg"]
    )


def test_large_buffers_travel_beside_the_pickle():
    large, small = torch.ones(IN_BAND), torch.ones(3)
    parts = pack_result([large, small, large])
    assert [memoryview(part).nbytes for part in parts[1:]] == [4 * IN_BAND]
    assert memoryview(parts[0]).nbytes < 10_000
    assert len(pack_result(small)) == 1
    assert type(parts[0]) is bytes  # a view of a stream prints an error when both are freed


def test_a_reply_of_a_rank_that_raised():
    receiver, sender = Pipe(duplex=False)
    reply = Reply([SPAN], Dropped(), Raised("ValueError", "no", pickled=b"x"), printed=["a", "b"])
    send_reply(sender, reply)
    assert receive_reply(receiver) == reply


def test_a_sender_that_is_gone():
    receiver, sender = Pipe(duplex=False)
    sender.send_bytes(pickle.dumps([10, 10]))
    sender.send_bytes(b"x" * 10)
    sender.close()
    with pytest.raises(EOFError):
        receive_reply(receiver)


def test_calls():
    y = 3
    function, args, kwargs = unpack_call(pack_call(lambda x, *, z: x + y + z, (1,), {"z": 5}))
    assert function(*args, **kwargs) == 9


def files_of(code):
    """Return the files of a function's code and of the code within it."""
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return {code.co_filename}.union(*map(files_of, inner))


def reduced_without_file(reduce, code):
    """Return the parts that cloudpickle 3.1.3 makes of code, by the installed `reduce`."""
    return reduce(code.replace(co_filename="<dynamic-code>"))


@pytest.mark.parametrize("newest", [False, True], ids=["as installed", "cloudpickle 3.1.3"])
def test_code_keeps_the_name_of_its_file(newest, monkeypatch):
    if newest:
        known = cloudpickle.Pickler.dispatch_table[CodeType]
        drop = partial(reduced_without_file, known)
        monkeypatch.setitem(cloudpickle.Pickler.dispatch_table, CodeType, drop)
    function, _, _ = unpack_call(pack_call(lambda xs: [(lambda y: y + 1)(x) for x in xs], (), {}))
    assert files_of(function.__code__) == {__file__}
    assert function([1, 2]) == [2, 3]


class Plan:
    ops = 3


class_plan = Plan()
classes = ops = 10
OPS = torch.ops


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda: torch.ones(classes).sum().item(), 10),
        (lambda: torch.ones(ops).sum().item(), 10),
        (lambda: torch.ones(Plan.ops).sum().item(), 3),
        (lambda: (torch.ones(1), class_plan.ops)[1], 3),
        (lambda: OPS.aten.add(torch.ones(1), 1).item(), 2),
        (lambda: torch.ops.aten.add(torch.ones(1), 1).item(), 2),
    ],
    ids=["classes", "ops", "Plan.ops", "plan.ops", "OPS", "torch.ops"],
)
def test_a_name_that_torch_has_too_does_not_ship_torchs(function, expected):
    """cloudpickle takes any name `ops` beside a `torch` for the module torch.ops."""
    import sys

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        with pytest.raises(TypeError, match="cannot pickle '_(Ops|Classes)' object"):
            cloudpickle.dumps(function)  # after a success, the bug in cloudpickle or torch is fixed
        called, args, kwargs = unpack_call(pack_call(function, (), {}))
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    assert called(*args, **kwargs) == expected


def test_the_culprit_is_named_although_torch_ops_occurs_too():
    from threading import Lock

    lock, ops = Lock(), 1

    def helper():
        return torch.ones(ops)

    def function():
        return helper(), lock

    with pytest.raises(ClusterError, match="^function uses the variable 'lock'"):
        pack_call(function, (), {})


def test_what_cannot_be_packed_says_why():
    with pytest.raises(TypeError, match="generator"):
        pack_result([1, (i for i in range(3))])
    assert cloudpickle.loads(cloudpickle.dumps(there_and_back(lambda: 3)))() == 3
