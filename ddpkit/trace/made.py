"""The origin of a trace as a word, such as "simulated".

All other modules use `how_made`, and do not decide by themselves.
"""

from collections.abc import Mapping

from ddpkit.trace.span import Scalar


def how_made(facts: Mapping[str, Scalar]) -> str:
    """Return the origin of a trace's times, from its facts: one of the following words, or "".

    simulated      no rank ran
    emulated       real ranks ran in the timekeeper's time (`docs/emulation.md`)
    emulated link  in old files: a real machine's own time, with delayed messages
    ""             a real machine's own time
    """
    if facts.get("backend") == "simulated":
        return "simulated"
    if facts.get("time") == "emulated":
        return "emulated"
    return "emulated link" if facts.get("emulated") else ""
