"""What a command wrote, kept so that a model can read it in pages. No I/O.

Both ends of a stream are kept, by characters; what lies between is counted and dropped when there
is more than the limit. Positions are characters from the beginning of the stream, so they stay true
whatever was dropped.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

KEPT_CHARS = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a stream.

    Args:
        text: its characters.
        start: position of the first of them.
        end: position behind the last of them.
        skipped: characters that were asked for and are not kept any more, right before ``start``.
    """

    text: str
    start: int
    end: int
    skipped: int


class Stream:
    """One stream of a command.

    Args:
        limit: characters that are kept, half of them of the beginning.
    """

    def __init__(self, limit: int = KEPT_CHARS) -> None:
        self._head: list[str] = []
        self._head_size = 0
        self._head_limit = limit // 2
        self._tail: deque[str] = deque()
        self._tail_size = 0
        self._tail_limit = limit - limit // 2
        self.size = 0

    def add(self, text: str) -> None:
        """Take what was written next."""
        self.size += len(text)
        room = self._head_limit - self._head_size
        if room > 0:
            self._head.append(text[:room])
            self._head_size += len(self._head[-1])
            text = text[room:]
        if text:
            self._tail.append(text)
            self._tail_size += len(text)
        while self._tail and self._tail_size - len(self._tail[0]) >= self._tail_limit:
            self._tail_size -= len(self._tail.popleft())

    def page(self, start: int, limit: int) -> Page:
        """The characters from a position on; from the first that is kept if it is not."""
        if start < self._head_size:
            self._head = ["".join(self._head)]
            text = self._head[0][start : start + limit]
            return Page(text, start, start + len(text), 0)
        first = self.size - self._tail_size
        begin = min(max(start, first), self.size)
        text = self._tail_text(begin - first, limit)
        return Page(text, begin, begin + len(text), max(0, begin - start))

    def _tail_text(self, offset: int, limit: int) -> str:
        parts: list[str] = []
        for part in self._tail:
            if offset >= len(part):
                offset -= len(part)
                continue
            parts.append(part[offset : offset + limit])
            limit -= len(parts[-1])
            offset = 0
            if limit <= 0:
                break
        return "".join(parts)

    def last_line(self) -> str:
        """The last line that is not empty, for telling how far a command is."""
        lines = self.page(max(0, self.size - 500), 500).text.split("\n")
        return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "")


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A stream as a result shows it.

    Args:
        text: all of it, or both of its ends with a line between that says what is not here.
        cut: characters that are not here.
        cut_at: position of the first of them.
    """

    text: str
    cut: int = 0
    cut_at: int = 0


def excerpt(stream: Stream, limit: int) -> Excerpt:
    """Both ends of a stream, a quarter of the room for the beginning."""
    if stream.size <= limit:
        return Excerpt(stream.page(0, limit).text)
    head = stream.page(0, limit // 4)
    tail = stream.page(stream.size - (limit - limit // 4), limit)
    cut = tail.start - head.end
    mark = f"\n[… {cut} characters are not shown here …]\n"
    return Excerpt(head.text + mark + tail.text, cut, head.end)
