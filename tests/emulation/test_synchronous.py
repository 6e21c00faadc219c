"""A send waits for its recv, on plain gloo and on the emulated link, for messages of any size.

NCCL waits too. So a program that relies on buffers hangs here as it would there, and the link needs
no synchronous mode of its own. These tests will fail if a version of gloo begins to buffer.
"""

import threading
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from ddpkit import Cluster, Deadlock
from ddpkit.rank.record.recorder import current

pytestmark = pytest.mark.processes

LENGTHS = (0, 1, 10_000)  # elements of a message
LATE = 0.05  # seconds by which a recv is posted after its send
LATER = 1.0  # seconds of emulated time: ranks that see a file at one time have clocks far apart
LINKS = pytest.mark.parametrize("link", [None, "10 Gbit/s, 10 us"], ids=["gloo", "link"])


def to_a_late_receiver(how: str, folder: Path, late: float) -> list[bool]:
    """Return on rank 0, for each message, True if it was complete before a rank had to
    receive it."""
    early, recorder = [], current()
    for length in LENGTHS:
        x, sent = torch.ones(length), folder / str(length)

        def tell_when_posted(sent: Path = sent) -> None:
            while not recorder.under_way():
                time.sleep(0.001)
            sent.touch()

        if dist.get_rank() == 1:
            while not sent.exists():
                time.sleep(0.001)
            time.sleep(late)
            dist.recv(x, src=0)
        elif how == "send":
            teller = threading.Thread(target=tell_when_posted)
            teller.start()
            dist.send(x, dst=1)
            teller.join()
        else:
            sending = dist.isend(x, dst=1)
            early.append(sending.is_completed())
            sent.touch()
            sending.wait()
    return early


@LINKS
@pytest.mark.parametrize("how", ["send", "isend and wait"])
def test_a_send_is_over_only_when_its_recv_is_posted(link, how, tmp_path):
    run = Cluster(2, link=link).run(to_a_late_receiver, how, tmp_path, LATER if link else LATE)
    sends = [span for span in run.trace.spans if span.is_send]
    recvs = [span for span in run.trace.spans if span.is_recv]
    assert [span.bytes for span in sends] == [4 * length for length in LENGTHS]
    for send, recv in zip(sends, recvs, strict=True):
        assert send.start_ns + LATE * 1e9 < recv.start_ns  # the recv was late
        assert recv.start_ns <= send.end_ns, send
    assert not any(run.results[0])


def everybody_waits_first() -> None:
    x, other = torch.ones(1), 1 - dist.get_rank()
    dist.isend(x, dst=other).wait()
    dist.recv(x, src=other)


@LINKS
def test_waiting_for_an_isend_before_receiving_is_a_deadlock(link):
    with pytest.raises(Deadlock, match="isend"):
        Cluster(2, link=link).run(everybody_waits_first)
