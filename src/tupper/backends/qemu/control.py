"""Talking to a QEMU that runs: connect, ask, wait for an event, hang up.

QEMU listens to one client at a time, so nobody keeps the connection. All of it is bounded in time:
a guest that has taken QEMU over may say nothing for ever.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tupper.core.errors import DeadlineExceeded, MachineFailed
from tupper.protocol import qmp
from tupper.protocol.connect import as_object

_CONNECT_S = 10.0
_ANSWER_S = 10.0
_CHUNK = 1 << 16
_PAUSE_S = 0.002


class Refused(MachineFailed):
    """QEMU does not do it."""


class Control:
    """A connection to one QEMU.

    Args:
        connection: a socket that is connected and does not block.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._parser = qmp.Parser()
        self._waiting: list[qmp.Message] = []
        self._count = 0
        self._events: list[qmp.Event] = []

    async def next(self) -> qmp.Message:
        """The next message, whatever it is.

        Raises:
            MachineFailed: QEMU has hung up.
        """
        while not self._waiting:
            try:
                data = await asyncio.get_running_loop().sock_recv(self._socket, _CHUNK)
            except ConnectionError:
                data = b""
            if not data:
                raise MachineFailed("QEMU ended")
            self._waiting = self._parser.feed(data)
        return self._waiting.pop(0)

    async def ask(
        self,
        command: str,
        arguments: Mapping[str, object] | None = None,
        *,
        timeout_s: float = _ANSWER_S,
        descriptor: int | None = None,
    ) -> object:
        """Have a command done; what it returned. Events that come in between are kept.

        Args:
            command, arguments: what.
            timeout_s: for the answer.
            descriptor: goes along with the command.

        Raises:
            Refused: QEMU says why not.
            DeadlineExceeded: it says nothing.
        """
        self._count += 1
        name = str(self._count)
        line = qmp.render(command, arguments, name=name)
        try:
            async with asyncio.timeout(timeout_s):
                await self._send(line, descriptor)
                return await self._answer(command, name)
        except TimeoutError as error:
            raise DeadlineExceeded(
                f"QEMU did not answer to {command} within {timeout_s:g} s"
            ) from error

    async def _send(self, line: bytes, descriptor: int | None) -> None:
        try:
            if descriptor is None:
                await asyncio.get_running_loop().sock_sendall(self._socket, line)
            else:  # a short line into an empty buffer
                socket.send_fds(self._socket, [line], [descriptor])
        except ConnectionError as error:
            raise MachineFailed("QEMU ended") from error

    async def _answer(self, command: str, name: str) -> object:
        while True:
            match await self.next():
                case qmp.Answer(found, value) if found == name:
                    return value
                case qmp.Refusal(found, _, text) if found in (name, ""):
                    raise Refused(f"QEMU refused {command}: {text}")
                case qmp.Event() as event:
                    self._events.append(event)
                case _:
                    pass

    async def hear(self, name: str) -> qmp.Event:
        """The next event of a name; those before it are dropped. Give it a deadline."""
        while True:
            while self._events:
                event = self._events.pop(0)
                if event.name == name:
                    return event
            message = await self.next()
            if isinstance(message, qmp.Event):
                self._events.append(message)

    async def status(self) -> str:
        """Such as ``running``, ``paused`` or ``postmigrate``."""
        answer = as_object(await self.ask("query-status")) or {}
        return str(answer.get("status", ""))


@asynccontextmanager
async def connected(
    directory: Path, name: str, *, timeout_s: float = _CONNECT_S
) -> AsyncGenerator[Control]:
    """A connection to the QEMU whose socket has this name in this directory.

    Raises:
        MachineFailed: nobody listens there.
        DeadlineExceeded: QEMU does not greet.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as connection:
        control = Control(connection)
        try:
            async with asyncio.timeout(timeout_s):
                await _connect(connection, directory, name)
                await control.next()
        except TimeoutError as error:
            raise DeadlineExceeded(f"QEMU did not greet within {timeout_s:g} s") from error
        except OSError as error:
            raise MachineFailed(f"QEMU cannot be reached: {error.strerror}") from error
        await control.ask("qmp_capabilities")
        yield control


async def _connect(connection: socket.socket, directory: Path, name: str) -> None:
    """By a short name: the path of a socket has 107 bytes at most."""
    place = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        while True:
            try:
                connection.connect(f"/proc/self/fd/{place}/{name}")
            except BlockingIOError:  # another client is there; nothing tells when it leaves
                await asyncio.sleep(_PAUSE_S)
            else:
                return
    finally:
        os.close(place)
