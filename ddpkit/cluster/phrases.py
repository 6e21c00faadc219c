"""The parts of sentences about ranks and calls: "ranks 0, 1", "recv(src=1)", a line of code."""

from __future__ import annotations

from collections.abc import Iterable

from ddpkit.errors import Waiting
from ddpkit.protocol.call import ASYNCHRONOUS, OF_OBJECTS, Call, Where
from ddpkit.source import locate, source_line
from ddpkit.text import ERROR_LINE, count, plural, wrap

ROOT_NAMES = {"broadcast": "src", "scatter": "src", "reduce": "dst", "gather": "dst"}


def ranks(numbers: Iterable[int]) -> str:
    """Return "rank 2" or "ranks 0, 1, 3"."""
    numbers = sorted(numbers)
    return f"{plural(len(numbers), 'rank')} {', '.join(map(str, numbers))}"


def place(where: Where) -> str:
    """Return a line of the user's code: "Cell In[5], line 3: dist.recv(x, src=1)"."""
    filename, lineno = where
    if not filename:
        return "outside your code"
    text = source_line(filename, lineno)
    return f"{locate(filename, lineno)}{': ' if text else ''}{text}"


def wrapped(sentence: str) -> str:
    """Return a sentence in short lines, because JupyterLab breaks longer lines inside words."""
    return wrap(sentence, ERROR_LINE)


def tensor(call: Call) -> str:
    """Return "float32[4, 2]", or "" for a call without a tensor."""
    if not call.dtype:
        return ""
    strides = f" with strides {list(call.strides)}" if call.strides else ""
    return f"{call.dtype}[{', '.join(map(str, call.shape))}]{strides}"


def describe(call: Call) -> str:
    """Return a call as text: "recv(src=1, tag=7)", "all_reduce(float32[4])"."""
    if not call.seq:  # an agent has seen the call in a stack, and knows only the name
        if call.keys:
            return f"{call.op}({', '.join(map(repr, call.keys))}) of a store"
        return f"{call.op}()" + (f" for group {sorted(call.members)}" if call.group else "")
    text = f"{call.function}({', '.join(filter(None, _arguments(call)))})"
    text += of_group(call)
    if call.via in OF_OBJECTS:
        return text
    if call.via in ASYNCHRONOUS:
        return f"i{text}"
    return f"{text} inside {call.via}()" if call.via else text


def of_group(call: Call) -> str:
    """Return " of group tp [0, 1]", or "" for a group without a name."""
    return f" of group {call.group_desc} {sorted(call.members)}" if call.group_desc else ""


def _arguments(call: Call) -> Iterable[str]:
    if call.objects is not None:
        yield count(call.objects, "object")
    if call.is_message:
        yield f"{'dst' if call.op == 'send' else 'src'}={'any' if call.peer is None else call.peer}"
        yield f"tag={call.tag}" if call.tag else ""
    else:
        yield "" if call.via in OF_OBJECTS else tensor(call)
        yield f"{ROOT_NAMES[call.op]}={call.root}" if call.op in ROOT_NAMES else ""
        yield call.reduce if call.reduce != "SUM" else ""
    yield f"group={sorted(call.members)}" if call.group and not call.group_desc else ""


def waits(rank_list: Iterable[int], waiting: Waiting) -> str:
    """Return two lines of text: the waiting ranks with their call, and the line of code.

    If the call was posted in a different line from the line that waits, the text names both lines.
    """
    numbers, text = sorted(rank_list), describe(waiting.call)
    verb = "waits" if len(numbers) == 1 else "wait"
    posted = waiting.call.where
    if posted != waiting.where and posted[0]:
        here = posted[0] == waiting.where[0]
        text = f"wait() for the {text} of {f'line {posted[1]}' if here else locate(*posted)}"
    return f"  {ranks(numbers)} {verb} in {text}\n      {place(waiting.where)}"
