"""The only place that starts a process.

Every helper program is run by :func:`run` (or :func:`run_sync`): an argument list, an explicit
environment, standard input from ``/dev/null`` unless given, output drained into a bounded ring
that the error carries, and at the deadline SIGTERM, a grace, SIGKILL to the whole group, reaped
under a shield. :func:`spawn_detached` starts what must outlive us: a background process.

The text of a failure tells "not found" from "killed by SIGx" from "exit n" and shows a command
that can be pasted.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

from tupper.core.errors import DeadlineExceeded, ProgramFailed, ProgramNotFound

OUTPUT_LIMIT = 16 * 1024 * 1024
_TAIL = 4096
_GRACE_S = 2.0
_CHUNK = 64 * 1024
_SOURCES = str(Path(__file__).resolve().parents[2])
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")


@dataclass(frozen=True, slots=True)
class Completed:
    """What a program left behind.

    Args:
        returncode: 0 to 255, or minus the signal that ended it.
        stdout: the last ``OUTPUT_LIMIT`` bytes of standard output.
        stderr: likewise.
    """

    returncode: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """Standard output as text, without the white space around it."""
        return self.stdout.decode(errors="replace").strip()


def minimal_env(**extra: str) -> dict[str, str]:
    """The environment that helper programs get: PATH, HOME, a UTF-8 locale, and ``extra``."""
    path = os.environ.get("PATH", os.defpath)
    for directory in ("/usr/sbin", "/sbin"):
        if directory not in path.split(os.pathsep):
            path += os.pathsep + directory
    env = {
        "PATH": path,
        "HOME": os.environ.get("HOME", "/"),
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
    }
    return env | extra


def downloading_env(**extra: str) -> dict[str, str]:
    """:func:`minimal_env` with this host's proxies, for a program that fetches something."""
    passed = {name: value for name, value in os.environ.items() if name.lower() in _PROXIES}
    return minimal_env(**extra) | passed


def same_code() -> dict[str, str]:
    """Variables by which a Python that is started finds the code that we are, installed or not."""
    return {"PYTHONPATH": _SOURCES, "PYTHONDONTWRITEBYTECODE": "1"}


def describe_exit(returncode: int) -> str:
    """``exit status 3`` or ``killed by SIGKILL``."""
    if returncode >= 0:
        return f"exit status {returncode}"
    try:
        return f"killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"killed by signal {-returncode}"


def failure(argv: Sequence[str], returncode: int, output: bytes) -> ProgramFailed:
    """The error for a program that ended badly, with the tail of what it said."""
    tail = output[-_TAIL:].decode(errors="replace").strip()
    message = f"{os.path.basename(argv[0])} failed: {describe_exit(returncode)}"  # noqa: PTH119
    if tail:
        message += f": {tail}"
    return ProgramFailed(
        message, returncode=returncode, output=tail, hint=f"it was: {shlex.join(argv)}"
    )


def _not_found(argv: Sequence[str], error: OSError) -> ProgramNotFound:
    return ProgramNotFound(f"cannot start {argv[0]}: {error.strerror or error}")


