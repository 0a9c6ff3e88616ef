"""The start command of a template: run, and waited for until the ready command succeeds.

It runs as the template's user, in its directory, for as long as the sandbox; nobody has to listen
to it. Without a ready command a sandbox counts as ready once the start command runs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

from tupper.core.backend import ImageConfig
from tupper.core.errors import DeadlineExceeded, TemplateError, TupperError
from tupper.engine.inside import Inside, OnOutput

READY_S = 600.0
_FIRST_PAUSE_S = 0.05
_LAST_PAUSE_S = 2.0
_WORDS = 40


def login_shell(command: str) -> list[str]:
    """How E2B's clients run a command; the agent makes do without bash."""
    return ["/bin/bash", "-l", "-c", command]


async def launch(
    inside: Inside, config: ImageConfig, *, log: OnOutput | None = None, limit_s: float = READY_S
) -> None:
    """Start what the template starts, and return when it is ready.

    Args:
        inside: the sandbox.
        config: of the template.
        log: gets what the start command says meanwhile.
        limit_s: how long it may take to be ready.

    Raises:
        TemplateError: the start command failed before it was ready; with its last words.
        DeadlineExceeded: it was not ready in time.
    """
    words: deque[bytes] = deque(maxlen=_WORDS)

    def hear(data: bytes) -> None:
        words.append(data)
        if log is not None:
            log(data)

    runs = asyncio.Event()
    starting = asyncio.ensure_future(_start(inside, config, hear, runs))
    waiting = asyncio.ensure_future(_await_ready(inside, config, runs, limit_s))
    try:
        await asyncio.wait({starting, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done() and not waiting.done() and (status := starting.result()):
            said = b"".join(words).decode(errors="replace").strip()[-2000:]
            raise TemplateError(f"the start command ended with status {status}: {said}")
        await waiting
    finally:
        for task in (starting, waiting):
            task.cancel()  # the command runs on
        with contextlib.suppress(TupperError):
            await asyncio.gather(starting, waiting, return_exceptions=True)


async def _start(inside: Inside, config: ImageConfig, hear: OnOutput, runs: asyncio.Event) -> int:
    if not config.start:
        runs.set()
        return 0
    argv = login_shell(config.start)
    return await inside.run(
        argv, env={}, cwd=None, user="", on_output=hear, on_start=runs.set, limit_s=None
    )


async def _await_ready(
    inside: Inside, config: ImageConfig, runs: asyncio.Event, limit_s: float
) -> None:
    pause_s = _FIRST_PAUSE_S
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await runs.wait()
            while config.ready and await _is_not_ready(inside, config.ready):
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LAST_PAUSE_S)
            return
    raise DeadlineExceeded(f"the sandbox was not ready within {limit_s:g} s: {config.ready}")


async def _is_not_ready(inside: Inside, command: str) -> bool:
    argv = login_shell(command)
    return await inside.run(argv, env={}, cwd=None, user="", on_output=lambda _: None) != 0
