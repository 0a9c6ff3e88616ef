"""Taking a name and a place for a new sandbox, before anything is made.

All in one step without an await: of several requests for one name exactly one wins.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import replace

from tupper.core.errors import AlreadyExists, CapacityReached, InvalidArgument, OutOfDisk
from tupper.core.ids import new_sandbox_id, new_token
from tupper.core.lifecycle import State
from tupper.core.liveness import start_ticks
from tupper.core.sandbox import CreateRequest, SandboxRecord
from tupper.core.version import VERSION
from tupper.engine.context import Context
from tupper.engine.request import check_request, check_volumes, decide_limits
from tupper.engine.sandbox import Sandbox

_MIB = 1024 * 1024


def reserve(context: Context, request: CreateRequest) -> tuple[Sandbox, CreateRequest]:
    """Judge a request and take its name and a place.

    Returns:
        The sandbox, and the request with the host paths of mounts resolved.

    Raises:
        InvalidArgument, NotFound, AlreadyExists, CapacityReached, OutOfDisk.
    """
    settings = context.settings
    paths = context.paths
    own = (paths.data, paths.runtime, paths.cache, paths.config)
    request = check_request(request, settings, own)
    limits = decide_limits(request, settings)
    volumes = context.volumes.resolve(check_volumes(request), request.owner_key)
    request = replace(request, mounts=(*request.mounts, *context.volumes.mounts(volumes)))
    _check_room(context, request)
    internet = request.allow_internet
    record = SandboxRecord(
        id=new_sandbox_id(),
        state=State.STARTING,
        token=new_token(),
        name=request.name,
        template=request.image or request.template,
        image=request.image,
        metadata=dict(request.metadata),
        created_at=time.time(),
        timeout_s=request.timeout_s,
        idle_timeout_s=request.idle_timeout_s,
        cpus=limits.cpus,
        memory_mib=limits.memory_mib,
        disk_mib=limits.disk_mib,
        pids=limits.pids,
        mounts=request.mounts,
        volumes=volumes,
        allow_internet=settings.allow_internet_access if internet is None else internet,
        allow_out=request.allow_out,
        deny_out=request.deny_out,
        allow_host_ports=request.allow_host_ports,
        owner_pid=request.owner_pid,
        owner_start_ticks=_owner_ticks(request),
        on_timeout=request.on_timeout,
        pause_memory=request.pause_memory,
        auto_resume=request.auto_resume,
        owner_key=request.owner_key,
        ingress=request.ingress,
        traffic_token="" if request.ingress.is_public else new_token(),
        boot_id=context.boot_id,
        started_by=VERSION,
    )
    sandbox = Sandbox(record)
    context.sandboxes[sandbox.id] = sandbox
    return sandbox, request


def _check_room(context: Context, request: CreateRequest) -> None:
    wanted = (request.owner_key, request.name)
    taken = ((s.record.owner_key, s.record.name) for s in context.sandboxes.values())
    if request.name and wanted in taken:
        raise AlreadyExists(f"a sandbox named {request.name!r} exists")
    check_capacity(context)
    check_free_disk(context)


def check_free_disk(context: Context) -> None:
    """Refuse to begin what takes the host's disk when that is nearly full.

    Raises:
        OutOfDisk: with what is free and what must be.
    """
    settings = context.settings
    free_mib = shutil.disk_usage(context.paths.data).free // _MIB
    if free_mib < settings.min_free_disk_mib:
        raise OutOfDisk(
            f"the disk of the data directory has {free_mib} MiB free, "
            f"less than the {settings.min_free_disk_mib} MiB that must stay free",
            hint="free some space, or lower the setting min_free_disk_mib",
        )


def check_capacity(context: Context) -> None:
    """Refuse one sandbox too many. Paused ones do not count.

    Raises:
        CapacityReached: as many run as may.
    """
    count, most = len(context.awake()), context.settings.max_sandboxes
    if count >= most:
        raise CapacityReached(f"{count} sandboxes run, the most allowed is {most}")


def _owner_ticks(request: CreateRequest) -> int:
    if not request.owner_pid:
        return 0
    have = start_ticks(request.owner_pid)
    if have is None or request.owner_start_ticks not in (0, have):
        raise InvalidArgument(f"process {request.owner_pid}, the owner, is gone")
    return have
