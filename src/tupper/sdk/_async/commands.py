"""Running commands in a sandbox."""

from __future__ import annotations

import builtins
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal, overload

from tupper.core.errors import GuestMisbehaved
from tupper.protocol import envd
from tupper.sdk import _handles_async as handles
from tupper.sdk._async.agent import PROCESS, Agent
from tupper.sdk._async.process import Opening, ProcessStream
from tupper.sdk._handles_async import AsyncCommandHandle, Callbacks
from tupper.sdk._shared import errors
from tupper.sdk._shared.info import process_from_envd
from tupper.sdk._shared.output import MAX_OUTPUT_BYTES
from tupper.sdk._shared.result import Collector
from tupper.sdk._shared.types import CommandResult, OutputHandler, ProcessInfo

SHELL = "/bin/bash"
STDIN_PIECE = 512 * 1024  # bytes of one SendInput; the whole may be of any size


async def kill_process(agent: Agent, pid: int, request_timeout: float | None = None) -> bool:
    """End a process and its children. Returns False if there was none."""
    message = {"process": envd.render_selector(pid), "signal": "SIGNAL_SIGKILL"}
    try:
        await agent.unary(PROCESS + "SendSignal", message, request_timeout=request_timeout)
    except errors.NotFoundException:
        return False
    return True


async def send_input(
    agent: Agent, pid: int, data: str | bytes, request_timeout: float | None, *, pty: bool
) -> None:
    """Write input, in pieces, all within one time limit."""
    raw = memoryview(data.encode() if isinstance(data, str) else data)
    limit_s = agent.limit(request_timeout)
    end = None if limit_s is None else time.monotonic() + limit_s
    for start in range(0, max(1, len(raw)), STDIN_PIECE):
        remaining = 0.0 if end is None else end - time.monotonic()
        if end is not None and remaining <= 0:
            raise errors.TimeoutException(
                f"process {pid} took {start} of {len(raw)} bytes of input in {limit_s:g} s"
            )
        piece = bytes(raw[start : start + STDIN_PIECE])
        message = envd.render_input(envd.render_selector(pid), piece, pty=pty)
        await agent.unary(PROCESS + "SendInput", message, request_timeout=remaining)


async def close_input(agent: Agent, pid: int, request_timeout: float | None = None) -> None:
    """End a process's input."""
    message = {"process": envd.render_selector(pid)}
    await agent.unary(PROCESS + "CloseStdin", message, request_timeout=request_timeout)


