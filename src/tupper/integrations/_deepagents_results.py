"""What the two halves of the adapter for Deep Agents have in common."""

from __future__ import annotations

from importlib import metadata

from tupper import (
    EntryInfo,
    FileNotFoundException,
    FileType,
    InvalidArgumentException,
    TupperError,
)
from tupper.integrations import _shell
from tupper.integrations._extra import missing

try:
    from deepagents.backends import protocol
    from deepagents.backends.sandbox import BaseSandbox
except ImportError as error:
    raise missing("deepagents", error) from error

__all__ = ["BaseSandbox", "protocol"]

KEEPS_FILES = tuple(map(int, metadata.version("deepagents").split(".")[:2])) < (0, 7)
TIMEOUT_S = 1800  # of a command for which the agent sets no limit


def absolute(path: str) -> str:
    """The path, if it is absolute."""
    if not path.startswith("/"):
        raise InvalidArgumentException(f"path {path!r} is not absolute")
    return path


def code(error: TupperError) -> str:
    """The word for it that agents know, or what was said."""
    if isinstance(error, FileNotFoundException):
        return "file_not_found"
    if isinstance(error, InvalidArgumentException):
        return "is_directory" if "is a directory" in error.message else "invalid_path"
    return error.message


def response(outcome: _shell.Outcome) -> protocol.ExecuteResponse:
    """The result of a command."""
    output = outcome.stdout
    if outcome.timed_out:
        output += "\n[the command reached its time limit and was ended]"
    return protocol.ExecuteResponse(output, outcome.exit_code, outcome.dropped_bytes > 0)


def listed(entries: list[EntryInfo]) -> protocol.LsResult:
    """The entries of a directory."""
    return protocol.LsResult(
        entries=[
            {
                "path": entry.path,
                "is_dir": entry.type is FileType.DIR,
                "size": entry.size,
                "modified_at": entry.modified_time.isoformat(),
            }
            for entry in entries
        ]
    )


def written(response: protocol.FileUploadResponse) -> protocol.WriteResult:
    """The result of a write."""
    if response.error:
        return protocol.WriteResult(
            error=f"Failed to write file '{response.path}': {response.error}"
        )
    return protocol.WriteResult(path=response.path)


def there(path: str) -> protocol.WriteResult:
    """The refusal to write over a file, which Deep Agents 0.6 wants."""
    return protocol.WriteResult(error=f"Cannot write to {path} because it already exists.")


def kept(path: str, error: TupperError) -> protocol.DeleteResult:
    """The error for what could not be removed."""
    if isinstance(error, FileNotFoundException):
        return protocol.DeleteResult(error=f"Error: '{path}' not found")
    return protocol.DeleteResult(error=f"Error deleting file '{path}': {error.message}")
