"""``tupper cp``: files and trees in and out, as streams."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import click

from tupper import FileType, NotFoundException
from tupper.cli import _output
from tupper.cli._sandboxes import attach

_PIECE = 256 * 1024
_INSIDE = re.compile(r"(?P<sandbox>[A-Za-z0-9][A-Za-z0-9_.-]*):(?P<path>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Place:
    """One side of a copy.

    Args:
        sandbox: its id or name; empty for this host.
        path: inside the sandbox, or on this host; ``-`` for a standard stream.
    """

    sandbox: str
    path: str

    @property
    def last(self) -> str:
        """The last part of the path."""
        return self.path.rstrip("/").rpartition("/")[2]


def parse_place(text: str) -> Place:
    """``SANDBOX:PATH`` or a path of this host. One with a slash before the colon is the latter.

    A single letter before the colon is a drive on Windows.
    """
    match = _INSIDE.fullmatch(text)
    if match is None or (os.name == "nt" and len(match["sandbox"]) == 1):
        return Place("", text)
    return Place(match["sandbox"], match["path"] or ".")


@click.command()
@click.option("-r", "--recursive", is_flag=True, help="Copy whole directories.")
@click.option("-u", "--user", help="Whose rights inside, and who owns what is written there.")
@click.argument("source")
@click.argument("target")
def cp(*, source: str, target: str, recursive: bool, user: str | None) -> None:
    """Copy SOURCE to TARGET; one of them is SANDBOX:PATH, the other a path here, or - .

    A directory is copied with -r. A target that ends with a slash, or is a directory, receives
    the source under its own name. Nothing is held in memory as a whole.
    """
    here, there = parse_place(source), parse_place(target)
    if bool(here.sandbox) == bool(there.sandbox):
        raise click.UsageError("exactly one side must be SANDBOX:PATH")
    if there.sandbox:
        _upload(Path(here.path), there, recursive=recursive, user=user)
    else:
        _download(here, there.path, recursive=recursive, user=user)


def _upload(source: Path, target: Place, *, recursive: bool, user: str | None) -> None:
    box = attach(target.sandbox)
    if str(source) == "-":
        box.files.write(target.path, sys.stdin.buffer, user=user)
        return
    if not source.exists():
        raise click.UsageError(f"{source} does not exist")
    path = target.path
    if path.endswith("/") or _is_directory_inside(target, user):
        path = f"{path.rstrip('/')}/{source.absolute().name}"
    if source.is_dir():
        if not recursive:
            raise click.UsageError(f"{source} is a directory; copy it with -r")
        with _output.waiting(f"copying {source}"):
            box.files.upload(source, path, user=user)
        return
    with source.open("rb") as file, _output.progress() as bar:
        total = source.stat().st_size if source.is_file() else 0
        box.files.write(path, counted(file, bar, source.name, total), user=user)


def _download(source: Place, target: str, *, recursive: bool, user: str | None) -> None:
    box = attach(source.sandbox)
    if target == "-":
        for chunk in box.files.read(source.path, format="stream", user=user):
            _output.data(chunk)
        return
    place = Path(target)
    if target.endswith(("/", os.sep)) or place.is_dir():
        place = place / safe_name(source)
    if _is_directory_inside(source, user):
        if not recursive:
            raise click.UsageError(f"{source.path} is a directory; copy it with -r")
        with _output.waiting(f"copying {source.path}"):
            box.files.download(source.path, place, user=user)
        return
    partial = place.with_name(f".{place.name}.tupper-{os.getpid()}")
    try:
        size = box.files.get_info(source.path, user=user).size
        done = 0
        with partial.open("wb") as file, _output.progress() as bar:
            for chunk in box.files.read(source.path, format="stream", user=user):
                done += file.write(chunk)
                bar(source.last, done, size)
        partial.replace(place)
    except OSError as error:
        raise click.ClickException(f"cannot write {place}: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)


def counted(file: BinaryIO, bar: _output.Progress, name: str, total_bytes: int) -> Iterator[bytes]:
    """The pieces of a file, while a bar shows how many have gone.

    Args:
        file: to be read.
        bar: is told.
        name: of what is copied.
        total_bytes: how much there is; 0 if nobody knows.
    """
    done = 0
    while piece := file.read(_PIECE):
        yield piece
        done += len(piece)
        bar(name, done, total_bytes)


def safe_name(source: Place) -> str:
    """The last part of a path inside, if it can be a file name here."""
    if source.last in {"", ".", ".."} or os.sep in source.last:
        raise click.UsageError(f"{source.path!r} has no name of its own; name the target")
    return source.last


def _is_directory_inside(place: Place, user: str | None) -> bool:

    try:
        return attach(place.sandbox).files.get_info(place.path, user=user).type is FileType.DIR
    except NotFoundException:
        return False
