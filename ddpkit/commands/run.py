"""`ddpkit run -n 8 train.py ARGS`: runs a script written for torchrun on ddpkit's ranks."""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import signal
import socket
import sys
import tokenize
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddpkit.commands.numbers import json_bytes, write
from ddpkit.errors import ClusterError, Interrupted, RankDied, RunFailed

if TYPE_CHECKING:
    from ddpkit.cluster import Cluster
    from ddpkit.rank.script.launched import LaunchedScript
    from ddpkit.trace import Trace

STOPPED = 130  # the exit code of a command that Ctrl-C has ended
SEEDS = 10**9  # a run without --seed draws a seed below this number


class _BeforeTheScript(click.Command):
    """A command that explains the order of options and script, if -n stands after the script."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        words = [*args]
        try:
            return super().parse_args(context, args)
        except click.MissingParameter as error:
            late = next((k for k, word in enumerate(words) if re.fullmatch(r"-n\d*", word)), None)
            if error.param is None or error.param.name != "ranks" or late is None:
                raise
            end = late + (2 if words[late] == "-n" else 1)
            moved = [*words[late:end], *words[:late], *words[end:]]
            raise click.UsageError(
                "Write the options of `ddpkit run` before the script, because all words after the "
                f"script belong to the script: ddpkit run {shlex.join(moved)}",
                context,
            ) from None


@click.command(
    cls=_BeforeTheScript,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="Example: ddpkit run -n 4 --html run.html train.py --epochs 2",
    options_metavar="-n RANKS [OPTIONS]",
)
@click.option("-n", "ranks", type=int, required=True, metavar="RANKS", help="Number of ranks.")
@click.option(
    "-m", "is_module", is_flag=True, help="SCRIPT is the name of a module, as for python -m."
)
@click.option(
    "--link",
    metavar="LINK",
    help='Emulated time: each rank has a machine and a link: "10 Gbit/s, 50 us", "hosts of 8 H100, '
    'InfiniBand 400 Gbit/s per GPU", or JSON: {"hosts of": 4, "inside": "300 GB/s, 3 us", '
    '"between": "100 Gbit/s, 10 us"}.',
)
@click.option(
    "--machine",
    metavar="MACHINE",
    help='Emulated time, with compute counted on a machine: "A100", "1 TFLOP/s, 100 GB/s, 64 MB, 5 '
    'us", a file, or JSON: {"default": "V100", "3": "K80"}.',
)
@click.option(
    "--speed",
    multiple=True,
    metavar="[RANK=]SPEED",
    help="Emulated time: speed of the machines, relative to this computer: 0.5, inf, or 3=0.5 for "
    "rank 3 alone.",
)
@click.option(
    "--no-values",
    is_flag=True,
    help="With --machine: count operations on large tensors without computing them, so that models "
    "of real size run on a laptop.",
)
@click.option(
    "--alike",
    type=click.IntRange(1),
    metavar="K",
    help="With --no-values: run the first K of the RANKS only. Rank r is a copy of rank r mod K.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="End the run at a line that uses a tensor in flight, between an isend, an irecv or an "
    "async_op=True collective and its wait().",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="End the run after S seconds.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    metavar="N",
    help="Seed of the random numbers: rank r begins with 1000 * N + r. The last line of a run "
    "names N; without --seed, N is drawn at random.",
)
@click.option(
    "--trace",
    "saved",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Save the trace: FILE.json or .json.gz for `ddpkit trace`, FILE.chrome.json for Perfetto, "
    "a folder for HolisticTraceAnalysis.",
)
@click.option(
    "--html",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the timeline as one page; zoom and details work offline in any browser.",
)
@click.option(
    "--json",
    "numbers",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the numbers of the report as JSON.",
)
@click.option(
    "--price",
    type=click.FloatRange(0),
    metavar="P",
    help="Price of a rank's machine for an hour: report what a step and 1,000 steps cost.",
)
@click.argument("script")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def run(
    ranks: int,
    is_module: bool,
    link: str | None,
    machine: str | None,
    speed: tuple[str, ...],
    no_values: bool,
    alike: int | None,
    strict: bool,
    timeout: float | None,
    seed: int | None,
    saved: Path | None,
    html: Path | None,
    numbers: Path | None,
    price: float | None,
    script: str,
    args: tuple[str, ...],
) -> None:
    """Run SCRIPT with its ARGS on RANKS ranks, as torchrun would, and report on its time.

    The script needs no change and no GPU. stdout belongs to the script; ddpkit prints to stderr.
    A deadlock is explained. The exit code is the script's.
    """
    from ddpkit.cluster.interrupts import interrupted_by_signals

    if alike is not None and not no_values:
        raise ClusterError(
            f"--alike {alike} runs {alike} of {ranks} ranks, so the other ranks have no values: "
            "add --no-values and --machine"
        )
    if no_values and machine is None:
        raise ClusterError(
            "--no-values counts operations without computing them, and only a modelled machine "
            "knows their cost: add one, as in --machine A100"
        )
    cluster = _cluster(
        *(ranks, _read("--link", link), _read("--machine", machine), _speeds(speed)),
        values=not no_values,
        alike=alike,
        strict=strict,
    )
    called = launched(script, args, is_module, cluster)
    _check_targets(saved, html, numbers)
    failed: RunFailed | None = None
    used = secrets.randbelow(SEEDS) if seed is None else seed
    with interrupted_by_signals() as signals:
        try:
            done = cluster.run(called, timeout=timeout, seed=used)
        except RunFailed as failure:
            done, failed = failure.run, failure
        except KeyboardInterrupt as error:
            with suppress(OSError):  # the terminal may be closed
                _say(_stopped(error, signals))
            sys.exit(128 + signals[0] if signals else STOPPED)
    from ddpkit.commands.summary import all_numbers, summary

    _say(summary(done, price) if failed is None else explanation(failed))
    _say(f"seed {used}: with --seed {used} the ranks draw the same random numbers again")
    if saved is not None:
        save(done.trace, saved)
    if html is not None:
        from ddpkit.view.explorer.page import page_bytes

        write(page_bytes(done.trace), html)
    if numbers is not None:
        write(json_bytes(all_numbers(done.trace, price)), numbers)
    if failed is not None:
        sys.exit(exit_code(failed))


def _cluster(
    ranks: int,
    link: Any,
    machine: Any,
    speed: float | dict[int, float],
    *,
    values: bool = True,
    alike: int | None = None,
    strict: bool = False,
) -> Any:
    from ddpkit.cluster import Cluster, devices
    from ddpkit.cluster.cluster import MOST_ALIKE, TOO_MANY
    from ddpkit.cluster.torchrun import job

    if job.active():
        raise ClusterError(
            f"{', '.join(job.LAUNCHED)} are set, so this process is a rank already, and `ddpkit "
            "run` starts ranks itself. Unset these variables, or do not use torchrun."
        )
    most = TOO_MANY if alike is None else MOST_ALIKE
    if not 1 <= ranks <= most:
        raise ClusterError(f"-n {ranks}: give a number of ranks from 1 to {most}.")
    emulated = link is not None or machine is not None
    device = "cuda" if not emulated and devices.has_gpus() else "cpu"
    return Cluster(
        ranks,
        link=link,
        machine=machine,
        speed=speed,
        values=values,
        alike=alike,
        device=device,
        strict=strict,
    )


def _read(option: str, text: str | None) -> Any:
    """Return an option's value: the text, or parsed JSON with ranks as keys."""
    if text is None or not text.lstrip().startswith("{"):
        return text
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ClusterError(f"{option} {text!r} is not JSON: {error}") from None
    return {int(key) if key.isdigit() else key: value for key, value in found.items()}


