"""Streams and events of a rank's device, and the functions of torch that are replaced for a run.

The classes replace those of torch.cuda and torch.cpu. torch's own code, such as FSDP2, uses the
streams of torch.cpu on a device mesh of CPUs. The classes in torch.cpu are stubs: no stream would
wait for an event.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import torch
import torch.distributed as dist

from ddpkit import torch_private
from ddpkit.protocol.emulation import After
from ddpkit.rank.emulation.device import Device
from ddpkit.rank.record.clock import DeviceMoment


class DeviceStream:
    """A stream, which is a queue of the device: launches on one stream run in order.

    The class replaces torch.cuda.Stream and torch.cpu.Stream.
    """

    def __init__(self, device: object = None, priority: int = 0, **_: object) -> None:
        if isinstance(device, int):  # torch.cpu.Stream has the priority first
            priority = device
        self.priority = priority
        self.number = _of_this_rank().new_stream()
        self._blocks: list[StreamContext] = []

    def __enter__(self) -> DeviceStream:
        self._blocks.append(StreamContext(self))
        self._blocks[-1].__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._blocks.pop().__exit__(*error)

    def wait_event(self, event: DeviceEvent) -> None:
        """Make the next launch on this stream wait for an event."""
        _of_this_rank().follow(event.follows, self)

    def wait_stream(self, stream: DeviceStream) -> None:
        """Make the next launch on this stream wait for the last launch of `stream`."""
        device = _of_this_rank()
        device.follow(device.queues.tail(stream), self)

    def record_event(self, event: DeviceEvent | None = None) -> DeviceEvent:
        """Return an event that happens when all launches on the stream so far are done."""
        event = event or DeviceEvent()
        event.record(self)
        return event

    def synchronize(self) -> None:
        """Make the host wait for the stream's launches."""
        device = _of_this_rank()
        device.wait(device.queues.tail(self))

    def query(self) -> bool:
        """True if the stream's launches are done."""
        device = _of_this_rank()
        return device.is_done(device.queues.tail(self))


class DeviceEvent:
    """An event, which is a moment on a stream.

    An event that was never recorded counts as having happened.
    """

    def __init__(self, *_: object, **__: object) -> None:
        self.follows: After = ()
        self._happens: DeviceMoment | None = None

    def record(self, stream: DeviceStream | None = None) -> None:
        """Set the event to the end of a stream's launches so far; the last call counts."""
        device = _of_this_rank()
        self.follows = device.queues.tail(stream)
        self._happens = device.moment(self.follows)

    def wait(self, stream: DeviceStream | None = None) -> None:
        """Make the next launch on a stream wait for the event."""
        _of_this_rank().follow(self.follows, stream)

    def synchronize(self) -> None:
        """Make the host wait for the event."""
        _of_this_rank().wait(self.follows)

    def query(self) -> bool:
        """True if the event has happened."""
        return _of_this_rank().is_done(self.follows)

    def elapsed_time(self, end_event: DeviceEvent) -> float:
        """Return the milliseconds from this event to `end_event`.

        Raises RuntimeError unless both events have happened.
        """
        times = []
        for event in (self, end_event):
            if event._happens is None:
                raise RuntimeError("Both events must be recorded before calculating elapsed time.")
            if not event.query():
                raise RuntimeError("Both events must be completed before calculating elapsed time.")
            times.append(_of_this_rank().ns(event._happens))
        return (times[1] - times[0]) / 1e6


def set_stream(stream: DeviceStream) -> None:
    """Make a stream the current stream."""
    _of_this_rank().choose(stream)


class StreamContext:
    """A block in which a stream is the current stream; None keeps the current stream."""

    def __init__(self, stream: DeviceStream | None) -> None:
        self.stream = stream

    def __enter__(self) -> DeviceStream | None:
        if self.stream is not None:
            device = _of_this_rank()
            self._before = device.queues.current
            device.choose(self.stream)
        return self.stream

    def __exit__(self, *error: object) -> None:
        if self.stream is not None:
            _of_this_rank().choose(self._before)


_device: Device | None = None


def _of_this_rank() -> Device:
    if _device is None:
        raise RuntimeError(
            "a stream or an event is used after its run has ended: make streams in each run"
        )
    return _device


@contextmanager
def shown(device: Device) -> Iterator[None]:
    """A block in which torch.cpu has the device's streams.

    Each read of a tensor's values waits for the device.
    """
    global _device
    _device = device
    device.choose(DeviceStream())

    def current_stream(device_of_torch: object = None) -> object:
        return device.queues.current

    with ExitStack() as undo:

        def replace(home: object, name: str, value: object) -> None:
            undo.callback(setattr, home, name, getattr(home, name))
            setattr(home, name, value)

        for name, value in (
            ("Stream", DeviceStream),
            ("Event", DeviceEvent),
            ("current_stream", current_stream),
            ("stream", StreamContext),
            ("synchronize", device.synchronize),
        ):
            replace(torch.cpu, name, value)
        for name in ("tolist", "numpy", "cpu", "__array__", "__reduce_ex__"):
            replace(torch.Tensor, name, _read(device, getattr(torch.Tensor, name)))
        batched = _as_one(device, dist.batch_isend_irecv)
        for home in (dist, dist.distributed_c10d):
            replace(home, "batch_isend_irecv", batched)
        optimizers, lists = torch_private.optimizers(), torch_private.TAKE_LISTS
        places = getattr(optimizers, lists)
        replace(optimizers, lists, lambda: [*places(), "cpu"])
        try:
            yield
        finally:
            _device = None


def _read(device: Device, original: Callable[..., object]) -> Callable[..., object]:
    """Return a method that waits for the current stream, and then reads a tensor's values."""

    @functools.wraps(original)
    def read(tensor: torch.Tensor, *args: object, **kwargs: object) -> object:
        device.read(tensor)
        return original(tensor, *args, **kwargs)

    return read


def _as_one(device: Device, original: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(original)
    def batch_isend_irecv(*args: object, **kwargs: object) -> object:
        with device.one_batch():
            return original(*args, **kwargs)

    return batch_isend_irecv
