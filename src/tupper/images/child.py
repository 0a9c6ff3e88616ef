"""Running :mod:`tupper.images.unpack` as a child, from the parent's side."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

from tupper.core.errors import ImageError, ImageRejected, TupperError
from tupper.core.process import minimal_env, run, same_code
from tupper.images.layers import Limits, Summary
from tupper.images.unpack import Layer, error_from_line, render_extract, render_request

_TIMEOUT_S = 3600.0


async def unpack_layers(
    target: Path,
    layers: list[Layer],
    *,
    prefix: tuple[str, ...],
    limits: Limits,
    on_bytes: Callable[[int], None],
) -> Summary:
    """Apply layers to an empty directory.

    Args:
        target: the directory.
        layers: lowest first.
        prefix: puts the child into a user namespace; empty for root.
        limits: how much the image may be.
        on_bytes: told how many compressed bytes were read.

    Raises:
        ImageRejected, OutOfDisk: as the child found.
    """
    devices = os.geteuid() == 0 and not prefix
    request = render_request(target, layers, limits=limits, devices=devices)
    return await _converse(request, prefix, on_bytes)


async def extract_layout(archive: Path, target: Path) -> None:
    """Take an OCI layout out of an archive into a directory that does not exist."""
    await _converse(render_extract(archive, target), (), lambda _: None)


async def _converse(
    request: bytes, prefix: tuple[str, ...], on_bytes: Callable[[int], None]
) -> Summary:
    last: list[dict[str, object]] = []

    def take(line: str) -> None:
        try:
            value = json.loads(line)
        except ValueError:
            return  # a warning of the interpreter
        if isinstance(value, dict):
            body = cast("dict[str, object]", value)
            if isinstance(done := body.get("done_bytes"), int):
                on_bytes(done)
            else:
                last.append(body)

    argv = [*prefix, sys.executable, "-P", "-m", "tupper.images.unpack"]
    env = minimal_env(**same_code())
    await run(argv, timeout_s=_TIMEOUT_S, stdin=request, env=env, on_line=take)
    return _result(last)


def _result(said: list[dict[str, object]]) -> Summary:
    if not said:
        raise ImageError("the process that unpacks images said nothing")
    if error := said[-1].get("error"):
        raise _typed(cast("dict[str, str]", error))
    return Summary(**cast("dict[str, int]", said[-1]["summary"]))  # type: ignore[arg-type]


def _typed(error: dict[str, str]) -> TupperError:
    return error_from_line(error) if error else ImageRejected("damaged")
