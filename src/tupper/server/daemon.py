"""The background process, and the same in the foreground (``tupper serve``).

One per data directory: the lock ``runtime/daemon.lock`` is held from start to end, so of several
starters exactly one becomes the process and the others find it. It leaves when nothing has run for
a while. SIGTERM makes it leave in order; sandboxes live on and the next process adopts them.

What it writes for its clients, beside the socket: ``address`` (a URL, last, so that who reads it
can connect), ``pid``, ``version``.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tupper.core.errors import DaemonUnavailable, TupperError
from tupper.core.log import event, problem
from tupper.core.paths import Paths, make_private
from tupper.core.settings import Settings
from tupper.core.version import PROTOCOL, VERSION
from tupper.engine import Engine
from tupper.engine.parts import Parts
from tupper.server.activity import Activity
from tupper.server.app import make_app
from tupper.server.auth import new_key
from tupper.server.limits import raise_file_limit
from tupper.server.links import Links
from tupper.server.listen import Listeners, bind_private, bind_tcp

_LOCK_WAIT_S = 20.0
_FINISH_S = 5.0

FindParts = Callable[[Paths, Settings, str], Parts]


@dataclass(frozen=True, slots=True)
class Options:
    """How to serve.

    Args:
        background: leave when nothing has run for a while.
        listen: ``host:port`` to listen on too, with API keys.
        domain: what E2B's clients append to ``<port>-<id>.``; None for ``localhost:PORT``.
        ready: called once it can be connected to, with the URLs; the private one first.
        first_key: called with a new API key, if it listens on TCP and there is none yet; None makes
            none.
        failed: called with the reason when it cannot start; not when another one serves already.
        find_parts: makes the layers below; None for the real ones.
    """

    background: bool = False
    listen: Sequence[str] = ()
    domain: str | None = None
    ready: Callable[[Sequence[str]], None] = lambda _urls: None
    first_key: Callable[[str], None] | None = None
    failed: Callable[[str], None] = lambda _reason: None
    find_parts: FindParts | None = None


async def serve(paths: Paths, settings: Settings, options: Options) -> bool:
    """Serve until told to leave, or idle for long enough in the background.

    Returns:
        Whether the process shall start itself again, as a newer version.

    Raises:
        DaemonUnavailable: another process serves this data directory.
        TupperError: it cannot start.
    """
    make_private(paths.runtime)
    async with _exclusive(paths):
        # Bound before the adoption, so that clients wait instead of starting another.
        private = bind_private(paths.socket)
        try:
            public = [bind_tcp(address) for address in options.listen]
            engine = await Engine.open(paths, settings, find_parts=options.find_parts)
        except BaseException:
            private.close()
            paths.socket.unlink(missing_ok=True)
            raise
        try:
            return await _serve(paths, engine, options, private, public)
        finally:
            await engine.close()
            event("daemon.left", pid=os.getpid())


async def _serve(
    paths: Paths,
    engine: Engine,
    options: Options,
    private: socket.socket,
    public: Sequence[socket.socket],
) -> bool:
    activity, leave = Activity(), asyncio.Event()
    app = make_app(engine, activity, leave, background=options.background)
    listeners = Listeners(engine, app, activity)
    await listeners.add(private, local=True, domain=options.domain)
    for listener in public:
        # Without a domain of ours, E2B's clients would send their traffic to E2B's.
        domain = options.domain or f"localhost:{listener.getsockname()[1]}"
        await listeners.add(listener, local=False, domain=domain)
    links = Links(paths, listeners, public, options.domain)
    app.lead_links(links)
    if engine.count:
        await links.resume()
    url = f"unix:{paths.socket}"
    _write_facts(paths, url)
    gc.freeze()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, leave.set)
    idler = loop.create_task(_leave_when_idle(engine, activity, leave))
    if not options.background:
        idler.cancel()
    event("daemon.ready", pid=os.getpid(), version=VERSION, sandboxes=engine.count)
    if public and options.first_key is not None and not await engine.store.keys():
        secret, key = new_key("made by tupper serve")
        await engine.store.add_key(key)
        options.first_key(secret)
    options.ready([url, *(_url(listener) for listener in public)])
    try:
        await leave.wait()
    finally:
        idler.cancel()
        _remove_facts(paths)
        engine.events.close()  # whoever listens would hold us
        await listeners.finish(timeout_s=_FINISH_S)
        await activity.finish(timeout_s=0)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
    return app.wants_restart


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def _leave_when_idle(engine: Engine, activity: Activity, leave: asyncio.Event) -> None:
    limit_s = engine.settings.leave_after_s
    while True:
        idle_s = 0.0 if engine.is_busy else activity.idle_s
        if idle_s >= limit_s:
            event("daemon.idle", idle_s=idle_s)
            leave.set()
            return
        await asyncio.sleep(max(limit_s - idle_s, 0.05))


def _write_facts(paths: Paths, url: str) -> None:
    facts = (("pid", str(os.getpid())), ("version", f"{VERSION} {PROTOCOL}"))
    for name, text in facts:
        _write_private(paths.runtime / name, text)
    _write_private(paths.address_file, url)


def _write_private(path: Path, text: str) -> None:
    """Replace a small file in one step."""
    new = path.with_name(path.name + ".new")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write(text + "\n")
    new.replace(path)


def _remove_facts(paths: Paths) -> None:
    """First the address, then the socket: nobody new comes while the last are served."""
    for path in (paths.address_file, paths.socket, paths.runtime / "pid"):
        path.unlink(missing_ok=True)


@asynccontextmanager
async def _exclusive(paths: Paths) -> AsyncGenerator[None]:
    """Hold the lock that makes us the one process; wait for one that is just leaving."""
    fd = os.open(paths.runtime / "daemon.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    give_up = time.monotonic() + _LOCK_WAIT_S
    try:
        while not _try_lock(fd):
            if _answers(paths):
                raise DaemonUnavailable(
                    f"another background process serves {paths.data}",
                    hint=f"its address is in {paths.address_file}",
                )
            if time.monotonic() > give_up:
                raise DaemonUnavailable(
                    f"another background process holds {paths.runtime / 'daemon.lock'} "
                    f"and did not answer within {_LOCK_WAIT_S:g} s"
                )
            await asyncio.sleep(0.05)
        yield
    finally:
        os.close(fd)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _answers(paths: Paths) -> bool:
    """Whether the other one is there to stay: its address is out and its socket answers."""
    if not paths.address_file.exists():
        return False
    with socket.socket(socket.AF_UNIX) as connection, contextlib.suppress(OSError):
        connection.settimeout(1.0)
        connection.connect(str(paths.socket))
        return True
    return False


def run(paths: Paths, settings: Settings, options: Options) -> int:
    """:func:`serve` for a program's main; returns its exit status.

    A restart replaces the process: the new program adopts what the old one served.
    """
    os.umask(0o022)  # whatever the user's is; what is private is made so explicitly
    raise_file_limit()  # each stream, port and machine takes some
    try:
        restart = asyncio.run(serve(paths, settings, options))
    except TupperError as error:
        if options.background:  # in the foreground the next lines say it all
            problem("daemon.failed", message=error.message)
        if not isinstance(error, DaemonUnavailable):
            options.failed(f"{error.message} ({error.hint})" if error.hint else error.message)
        print(f"error: {error.message}", file=sys.stderr)  # noqa: T201 - a program's main
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)  # noqa: T201
        return 1
    if restart:
        os.execv(sys.executable, [sys.executable, *again(sys.orig_argv[1:])])  # noqa: S606
    return 0


def again(argv: Sequence[str]) -> list[str]:
    """The arguments for starting once more: the descriptor of our starter is not ours any more."""
    kept: list[str] = []
    words = iter(argv)
    for word in words:
        if word == "--ready-fd":
            next(words, None)
        elif not word.startswith("--ready-fd="):
            kept.append(word)
    return kept