def _speeds(texts: tuple[str, ...]) -> float | dict[int, float]:
    """Return one speed for all ranks, or a mapping from ranks to speeds."""
    own: dict[int, float] = {}
    for text in texts:
        rank, equals, factor = text.rpartition("=")
        try:
            value = float(factor)
            if not equals:
                return value
            own[int(rank)] = value
        except ValueError:
            raise ClusterError(
                f"cannot read --speed {text}: write 0.5, inf, or 3=0.5 for rank 3"
            ) from None
    return own or 1.0


def launched(
    target: str, args: tuple[str, ...], is_module: bool, cluster: Cluster
) -> LaunchedScript:
    """Return the script to launch. Raises ClusterError if the script is missing or cannot run."""
    from ddpkit.rank.script.launched import LaunchedScript

    found = LaunchedScript(
        target,
        args,
        is_module,
        run_id=secrets.token_hex(8),
        master_port=_free_port(),
        gpus=cluster.place.device == "cuda",
    )
    if target.startswith("-"):
        raise ClusterError(
            f"`ddpkit run` has no option {target}, and no script has that name. No option chooses "
            "the device: ranks compute on this machine's GPUs. Without GPUs, or with "
            "DDPKIT_DEVICE=cpu, ranks compute on the CPU, also where the script says cuda."
        )
    if not found.is_there:
        first = target.partition(".")[0]
        raise ClusterError(
            f"There is no module {first!r} in this folder or this environment."
            if is_module
            else f"There is no script {target!r}. (For a module, write -m before its name.)"
        )
    if not is_module and not found.holds_main:
        _check_source(target)
    found.count_as_users()
    return found


