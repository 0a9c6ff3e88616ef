"""``tupper top``: what runs and what it uses, anew every few seconds."""

from __future__ import annotations

import dataclasses
import time

import click

from tupper import SandboxInfo, SandboxMetrics, SandboxState
from tupper.cli import _control, _output
from tupper.cli._options import Span, json_option, labels_option
from tupper.cli._sandboxes import all_running

_COLUMNS = ("ID", "NAME", "CPU %", "MEMORY", "OF", "DISK", "AGE", "BACKEND")


@click.command()
@labels_option("Only those with this metadata; repeatable.")
@click.option(
    "-d", "--delay", type=Span(), default=2.0, metavar="TIME", help="Between two looks [2s]."
)
@click.option("--once", is_flag=True, help="Print one table and leave.")
@json_option
def top(*, labels: tuple[tuple[str, str], ...], delay: float, once: bool, as_json: bool) -> None:
    """Show running sandboxes and what they use, the busiest first, until Ctrl-C.

    Where standard output is no terminal, it prints one table and leaves.
    """
    if as_json:
        _output.as_json([_as_json(info, used) for info, used in _look(dict(labels))])
        return
    if once or not _output.result_is_seen():
        for line in _frame(_look(dict(labels))):
            _output.result(line)
        return
    with _output.screen() as draw:
        while True:
            draw(_frame(_look(dict(labels))))
            time.sleep(max(delay, 0.1))


def _look(labels: dict[str, str]) -> list[tuple[SandboxInfo, SandboxMetrics | None]]:
    """What runs now, the busiest first."""
    infos = [info for info in all_running(labels) if info.state is SandboxState.RUNNING]
    used = _control.metrics_of([info.sandbox_id for info in infos])
    rows = [(info, used.get(info.sandbox_id)) for info in infos]
    rows.sort(key=lambda row: (-(row[1].cpu_used_pct if row[1] else 0.0), row[0].sandbox_id))
    return rows


def _frame(rows: list[tuple[SandboxInfo, SandboxMetrics | None]]) -> list[str]:
    """A summary, and a table below it."""
    cpu = sum(used.cpu_used_pct for _, used in rows if used)
    memory = sum(used.mem_used for _, used in rows if used)
    disk = sum(used.disk_used for _, used in rows if used)
    summary = (
        f"{len(rows)} sandboxes, {cpu:.0f} % of a core, {_output.size(memory)} of memory, "
        f"{_output.size(disk)} of disk"
    )
    return [summary, "", *_output.render_table(_COLUMNS, [_row(*row) for row in rows])]


def _row(info: SandboxInfo, used: SandboxMetrics | None) -> tuple[object, ...]:
    return (
        info.sandbox_id,
        "" if info.name in {None, info.template_id} else info.name,
        f"{used.cpu_used_pct:.1f}" if used else "-",
        _output.size(used.mem_used if used else None),
        _output.size(used.mem_total if used else None),
        _output.size(used.disk_used if used else None),
        _output.span(_output.since(info.started_at)),
        info.backend,
    )


def _as_json(info: SandboxInfo, used: SandboxMetrics | None) -> dict[str, object]:
    metrics = dataclasses.asdict(used) if used else None
    return {"sandbox_id": info.sandbox_id, "name": info.name, "metrics": metrics}
