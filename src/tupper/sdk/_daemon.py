"""Starting the local background process.

Any number of clients may do this at once: each starts a process, and all but one of these find the
lock taken and leave. So a start whose process leaves is no failure as long as some process answers
at the address afterwards. Everything here blocks; the async half runs it in a thread.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable
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
                env=_environment(),
                log=output,
                pass_fds=(child_end,),
            )
        os.close(child_end)
        child_end = -1
        said = _wait_ready(ready, deadline)
    finally:
        os.close(ready)
        if child_end >= 0:
            os.close(child_end)
    left = said.startswith("error") or (not said and _has_left(process.poll))
    _reap(process.wait)
    if said.startswith("ready") or wait_answer(paths, timeout_s=1.0 if left else timeout_s):
        return
    reason = said.removeprefix("error").strip()
    raise UnavailableException(
        f"the background process did not start: {reason}"
        if reason
        else f"the background process did not answer within {timeout_s:g} s{_last_words(log)}",
        code="daemon_unavailable",
        hint=f"its log is {log}; `tupper serve` runs it in the foreground",
    )


def _reap(wait: Callable[[], int]) -> None:
    """It may leave long before we do, and must not stay as a zombie until then."""
    threading.Thread(target=wait, name="tupper-reaper", daemon=True).start()


def _wait_ready(fd: int, deadline: float) -> str:
    """What the process says: ``ready URL``, ``error TEXT``, or nothing if it leaves or is late."""
    said = b""
    with contextlib.suppress(OSError), selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        while selector.select(max(0.0, deadline - time.monotonic())):
            piece = os.read(fd, 4096)
            said += piece
            if not piece or b"\n" in piece:
                break
    return said.decode(errors="replace").strip()


def _has_left(poll: Callable[[], int | None]) -> bool:
    """Whether it is gone; it closed the pipe, so it will be soon if it is not staying."""
    deadline = time.monotonic() + 1.0
    while poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return poll() is not None


def _environment() -> dict[str, str]:
    """Ours, with PYTHONPATH absolute: the process works in another directory."""
    env = dict(os.environ)
    if search := env.get("PYTHONPATH"):
        parts = [str(Path(part).absolute()) for part in search.split(os.pathsep) if part]
        env["PYTHONPATH"] = os.pathsep.join(parts)
    return env


def wait_answer(paths: Paths, *, timeout_s: float) -> bool:
    """Wait until something answers: perhaps not the process that we started.

    Returns:
        Whether that came true in time.
    """
    deadline = time.monotonic() + timeout_s
    while not answers(paths):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


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
