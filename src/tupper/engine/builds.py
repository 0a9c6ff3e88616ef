"""Builds of templates: asked for, run in the background, remembered with their logs.

**Shape** of ``data/templates/NAME``::

    builds/<uuid>.json     one build's record
    builds/<uuid>.log      its log, one JSON object a line
    files/<hash>-<sha256>  an archive that was uploaded for COPY under a hash
    owner                  the id of the API key that made it; empty for the machine's own user

What a build made is in the image store under the template's name and tags; its reference there is
the truth about tags. A build that was under way when the process ended is an error afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import secrets
import shutil
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TextIO

from tupper.core.errors import (
    AlreadyExists,
    Conflict,
    NotFound,
    OutOfDisk,
    PermissionDenied,
    TemplateError,
    TemplateNotFound,
    TupperError,
)
from tupper.core.log import event, problem
from tupper.core.paths import make_private
from tupper.engine.context import Context
from tupper.protocol.building import (
    BuildPlan,
    BuildStatus,
    LogLine,
    check_hash,
    json_from_line,
    line_from_json,
)
from tupper.protocol.fields import Fields, parse_object
from tupper.protocol.naming import parse_template

if TYPE_CHECKING:
    from tupper.core.backend import Rootfs
    from tupper.engine.build import Recipe
    from tupper.engine.steps import StepBuilder

_AT_ONCE = 2
_MOST_LINES = 100_000
_LINE_MAX = 16 * 1024
_UPLOAD_MAX = 16 * 2**30
_CUT = "the background process ended during this build"


@dataclass(frozen=True, slots=True)
class Build:
    """One build of a template.

    Args:
        id: a UUID.
        template: its name.
        tags: that it gets when it is ready.
        status: how far it is.
        created_at, finished_at: unix seconds; 0 if it has not happened.
        cpus, memory_mib: of the template's sandboxes; 0 for the default.
        digest: of the result.
        reason, step: why and where it failed.
    """

    id: str
    template: str
    tags: tuple[str, ...]
    status: BuildStatus = BuildStatus.WAITING
    created_at: float = 0.0
    finished_at: float = 0.0
    cpus: float = 0.0
    memory_mib: int = 0
    digest: str = ""
    reason: str = ""
    step: str = ""


class Builds:
    """The builds of one engine."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._running: dict[str, list[LogLine]] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)

    @property
    def running(self) -> int:
        """How many are under way."""
        return len(self._running)

    def sweep(self) -> None:
        """At the start of an engine: nothing is under way."""
        for path in (self._context.paths.data / "templates").glob("*/builds/*.json"):
            build = _read(path)
            if build is not None and build.status is BuildStatus.BUILDING:
                self._save(replace(_failed(build, _CUT, ""), finished_at=time.time()))
        for path in (self._context.paths.data / "templates").glob("*/files/tmp-*"):
            path.unlink(missing_ok=True)

    # Whose a template is. Everybody may use the recipes and what the machine's own user made.

    def may_use(self, name: str, key: str) -> bool:
        """Whether an API key (empty: the machine's own user) may start from a template."""
        return not key or self._owner(name) in (None, "", key)

    def may_change(self, name: str, key: str) -> bool:
        """Whether an API key (empty: the machine's own user) may build, tag and remove it."""
        owner = self._owner(name)
        return not key or owner == key or (owner is None and not self._is_known(name))

    def check_use(self, template: str, key: str) -> None:
        """Raise the error for a template that an API key may not use: as if there were none."""
        if key and not self.may_use(parse_template(template)[0], key):
            raise TemplateNotFound(f"there is no template {template}")

    def claim(self, name: str, owner_key: str) -> None:
        """Take a name for whoever builds.

        Raises:
            AlreadyExists: a recipe has it.
            PermissionDenied: it is somebody else's.
        """
        if self._context.parts.templates.is_recipe(name):
            raise AlreadyExists(f"template {name} is made by a recipe, choose another name")
        if not self.may_change(name, owner_key):
            raise PermissionDenied(f"template {name} belongs to somebody else")
        if self._owner(name) is None:
            make_private(self._place(name))
            write_durably(self._place(name) / "owner", owner_key)

    def _owner(self, name: str) -> str | None:
        with contextlib.suppress(OSError):
            return (self._place(name) / "owner").read_text()
        return None

    def _is_known(self, name: str) -> bool:
        try:
            self._context.parts.templates.info(name)
        except TemplateNotFound:
            return False
        return True

    # Building.

    def request(
        self, name: str, tags: Sequence[str], *, cpus: float, memory_mib: int, owner_key: str
    ) -> Build:
        """Take down that somebody wants to build.

        Raises:
            AlreadyExists: a recipe has the name.
            PermissionDenied: it is somebody else's.
        """
        self.claim(name, owner_key)
        build = Build(
            str(uuid.uuid4()), name, tuple(tags), created_at=time.time(), cpus=cpus,
            memory_mib=memory_mib,
        )  # fmt: skip
        self._save(build)
        return build

    def find(self, name: str, build_id: str) -> Build:
        """One build.

        Raises:
            NotFound: there is none.
        """
        with contextlib.suppress(ValueError):
            build = _read(self._place(name) / "builds" / f"{uuid.UUID(build_id)}.json")
            if build is not None:
                return build
        raise NotFound(f"template {name} has no build {build_id[:100]!r}")

    def all_of(self, name: str) -> list[Build]:
        """A template's builds, the latest first."""
        found = [_read(path) for path in (self._place(name) / "builds").glob("*.json")]
        return sorted((b for b in found if b is not None), key=lambda b: -b.created_at)

    def start(self, build: Build, plan: BuildPlan, *, host_images: bool, owner_key: str) -> None:
        """Begin to build; returns at once.

        Raises:
            Conflict: it was begun before.
        """
        if build.status is not BuildStatus.WAITING or build.id in self._running:
            raise Conflict(f"build {build.id} was started before")
        build = replace(build, status=BuildStatus.BUILDING)
        self._save(build)
        self._running[build.id] = []
        run = self._run(build, plan, host_images=host_images, owner_key=owner_key)
        self._context.spawn(run, f"build {build.id}")

    async def _run(
        self, build: Build, plan: BuildPlan, *, host_images: bool, owner_key: str
    ) -> None:
        from tupper.engine.steps import StepBuilder  # noqa: PLC0415 - rarely needed

        lines = self._running[build.id]
        log = _Log(self._log_path(build), lines)
        builder = StepBuilder(
            self._context, plan, log.tell, lambda h: self.find_files(build.template, h),
            host_images=host_images, check_use=lambda t: self.check_use(t, owner_key),
        )  # fmt: skip
        done = _failed(build, _CUT, "")
        try:
            async with self._slots, self._context.gate.use():
                digest = await self._make(build, builder)
            done = replace(build, status=BuildStatus.READY, digest=digest)
            event("template.built", template=build.template, build=build.id, digest=digest)
        except (TupperError, OSError) as error:
            text = str(error) if isinstance(error, TupperError) else error.strerror or "I/O error"
            log.tell(text, builder.step, "error")
            done = _failed(build, text, builder.step)
        except Exception as error:  # noqa: BLE001 - the client shall hear that it is over
            problem("build.crashed", build=build.id, message=str(error))
            done = _failed(build, f"internal error: {type(error).__name__}", builder.step)
        finally:
            log.close()
            self._save(replace(done, finished_at=time.time()))
            del self._running[build.id]

    async def _make(self, build: Build, builder: StepBuilder) -> str:
        stack = await builder.build(cpus=build.cpus, memory_mib=build.memory_mib)
        templates = self._context.parts.templates
        rootfs = await builder.layers.store(stack, build.template, build.tags[0])
        for tag in build.tags:
            await templates.register(build.template, rootfs, tag=tag, build_id=build.id)
        return rootfs.digest

    async def build_dockerfile(
        self, recipe: Recipe, emit: Callable[[Mapping[str, object]], None], *, owner_key: str
    ) -> Rootfs:
        """Build a template from a Dockerfile inside sandboxes; returns when it is over.

        Args:
            recipe: what to build.
            emit: gets ``{"event": "log", "message"}`` as it goes.
            owner_key: the API key that it is for; empty for the machine's own user.

        Raises:
            PermissionDenied: FROM names an image in a file and may not, or the template is
                somebody else's.
            TemplateError: naming the line that is wrong or failed.
        """
        from tupper.engine.build import build  # noqa: PLC0415 - rarely needed

        self.claim(recipe.name, owner_key)

        def check(template: str) -> None:
            self.check_use(template, owner_key)

        return await build(self._context, replace(recipe, check_use=check), emit)

    def log(self, build: Build, offset: int, limit: int) -> list[LogLine]:
        """Some lines of a build's log."""
        lines = self._running.get(build.id)
        if lines is None:
            lines = _read_log(self._log_path(build))
        return lines[offset : offset + limit]

    # Uploads.

    def find_files(self, name: str, files_hash: str) -> tuple[Path, str]:
        """What was uploaded under a hash: (archive, what names its content).

        Raises:
            TemplateError: nothing was.
        """
        for path in (self._place(name) / "files").glob(f"{check_hash(files_hash)}-*"):
            return path, path.name
        raise TemplateError("the files of this step were not uploaded, or are gone; upload again")

    def has_files(self, name: str, files_hash: str) -> bool:
        """Whether something was uploaded under a hash."""
        return any((self._place(name) / "files").glob(f"{check_hash(files_hash)}-*"))

    async def take_files(self, name: str, files_hash: str, body: AsyncIterator[bytes]) -> None:
        """Keep an archive; one that was there before is replaced.

        Raises:
            OutOfDisk: too large for what is free.
        """
        place = self._place(name) / "files"
        make_private(place)
        temporary = place / f"tmp-{secrets.token_hex(8)}"
        digest, size = hashlib.sha256(), 0
        try:
            with temporary.open("xb") as file:
                async for chunk in body:
                    size += len(chunk)
                    self._check_room(size)
                    digest.update(chunk)
                    await asyncio.to_thread(file.write, chunk)
                await asyncio.to_thread(_flush, file)
            old = list(place.glob(f"{check_hash(files_hash)}-*"))
            temporary.rename(place / f"{files_hash}-{digest.hexdigest()}")
            for path in old:
                if not path.name.endswith(digest.hexdigest()):
                    path.unlink(missing_ok=True)
        finally:
            temporary.unlink(missing_ok=True)

    def _check_room(self, size: int) -> None:
        if size > _UPLOAD_MAX:
            raise OutOfDisk(f"the archive is larger than {_UPLOAD_MAX} bytes")
        free_mib = shutil.disk_usage(self._context.paths.data).free >> 20
        if free_mib < self._context.settings.min_free_disk_mib:
            raise OutOfDisk(f"{free_mib} MiB of the disk are free, too few for an upload")

    # Removal.

    async def remove(self, name: str) -> None:
        """Forget a template: what was built, its builds, what was uploaded.

        Raises:
            Conflict: it is being built.
            TemplateNotFound: there is none.
        """
        place = self._place(name)
        if any(build.id in self._running for build in self.all_of(name)):
            raise Conflict(f"template {name} is being built")
        known = place.is_dir()
        try:
            await self._context.parts.templates.remove(name)
        except TemplateNotFound:
            if not known:
                raise
        await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)

    def _place(self, name: str) -> Path:
        return self._context.paths.data / "templates" / name

    def _log_path(self, build: Build) -> Path:
        return self._place(build.template) / "builds" / f"{build.id}.log"

    def _save(self, build: Build) -> None:
        place = self._place(build.template) / "builds"
        make_private(place)
        body = {name: getattr(build, name) for name in Build.__slots__}
        write_durably(place / f"{build.id}.json", json.dumps(body))


