"""How a trace was made, in a word: the one home of "emulated" and "simulated"."""

from collections.abc import Mapping

from ddpkit.trace.span import Scalar


def how_made(facts: Mapping[str, Scalar]) -> str:
    """ "simulated", "emulated" or "", by a trace's facts: whose time its times are.

    simulated  no rank ran
    emulated   real ranks ran, and the timekeeper says when (`docs/emulation.md`)
    ""         a real machine's own time; of files of old, also "emulated link": a machine's own
               time, in which messages were held back
    """
    if facts.get("backend") == "simulated":
        return "simulated"
    if facts.get("time") == "emulated":
        return "emulated"
    return "emulated link" if facts.get("emulated") else ""
