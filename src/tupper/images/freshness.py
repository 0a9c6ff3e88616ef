"""Whether files are still as they were when something was worked out from them.

Each create asks for its template, and the template's key depends on every file of its recipe. To
read them takes fifteen milliseconds, to look whether they changed a tenth of one.

Source: inode(7): any change of a file changes ``st_ctime``, which no program can set.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

_T = TypeVar("_T")
State = tuple[tuple[str, int, int, int], ...]


def state_of(*places: Path) -> State:
    """What changes when a file, or anything below a directory, does; also by coming or going."""
    return tuple(sorted(entry for place in places for entry in _entries(os.fspath(place))))


def _entries(path: str) -> Iterator[tuple[str, int, int, int]]:
    try:
        seen = os.stat(path)  # noqa: PTH116 - a hundred times for each create
        yield path, seen.st_ino, seen.st_ctime_ns, seen.st_size
        with os.scandir(path) as entries:
            for entry in entries:
                yield from (
                    _entries(entry.path) if entry.is_dir(follow_symlinks=False) else _file(entry)
                )
    except (FileNotFoundError, NotADirectoryError):
        return


def _file(entry: os.DirEntry[str]) -> Iterator[tuple[str, int, int, int]]:
    seen = entry.stat(follow_symlinks=False)
    yield entry.path, seen.st_ino, seen.st_ctime_ns, seen.st_size


class Kept(Generic[_T]):
    """Values that are worked out again when the files behind them have changed."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[State, _T]] = {}

    def get(self, name: str, places: tuple[Path, ...], make: Callable[[], _T]) -> _T:
        """The value of this name.

        Args:
            name: of the value.
            places: files and directories that it depends on.
            make: works it out.
        """
        # The state from before: a change while the value is made shows the next time.
        state = state_of(*places)
        known = self._values.get(name)
        if known is not None and known[0] == state:
            return known[1]
        value = make()
        self._values[name] = (state, value)
        return value
