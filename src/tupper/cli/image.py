"""``tupper image``: pull, list, remove, prune."""

from __future__ import annotations

import click

from tupper.cli import _control, _output
from tupper.cli._options import json_option, listing_options


@click.group()
def image() -> None:
    """Pull, list and remove images."""


@image.command()
@click.argument("references", nargs=-1, required=True)
@listing_options
def pull(*, references: tuple[str, ...], as_json: bool, quiet: bool) -> None:
    """Bring REFERENCES into the store.

    A reference is a name with its registry (docker.io/library/alpine:latest), oci:DIRECTORY,
    oci-archive:FILE or docker-archive:FILE.
    """
    pulled: list[dict[str, object]] = []
    for reference in references:
        with _output.progress(quiet=quiet) as bar:
            pulled.append(_control.pull_image(reference, bar))
    if as_json:
        _output.as_json(pulled)
    else:
        for found in pulled:
            _output.result(str(found.get("digest", "")))


@image.command(name="list")
@listing_options
def list_images(*, as_json: bool, quiet: bool) -> None:
    """List images in the store."""
    images = _control.list_images()
    if as_json:
        _output.as_json(images)
    elif quiet:
        for found in images:
            _output.result(str(found["digest"]))
    else:
        _output.table(("DIGEST", "SIZE", "USED", "REFERENCES"), [_row(found) for found in images])


def _row(found: dict[str, object]) -> tuple[object, ...]:
    size, references = found.get("sizeBytes"), found.get("references")
    return (
        str(found["digest"]).removeprefix("sha256:")[:12],
        _output.size(size if isinstance(size, int) else None),
        "yes" if found.get("inUse") else "no",
        ", ".join(map(str, references)) if isinstance(references, list) else "",  # pyright: ignore[reportUnknownArgumentType]
    )


@image.command()
@click.argument("references", nargs=-1, required=True)
def remove(*, references: tuple[str, ...]) -> None:
    """Remove images by reference or digest; one that a sandbox uses stays."""
    for reference in references:
        _control.remove_image(reference)
        _output.result(reference)


@image.command()
@json_option
def prune(*, as_json: bool) -> None:
    """Remove all images that no sandbox and no template uses."""
    pruned = _control.prune_images()
    if as_json:
        _output.as_json(pruned)
        return
    removed, freed = pruned.get("removed"), pruned.get("freedBytes")
    count = len(removed) if isinstance(removed, list) else 0  # pyright: ignore[reportUnknownArgumentType]
    _output.result(
        f"removed {count} images, {_output.size(freed if isinstance(freed, int) else 0)}"
    )