class Processes:
    """What commands and terminals have in common.

    Args:
        agent: of the sandbox.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def kill(self, pid: int, request_timeout: float | None = None) -> bool:
        """End a process and every process that it started.

        Returns:
            False if there was no such process any more.
        """
        return await kill_process(self._agent, pid, request_timeout)

    async def _open(self, opening: Opening) -> ProcessStream:
        stream = ProcessStream(self._agent, opening)
        await stream.open()
        return stream

    def _handle(
        self, stream: ProcessStream, collector: Collector, callbacks: Callbacks, *, pty: bool
    ) -> AsyncCommandHandle[str]:
        agent = self._agent
        return AsyncCommandHandle(
            stream,
            collector,
            callbacks,
            kill=partial(kill_process, agent),
            send_stdin=partial(send_input, agent, pty=pty),
            close_stdin=partial(close_input, agent),
        )


class CommandCalls(Processes):
    """Runs commands. ``sandbox.commands`` is its subclass."""

    @overload
    async def run(
        self,
        cmd: str | Sequence[str],
        background: Literal[False] | None = None,
        envs: Mapping[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        on_stdout: OutputHandler[str] | None = None,
        on_stderr: OutputHandler[str] | None = None,
        stdin: bool | None = None,
        timeout: float | None = 60,
        request_timeout: float | None = None,
        *,
        retain_output: bool = True,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
    ) -> CommandResult[str]: ...

    @overload
    async def run(
        self,
        cmd: str | Sequence[str],
        background: Literal[True],
        envs: Mapping[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        on_stdout: OutputHandler[str] | None = None,
        on_stderr: OutputHandler[str] | None = None,
        stdin: bool | None = None,
        timeout: float | None = 60,
        request_timeout: float | None = None,
        *,
        retain_output: bool = True,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
    ) -> AsyncCommandHandle[str]: ...

    async def run(
        self,
        cmd: str | Sequence[str],
        background: bool | None = None,
        envs: Mapping[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        on_stdout: OutputHandler[str] | None = None,
        on_stderr: OutputHandler[str] | None = None,
        stdin: bool | None = None,
        timeout: float | None = 60,
        request_timeout: float | None = None,
        *,
        retain_output: bool = True,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
    ) -> CommandResult[str] | AsyncCommandHandle[str]:
        """Run a command.

        A foreground command is over when its leader has exited and its output has been quiet for
        a moment; what it left in the background goes on. If the caller is cancelled or interrupted,
        a foreground command is ended, a background one is not.

        Args:
            cmd: text for a login shell, or a list of the program and its arguments.
            background: return a handle at once instead of waiting for the end.
            envs: environment of this command, on top of the sandbox's.
            user: who runs it; None for the sandbox's default user.
            cwd: where; relative to the user's home.
            on_stdout: called with each piece of standard output.
            on_stderr: called with each piece of standard error.
            stdin: whether it gets an input to send to; otherwise its input is empty.
            timeout: seconds, after which it and its children are ended; 0 or None for no limit.
            request_timeout: seconds for the start.
            retain_output: whether the result has the output; without, ``stdout`` and ``stderr``
                are None and nothing piles up.
            max_output_bytes: of each stream that are kept. Of more, the middle is dropped, and the
                result says how much (``dropped_bytes``).

        Returns:
            The result, or a handle for a background command.

        Errors:
            CommandExitException: the exit code is not 0. 127 for a program that does not exist,
            126 for one that cannot be executed.
            TimeoutException: the time limit is over, or by subclass: the sandbox is gone.
            InvalidArgumentException: there is no such directory.
            AuthenticationException: there is no such user.
        """
        program, args = parse_command(cmd)
        message = envd.render_start(program, args, envs=envs, cwd=cwd, stdin=bool(stdin))
        opening = Opening(
            message,
            timeout or None,
            user,
            is_foreground=not background,
            start_limit_s=self._agent.limit(request_timeout),
        )
        collector = Collector(retain_output=retain_output, max_output_bytes=max_output_bytes)
        stream = await self._open(opening)
        callbacks: Callbacks = (on_stdout, on_stderr, None)
        if background:
            return self._handle(stream, collector, callbacks, pty=False)
        try:
            while collector.end is None:
                event = await stream.next()
                if isinstance(event, envd.ProcessEnd):
                    for piece in collector.finish(event):
                        await handles.emit(callbacks, piece)
                else:
                    await handles.emit(callbacks, collector.take(event))
        finally:
            await stream.close()
        return collector.result()

    async def connect(
        self,
        pid: int,
        timeout: float | None = 60,
        request_timeout: float | None = None,
        on_stdout: OutputHandler[str] | None = None,
        on_stderr: OutputHandler[str] | None = None,
        *,
        retain_output: bool = True,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
    ) -> AsyncCommandHandle[str]:
        """Follow a command that runs, from now on; one that ended less than 30 s ago gives its end.

        Args:
            pid: of the process.
            timeout: seconds to follow it; 0 or None for no limit. The command goes on after that.
            request_timeout: seconds for the start.
            on_stdout: called with each piece of standard output.
            on_stderr: called with each piece of standard error.
            retain_output: whether the result has the output.
            max_output_bytes: of each stream that are kept.

        Errors:
            NotFoundException: there is no such process.
        """
        opening = Opening(
            envd.render_attach(envd.render_selector(pid)),
            timeout or None,
            is_start=False,
            start_limit_s=self._agent.limit(request_timeout),
        )
        collector = Collector(retain_output=retain_output, max_output_bytes=max_output_bytes)
        stream = await self._open(opening)
        return self._handle(stream, collector, (on_stdout, on_stderr, None), pty=False)

    async def list(self, request_timeout: float | None = None) -> builtins.list[ProcessInfo]:
        """The commands and terminals that run."""
        answer = await self._agent.unary(PROCESS + "List", {}, request_timeout=request_timeout)
        try:
            return [process_from_envd(item) for item in envd.parse_processes_reply(answer)]
        except GuestMisbehaved as error:
            raise errors.ProtocolException(error.message) from error

    async def send_stdin(
        self, pid: int, data: str | bytes, request_timeout: float | None = None
    ) -> None:
        """Write to a command's standard input; it must have been started with ``stdin=True``.

        Errors:
            TimeoutException: the command did not take it in time.
            NotFoundException: there is no such process.
        """
        await send_input(self._agent, pid, data, request_timeout, pty=False)

    async def close_stdin(self, pid: int, request_timeout: float | None = None) -> None:
        """End a command's standard input."""
        await close_input(self._agent, pid, request_timeout)


def parse_command(cmd: str | Sequence[str]) -> tuple[str, list[str]]:
    """The program and its arguments: a login shell for text."""
    if isinstance(cmd, str):
        if "\0" in cmd:
            raise errors.InvalidArgumentException("the command contains a NUL character")
        return SHELL, ["-l", "-c", cmd]
    if not cmd:
        raise errors.InvalidArgumentException("the command is empty")
    return cmd[0], [*cmd[1:]]
