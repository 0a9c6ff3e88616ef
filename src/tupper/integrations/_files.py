"""Files of a sandbox as its user sees them, with Python's own errors.

``sandbox.files`` works as root for the user, as E2B's does. Frameworks whose contract is that a
file is as readable as it is for a command ask first, as that user, with a few lines of shell. That
is an answer about permissions and no boundary: the user of most templates may become root.

Errors: FileNotFoundError, IsADirectoryError, NotADirectoryError, FileExistsError,
PermissionError, and OSError for what is no regular file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import AsyncGenerator, Iterable
from typing import Literal

from tupper import (
    AsyncSandbox,
    EntryInfo,
    FileNotFoundException,
    FileType,
    InvalidArgumentException,
    SandboxException,
)
from tupper.integrations import _shell

# $1: read, write, list or stat; $2: an absolute path. The exit code is an errno of Linux.
_ASK = """
path=$2 above=$2
case $path in /*) ;; *) exit 22 ;; esac
while [ ! -e "$above" ] && [ "$above" != / ]; do above=${above%/*}; above=${above:-/}; done
if [ "$above" != "$path" ]; then
  [ -d "$above" ] || exit 20
  [ -x "$above" ] || exit 13
  if [ "$1" = write ]; then [ -w "$above" ] || exit 13; exit 0; fi
  if [ "$1" = stat ] && [ -L "$path" ]; then exit 0; fi
  exit 2
fi
case $1 in
stat) exit 0 ;;
list) [ -d "$path" ] || exit 20; [ -r "$path" ] && [ -x "$path" ] || exit 13; exit 0 ;;
esac
[ ! -d "$path" ] || exit 21
[ -f "$path" ] || exit 22
if [ "$1" = read ]; then [ -r "$path" ] || exit 13; else [ -w "$path" ] || exit 13; fi
"""
_KNOWN = frozenset({errno.ENOENT, errno.EACCES, errno.ENOTDIR, errno.EISDIR, errno.EINVAL})


def failure(number: int, path: str) -> OSError:
    """Python's error of this number; its class follows from it."""
    return OSError(number, os.strerror(number), path)


async def read(sandbox: AsyncSandbox, path: str, user: str | None = None) -> bytes:
    """The content of a regular file; ``path`` is absolute."""
    await may(sandbox, "read", path, user)
    try:
        return bytes(await sandbox.files.read(path, "bytes", user))
    except (FileNotFoundException, InvalidArgumentException) as error:
        raise await why(sandbox, path) from error


async def write(
    sandbox: AsyncSandbox, path: str, data: str | bytes, user: str | None = None
) -> None:
    """Write a file, and the directories that lead to it; ``path`` is absolute."""
    await may(sandbox, "write", path, user)
    try:
        await sandbox.files.write(path, data, user)
    except (FileNotFoundException, InvalidArgumentException) as error:
        raise await why(sandbox, path) from error


async def stat(sandbox: AsyncSandbox, path: str) -> EntryInfo:
    """What there is at a path; what a link leads to."""
    await may(sandbox, "stat", path)
    return await sandbox.files.get_info(path)


async def entries(sandbox: AsyncSandbox, path: str) -> list[EntryInfo]:
    """What there is in a directory."""
    await may(sandbox, "list", path)
    return await sandbox.files.list(path)


async def why(sandbox: AsyncSandbox, path: str) -> OSError:
    """What is wrong with a path that a call refused."""
    try:
        info = await sandbox.files.get_info(path)
    except FileNotFoundException:
        return failure(errno.ENOENT, path)
    except InvalidArgumentException as error:
        is_below_file = "not a directory" in error.message
        return failure(errno.ENOTDIR if is_below_file else errno.EINVAL, path)
    return failure(errno.EISDIR if info.type is FileType.DIR else errno.EINVAL, path)


async def may(
    sandbox: AsyncSandbox,
    what: Literal["read", "write", "list", "stat"],
    path: str,
    user: str | None = None,
) -> None:
    """Raise what a program of the user would get; nothing in an image without a shell."""
    asked = await _shell.arun(sandbox, ["sh", "-c", _ASK, "sh", what, path], user=user)
    if asked.exit_code in _KNOWN:
        raise failure(asked.exit_code, path)


async def make_dir(sandbox: AsyncSandbox, path: str) -> None:
    """Make a directory, and those that lead to it; one that is there is no error."""
    if (await _shell.arun(sandbox, ["mkdir", "-p", "--", path])).exit_code == 0:
        return
    try:
        is_dir = (await sandbox.files.get_info(path)).type is FileType.DIR
    except FileNotFoundException as error:
        raise failure(errno.EACCES, path) from error
    except InvalidArgumentException as error:
        raise failure(errno.ENOTDIR, path) from error
    raise failure(errno.EACCES if is_dir else errno.EEXIST, path)


async def remove(sandbox: AsyncSandbox, path: str) -> None:
    """Remove a file, a link, or a directory and all that is in it."""
    await may(sandbox, "stat", path)
    if (await _shell.arun(sandbox, ["rm", "-rf", "--", path])).exit_code != 0:
        raise failure(errno.EACCES, path)


async def realpath(sandbox: AsyncSandbox, path: str) -> str:
    """The path without links; what is missing or leads to itself stays as written."""
    found = await _shell.arun(sandbox, ["realpath", "-mz", "--", path])
    if found.exit_code != 0:
        raise OSError(errno.EIO, found.stderr.strip(), path)
    return found.stdout.rstrip("\0")


async def pack(sandbox: AsyncSandbox, root: str, *, without: Iterable[str] = ()) -> bytes:
    """What is in a directory, as a tar archive, but for some paths in it."""
    excludes = [f"--exclude=./{path}" for path in sorted(without)]
    async with _archive(sandbox) as file:
        await _tar(sandbox, root, "-cf", file, *excludes, ".")
        return bytes(await sandbox.files.read(file, "bytes"))


async def unpack(sandbox: AsyncSandbox, root: str, archive: bytes) -> None:
    """Fill a directory from a tar archive."""
    async with _archive(sandbox) as file:
        await sandbox.files.write(file, archive)
        await _tar(sandbox, root, "-xf", file)


@contextlib.asynccontextmanager
async def _archive(sandbox: AsyncSandbox) -> AsyncGenerator[str]:
    file = f"/tmp/{secrets.token_hex(8)}.tar"
    try:
        yield file
    finally:
        with contextlib.suppress(SandboxException):  # what went wrong is raised already
            await sandbox.files.remove(file)


async def _tar(sandbox: AsyncSandbox, root: str, *arguments: str) -> None:
    done = await _shell.arun(sandbox, ["tar", "-C", root, *arguments])
    if done.exit_code != 0:
        raise OSError(errno.EIO, done.stderr[-4096:], root)


_OWN_DIR = 'mkdir -p -- "$1" && chown "$2" "$1"'


async def make_own_dir(sandbox: AsyncSandbox, path: str) -> None:
    """Make a directory, anywhere, that belongs to whom commands run as."""
    owner = (await _shell.arun(sandbox, ["sh", "-c", "echo $(id -u):$(id -g)"])).stdout.strip()
    command = ["sh", "-c", _OWN_DIR, "sh", path, owner]
    made = await _shell.arun(sandbox, command, user="root")
    if made.exit_code != 0:
        raise OSError(errno.EACCES, made.stderr[-4096:], path)