def write_durably(path: Path, text: str) -> None:
    """Replace a file so that after a crash it holds the old text or the new one."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


class _Log:
    """Lines on their way to those who read now and to a file for those who read later."""

    def __init__(self, path: Path, lines: list[LogLine]) -> None:
        self._lines = lines
        self._file: TextIO = path.open("w", buffering=1)

    def tell(self, message: str, step: str, level: str = "info") -> None:
        if len(self._lines) > _MOST_LINES:
            return
        if len(self._lines) == _MOST_LINES:
            message, level = "the log is full, the rest is left out", "warn"
        line = LogLine(time.time(), message[:_LINE_MAX], level, step)
        self._lines.append(line)
        with contextlib.suppress(OSError):  # a full disk does not end the build by itself
            self._file.write(json.dumps(json_from_line(line)) + "\n")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()


def _failed(build: Build, reason: str, step: str) -> Build:
    return replace(build, status=BuildStatus.ERROR, reason=reason, step=step)


def _read(path: Path) -> Build | None:
    try:
        fields = parse_object(path.read_bytes())
        return Build(
            id=fields.text("id"),
            template=fields.text("template"),
            tags=fields.texts("tags"),
            status=BuildStatus(fields.text("status")),
            created_at=fields.number("created_at") or 0.0,
            finished_at=fields.number("finished_at") or 0.0,
            cpus=fields.number("cpus") or 0.0,
            memory_mib=fields.whole("memory_mib") or 0,
            digest=fields.text("digest"),
            reason=fields.text("reason"),
            step=fields.text("step"),
        )
    except (OSError, ValueError, TupperError):
        return None


def _read_log(path: Path) -> list[LogLine]:
    lines: list[LogLine] = []
    with contextlib.suppress(OSError), path.open() as file:
        for text in file:
            with contextlib.suppress(ValueError, TupperError):
                lines.append(line_from_json(Fields.of(json.loads(text), "a line").values))
    return lines


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
