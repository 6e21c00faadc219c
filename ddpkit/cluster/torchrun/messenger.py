"""Each rank's connection to rank 0: sends news to rank 0, and ends the rank when rank 0 is gone.

`watcher` has rank 0's end. When a process ends, its connection closes, and so the peer notices.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import NoReturn

from ddpkit.cluster.blame import blame
from ddpkit.cluster.local.run import LOOK
from ddpkit.cluster.torchrun import connections
from ddpkit.errors import Death
from ddpkit.protocol.blackbox import BlackBox
from ddpkit.protocol.messages import Failed, Goodbye, News
from ddpkit.protocol.raised import Raised
from ddpkit.rank.agent import Agent

EXPLANATION_LIMIT = 10.0  # seconds that a failed rank waits for rank 0's explanation
HEAD_START = 0.5  # seconds by which a rank at fault ends first, so that torchrun's report names it


class Messenger:
    """Sends rank 0 news of the rank, and ends the process when rank 0 is gone.

    If rank 0 ends without a message, only one rank of each host reports the death: the rank that
    has a `death_of_rank_0`.
    """

    def __init__(self, rank: int, line: Connection, death_of_rank_0: Death | None = None) -> None:
        self._rank, self._line, self._death_of_rank_0 = rank, line, death_of_rank_0
        self._run: tuple[Agent, BlackBox] | None = None  # the current run
        self._sending = threading.Lock()
        self._failed = False
        threading.Thread(target=self._serve, name="ddpkit-messenger", daemon=True).start()

    def begin(self, agent: Agent) -> None:
        """Send news of the agent's run from now on.

        This method takes the place of the agent's own thread, which is not started.
        """
        agent.begin()
        self._run = agent, agent.box

    def returned(self) -> None:
        """Send the last news of the run: the rank's function has returned."""
        with self._sending, suppress(OSError):
            if self._run is not None:
                self._run[0].phase = "returned"
                self._send_news()
            self._run = None

    def raised(self, raised: Raised) -> NoReturn:
        """Send the error to rank 0, which explains the failure of the job and ends all ranks."""
        self._failed = True
        with suppress(OSError), self._sending:
            connections.send(self._line, Failed(raised))
        time.sleep(EXPLANATION_LIMIT)
        say(blame({self._rank: raised}, {}))  # rank 0 did not explain the error in time
        os._exit(1)

    def leave(self) -> None:
        """Send a goodbye at the end of the script."""
        with suppress(OSError), self._sending:
            connections.send(self._line, Goodbye())

    def _serve(self) -> None:
        while not self._line.poll(LOOK):
            with suppress(OSError), self._sending:
                self._send_news()
        message = connections.receive(self._line)
        if isinstance(message, Goodbye):
            return  # rank 0 is at the end of its script: from here on, each rank is alone
        if message is None and self._death_of_rank_0 is not None:
            say(blame({}, {0: self._death_of_rank_0}))
        if not self._failed:
            time.sleep(HEAD_START)
        os._exit(1)

    def _send_news(self) -> None:
        if self._run is not None:
            agent, box = self._run
            connections.send(self._line, News(agent.status(), *box.new_calls()))


def say(error: BaseException) -> None:
    """Print the type and the message of an error, as a notebook shows them."""
    kind = "KeyboardInterrupt" if isinstance(error, KeyboardInterrupt) else type(error).__name__
    sys.stdout.flush()
    print(f"{kind}: {error}", file=sys.stderr, flush=True)
