"""Reading a part of a file without ever holding the whole of it."""

from __future__ import annotations

import base64
import codecs

from mcp.server.mcpserver.exceptions import ToolError

from tupper.mcp.results import FileContent
from tupper.sdk._async.sandbox import AsyncSandbox

DEFAULT_LINES = 2000
DEFAULT_BYTES = 64 * 1024
MOST_CHARS = 100_000
MOST_BYTES = 512 * 1024
_LOOKED_AT = 8192  # bytes at the beginning that decide whether it is text; grep looks as far


class Lines:
    """Takes a file as it comes and keeps some of its lines. No I/O.

    Args:
        start: the first line that is wanted, from 0.
        limit: how many.
        most: characters that are kept.
    """

    def __init__(self, start: int, limit: int, most: int = MOST_CHARS) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._start, self._stop, self._most = start, start + limit, most
        self._line = 0
        self._kept: list[str] = []
        self._room = most
        self._is_midline = False
        self.is_cut = False
        self.is_full = False

    def feed(self, data: bytes, *, final: bool = False) -> None:
        """Take bytes."""
        for piece in self._decoder.decode(data, final).splitlines(keepends=True) or [""]:
            self._take(piece)
            if self.is_full:
                return

    def _take(self, piece: str) -> None:
        if not piece:
            return
        if self._line >= self._stop or (self._room <= 0 and not self._is_midline):
            self.is_full = True
            return
        if self._line >= self._start:
            self._keep(piece)
        self._is_midline = not piece.endswith("\n")
        if not self._is_midline:
            self._line += 1

    def _keep(self, piece: str) -> None:
        if len(piece) > self._room:
            self.is_cut = True
        self._kept.append(piece[: max(0, self._room)])
        self._room -= len(piece)

    @property
    def text(self) -> str:
        """What was kept."""
        return "".join(self._kept)

    @property
    def next_line(self) -> int:
        """The line behind the last one that was taken whole."""
        return self._line


async def read_lines(place: AsyncSandbox, path: str, start: int, limit: int) -> FileContent:
    """Some lines of a text file."""
    info = await place.files.get_info(path)
    lines = Lines(start, limit)
    is_first = True
    async with await place.files.read(path, "stream") as chunks:
        async for chunk in chunks:
            if is_first and b"\0" in chunk[:_LOOKED_AT]:
                raise ToolError(
                    f"{path} is a binary file of {info.size} bytes: read it with encoding='base64',"
                    " or look at it with run_command (file, xxd, strings)"
                )
            is_first = False
            lines.feed(chunk)
            if lines.is_full:
                break
        else:
            lines.feed(b"", final=True)
    notes: list[str] = []
    if lines.is_full:
        notes.append(f"there is more: start={lines.next_line} reads on")
    if lines.is_cut:
        notes.append(f"line {lines.next_line} is longer than what is shown: base64 reads by bytes")
    if "\N{REPLACEMENT CHARACTER}" in lines.text:
        notes.append("bytes that are not UTF-8 are shown as U+FFFD; base64 gives them exactly")
    return FileContent(
        path=path,
        encoding="text",
        content=lines.text,
        size_bytes=info.size,
        next_start=lines.next_line if lines.is_full else None,
        notes=notes,
    )


async def read_bytes(place: AsyncSandbox, path: str, start: int, limit: int) -> FileContent:
    """Some bytes of a file."""
    info = await place.files.get_info(path)
    limit = min(limit, MOST_BYTES)
    kept, position, has_more = bytearray(), 0, False
    async with await place.files.read(path, "stream") as chunks:
        async for chunk in chunks:
            kept += chunk[max(0, start - position) :]
            position += len(chunk)
            if len(kept) > limit:
                has_more = True
                break
    end = start + min(len(kept), limit)
    return FileContent(
        path=path,
        encoding="base64",
        content=base64.b64encode(kept[:limit]).decode(),
        size_bytes=info.size,
        next_start=end if has_more else None,
        notes=[f"there is more: start={end} reads on"] if has_more else [],
    )
