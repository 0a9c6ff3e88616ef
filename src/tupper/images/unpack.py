"""The child process that unpacks: ``python -P -m tupper.images.unpack``.

Unpacking is a process of its own so that the background process stays responsive, so that it can
be ended at once, and so that an ordinary user's runs inside a user namespace, where it may give
files to other owners.

**Shape**: a JSON object on standard input, ``{"target", "layers": [{"path", "digest", "size",
"diff_id"}], "devices", "limits": {"entries", "size_bytes", "min_free_bytes"}}``, or
``{"target", "archive"}`` to take an OCI layout out of an archive; lines of JSON on standard
output: ``{"done_bytes"}`` now and then, and at last ``{"summary": {…}}`` or
``{"error": {"code", "message", "hint"}}``. The exit status is 0 in both cases.
"""

from __future__ import annotations

import json
import re
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tupper.core.errors import ImageRejected, OutOfDisk, TupperError
from tupper.images.blobs import DAMAGED, Blob, decompressed
from tupper.images.layers import LayerWriter, Limits, Summary
from tupper.images.tarstream import TarStream

_REPORT_EVERY_S = 0.2
_LAYOUT_FILE = re.compile(r"oci-layout|index\.json|blobs/sha256/[0-9a-f]{64}")
_ERRORS = {kind.code: kind for kind in (ImageRejected, OutOfDisk)}


@dataclass(frozen=True, slots=True)
class Layer:
    """A blob and what is promised about it; see :class:`tupper.images.blobs.Blob`."""

    path: Path
    digest: str
    size: int
    diff_id: str


def unpack(target: Path, layers: list[Layer], *, limits: Limits, devices: bool) -> Summary:
    """Apply the layers to an empty directory and report to standard output."""
    report = _Reporter()
    writer = LayerWriter(target, limits=limits, devices=devices)
    try:
        for layer in layers:
            blob = Blob(layer.path, layer.digest, layer.size, layer.diff_id)
            blob.read_through(writer.apply, report.at)
            report.finish_layer(max(layer.size, 0))
    finally:
        writer.close()
    return writer.summary


class _Reporter:
    """Writes progress, not more often than anyone can see."""

    def __init__(self) -> None:
        self._before = 0
        self._last = 0.0

    def at(self, done: int) -> None:
        now = time.monotonic()
        if now - self._last >= _REPORT_EVERY_S:
            self._last = now
            _say({"done_bytes": self._before + done})

    def finish_layer(self, size: int) -> None:
        self._before += size


def render_request(target: Path, layers: list[Layer], *, limits: Limits, devices: bool) -> bytes:
    """What :func:`main` reads."""
    listed = [{**asdict(layer), "path": str(layer.path)} for layer in layers]
    body = {"target": str(target), "layers": listed, "devices": devices, "limits": asdict(limits)}
    return json.dumps(body).encode()


def render_extract(archive: Path, target: Path) -> bytes:
    """What :func:`main` reads, for :func:`extract_layout`."""
    return json.dumps({"target": str(target), "archive": str(archive)}).encode()


def extract_layout(archive: Path, target: Path) -> Summary:
    """Take the files of an OCI layout out of an archive; nothing else is written."""
    summary = Summary()
    (target / "blobs" / "sha256").mkdir(parents=True)
    with archive.open("rb", buffering=0) as file:
        stream = TarStream(decompressed(file))
        for entry in stream:
            name = entry.name.removeprefix(b"./").decode("ascii", "replace")
            if entry.kind == "0" and _LAYOUT_FILE.fullmatch(name):
                with (target / name).open("wb") as out:
                    for chunk in stream.data():
                        out.write(chunk)
                summary.entries += 1
    return summary


def error_from_line(value: dict[str, str]) -> TupperError:
    """The error that a child reported."""
    kind = _ERRORS.get(value["code"], ImageRejected)
    return kind(value["message"], hint=value.get("hint"))


def main() -> None:
    """Do what standard input asks for."""
    request = json.loads(sys.stdin.buffer.read())
    try:
        summary = _serve(request)
    except (ImageRejected, OutOfDisk) as error:
        _say({"error": {"code": error.code, "message": error.message, "hint": error.hint}})
    except DAMAGED as error:
        _say({"error": {"code": ImageRejected.code, "message": f"damaged: {error}"}})
    else:
        _say({"summary": asdict(summary)})


def _serve(request: dict[str, Any]) -> Summary:
    target = Path(request["target"])
    if "archive" in request:
        return extract_layout(Path(request["archive"]), target)
    layers = [
        Layer(Path(item["path"]), item["digest"], item["size"], item["diff_id"])
        for item in request["layers"]
    ]
    limits = Limits(**request["limits"])
    return unpack(target, layers, limits=limits, devices=request["devices"])


def _say(value: dict[str, object]) -> None:
    print(json.dumps(value), flush=True)  # noqa: T201 - this is the protocol


if __name__ == "__main__":
    main()
