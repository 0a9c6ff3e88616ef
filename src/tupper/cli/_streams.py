"""Commands whose streams are passed on byte for byte.

The SDK's own ``commands.run`` decodes output and keeps it for a result. A pipe of the user's shell
wants the bytes as they are, and nothing kept; a terminal with a program of one's own is not in
E2B's interface either. Both need what the SDK builds its commands on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tupper import AsyncSandbox, PtySize
from tupper.protocol import envd
from tupper.sdk._async.commands import SHELL, Processes
from tupper.sdk._async.process import Opening
from tupper.sdk._handles_async import AsyncCommandHandle
from tupper.sdk._shared.result import Collector, Output, Piece

Sink = Callable[[Output], None]


@dataclass(frozen=True, slots=True)
class Start:
    """What to run, and how.

    Args:
        program: on the PATH inside, or a path.
        args: for it.
        user: who runs it; None for the sandbox's default.
        cwd: where; None for the default.
        envs: on top of the sandbox's.
        has_stdin: whether it gets an input, or an empty one.
        timeout_s: until it and its children are ended; None for no limit.
        size: of its terminal; None for pipes.
    """

    program: str
    args: Sequence[str] = ()
    user: str | None = None
    cwd: str | None = None
    envs: Mapping[str, str] = field(default_factory=dict[str, str])
    has_stdin: bool = False
    timeout_s: float | None = None
    size: PtySize | None = None


def parse_words(words: Sequence[str]) -> tuple[str, list[str]]:
    """The program and its arguments.

    Several words are taken unchanged. A single one that is more than a name is a line for the
    login shell. None at all is the shell itself, for a terminal.
    """
    rest = list(words[1:] if words[:1] == ("--",) else words)
    if not rest:
        return SHELL, ["-i", "-l"]
    if len(rest) == 1 and not rest[0].replace("-", "").replace("_", "").replace(".", "").isalnum():
        return SHELL, ["-l", "-c", rest[0]]
    return rest[0], rest[1:]


class Streams(Processes):
    """Starts commands whose output goes to a sink."""

    @classmethod
    def of(cls, box: AsyncSandbox) -> Streams:
        """For one sandbox."""
        return cls(box.commands._agent)  # noqa: SLF001 - the SDK's own connection, see above

    async def start(self, start: Start, sink: Sink) -> AsyncCommandHandle[str]:
        """Start; it ends when the handle's connection does.

        Args:
            start: what to run.
            sink: called with each piece of output, in order.

        Errors:
            CommandExitException: 127 when there is no such program, 126 when it cannot be run.
        """
        message = envd.render_start(
            start.program,
            list(start.args),
            envs=start.envs,
            cwd=start.cwd,
            stdin=start.has_stdin,
            pty=None if start.size is None else (start.size.cols, start.size.rows),
        )
        opening = Opening(message, start.timeout_s, start.user, is_foreground=True)
        stream = await self._open(opening)
        is_pty = start.size is not None
        return self._handle(stream, _Passing(sink), (None, None, None), pty=is_pty)


class _Passing(Collector):
    """Keeps nothing but the end."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(retain_output=False)
        self._sink = sink

    def take(self, event: Output) -> Piece:
        self._sink(event)
        return None, None, None
