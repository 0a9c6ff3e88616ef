"""Whose sandboxes are whose, and when they end.

A session is one client: a process that talks over stdio, or a session of streamable HTTP. It has
one sandbox of its own, made when the first tool needs it, and those that it made on purpose; all of
them end with the session. They also end with this process, however that ends, because they are
bound to it, and when nobody uses them for long.

Clients of protocol 2026-07-28 over HTTP have no session. They share one that has no sandbox of its
own: they make one and name it in each call.

A sandbox that was there before (``--sandbox``) is used and never ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import anyio

from tupper.core import log
from tupper.core.errors import TupperError
from tupper.mcp.commands import Command
from tupper.sdk._async.sandbox import AsyncSandbox
from tupper.sdk._shared import errors
from tupper.sdk._shared.endpoint import find_target

T = TypeVar("T")

CODE_TEMPLATE = "code-interpreter"
LABEL = {"tupper-mcp": "1"}
_GONE = (errors.SandboxNotRunningException, errors.SandboxNotFoundException)


@dataclass(frozen=True, slots=True)
class Options:
    """How a server makes sandboxes, and what it lets a model do.

    Args:
        template, image: of a session's own sandbox; the default template if neither is given.
        sandbox: an existing one that all sessions use in the place of one of their own.
        internet: whether sandboxes may reach the internet; None for the user's setting.
        cpus, memory_mib: of each sandbox.
        idle_timeout_s: a sandbox that nobody uses for so long ends; 0 for never.
        share: directories of the host that ``copy_files`` may use → whether it may write there.
        every_sandbox: whether tools reach all of the user's sandboxes, not only those made here.
    """

    template: str | None = None
    image: str | None = None
    sandbox: str | None = None
    internet: bool | None = None
    cpus: float | None = None
    memory_mib: int | None = None
    idle_timeout_s: float = 3600.0
    share: Mapping[str, bool] = field(default_factory=dict[str, bool])
    every_sandbox: bool = False


async def settle(work: Awaitable[T]) -> T:
    """Do something in a task of its own, and if we are cancelled end it, then leave.

    The SDK undoes what it began when it is cancelled once; the scopes of ``anyio`` cancel what is
    inside them again at each wait, its undoing too.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([task])
        raise


