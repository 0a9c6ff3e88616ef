"""``tupper stats``."""

from __future__ import annotations

import click

from tupper import SandboxException, SandboxMetrics
from tupper.cli import _output
from tupper.cli._options import SANDBOX, listing_options
from tupper.cli._sandboxes import all_running, attach

_COLUMNS = ("ID", "CPU %", "MEMORY", "OF", "DISK", "OF")


@click.command()
@click.argument("sandboxes", type=SANDBOX, nargs=-1)
@listing_options
def stats(*, sandboxes: tuple[str, ...], as_json: bool, quiet: bool) -> None:
    """Show what SANDBOXES use now; without names all that run."""
    names = list(sandboxes) or [info.sandbox_id for info in all_running()]
    found: dict[str, SandboxMetrics] = {}
    for name in names:
        try:
            metrics = attach(name).get_metrics()
        except SandboxException:
            if sandboxes:
                raise
            continue  # it ended between the listing and the question
        if metrics:
            found[name] = metrics[-1]
    if as_json:
        _output.as_json({name: vars(usage) for name, usage in found.items()})
    elif quiet:
        for name in found:
            _output.result(name)
    else:
        _output.table(_COLUMNS, [_row(name, usage) for name, usage in found.items()])


def _row(name: str, usage: SandboxMetrics) -> tuple[object, ...]:
    return (
        name,
        f"{usage.cpu_used_pct:.1f}",
        _output.size(usage.mem_used),
        _output.size(usage.mem_total),
        _output.size(usage.disk_used),
        _output.size(usage.disk_total),
    )
