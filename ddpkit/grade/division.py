"""The parts of a class that is graded on several machines.

Each part has its own folder of results, so the machines share only the submissions. A file in the
folder has the number of the part, and is updated when the part is done. If a machine fails, only
its part has to be graded again, and a report names the missing parts.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ddpkit.errors import GradeError
from ddpkit.grade import store
from ddpkit.grade.found import HandedIn

FILE = "part.json"  # a file in the folder of results
MOST = 10_000  # parts of a class


@dataclass(frozen=True)
class ClassShare:
    """Part `number` of a class that is divided into `of` parts. Parts count from 1: "3/8"."""

    number: int
    of: int
    done: bool = False

    @classmethod
    def parse(cls, text: str) -> ClassShare:
        """Return the part with a name such as "3/8". Raises GradeError for any other text."""
        number, slash, of = text.partition("/")
        if slash and number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of) <= MOST:
            return cls(int(number), int(of))
        raise GradeError(
            f"--part {text} names no part: write 1/8 for the first of eight parts, 3/8 for the "
            "third."
        )

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def holds(self, name: str) -> bool:
        """True if the submission with this name belongs to the part.

        Only the name decides, so all machines split a class in the same way, and later submissions
        change no part. File systems may store accented letters in two forms; both forms of a name
        belong to the same part.
        """
        plain = unicodedata.normalize("NFC", name).encode(errors="surrogatepass")
        return int(hashlib.sha256(plain).hexdigest(), 16) % self.of == self.number - 1

    def of_class(self, notebooks: Sequence[HandedIn]) -> list[HandedIn]:
        """Return the notebooks of a class that belong to this part."""
        return [notebook for notebook in notebooks if self.holds(notebook.name)]


def begin(out: Path, part: ClassShare | None) -> None:
    """Write into a folder of results which part of the class the folder holds.

    Raises GradeError if the folder already holds another part, or a whole class.
    """
    there = part_in(out)
    holds = f"part {there}" if there else "a whole class"
    asked = f"part {part}" if part else "a whole class"
    if holds != asked and (there or (out / "results").exists()):
        raise GradeError(f"{out} holds {holds}, but the command grades {asked}: name a new folder.")
    if part:
        _note(out, part)


def end(out: Path, part: ClassShare | None) -> None:
    """Write into the folder of results that its part is done."""
    if part:
        _note(out, ClassShare(part.number, part.of, done=True))


def _note(out: Path, part: ClassShare) -> None:
    store.write(out / FILE, json.dumps(asdict(part)))


def part_in(out: Path) -> ClassShare | None:
    """Return the part of the class that a folder of results holds; None for a whole class.

    Raises GradeError if the file that names the part is damaged.
    """
    path = out / FILE
    try:
        return ClassShare(**json.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise GradeError(f"{path} is damaged ({error}): grade the part again.") from None


def missing(outs: Sequence[Path]) -> Iterator[str]:
    """Yield a sentence about missing parts, and a sentence about parts that are not done."""
    by_size: dict[int, dict[int, bool]] = {}
    for part in filter(None, map(part_in, outs)):
        there = by_size.setdefault(part.of, {})
        there[part.number] = there.get(part.number, False) or part.done
    for of, there in by_size.items():
        lacks = [str(number) for number in range(1, of + 1) if number not in there]
        unfinished = [str(number) for number, done in sorted(there.items()) if not done]
        if lacks:
            yield f"Missing parts, of {of}: {', '.join(lacks)}."
        if unfinished:
            yield f"Unfinished parts, of {of}: {', '.join(unfinished)}."
