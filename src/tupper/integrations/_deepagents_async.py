"""The half of the adapter for Deep Agents that is on asyncio."""

from __future__ import annotations

from typing import NoReturn

from tupper import AsyncSandbox, TupperError
from tupper.integrations import _deepagents_results as results
from tupper.integrations import _shell
from tupper.integrations._deepagents_results import BaseSandbox, protocol


class AsyncTupperSandbox(BaseSandbox):
    """A sandbox as the backend of an agent that runs on asyncio: by ``ainvoke`` or ``astream``.

    Args:
        sandbox: that runs.
        timeout: seconds that a command may take if the agent sets no limit; 0 for no limit.
    """

    def __init__(self, *, sandbox: AsyncSandbox, timeout: int = results.TIMEOUT_S) -> None:
        self.sandbox = sandbox
        self.timeout = timeout

    @property
    def id(self) -> str:
        """The id of the sandbox."""
        return self.sandbox.sandbox_id

    async def aexecute(
        self, command: str, *, timeout: int | None = None
    ) -> protocol.ExecuteResponse:
        """Run a command in a login shell; exit code 124 if its time was over."""
        limit_s = self.timeout if timeout is None else timeout
        return results.response(
            await _shell.arun(self.sandbox, _shell.together(command), timeout_s=limit_s)
        )

    async def als(self, path: str) -> protocol.LsResult:
        """The entries of a directory."""
        try:
            return results.listed(await self.sandbox.files.list(path))
        except TupperError as error:
            return protocol.LsResult(error=f"Path '{path}': {results.code(error)}")

    async def awrite(self, file_path: str, content: str) -> protocol.WriteResult:
        """Write a file, and the directories that lead to it."""
        if results.KEEPS_FILES and await self.sandbox.files.exists(file_path):
            return results.there(file_path)
        return results.written(*await self.aupload_files([(file_path, content.encode())]))

    async def adelete(self, file_path: str) -> protocol.DeleteResult:
        """Remove a file, or a directory with all that is in it."""
        try:
            await self.sandbox.files.get_info(file_path)
            await self.sandbox.files.remove(file_path)
        except TupperError as error:
            return results.kept(file_path, error)
        return protocol.DeleteResult(path=file_path)

    async def aupload_files(
        self, files: list[tuple[str, bytes]]
    ) -> list[protocol.FileUploadResponse]:
        """Write files; each has its own result."""
        return [await self._upload(path, data) for path, data in files]

    async def _upload(self, path: str, data: bytes) -> protocol.FileUploadResponse:
        try:
            await self.sandbox.files.write(results.absolute(path), data)
        except TupperError as error:
            return protocol.FileUploadResponse(path, results.code(error))
        return protocol.FileUploadResponse(path)

    async def adownload_files(self, paths: list[str]) -> list[protocol.FileDownloadResponse]:
        """Read files; each has its own result."""
        return [await self._download(path) for path in paths]

    async def _download(self, path: str) -> protocol.FileDownloadResponse:
        try:
            data = bytes(await self.sandbox.files.read(results.absolute(path), "bytes"))
        except TupperError as error:
            return protocol.FileDownloadResponse(path, error=results.code(error))
        return protocol.FileDownloadResponse(path, data)

    def execute(self, command: str, *, timeout: int | None = None) -> NoReturn:
        """Not on this half."""
        raise NotImplementedError(_OTHER_HALF)

    def upload_files(self, files: list[tuple[str, bytes]]) -> NoReturn:
        """Not on this half."""
        raise NotImplementedError(_OTHER_HALF)

    def download_files(self, paths: list[str]) -> NoReturn:
        """Not on this half."""
        raise NotImplementedError(_OTHER_HALF)


_OTHER_HALF = "this agent runs without asyncio: use TupperSandbox(sandbox=tupper.Sandbox(...))"