class Session:
    """The sandboxes and commands of one client.

    Args:
        options: of the server.
        has_own: whether there is a sandbox that need not be named.
    """

    def __init__(self, options: Options, *, has_own: bool = True) -> None:
        self.options = options
        self._has_own = has_own
        self._own: str | None = None
        self._ours: dict[str, AsyncSandbox] = {}
        self._names: dict[str, str] = {}
        self._visited: dict[str, AsyncSandbox] = {}
        self._making = asyncio.Lock()
        self._numbers = itertools.count(1)
        self.commands: dict[str, Command] = {}

    @property
    def own(self) -> str | None:
        """The id of the sandbox that is used when none is named, if it was made already."""
        return self._own

    @property
    def ours(self) -> frozenset[str]:
        """The ids of the sandboxes that end with this session."""
        return frozenset(self._ours)

    async def find(self, reference: str | None, *, template: str | None = None) -> AsyncSandbox:
        """The sandbox that was named, or the session's own, made if need be.

        Args:
            reference: its id or name; None for the session's own.
            template: for the session's own if it is made now.

        Errors:
            SandboxNotFoundException: none has this id or name, or it is not for this client.
            InvalidArgumentException: none is named and this client has none of its own.
        """
        if reference is not None and reference not in (self._own, self.options.sandbox):
            return await self._named(reference)
        if self.options.sandbox is not None:
            return await self._visit(self.options.sandbox)
        if not self._has_own:
            raise errors.InvalidArgumentException(
                "no sandbox is named, and this connection has no session to keep one for",
                hint="call create_sandbox once and pass the id that it returns as `sandbox`",
            )
        async with self._making:
            if self._own is None:
                self._own = (await self._make(template=template)).sandbox_id
            return self._ours[self._own]

    async def _named(self, reference: str) -> AsyncSandbox:
        ours = self._ours.get(self._names.get(reference, reference))
        if ours is not None:
            return ours
        if self.options.every_sandbox:
            return await self._visit(reference)
        names = ", ".join(self._ours) or "none yet; create_sandbox makes one"
        raise errors.SandboxNotFoundException(
            f"this client has no sandbox {reference!r}",
            hint=f"list_sandboxes shows those there are ({names})",
        )

    async def _visit(self, reference: str) -> AsyncSandbox:
        async with self._making:
            if reference not in self._visited:
                self._visited[reference] = await settle(AsyncSandbox.connect(reference))
            return self._visited[reference]

    async def create(self, **wanted: object) -> AsyncSandbox:
        """Make a sandbox on purpose. The first of a session becomes its own."""
        async with self._making:
            made = await self._make(**wanted)
            if self._has_own and self._own is None and self.options.sandbox is None:
                self._own = made.sandbox_id
            return made

    async def _make(self, **wanted: object) -> AsyncSandbox:
        arguments = self._arguments(wanted)
        made = await settle(AsyncSandbox.create(**arguments))  # type: ignore[arg-type]
        self._ours[made.sandbox_id] = made
        if isinstance(name := wanted.get("name"), str):
            self._names[name] = made.sandbox_id
        return made

    def _arguments(self, wanted: Mapping[str, object]) -> dict[str, object]:
        """What the server's options say, and over that what the model wants."""
        options = self.options
        arguments: dict[str, object] = {
            "template": options.template,
            "image": options.image,
            "allow_internet_access": options.internet,
            "cpus": options.cpus,
            "memory": options.memory_mib,
        }
        given = {name: value for name, value in wanted.items() if value is not None}
        if "template" in given or "image" in given:
            arguments["template"] = arguments["image"] = None
        arguments |= given
        arguments["timeout"] = math.inf
        arguments["idle_timeout"] = options.idle_timeout_s or None
        arguments["metadata"] = LABEL
        target = find_target({})
        if target.is_own_process or target.url.startswith("unix:"):
            arguments["owner"] = "process"
        return arguments

    async def adopt(self, sandbox: AsyncSandbox) -> None:
        """Take a sandbox that was made in another way, a fork, for one of ours."""
        self._ours[sandbox.sandbox_id] = sandbox
        await settle(sandbox.set_idle_timeout(self.options.idle_timeout_s or None))

    async def kill(self, sandbox: AsyncSandbox) -> bool:
        """End a sandbox and forget it. False if it had ended before."""
        self.forget(sandbox.sandbox_id)
        return bool(await settle(sandbox.kill()))

    def forget(self, sandbox_id: str) -> None:
        """A sandbox has ended: the next call that names none gets a new one."""
        self._ours.pop(sandbox_id, None)
        for name, visited in list(self._visited.items()):
            if visited.sandbox_id == sandbox_id:
                del self._visited[name]
        if self._own == sandbox_id:
            self._own = None

    async def use(self, sandbox: AsyncSandbox, work: Awaitable[T]) -> T:
        """Do something in a sandbox; if it turns out to have ended, forget it and say so."""
        try:
            return await settle(work)
        except _GONE as error:
            was_own = sandbox.sandbox_id == self._own
            self.forget(sandbox.sandbox_id)
            await settle(sandbox.close())
            hint = "its files and processes are gone; "
            hint += (
                "the next call that names no sandbox gets a new one"
                if was_own
                else "create_sandbox makes another"
            )
            raise type(error)(
                f"sandbox {sandbox.sandbox_id}: {error.message}", hint=hint
            ) from error

    def next_command_id(self) -> str:
        """The next of ``c1``, ``c2`` and so on."""
        return f"c{next(self._numbers)}"

    async def close(self) -> None:
        """End all commands and all sandboxes of this session."""
        for command in list(self.commands.values()):
            with contextlib.suppress(TupperError):
                await command.kill()
        self.commands.clear()
        for sandbox in list(self._ours.values()):
            try:
                await self.kill(sandbox)
            except TupperError as error:
                log.problem("mcp.kill_failed", sandbox=sandbox.sandbox_id, error=str(error))
        for sandbox in list(self._visited.values()):
            await sandbox.close()
        self._visited.clear()


class Sessions:
    """All sessions of a server.

    Args:
        options: of the server.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self._sessions: dict[str, Session] = {}

    def of(
        self, key: str | None, *, on_end: Callable[[Callable[[], Awaitable[None]]], None]
    ) -> Session:
        """The session of a client.

        Args:
            key: who it is; None for a client without session.
            on_end: gets, once, what is to be awaited at the session's end.
        """
        name = key if key is not None else "-"
        if name not in self._sessions:
            self._sessions[name] = Session(self.options, has_own=key is not None)
            if key is not None:
                on_end(lambda: self.end(name))
        return self._sessions[name]

    async def end(self, name: str) -> None:
        """End a session, if it is there."""
        if session := self._sessions.pop(name, None):
            await session.close()

    async def close(self) -> None:
        """End them all."""
        for name in list(self._sessions):
            await self.end(name)
