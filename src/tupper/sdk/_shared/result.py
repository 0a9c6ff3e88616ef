"""From a command's events to its result. No I/O."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from tupper.protocol import envd
from tupper.sdk._shared.errors import CommandExitException
from tupper.sdk._shared.output import MAX_OUTPUT_BYTES, Text
from tupper.sdk._shared.types import CommandResult

Piece = tuple[str | None, str | None, bytes | None]


@dataclass(frozen=True, slots=True)
class Output:
    """A piece of a command's output in its place.

    Args:
        stream: which output.
        data: the bytes; none where some were lost at the end.
        gap: bytes of this stream that were lost right before ``data``.
    """

    stream: envd.Stream
    data: bytes
    gap: int = 0


class Collector:
    """Takes events and keeps what the result needs.

    Args:
        retain_output: whether the result has the output, or None in its place.
        max_output_bytes: of each stream that are kept.
    """

    def __init__(
        self, *, retain_output: bool = True, max_output_bytes: int = MAX_OUTPUT_BYTES
    ) -> None:
        self._retain = retain_output
        kept = max_output_bytes if retain_output else 0
        self._texts = {
            envd.Stream.STDOUT: Text(kept),
            envd.Stream.STDERR: Text(kept),
        }
        self.end: envd.ProcessEnd | None = None

    def take(self, event: Output) -> Piece:
        """The text that the event completes, as (stdout, stderr, pty): one of them, or none."""
        text = self._texts.get(event.stream)
        if text is None:
            return None, None, event.data
        if event.gap:
            text.note_gap(event.gap)
        decoded = text.feed(event.data) or None
        return (
            (decoded, None, None) if event.stream is envd.Stream.STDOUT else (None, decoded, None)
        )

    def finish(self, end: envd.ProcessEnd) -> list[Piece]:
        """Take the end; returns what a last incomplete character decodes to."""
        self.end = end
        out = self._texts[envd.Stream.STDOUT].feed(b"", final=True)
        err = self._texts[envd.Stream.STDERR].feed(b"", final=True)
        return [
            piece for piece in ((out or None, None, None), (None, err or None, None)) if any(piece)
        ]

    @property
    def stdout(self) -> str:
        """Standard output so far."""
        return self._texts[envd.Stream.STDOUT].render()

    @property
    def stderr(self) -> str:
        """Standard error so far."""
        return self._texts[envd.Stream.STDERR].render()

    @property
    def exit_code(self) -> int | None:
        """0 to 255, 128 + signal; None while it runs."""
        return None if self.end is None else exit_code(self.end)

    @property
    def error(self) -> str | None:
        """What went wrong; None if nothing did, or while it runs."""
        return None if self.end is None else self.end.error or None

    def result(self) -> CommandResult[str]:
        """The result.

        Errors:
            CommandExitException: the exit code is not 0.
        """
        if self.end is None:
            raise RuntimeError("the command has not ended")
        code, end = exit_code(self.end), self.end
        out = self.stdout if self._retain else None
        err = self.stderr if self._retain else None
        dropped = sum(text.dropped_bytes for text in self._texts.values()) if self._retain else 0
        number = signal_number(end)
        if code != 0:
            raise CommandExitException(
                err,
                out,
                code,
                end.error or None,
                signal=number,
                limit=end.limit,
                dropped_bytes=dropped,
            )
        return CommandResult(err, out, 0, end.error or None, 0, end.limit, dropped)  # type: ignore[arg-type]


def exit_code(end: envd.ProcessEnd) -> int:
    """As a shell says it: 128 + signal for a command that a signal ended."""
    if number := signal_number(end):
        return 128 + number
    return end.exit_code if end.exit_code >= 0 else 255


def signal_number(end: envd.ProcessEnd) -> int:
    """The signal that ended it; 0 for none. Agents that do not say it give its name."""
    if end.exited:
        return 0
    if end.signal:
        return end.signal
    name = end.status.removeprefix("signal: ").partition(" (")[0]
    for number in signal.valid_signals():
        if signal.strsignal(number) and name.lower() == str(signal.strsignal(number)).lower():
            return int(number)
    return 0
