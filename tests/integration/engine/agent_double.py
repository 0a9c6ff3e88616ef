"""A stand-in for the agent: an HTTP server on a unix socket that knows just what the engine asks.

Run as a program it is a machine of its own: ``agent_double.py SOCKET TOKEN``.
"""

import asyncio
import json
import sys
import time
from pathlib import Path


class AgentDouble:
    def __init__(self, token: str) -> None:
        self.token = token
        self.started = time.time()
        self.last_activity = time.time()
        self.deadline: float | None = None
        self.silent = asyncio.Event()
        self.silent.set()
        self.received = 0

    async def serve(self, reader, writer) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            await self.silent.wait()
            line, *fields = head.decode().split("\r\n")
            method, target, _ = line.split(" ")
            headers = {k.lower(): v.strip() for k, _, v in (f.partition(":") for f in fields if f)}
            await self.answer(method, target, headers, reader, writer)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def answer(self, method, target, headers, reader, writer) -> None:
        path = target.partition("?")[0]
        if path == "/health":
            self.reply(writer, 204)
        elif headers.get("x-access-token") != self.token:
            self.reply(writer, 401, {"code": 401, "message": "unauthorized access"})
        elif path == "/tupper/status":
            self.reply(writer, 200, {"lastActivity": self.last_activity * 1000, "activeStreams": 0})
        elif path == "/metrics":
            self.reply(
                writer,
                200,
                {"cpu_used_pct": 12.5, "mem_used": 1 << 20, "mem_cache": 5, "disk_used": 7},
            )
        elif path == "/tupper/deadline":
            body = await reader.readexactly(int(headers["content-length"]))
            self.deadline = json.loads(body)["deadline"]
            self.reply(writer, 204)
        elif path == "/tupper/log":
            self.reply(writer, 200, "agent.started\n")
        elif path == "/stream":  # like a command's output: never ends by itself
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            while True:
                writer.write(b"5\r\ntick\n\r\n")
                await writer.drain()
                await asyncio.sleep(0.02)
        elif path == "/upload":
            size = int(headers["content-length"])
            while self.received < size and (chunk := await reader.read(1 << 16)):
                self.received += len(chunk)
            self.reply(writer, 200, {"received": self.received})
        elif headers.get("upgrade") == "echo":
            writer.write(
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
            )
            while chunk := await reader.read(1 << 16):
                writer.write(chunk)
                await writer.drain()
        else:
            self.reply(writer, 200, {"method": method, "target": target, "headers": headers})

    def reply(self, writer, status, body=None, *, kind="") -> None:
        text = (
            b""
            if body is None
            else body.encode()
            if isinstance(body, str)
            else json.dumps(body).encode()
        )
        typed = f"Content-Type: {kind}\r\n" if kind else ""
        head = f"HTTP/1.1 {status} X\r\n{typed}Content-Length: {len(text)}\r\nConnection: close"
        writer.write(head.encode() + b"\r\n\r\n" + text)


async def main() -> None:
    path, token = Path(sys.argv[1]), sys.argv[2]
    double = AgentDouble(token)
    server = await asyncio.start_unix_server(double.serve, str(path))
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
