"""A command's output: decoded as it comes, bounded, both ends kept. No I/O.

Characters that are cut between two chunks are put together again; only bytes that are no UTF-8
become U+FFFD. Beyond its limit the middle of the output is dropped and its place says how much.
"""

from __future__ import annotations

import codecs
from collections import deque

MAX_OUTPUT_BYTES = 64 * 1024 * 1024


class Text:
    """One stream of a command.

    Args:
        limit: bytes that are kept; 0 to keep nothing.
    """

    def __init__(self, limit: int = MAX_OUTPUT_BYTES) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._head: list[str] = []
        self._tail: deque[tuple[str, int]] = deque()
        self._head_room = limit // 2
        self._tail_room = limit - limit // 2
        self._tail_size = 0
        self.dropped_bytes = 0

    def feed(self, data: bytes, *, final: bool = False) -> str:
        """Take bytes; returns the text that they complete."""
        text = self._decoder.decode(data, final)
        if text:
            self._keep(text, len(data))
        return text

    def note_gap(self, size: int) -> None:
        """Bytes were lost before they reached us."""
        self.dropped_bytes += size

    def _keep(self, text: str, size: int) -> None:
        if self._head_room > 0:
            self._head_room -= size
            self._head.append(text)
            return
        self._tail.append((text, size))
        self._tail_size += size
        while self._tail and self._tail_size > self._tail_room:
            _, dropped = self._tail.popleft()
            self._tail_size -= dropped
            self.dropped_bytes += dropped

    def render(self) -> str:
        """All that is kept, with a line in the place of what is not."""
        if not self.dropped_bytes:
            return "".join([*self._head, *(text for text, _ in self._tail)])
        mark = f"\n[tupper: {self.dropped_bytes} bytes of output dropped here]\n"
        return "".join([*self._head, mark, *(text for text, _ in self._tail)])
