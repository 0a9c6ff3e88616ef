"""Deep Agents: a sandbox as the backend of an agent, which whoever made the sandbox ends.

Listing, writing, deleting, uploads and downloads are calls of the agent inside the sandbox; what
Deep Agents does with programs there (pages of a file, edits, grep, glob) stays as it is.
Source: ``deepagents.backends`` 0.6 and 0.7.
"""

from __future__ import annotations

from importlib import metadata
from typing import NoReturn

from tupper import AsyncSandbox, EntryInfo, FileType, Sandbox, TupperError
from tupper import FileNotFoundException as NotThere
from tupper import InvalidArgumentException as BadPath
from tupper.integrations import _shell
from tupper.integrations._extra import missing
from tupper.integrations._halves import awaited, blocking

try:
    from deepagents.backends import protocol
    from deepagents.backends.sandbox import BaseSandbox
except ImportError as error:
    raise missing("deepagents", error) from error

KEEPS_FILES = tuple(map(int, metadata.version("deepagents").split(".")[:2])) < (0, 7)
TIMEOUT_S = 1800  # of a command for which the agent sets no limit
Files = list[tuple[str, bytes]]


class AsyncTupperSandbox(BaseSandbox):
    """A sandbox as the backend of an agent that runs on asyncio: by ``ainvoke`` or ``astream``.

    Args:
        sandbox: that runs.
        timeout: seconds that a command may take if the agent sets no limit; 0 for no limit.
    """

    def __init__(self, *, sandbox: AsyncSandbox, timeout: int = TIMEOUT_S) -> None:
        self.sandbox, self.timeout = sandbox, timeout

    @property
    def id(self) -> str:
        """The id of the sandbox."""
        return self.sandbox.sandbox_id

    async def aexecute(
        self, command: str, *, timeout: int | None = None
    ) -> protocol.ExecuteResponse:
        """Run a command in a login shell; exit code 124 if its time was over."""
        limit_s = self.timeout if timeout is None else timeout
        done = await _shell.arun(self.sandbox, _shell.together(command), timeout_s=limit_s)
        late = "\n[the command reached its time limit and was ended]" * done.timed_out
        return protocol.ExecuteResponse(done.stdout + late, done.exit_code, done.dropped_bytes > 0)

    async def als(self, path: str) -> protocol.LsResult:
        """The entries of a directory."""
        try:
            found = await self.sandbox.files.list(path)
        except TupperError as error:
            return protocol.LsResult(error=f"Path '{path}': {_code(error)}")
        return protocol.LsResult(entries=[_entry(info) for info in found])

    async def awrite(self, file_path: str, content: str) -> protocol.WriteResult:
        """Write a file, and the directories that lead to it."""
        if KEEPS_FILES and await self.sandbox.files.exists(file_path):
            return protocol.WriteResult(error=f"Cannot write to {file_path}: it already exists.")
        (done,) = await self.aupload_files([(file_path, content.encode())])
        said = f"Failed to write file '{file_path}': {done.error}" if done.error else None
        return protocol.WriteResult(error=said, path=None if said else file_path)

    async def adelete(self, file_path: str) -> protocol.DeleteResult:
        """Remove a file, or a directory with all that is in it."""
        try:
            await self.sandbox.files.get_info(file_path)
            await self.sandbox.files.remove(file_path)
        except NotThere:
            return protocol.DeleteResult(error=f"Error: '{file_path}' not found")
        except TupperError as error:
            said = f"Error deleting file '{file_path}': {error.message}"
            return protocol.DeleteResult(error=said)
        return protocol.DeleteResult(path=file_path)

    async def aupload_files(self, files: Files) -> list[protocol.FileUploadResponse]:
        """Write files; each has its own result."""
        answers: list[protocol.FileUploadResponse] = []
        for path, data in files:
            try:
                await self.sandbox.files.write(_absolute(path), data)
                answers.append(protocol.FileUploadResponse(path))
            except TupperError as error:
                answers.append(protocol.FileUploadResponse(path, _code(error)))
        return answers

    async def adownload_files(self, paths: list[str]) -> list[protocol.FileDownloadResponse]:
        """Read files; each has its own result."""
        answers: list[protocol.FileDownloadResponse] = []
        for path in paths:
            try:
                data = bytes(await self.sandbox.files.read(_absolute(path), "bytes"))
                answers.append(protocol.FileDownloadResponse(path, data))
            except TupperError as error:
                answers.append(protocol.FileDownloadResponse(path, error=_code(error)))
        return answers

    def execute(self, command: str, *, timeout: int | None = None) -> NoReturn:
        """Not on this half; nor are uploads and downloads."""
        raise NotImplementedError("without asyncio, use TupperSandbox(sandbox=tupper.Sandbox(...))")

    upload_files = download_files = execute


class TupperSandbox(BaseSandbox):
    """A sandbox as an agent's backend; the arguments are those of the other half."""

    def __init__(self, *, sandbox: Sandbox, timeout: int = TIMEOUT_S) -> None:
        self.sandbox = sandbox
        self.half = AsyncTupperSandbox(sandbox=awaited(sandbox), timeout=timeout)

    @property
    def id(self) -> str:
        """The id of the sandbox."""
        return self.sandbox.sandbox_id

    execute = blocking(AsyncTupperSandbox.aexecute)
    ls = blocking(AsyncTupperSandbox.als)
    write = blocking(AsyncTupperSandbox.awrite)
    delete = blocking(AsyncTupperSandbox.adelete)
    upload_files = blocking(AsyncTupperSandbox.aupload_files)
    download_files = blocking(AsyncTupperSandbox.adownload_files)


def _entry(info: EntryInfo) -> protocol.FileInfo:
    is_dir, at = info.type is FileType.DIR, info.modified_time.isoformat()
    return {"path": info.path, "is_dir": is_dir, "size": info.size, "modified_at": at}


def _absolute(path: str) -> str:
    if not path.startswith("/"):
        raise BadPath(f"path {path!r} is not absolute")
    return path


def _code(error: TupperError) -> str:
    """The word for it that agents know, or what was said."""
    if isinstance(error, NotThere):
        return "file_not_found"
    if isinstance(error, BadPath):
        return "is_directory" if "is a directory" in error.message else "invalid_path"
    return error.message
