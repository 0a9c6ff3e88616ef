"""COPY and ADD: from the context or another stack into a workshop, always through its agent.

Files of the context become a tar stream that the agent unpacks inside. From another stack they go
from agent to agent: the host looks into neither tree, for both may be hostile.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
import stat
import tarfile
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tupper.core.backend import ImageConfig
from tupper.core.errors import TemplateError
from tupper.engine.context import Context
from tupper.engine.inside import Inside
from tupper.engine.workshop import open_workshop
from tupper.protocol import dockerfile as df


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to copy: a text, or a path of the context.

    Args:
        name: its name at the target; empty for "what is in it" (a directory's content).
        data: a text.
        tree: (directory on the host, paths below it).
    """

    name: str
    data: bytes | None
    tree: tuple[Path, tuple[str, ...]] | None


@dataclass(frozen=True, slots=True)
class Source:
    """Where COPY takes from: items of the context, or another stack."""

    key: str
    items: tuple[Item, ...]
    context: Context | None = None
    layers: tuple[Path, ...] = ()


def items_of(directory: Path, pattern: str, chosen: list[str]) -> list[Item]:
    """The chosen paths as things to copy: the topmost ones, a directory by its content."""
    if not pattern.strip("./"):
        return [Item("", None, (directory, tuple(chosen)))]
    tops = [p for p in chosen if posixpath.dirname(p) not in set(chosen)]
    items: list[Item] = []
    for top in tops:
        path = directory / top
        if path.is_dir() and not path.is_symlink():
            below = tuple(p[len(top) + 1 :] for p in chosen if p.startswith(f"{top}/"))
            items.append(Item("", None, (path, below)))
        else:
            items.append(Item(posixpath.basename(top), None, (path.parent, (path.name,))))
    return items


async def copy_in(workshop: Inside, step: df.Copy, source: Source, target: str) -> None:
    """Copy a source to a target inside.

    A target that ends with a slash, or is a directory, gets the things under their own names; any
    other is the new name of the only thing.
    """
    user, _, group = step.chown.partition(":")
    single = len(source.items) == 1 and source.items[0].name and not target.endswith("/")
    if source.context is not None:
        for path in step.sources:
            await _copy_from(workshop, source.context, source.layers, path, target, user)
    elif single and await workshop.kind(target) != "dir":
        item = source.items[0]
        renamed = posixpath.basename(target)
        await workshop.upload(posixpath.dirname(target), _tar(item, step.chmod, renamed), user=user)
    else:
        for item in source.items:
            if step.unpack and item.tree is not None and _is_tar(item):
                await workshop.upload(target, _plain_tar(item), user=user)
            else:
                await workshop.upload(target, _tar(item, step.chmod, item.name), user=user)
    if group:
        status = await workshop.run(
            ["chown", "-R", step.chown, target.rstrip("/") or "/"],
            env={}, cwd="/", user="root", on_output=lambda _: None,
        )  # fmt: skip
        if status:
            raise TemplateError(f"Dockerfile line {step.line}: chown {step.chown} failed")


async def _copy_from(
    workshop: Inside,
    context: Context,
    layers: tuple[Path, ...],
    path: str,
    target: str,
    user: str,
) -> None:
    """From another stack, agent to agent: the host looks into neither tree."""
    path = posixpath.join("/", path)
    async with open_workshop(context, layers, ImageConfig(), None) as other:
        kind = await other.kind(path)
        if not kind:
            raise TemplateError(f"COPY --from: {path} does not exist there")
        into_directory = kind == "dir" or target.endswith("/")
        if into_directory or await workshop.kind(target) == "dir":
            await workshop.upload(target, other.download(path), user=user)
            return
        parent, name = posixpath.split(target)
        await workshop.upload(parent, other.download(path), user=user)
        if name != posixpath.basename(path):
            await workshop.move(posixpath.join(parent, posixpath.basename(path)), target)


async def _tar(item: Item, chmod: str, name: str) -> AsyncGenerator[bytes]:
    """An item as a tar stream, owned by root; the agent gives it its owner."""
    mode = int(chmod, 8) if chmod else None
    if item.data is not None:
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(item.data), mode if mode is not None else 0o644
        yield _member(info, item.data) + b"\0" * 1024
        return
    directory, paths = item.tree or (Path(), ())
    for path in paths:
        file = directory / path
        inside = path if not item.name else name
        async for chunk in _file_member(file, inside, mode):
            yield chunk
    yield b"\0" * 1024


def _describe(file: Path, name: str, mode: int | None) -> tarfile.TarInfo | None:
    """The header of a file, directory or link; None for anything else."""
    info = tarfile.TarInfo(name)
    status = file.lstat()
    info.mode = mode if mode is not None else stat.S_IMODE(status.st_mode)
    info.mtime = int(status.st_mtime)
    if stat.S_ISLNK(status.st_mode):
        info.type, info.linkname = tarfile.SYMTYPE, str(file.readlink())
    elif stat.S_ISDIR(status.st_mode):
        info.type = tarfile.DIRTYPE
    elif stat.S_ISREG(status.st_mode):
        info.size = status.st_size
    else:
        return None
    return info


def _open(file: Path) -> BinaryIO:
    """Open a file of the context, but never through a link that was put in its place."""
    return os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")


async def _file_member(file: Path, name: str, mode: int | None) -> AsyncGenerator[bytes]:
    info = await asyncio.to_thread(_describe, file, name, mode)
    if info is None:
        return
    yield info.tobuf(tarfile.PAX_FORMAT)
    if not info.isreg():
        return
    left = info.size
    with await asyncio.to_thread(_open, file) as opened:
        while left and (chunk := await asyncio.to_thread(opened.read, min(left, 1 << 20))):
            left -= len(chunk)
            yield chunk
    if left:
        raise TemplateError(f"{name} became shorter while it was copied")
    yield b"\0" * (-info.size % 512)


def _member(info: tarfile.TarInfo, data: bytes) -> bytes:
    return info.tobuf(tarfile.PAX_FORMAT) + data + b"\0" * (-len(data) % 512)


def _is_tar(item: Item) -> bool:
    if item.tree is None or not item.name:
        return False
    directory, (path, *_) = item.tree
    return tarfile.is_tarfile(directory / path)


async def _plain_tar(item: Item) -> AsyncGenerator[bytes]:
    """The content of a local archive, uncompressed: only copied through, never unpacked here."""
    if item.tree is None:
        return
    directory, (path, *_) = item.tree
    with tarfile.open(directory / path, "r:*") as archive:
        for info in archive:
            data = archive.extractfile(info) if info.isreg() else None
            yield info.tobuf(tarfile.PAX_FORMAT)
            while data is not None and (chunk := await asyncio.to_thread(data.read, 1 << 20)):
                yield chunk
            if data is not None:
                yield b"\0" * (-info.size % 512)
    yield b"\0" * 1024
