"""The files of the adapter for Pydantic AI."""

from __future__ import annotations

import abc
import contextlib
import posixpath
from collections.abc import Generator, Sequence

from tupper import (
    AsyncSandbox,
    EntryInfo,
    FileType,
    SandboxNotFoundException,
    SandboxNotRunningException,
)
from tupper.integrations import _files
from tupper.integrations._extra import missing

try:
    from pydantic_ai import workspaces
except ImportError as error:
    raise missing("pydantic-ai", error) from error


class WorkspaceFiles(abc.ABC):
    """The operations on files; paths are absolute."""

    @abc.abstractmethod
    async def get_sandbox(self) -> AsyncSandbox:
        """The sandbox."""

    @abc.abstractmethod
    async def working_dir(self) -> str:
        """Where commands start."""

    async def read_bytes(self, path: str) -> bytes:
        """The content of a file."""
        with living():
            return await _files.read(await self.get_sandbox(), path)

    async def write_bytes(self, path: str, data: bytes) -> None:
        """Write a file, and the directories that lead to it."""
        with living():
            await _files.write(await self.get_sandbox(), path, data)

    async def stat(self, path: str) -> workspaces.FileEntry:
        """What there is at a path; what a link leads to."""
        with living():
            sandbox = await self.get_sandbox()
            await _files.may(sandbox, "stat", path)
            return _entry(await sandbox.files.get_info(path))

    async def list_dir(self, path: str) -> Sequence[workspaces.FileEntry]:
        """The entries of a directory."""
        with living():
            sandbox = await self.get_sandbox()
            await _files.may(sandbox, "list", path)
            return [_entry(entry) for entry in await sandbox.files.list(path)]

    async def make_dir(self, path: str) -> None:
        """Make a directory, and those that lead to it."""
        with living():
            await _files.make_dir(await self.get_sandbox(), path)

    async def remove(self, path: str) -> None:
        """Remove a file, or a directory with all that is in it, but never where commands start."""
        here = await self.working_dir()
        parent = await self.realpath(posixpath.dirname(path))
        target = posixpath.normpath(posixpath.join(parent, posixpath.basename(path)))
        if f"{here}/".startswith(f"{target.rstrip('/')}/"):
            raise ValueError(f"{path!r} is, or contains, the working directory {here!r}")
        with living():
            await _files.remove(await self.get_sandbox(), path)

    async def exists(self, path: str) -> bool:
        """Whether there is something at a path."""
        try:
            await self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    async def realpath(self, path: str) -> str:
        """The path without links."""
        with living():
            return await _files.realpath(await self.get_sandbox(), path)


def _entry(info: EntryInfo) -> workspaces.FileEntry:
    is_file = info.type is FileType.FILE and info.symlink_target is None
    return workspaces.FileEntry(
        name=info.name,
        path=info.path,
        is_dir=info.type is FileType.DIR,
        size=info.size if is_file else None,
    )


@contextlib.contextmanager
def living() -> Generator[None]:
    """Turns the end of the sandbox into the error that no retry helps against."""
    try:
        yield
    except (SandboxNotRunningException, SandboxNotFoundException) as error:
        raise workspaces.WorkspaceUnavailableError(error.message) from error
