"""Serving one client over standard input and output."""

from __future__ import annotations

import signal

import anyio

from tupper.mcp.server import build_server
from tupper.mcp.sessions import Options


def serve(options: Options) -> None:
    """Serve until standard input ends; then the sandboxes of the client end.

    A signal ends the process at once: where a thread of its waits for input, that would not be
    interrupted. The sandboxes are bound to the process, so they end with it in that case as well.
    """
    for name in ("SIGTERM", "SIGHUP", "SIGINT"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    anyio.run(build_server(options).run_stdio_async)