def _check_source(target: str) -> None:
    """Raise ClusterError for a file that is not text. A pipe is not read: the rank reads it."""
    if os.path.isdir(target):
        raise ClusterError(
            f"The folder {target!r} has no __main__.py, so python cannot run it: name a script."
        )
    try:
        if os.path.isfile(target):
            with tokenize.open(target) as file:
                if "\0" in file.read():
                    raise SyntaxError("a null byte")
    except (SyntaxError, UnicodeDecodeError):  # the file is no text
        raise ClusterError(
            f"{target!r} is not a Python script, because it is not text: name a script."
        ) from None
    except OSError as error:
        raise ClusterError(f"The script {target!r} cannot be read: {error.strerror}.") from None


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


# The files of a run


def _check_targets(saved: Path | None, *written: Path | None) -> None:
    """Raise ClusterError, before the run, for a file that cannot be written after the run."""
    if saved is not None and saved.suffix and not saved.name.endswith((".json", ".json.gz")):
        raise ClusterError(
            f"--trace {saved}: write FILE.json or FILE.json.gz, FILE.chrome.json for Perfetto, or "
            "a folder"
        )
    for path in filter(None, (saved, *written)):
        if not os.access(path.parent, os.W_OK):
            raise ClusterError(
                f"{path} cannot be written: the folder {path.parent} is missing or not writable."
            )


def save(trace: Trace, path: Path) -> None:
    """Save a trace; the name of the file decides the format."""
    written = [path]
    if path.suffix and not path.name.endswith((".chrome.json", ".chrome.json.gz")):
        trace.save(path)
    else:
        written = trace.to_chrome(path)
    for each in written:
        _say(f"wrote {each}")
    if not written:
        _say("Nothing was recorded, so no trace was written.")


# The messages after a run


def _say(text: str) -> None:
    click.echo(text, err=True)


def _stopped(error: KeyboardInterrupt, signals: list[int]) -> str:
    """Return the text of a stopped run; without `signals`, the user stopped the run."""
    from ddpkit.cluster import stopped

    by = signal.Signals(signals[0]).name if signals else "you"
    if isinstance(error, Interrupted):
        return stopped.stopped("run", error.doing, error.returned, by)
    return f"{by} stopped the run."


def explanation(error: RunFailed) -> str:
    """Return the text of a failed run: a traceback, if a rank raised, and the kit's own text."""
    notes = getattr(error, "__notes__", [])
    return "\n".join([*notes, f"{type(error).__name__}: {error}"])


def exit_code(error: RunFailed) -> int:
    """Return the exit code of a failed run: the dead rank's code, 128 + its signal, or 1."""
    if isinstance(error, RankDied) and error.rank is not None:
        death = error.deaths[error.rank]
        if death.exit_code:
            return death.exit_code
        with suppress(KeyError):
            return 128 + signal.Signals[death.signal]
    return 1
