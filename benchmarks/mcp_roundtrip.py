"""MCP's ``run_command`` of ``true`` over stdio against the SDK's own, in the same sandbox, in turn.

The server is a real ``tupper mcp``; the client is the official SDK's, in this process, whose own
share is seen from a call of a tool that asks nothing of the sandbox. Needs the extra ``mcp``.
"""

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from benchmarks.harness import spread
from tupper import AsyncSandbox

_WARM_UP = 5


def measure(options: argparse.Namespace) -> dict[str, object]:
    return asyncio.run(_measure(options.repeat * 5))


async def _measure(repeat: int) -> dict[str, object]:
    async with await AsyncSandbox.create() as sbx:
        args = ["-m", "tupper", "mcp", "--sandbox", sbx.sandbox_id]
        server = StdioServerParameters(command=sys.executable, args=args, env=dict(os.environ))
        async with Client(stdio_client(server)) as client:
            calls: dict[str, Callable[[], Awaitable[object]]] = {
                "mcp_run_command": lambda: client.call_tool("run_command", {"command": "true"}),
                "sdk_commands_run": lambda: sbx.commands.run("true"),
                "mcp_without_sandbox": lambda: client.call_tool("kill_command", {"command_id": ""}),
            }
            times = await _interleave(calls, repeat)
    times = {name: values[_WARM_UP:] for name, values in times.items()}
    result: dict[str, object] = {name: spread(values) for name, values in times.items()}
    for name, pick in (("median", statistics.median), ("quartile", _quartile), ("min", min)):
        above_s = pick(times["mcp_run_command"]) - pick(times["sdk_commands_run"])
        result[f"above_sdk_{name}_ms"] = round(above_s * 1000, 2)
    return result


def _quartile(values: list[float]) -> float:
    """What a quarter of the calls do not take: less moved by other work than the median."""
    return sorted(values)[len(values) // 4]


async def _interleave(
    calls: dict[str, Callable[[], Awaitable[object]]], repeat: int
) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeat + _WARM_UP):
        order = list(calls.items())
        for name, call in order if turn % 2 else reversed(order):
            begun = time.perf_counter()
            await call()
            times[name].append(time.perf_counter() - begun)
    return times
