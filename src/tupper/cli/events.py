"""``tupper events``."""

from __future__ import annotations

import dataclasses

import click

from tupper import Sandbox, SandboxEvent, SandboxEventType
from tupper.cli import _output
from tupper.cli._options import SANDBOX, json_option, labels_option

_COLOURS = {
    SandboxEventType.CREATED: "32",
    SandboxEventType.PAUSED: "33",
    SandboxEventType.RESUMED: "32",
    SandboxEventType.ENDED: "31",
    SandboxEventType.LOST: "35",
}


@click.command()
@labels_option("Only of sandboxes with this metadata; repeatable.")
@click.option(
    "--type",
    "types",
    type=click.Choice([kind.value for kind in SandboxEventType]),
    multiple=True,
    help="Only these; repeatable.",
)
@click.option("-n", "--count", type=click.IntRange(1), metavar="N", help="Leave after N events.")
@click.argument("sandbox", type=SANDBOX, required=False)
@json_option
def events(
    *,
    labels: tuple[tuple[str, str], ...],
    types: tuple[str, ...],
    count: int | None,
    sandbox: str | None,
    as_json: bool,
) -> None:
    """Print what happens to sandboxes, or to SANDBOX, from now on until Ctrl-C.

    That is: created, paused, resumed, ended and why. With --json each is a JSON document on a line.
    """
    left = count
    with Sandbox.events(sandbox, metadata=dict(labels), types=types) as found:
        _output.note("listening; Ctrl-C ends it")
        for event in found:
            if as_json:
                _output.as_json_line(event_as_json(event))
            else:
                _show(event)
            left = None if left is None else left - 1
            if left == 0:
                return


def event_as_json(event: SandboxEvent) -> dict[str, object]:
    """All fields, in the SDK's names."""
    return {**dataclasses.asdict(event), "type": event.type.value}


def _show(event: SandboxEvent) -> None:
    at = event.timestamp.astimezone().strftime("%H:%M:%S")
    kind = _output.paint(f"{event.type.value:<8}", _COLOURS[event.type])
    if event.type is SandboxEventType.LOST:
        text = "events may be missing here; tupper list shows how things stand"
    else:
        name = event.name or event.image or event.template_id
        why = ": ".join(part for part in (event.reason, event.detail) if part)
        text = f"{event.sandbox_id}  {name}" + (f"  {why}" if why else "")
    _output.text(f"{at}  {kind}  {_output.safe(text)}\n")
