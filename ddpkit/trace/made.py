"""The origin of a trace, in a word: the only place of "emulated" and "simulated"."""

from collections.abc import Mapping

from ddpkit.trace.span import Scalar


def how_made(facts: Mapping[str, Scalar]) -> str:
    """Return the origin of a trace's times, from its facts: "simulated", "emulated" or "".

    simulated  no rank ran
    emulated   real ranks ran in the timekeeper's time (`docs/emulation.md`)
    ""         a real machine's own time; for old files also "emulated link": a machine's own time,
               with delayed messages
    """
    if facts.get("backend") == "simulated":
        return "simulated"
    if facts.get("time") == "emulated":
        return "emulated"
    return "emulated link" if facts.get("emulated") else ""