async def run(
    argv: Sequence[str],
    *,
    timeout_s: float,
    stdin: bytes | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    check: bool = True,
    pass_fds: Sequence[int] = (),
    on_line: Callable[[str], None] | None = None,
    output: int | IO[bytes] | None = None,
) -> Completed:
    """Run a program to its end.

    Args:
        argv: the program and its arguments.
        timeout_s: seconds until its whole process group is ended.
        stdin: what it reads; nothing if None.
        env: its whole environment; ``minimal_env()`` if None.
        cwd: its working directory.
        check: raise if it does not exit with 0.
        pass_fds: descriptors that it inherits.
        on_line: called with each line of either output as it comes.
        output: a file for both outputs instead of memory. Needed where the program leaves
            children behind that keep its outputs open.

    Raises:
        ProgramNotFound: it cannot be started.
        ProgramFailed: it ended badly, and ``check``.
        DeadlineExceeded: its time was over.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE if output is None else output,
            stderr=subprocess.PIPE if output is None else output,
            env=dict(minimal_env() if env is None else env),
            cwd=cwd,
            pass_fds=tuple(pass_fds),
            start_new_session=True,
        )
    except OSError as error:
        raise _not_found(argv, error) from error
    try:
        out, err = await asyncio.wait_for(_converse(process, stdin, on_line), timeout_s)
    except TimeoutError as error:
        await _end(process)
        raise DeadlineExceeded(
            f"{argv[0]} did not end within {timeout_s:g} s", hint=f"it was: {shlex.join(argv)}"
        ) from error
    except BaseException:
        await _end(process)
        raise
    returncode = process.returncode if process.returncode is not None else 0
    if check and returncode:
        raise failure(argv, returncode, err or out)
    return Completed(returncode, out, err)


async def _converse(
    process: asyncio.subprocess.Process, stdin: bytes | None, on_line: Callable[[str], None] | None
) -> tuple[bytes, bytes]:
    async def feed() -> None:
        if process.stdin is not None and stdin is not None:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                process.stdin.write(stdin)
                await process.stdin.drain()
            process.stdin.close()

    _, out, err, _ = await asyncio.gather(
        feed(), _drain(process.stdout, on_line), _drain(process.stderr, on_line), process.wait()
    )
    return out, err


async def _drain(
    stream: asyncio.StreamReader | None, on_line: Callable[[str], None] | None
) -> bytes:
    """Read to the end, keep the last ``OUTPUT_LIMIT`` bytes, hand out lines."""
    if stream is None:
        return b""
    kept = bytearray()
    partial = b""
    while chunk := await stream.read(_CHUNK):
        kept += chunk
        if len(kept) > 2 * OUTPUT_LIMIT:
            del kept[:-OUTPUT_LIMIT]
        if on_line:
            *lines, partial = (partial + chunk).replace(b"\r", b"\n").split(b"\n")
            for line in lines:
                on_line(line.decode(errors="replace"))
    if on_line and partial:
        on_line(partial.decode(errors="replace"))
    return bytes(kept[-OUTPUT_LIMIT:])


async def _end(process: asyncio.subprocess.Process) -> None:
    """SIGTERM, grace, SIGKILL to the group; reaped even if we are cancelled meanwhile."""

    async def end() -> None:
        _signal_group(process.pid, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _GRACE_S)
        _signal_group(process.pid, signal.SIGKILL)
        await process.wait()

    await asyncio.shield(asyncio.ensure_future(end()))


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def run_sync(
    argv: Sequence[str],
    *,
    timeout_s: float,
    stdin: bytes | None = None,
    env: Mapping[str, str] | None = None,
    check: bool = True,
    pass_fds: Sequence[int] = (),
    output: int | IO[bytes] | None = None,
) -> Completed:
    """:func:`run` for code without an event loop."""
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE if output is None else output,
            stderr=subprocess.PIPE if output is None else output,
            env=dict(minimal_env() if env is None else env),
            pass_fds=tuple(pass_fds),
            start_new_session=True,
        )
    except OSError as error:
        raise _not_found(argv, error) from error
    with process:
        try:
            deadline = time.monotonic() + timeout_s
            if stdin is None and output is not None:
                _wait_unpolled(process, timeout_s)
            out, err = process.communicate(stdin, timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            _signal_group(process.pid, signal.SIGKILL)
            process.communicate()
            raise DeadlineExceeded(f"{argv[0]} did not end within {timeout_s:g} s") from error
        except BaseException:
            _signal_group(process.pid, signal.SIGKILL)
            raise
    out, err = out or b"", err or b""  # None where the output went to a file
    if check and process.returncode:
        raise failure(argv, process.returncode, err or out)
    return Completed(process.returncode, out[-OUTPUT_LIMIT:], err[-OUTPUT_LIMIT:])


def _wait_unpolled(process: subprocess.Popen[bytes], timeout_s: float) -> None:
    """Wait until a process has ended, or for so long.

    ``Popen.wait`` with a time limit looks again after 0.5, 1, 2, … 50 ms, so a program that takes
    120 ms seems to take 163. Where there are pidfds the kernel tells.
    """
    if sys.platform != "linux":
        return
    try:
        fd = os.pidfd_open(process.pid)
    except OSError:
        return
    try:
        ended = select.poll()
        ended.register(fd, select.POLLIN)
        ended.poll(timeout_s * 1000)
    finally:
        os.close(fd)


def spawn_detached(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    log: IO[bytes] | None = None,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own that outlives us.

    The caller may wait for the result or drop it; a dropped one is reaped by init after our end.

    Args:
        argv: the program and its arguments.
        env: its whole environment.
        log: where both outputs go; nowhere if None.
        pass_fds: descriptors that it inherits.
    """
    # DETACHED_PROCESS and CREATE_NEW_PROCESS_GROUP; elsewhere there are no such flags.
    flags = 0x00000008 | 0x00000200 if sys.platform == "win32" else 0
    try:
        return subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=log if log is not None else subprocess.DEVNULL,
            stderr=log if log is not None else subprocess.DEVNULL,
            env=dict(env),
            cwd="/",
            start_new_session=True,
            pass_fds=tuple(pass_fds),
            creationflags=flags,
        )
    except OSError as error:
        raise _not_found(argv, error) from error


def become(argv: Sequence[str]) -> NoReturn:
    """Be another program from now on, with the environment that there is.

    Raises:
        OSError: there is no such program, or it cannot be run.
    """
    os.execvp(argv[0], list(argv))  # noqa: S606 - no shell is wanted
