"""The service that E2B's code interpreter clients talk to, at port 49999.

**Shape** of the answer to ``POST /execute``: one JSON object a line; see ``messages.py``. It ends
when the code does. When the client leaves before that, or the ``timeout`` of the request (seconds;
tupper's own clients send one) is over, the code is interrupted.

Source: what ``e2b-code-interpreter`` 2.9 to 2.11 for Python and 2.8 for JavaScript send.
"""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import aclosing
from pathlib import Path
from typing import Any

import tornado.web
from kernels import Context, Contexts, UnknownContextError, UnknownLanguageError
from tornado.iostream import StreamClosedError

PORT = int(os.environ.get("CODE_INTERPRETER_PORT", "49999"))
BODY_MAX = 64 * 1024 * 1024


class Handler(tornado.web.RequestHandler):
    """What all have: JSON in, errors as text."""

    def initialize(self, contexts: Contexts) -> None:
        """Of tornado: what the route has beside its handler."""
        self.contexts = contexts

    def body(self) -> dict[str, Any]:
        """The body, a JSON object."""
        try:
            found = json.loads(self.request.body or b"{}")
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise tornado.web.HTTPError(400, reason="the body is no JSON object")
        return found

    def text(self, body: dict[str, Any], name: str) -> str | None:
        """A text of the body, or nothing."""
        value = body.get(name)
        if value is not None and not isinstance(value, str):
            raise tornado.web.HTTPError(400, reason=f"{name} is no text")
        return value or None

    def answer(self, value: object, status: int = 200) -> None:
        """Answer with JSON."""
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(value))

    def write_error(self, status_code: int, **found: Any) -> None:
        """The reason as text, as clients show it."""
        kind, error, _ = found.get("exc_info", (None, None, None))
        if isinstance(error, UnknownContextError):
            status_code = 404
        elif isinstance(error, UnknownLanguageError):
            status_code = 400
        elif not isinstance(error, tornado.web.HTTPError):
            error = f"internal error: {kind.__name__ if kind else 'unknown'}"
        self.set_status(status_code)
        self.set_header("Content-Type", "text/plain")
        self.finish(getattr(error, "reason", None) or str(error))

    def log_exception(self, *args: Any) -> None:
        """Only what is not the client's mistake."""
        if args[0] not in (UnknownContextError, UnknownLanguageError):
            super().log_exception(*args)


class Health(Handler):
    """Ready once the default kernel is."""

    async def get(self) -> None:
        """Wait for it."""
        await self.contexts.default(None)
        self.finish("OK")


class Execute(Handler):
    """Run code."""

    _running: asyncio.Task[None] | None = None

    async def post(self) -> None:
        """Answer with what is said, as it is said."""
        body = self.body()
        code, env = self.text(body, "code") or "", body.get("env_vars") or {}
        if not isinstance(env, dict) or not all(isinstance(value, str) for value in env.values()):
            raise tornado.web.HTTPError(400, reason="env_vars is no object of texts")
        limit_s = body.get("timeout")
        if limit_s is not None and not (isinstance(limit_s, int | float) and limit_s > 0):
            raise tornado.web.HTTPError(400, reason="timeout is no number of seconds")
        context = await self._context(body)
        self.set_header("Content-Type", "application/x-ndjson")
        self._running = asyncio.ensure_future(self._stream(context, code, env, limit_s))
        if self.request.connection.stream.closed():
            self.on_connection_close()
        try:
            await asyncio.shield(self._running)
        except (asyncio.CancelledError, StreamClosedError):
            return

    async def _context(self, body: dict[str, Any]) -> Context:
        context_id, language = self.text(body, "context_id"), self.text(body, "language")
        if context_id and language:
            raise tornado.web.HTTPError(400, reason="give a context or a language, not both")
        if context_id and context_id not in ("default", "python"):
            return self.contexts.find(context_id)
        return await self.contexts.default(language)

    async def _stream(
        self, context: Context, code: str, env: dict[str, str], limit_s: float | None
    ) -> None:
        await self.flush()
        end = "end_of_execution"
        try:
            async with asyncio.timeout(limit_s), aclosing(context.run(code, env)) as lines:
                async for line in lines:
                    self.write(json.dumps(line) + "\n")
                    await self.flush()
        except TimeoutError:
            end = "timeout"
        self.write(json.dumps({"type": end}) + "\n")
        await self.finish()

    def on_connection_close(self) -> None:
        """The client left."""
        if self._running is not None:
            self._running.cancel()


class All(Handler):
    """Contexts."""

    def get(self) -> None:
        """All of them."""
        self.answer([context.as_json() for context in self.contexts])

    async def post(self) -> None:
        """A new one."""
        body = self.body()
        cwd = self.text(body, "cwd")
        if cwd and not await asyncio.to_thread(Path(cwd).is_dir):
            raise tornado.web.HTTPError(400, reason=f"there is no directory {cwd}")
        made = await self.contexts.create(self.text(body, "language"), cwd)
        self.answer(made.as_json())


class One(Handler):
    """A context."""

    async def delete(self, context_id: str) -> None:
        """End it."""
        await self.contexts.remove(context_id)
        self.set_status(204)
        self.finish()


class Restart(Handler):
    """A context that shall forget."""

    async def post(self, context_id: str) -> None:
        """Start it anew."""
        await self.contexts.find(context_id).restart()
        self.set_status(204)
        self.finish()


async def main() -> None:
    """Serve."""
    contexts = Contexts()
    shared = {"contexts": contexts}
    app = tornado.web.Application(
        [
            (r"/health", Health, shared),
            (r"/execute", Execute, shared),
            (r"/contexts", All, shared),
            (r"/contexts/([^/]+)", One, shared),
            (r"/contexts/([^/]+)/restart", Restart, shared),
        ],
        log_function=lambda _: None,
    )
    app.listen(PORT, max_buffer_size=BODY_MAX)
    await contexts.default(None)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
