"""Starting the local background process.

Any number of clients may do this at once: each starts a process, and all but one of these find the
lock taken and leave. So a start whose process leaves is no failure as long as some process answers
at the address afterwards. Everything here blocks; the async half runs it in a thread.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import time
from pathlib import Path

from tupper.core.paths import Paths, make_private
from tupper.core.process import spawn_detached
from tupper.sdk._shared.errors import UnavailableException

START_TIMEOUT_S = 30.0
_LOG_TAIL = 2000


def start(paths: Paths, *, timeout_s: float = START_TIMEOUT_S) -> None:
    """Start the background process and return when one answers.

    Errors:
        UnavailableException: none did in time; the text carries the end of its log.
    """
    make_private(paths.runtime)
    deadline = time.monotonic() + timeout_s
    log = paths.runtime / "server.log"
    ready, child_end = os.pipe()
    ready_option = ("--ready-fd", str(child_end))
    try:
        with log.open("ab") as output:
            process = spawn_detached(
                [sys.executable, "-m", "tupper.server", "--background", *ready_option],
                env=dict(os.environ),
                log=output,
                pass_fds=(child_end,),
            )
        os.close(child_end)
        child_end = -1
        _wait_ready(ready, deadline)
    finally:
        os.close(ready)
        if child_end >= 0:
            os.close(child_end)
    while not answers(paths):
        if process.poll() is not None and time.monotonic() > deadline - timeout_s + 5.0:
            break
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    else:
        process.returncode = process.returncode or 0  # it is init's child now, not ours to reap
        return
    raise UnavailableException(
        f"the background process did not answer within {timeout_s:g} s{_last_words(log)}",
        code="daemon_unavailable",
        hint=f"its log is {log}; `tupper serve` runs it in the foreground",
    )


def _wait_ready(fd: int, deadline: float) -> None:
    """Until the process says that it is ready, or closes the pipe by leaving."""
    with contextlib.suppress(OSError):
        remaining = max(0.0, deadline - time.monotonic())
        if select.select([fd], [], [], remaining)[0]:
            os.read(fd, 64)


def answers(paths: Paths) -> bool:
    """Whether something listens at the address in the address file."""
    try:
        url = paths.address_file.read_text().strip().partition(" ")[0]
    except OSError:
        return False
    try:
        if url.startswith("unix:"):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(2.0)
                connection.connect(url.removeprefix("unix:"))
        else:
            host, _, port = url.rpartition("/")[2].rpartition(":")
            socket.create_connection((host, int(port)), 2.0).close()
    except (OSError, ValueError):
        return False
    return True


def wait_gone(paths: Paths, *, timeout_s: float = 10.0) -> bool:
    """Wait until nothing listens there any more.

    Returns:
        Whether that came true in time.
    """
    deadline = time.monotonic() + timeout_s
    while answers(paths):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _last_words(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LOG_TAIL))
            text = file.read().decode(errors="replace").strip()
    except OSError:
        return ""
    return f":\n{text}" if text else ""
