"""Contexts: kernels of Jupyter that keep what was run in them.

One execution at a time in each, the others wait. When the client of an execution goes away, the
kernel is interrupted; one that does not heed that within ``HEED_S`` is started anew, and so is one
that ended by itself.
"""

from __future__ import annotations

import asyncio
import json
import queue
import uuid
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from jupyter_client.manager import AsyncKernelManager
from messages import error, lines_from_message

HEED_S = 30.0
READY_S = 120.0
_LOOK_S = 1.0
HOME = str(Path.home())
ALIASES = {"js": "javascript", "ts": "typescript", "py": "python"}
LANGUAGES = ("python", "javascript", "typescript")

# Set some variables and say what they were; put them back.
_SET_PYTHON = """\
def __tupper_set(new):
    import os
    global __tupper_old
    __tupper_old = {name: os.environ.get(name) for name in new}
    os.environ.update(new)
__tupper_set(%s)
"""
_RESET_PYTHON = """\
def __tupper_reset():
    import os
    for name, value in globals().pop("__tupper_old", {}).items():
        os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)
__tupper_reset()
del __tupper_set, __tupper_reset
"""
_SET_DENO = """\
globalThis.__tupperOld = ((vars) => {
  const old = Object.keys(vars).map((name) => [name, Deno.env.get(name)]);
  for (const [name, value] of Object.entries(vars)) Deno.env.set(name, value);
  return old;
})(%s);
"""
_RESET_DENO = """\
for (const [name, value] of globalThis.__tupperOld ?? []) {
  if (value === undefined) Deno.env.delete(name); else Deno.env.set(name, value);
}
delete globalThis.__tupperOld;
"""
# Node's way to load modules, which most code expects.
_INIT_DENO = """\
globalThis.require = (await import("node:module")).createRequire(Deno.cwd() + "/");
"""


class UnknownContextError(Exception):
    """There is no such context."""


class UnknownLanguageError(Exception):
    """There is no kernel for the language."""


class Context:
    """One kernel.

    Args:
        language: which.
        cwd: where it begins.
    """

    def __init__(self, language: str, cwd: str) -> None:
        self.id = str(uuid.uuid4())
        self.language = language
        self.cwd = cwd
        self._manager = AsyncKernelManager(kernel_name=language)
        self._client: Any = None
        self._turn = asyncio.Lock()

    def as_json(self) -> dict[str, str]:
        """As clients see it."""
        return {"id": self.id, "language": self.language, "cwd": self.cwd}

    async def start(self) -> None:
        """Start the kernel; returns when it answers."""
        await self._manager.start_kernel(cwd=self.cwd)
        await self._attach()

    async def _attach(self) -> None:
        self._client = self._manager.client()
        self._client.start_channels()
        await self._client.wait_for_ready(timeout=READY_S)
        if self.language != "python":
            await self._quietly(_INIT_DENO)

    async def restart(self) -> None:
        """Forget all that was run."""
        self._client.stop_channels()
        await self._manager.restart_kernel(now=True)
        await self._attach()

    async def stop(self) -> None:
        """End the kernel."""
        if self._client is not None:
            self._client.stop_channels()
        await self._manager.shutdown_kernel(now=True)

    async def run(self, code: str, env: dict[str, str]) -> AsyncIterator[dict[str, Any]]:
        """Run code when it is its turn; what is said about it, line by line.

        If the iterator is closed before its end, the code is interrupted.
        """
        async with self._turn:
            if env:
                await self._quietly(self._set(env))
            over = False
            try:
                async for line in self._execute(code, silent=False):
                    yield line
                over = True
            finally:
                if not over:
                    await self._interrupt()
                if env and over:
                    await self._quietly(self._reset())

    def _set(self, env: dict[str, str]) -> str:
        template = _SET_PYTHON if self.language == "python" else _SET_DENO
        return template % json.dumps(env)

    def _reset(self) -> str:
        return _RESET_PYTHON if self.language == "python" else _RESET_DENO

    async def _quietly(self, code: str) -> None:
        async for _ in self._execute(code, silent=True):
            pass

    async def _execute(self, code: str, *, silent: bool) -> AsyncIterator[dict[str, Any]]:
        client = self._client
        asked = client.execute(
            code, silent=silent, store_history=not silent, allow_stdin=False, stop_on_error=True
        )
        while True:
            try:
                message = await client.get_iopub_msg(timeout=_LOOK_S)
            except queue.Empty:
                if not await self._manager.is_alive():
                    yield error("KernelDied", f"the {self.language} kernel ended", [])
                    await self.restart()
                    return
                continue
            if message["parent_header"].get("msg_id") != asked:
                continue
            if message["msg_type"] == "status":
                if message["content"]["execution_state"] == "idle":
                    break
                continue
            for line in lines_from_message(message):
                yield line
        with suppress(queue.Empty):
            while (await client.get_shell_msg(timeout=_LOOK_S))["parent_header"]["msg_id"] != asked:
                pass

    async def _interrupt(self) -> None:
        """Stop what runs: by a signal, else by a new kernel."""
        with suppress(Exception):
            await self._manager.interrupt_kernel()
        try:
            async with asyncio.timeout(HEED_S):
                await self._client.wait_for_ready(timeout=HEED_S)
        except (TimeoutError, RuntimeError, queue.Empty):
            await self.restart()


class Contexts:
    """All contexts, and the default one of each language."""

    def __init__(self) -> None:
        self._contexts: dict[str, Context] = {}
        self._defaults: dict[str, asyncio.Task[Context]] = {}

    def __iter__(self) -> Any:
        return iter(self._contexts.values())

    async def create(self, language: str | None, cwd: str | None) -> Context:
        """A new context."""
        name = ALIASES.get(language or "python", language or "python")
        if name not in LANGUAGES:
            raise UnknownLanguageError(
                f"there is no {language!r}; there are {', '.join(LANGUAGES)}"
            )
        context = Context(name, cwd or HOME)
        await context.start()
        self._contexts[context.id] = context
        return context

    async def default(self, language: str | None) -> Context:
        """The context that a language has without anybody making one."""
        name = ALIASES.get(language or "python", language or "python")
        task = self._defaults.get(name)
        if (
            task is not None
            and task.done()
            and (task.cancelled() or task.exception() or task.result().id not in self._contexts)
        ):
            task = None
        if task is None:
            task = self._defaults[name] = asyncio.ensure_future(self.create(name, None))
        return await asyncio.shield(task)

    def find(self, context_id: str) -> Context:
        """A context by its id."""
        try:
            return self._contexts[context_id]
        except KeyError:
            raise UnknownContextError(f"there is no context {context_id}") from None

    async def remove(self, context_id: str) -> None:
        """End a context."""
        context = self.find(context_id)
        del self._contexts[context_id]
        await context.stop()
