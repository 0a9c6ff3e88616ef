"""``tupper list``."""

from __future__ import annotations

import click

from tupper import SandboxInfo, SandboxState
from tupper.cli import _output
from tupper.cli._options import labels_option, listing_options
from tupper.cli._sandboxes import all_ended, all_running, info_as_json


@click.command(name="list")
@labels_option("Only those with this metadata; repeatable.")
@click.option("--ended", is_flag=True, help="Those that ended during the last day, and why.")
@listing_options
def list_sandboxes(
    *, labels: tuple[tuple[str, str], ...], ended: bool, as_json: bool, quiet: bool
) -> None:
    """List sandboxes."""
    infos = all_ended(dict(labels)) if ended else all_running(dict(labels))
    if as_json:
        _output.as_json([info_as_json(info) for info in infos])
    elif quiet:
        for info in infos:
            _output.result(info.sandbox_id)
    elif ended:
        _output.table(("ID", "NAME", "SOURCE", "ENDED", "WHY"), [_ended_row(i) for i in infos])
    else:
        columns = ("ID", "NAME", "SOURCE", "STATE", "AGE", "LEFT", "CPUS", "MEMORY", "BACKEND")
        _output.table(columns, [_row(info) for info in infos])


def _row(info: SandboxInfo) -> tuple[object, ...]:
    return (
        info.sandbox_id,
        _name(info),
        _source(info),
        info.state.value,
        _output.span(_output.since(info.started_at)),
        _left(info),
        info.cpu_count,
        f"{info.memory_mb} MiB",
        info.backend or "",
    )


def _ended_row(info: SandboxInfo) -> tuple[object, ...]:
    ago = _output.span(_output.since(info.end_at))
    why = ": ".join(part for part in (info.end_reason, info.end_detail) if part)
    return info.sandbox_id, _name(info), _source(info), f"{ago} ago", why


def _source(info: SandboxInfo) -> str:
    return info.image or info.template_id


def _name(info: SandboxInfo) -> str:
    """The sandbox's own name; the SDK shows the template's alias where it has none."""
    return "" if info.name in {None, info.template_id} else str(info.name)


def _left(info: SandboxInfo) -> str:
    if info.state is SandboxState.PAUSED:
        return "-"
    past = _output.since(info.end_at)
    return "-" if past is None else _output.span(-past)
