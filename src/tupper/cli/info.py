"""``tupper info``."""

from __future__ import annotations

import click

from tupper import SandboxInfo, SandboxState
from tupper.cli import _output
from tupper.cli._options import SANDBOX, json_option
from tupper.cli._sandboxes import info_as_json, info_of


@click.command()
@click.argument("sandbox", type=SANDBOX)
@json_option
def info(*, sandbox: str, as_json: bool) -> None:
    """Show all that is known about SANDBOX, also for a day after its end."""
    found = info_of(sandbox)
    if as_json:
        _output.as_json(info_as_json(found))
    else:
        _output.pairs(_describe(found))


def _end_of(info: SandboxInfo) -> str:
    """What the time says that E2B calls the end."""
    if info.state is SandboxState.PAUSED:
        return "paused since"
    pauses = info.lifecycle is not None and info.lifecycle["on_timeout"] == "pause"
    return "pauses" if pauses else "ends"


def _describe(info: SandboxInfo) -> dict[str, object]:
    facts: dict[str, object] = {
        "id": info.sandbox_id,
        "name": info.name or "",
        "state": info.state.value + ("" if info.health == "ok" else f" ({info.health})"),
        "template": info.template_id,
        "image": info.image or "",
        "backend": info.backend,
        "isolation": f"{info.isolation} ({info.mechanism})" if info.mechanism else info.isolation,
        "kernel": info.kernel,
        "cpus": info.cpu_count,
        "memory": f"{info.memory_mb} MiB",
        "disk": f"{info.disk_mb} MiB",
        "processes": f"at most {info.pids}" if info.pids else "",
        "started": info.started_at.isoformat(timespec="seconds"),
        _end_of(info): info.end_at.isoformat(timespec="seconds"),
        "idle timeout": _output.span(info.idle_timeout) if info.idle_timeout else "",
        "internet": ""
        if info.allow_internet_access is None
        else "yes"
        if info.allow_internet_access
        else "no",
        "ports": ", ".join(f"{inside} at {outside}" for inside, outside in info.ports.items()),
        "labels": ", ".join(f"{key}={value}" for key, value in info.metadata.items()),
        "not here because": info.fallback_reason or "",
        "ended because": ": ".join(p for p in (info.end_reason, info.end_detail) if p),
    }
    return {name: value for name, value in facts.items() if value != ""}
