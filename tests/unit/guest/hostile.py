"""An agent that answers whatever a test wants, over a unix socket."""

import asyncio
import contextlib


class FakeAgent:
    """Answers every connection with the chunks that ``answer(request)`` yields, then closes.

    ``answer`` is an async generator function; ``None`` in it means: say nothing for ever.
    """

    def __init__(self, path, answer):
        self.path = str(path)
        self.requests = []
        self._answer = answer
        self._tasks = set()

    async def __aenter__(self):
        self._server = await asyncio.start_unix_server(self._serve, self.path)
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader, writer):
        task = asyncio.current_task()
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            try:
                head = await reader.readuntil(b"\r\n\r\n")
                self.requests.append(head)
                async for chunk in self._answer(head):
                    if chunk is None:
                        await asyncio.Event().wait()
                    writer.write(chunk)
                    await writer.drain()
            finally:
                writer.close()


def reply(body=b"{}", status="200 OK", headers=b""):
    """A whole HTTP answer."""
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n".encode()
    return head + headers + b"\r\n" + body


def always(*chunks):
    """An ``answer`` of fixed chunks."""

    async def answer(_):
        for chunk in chunks:
            yield chunk

    return answer
