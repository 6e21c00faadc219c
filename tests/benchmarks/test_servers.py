"""The benchmark of parameter servers tries each number of workers and servers."""

import re
import sys

from benchmarks import servers


def test_every_number_of_workers_and_servers_is_tried(monkeypatch, capsys):
    """Without ranks: tests/emulation/test_servers.py has tests on ranks."""
    asked = []

    def measured(workers, count, bounded=False):
        asked.append((workers, count, bounded))
        return 2 * servers.simulated(workers, count)

    monkeypatch.setattr(servers, "measured", measured)
    monkeypatch.setattr(sys, "argv", ["servers", "--quick"])
    servers.main()
    printed = capsys.readouterr().out
    assert asked == [*((w, s, False) for w in (1, 2) for s in (1, 2)), (1, 1, True)]
    assert "worst deviation 100.0000% (goal ≤ 2%: MISSED), 4 runs" in printed
    assert re.search(
        r"the simulator, up to 4 workers: \d+\.\d\d s of .* \(\d+\.\d\d times\)", printed
    )
    assert len(servers.WORKERS) * len(servers.SERVERS) == 64
