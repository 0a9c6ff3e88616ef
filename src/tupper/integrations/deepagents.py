"""Deep Agents: a sandbox as the backend of an agent, which whoever made the sandbox ends.

Listing, writing, deleting, uploads and downloads are calls of the agent inside the sandbox; what
Deep Agents does with programs there (pages of a file, edits, grep, glob) stays as it is.

Source: ``deepagents.backends`` 0.6 and 0.7.
"""

from __future__ import annotations

from tupper import Sandbox, TupperError
from tupper.integrations import _deepagents_results as results
from tupper.integrations import _shell
from tupper.integrations._deepagents_async import AsyncTupperSandbox
from tupper.integrations._deepagents_results import BaseSandbox, protocol

__all__ = ["AsyncTupperSandbox", "TupperSandbox"]


class TupperSandbox(BaseSandbox):
    """A sandbox as an agent's backend.

    Args:
        sandbox: that runs.
        timeout: seconds that a command may take if the agent sets no limit; 0 for no limit.
    """

    def __init__(self, *, sandbox: Sandbox, timeout: int = results.TIMEOUT_S) -> None:
        self.sandbox = sandbox
        self.timeout = timeout

    @property
    def id(self) -> str:
        """The id of the sandbox."""
        return self.sandbox.sandbox_id

    def execute(self, command: str, *, timeout: int | None = None) -> protocol.ExecuteResponse:
        """Run a command in a login shell; exit code 124 if its time was over."""
        limit_s = self.timeout if timeout is None else timeout
        return results.response(
            _shell.run(self.sandbox, _shell.together(command), timeout_s=limit_s)
        )

    def ls(self, path: str) -> protocol.LsResult:
        """The entries of a directory."""
        try:
            return results.listed(self.sandbox.files.list(path))
        except TupperError as error:
            return protocol.LsResult(error=f"Path '{path}': {results.code(error)}")

    def write(self, file_path: str, content: str) -> protocol.WriteResult:
        """Write a file, and the directories that lead to it."""
        if results.KEEPS_FILES and self.sandbox.files.exists(file_path):
            return results.there(file_path)
        return results.written(*self.upload_files([(file_path, content.encode())]))

    def delete(self, file_path: str) -> protocol.DeleteResult:
        """Remove a file, or a directory with all that is in it."""
        try:
            self.sandbox.files.get_info(file_path)
            self.sandbox.files.remove(file_path)
        except TupperError as error:
            return results.kept(file_path, error)
        return protocol.DeleteResult(path=file_path)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[protocol.FileUploadResponse]:
        """Write files; each has its own result."""
        return [self._upload(path, data) for path, data in files]

    def _upload(self, path: str, data: bytes) -> protocol.FileUploadResponse:
        try:
            self.sandbox.files.write(results.absolute(path), data)
        except TupperError as error:
            return protocol.FileUploadResponse(path, results.code(error))
        return protocol.FileUploadResponse(path)

    def download_files(self, paths: list[str]) -> list[protocol.FileDownloadResponse]:
        """Read files; each has its own result."""
        return [self._download(path) for path in paths]

    def _download(self, path: str) -> protocol.FileDownloadResponse:
        try:
            data = bytes(self.sandbox.files.read(results.absolute(path), "bytes"))
        except TupperError as error:
            return protocol.FileDownloadResponse(path, error=results.code(error))
        return protocol.FileDownloadResponse(path, data)
