"""``tupper snapshot``: create, list, remove."""

from __future__ import annotations

import click

from tupper import NotFoundException, Sandbox
from tupper.cli import _control, _output
from tupper.cli._options import SANDBOX, listing_options
from tupper.cli._sandboxes import info_of
from tupper.core.ids import is_sandbox_id


@click.group()
def snapshot() -> None:
    """Keep a sandbox as something that others start from."""


@snapshot.command()
@click.argument("sandbox", type=SANDBOX)
@click.option("--name", help="A name for it, perhaps with a tag: NAME:TAG.")
@listing_options
def create(*, sandbox: str, name: str | None, as_json: bool, quiet: bool) -> None:
    """Save SANDBOX, which goes on, and print the snapshot's id.

    tupper create --template ID (or NAME) then starts sandboxes that go on from there.
    """
    with _output.waiting(f"saving {sandbox}", quiet=quiet):
        made = Sandbox.create_snapshot(sandbox, name=name)
    if as_json:
        _output.as_json({"snapshot_id": made.snapshot_id, "names": made.names})
    else:
        _output.result(made.snapshot_id)


@snapshot.command(name="list")
@click.argument("sandbox", type=SANDBOX, required=False)
@listing_options
def list_snapshots(*, sandbox: str | None, as_json: bool, quiet: bool) -> None:
    """List all snapshots, or those of SANDBOX, also of one that ended."""
    if sandbox and not is_sandbox_id(sandbox):  # an id may be one that is long forgotten
        sandbox = info_of(sandbox).sandbox_id
    found = _control.list_snapshots(sandbox)
    if as_json:
        _output.as_json(found)
    elif quiet:
        for one in found:
            _output.result(str(one["snapshotID"]))
    else:
        _output.table(("ID", "NAMES", "SANDBOX", "MADE", "SIZE"), [_row(one) for one in found])


def _row(found: dict[str, object]) -> tuple[object, ...]:
    names, size = found.get("names"), found.get("sizeBytes")
    return (
        found["snapshotID"],
        ", ".join(map(str, names)) if isinstance(names, list) else "",  # pyright: ignore[reportUnknownArgumentType]
        found.get("sandboxID", ""),
        str(found.get("createdAt", ""))[:19],
        _output.size(size if isinstance(size, int) else None),
    )


@snapshot.command()
@click.argument("snapshots", nargs=-1, required=True)
def remove(*, snapshots: tuple[str, ...]) -> None:
    """Remove SNAPSHOTS by id or name; sandboxes that were started from them go on."""
    for name in snapshots:
        if not Sandbox.delete_snapshot(name):
            raise NotFoundException(
                f"there is no snapshot {name!r}", hint="tupper snapshot list shows them"
            )
        _output.result(name)
