"""``tupper watch``."""

from __future__ import annotations

import asyncio

import click

from tupper import FilesystemEvent
from tupper.cli import _output
from tupper.cli._options import SANDBOX, json_option
from tupper.cli._sandboxes import attach_async


@click.command()
@click.option("-r", "--recursive", is_flag=True, help="Directories below too.")
@click.option("-u", "--user", help="Whose home relative paths start from.")
@click.argument("sandbox", type=SANDBOX)
@click.argument("path")
@json_option
def watch(*, sandbox: str, path: str, recursive: bool, user: str | None, as_json: bool) -> None:
    """Print what changes below the directory PATH of SANDBOX until Ctrl-C."""

    def show(event: FilesystemEvent) -> None:
        if as_json:
            _output.as_json_line({"type": event.type.value, "name": event.name})
        else:
            _output.text(f"{event.type.value:<7} {_output.safe(event.name)}\n")

    async def main() -> None:
        box = await attach_async(sandbox)
        ended = asyncio.Event()
        problems: list[Exception] = []

        def stop(problem: Exception | None = None) -> None:
            if problem is not None:
                problems.append(problem)
            ended.set()

        handle = await box.files.watch_dir(
            path, on_event=show, on_exit=stop, timeout=0, recursive=recursive, user=user
        )
        try:
            await ended.wait()
        finally:
            await handle.stop()
        if problems:
            raise problems[0]

    asyncio.run(main())
