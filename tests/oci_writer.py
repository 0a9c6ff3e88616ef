"""Writes small OCI images for tests: layers from lists of entries, layouts, indexes, archives."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

OCI = "application/vnd.oci.image."
DOCKER = "application/vnd.docker."


@dataclass(frozen=True)
class Item:
    """One entry of a layer; ``kind`` as in tar."""

    name: str
    data: bytes = b""
    kind: bytes = tarfile.REGTYPE
    link: str = ""
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    mtime: float = 1_700_000_000
    device: tuple[int, int] = (0, 0)
    pax: dict[str, str] = field(default_factory=dict)


def directory(name: str, mode: int = 0o755, **keys) -> Item:
    return Item(name, kind=tarfile.DIRTYPE, mode=mode, **keys)


def symlink(name: str, target: str) -> Item:
    return Item(name, kind=tarfile.SYMTYPE, link=target, mode=0o777)


def hard_link(name: str, target: str) -> Item:
    return Item(name, kind=tarfile.LNKTYPE, link=target)


def make_tar(items: Sequence[Item], *, style: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=style) as archive:
        for item in items:
            info = tarfile.TarInfo(item.name)
            info.type, info.linkname, info.mode = item.kind, item.link, item.mode
            info.uid, info.gid, info.mtime = item.uid, item.gid, item.mtime
            info.devmajor, info.devminor = item.device
            info.size = len(item.data)
            info.pax_headers = dict(item.pax)
            archive.addfile(info, io.BytesIO(item.data))
    return buffer.getvalue()


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def estargz(data: bytes) -> bytes:
    """Several gzip members, one after the other."""
    third = len(data) // 3
    return b"".join(
        gzip.compress(part) for part in (data[:third], data[third : 2 * third], data[2 * third :])
    )


COMPRESSIONS = {
    "plain": (lambda data: data, OCI + "layer.v1.tar"),
    "gzip": (gzip.compress, OCI + "layer.v1.tar+gzip"),
    "zstd": (zstd.compress, OCI + "layer.v1.tar+zstd"),
    "docker-zstd": (zstd.compress, DOCKER + "image.rootfs.diff.tar.zstd"),
    "wrong-type": (gzip.compress, OCI + "layer.v1.tar"),
    "estargz": (estargz, OCI + "layer.v1.tar+gzip"),
    "xz": (lzma.compress, OCI + "layer.v1.tar"),
    "bzip2": (bz2.compress, OCI + "layer.v1.tar"),
}


class Layout:
    """An OCI layout that grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "blobs" / "sha256").mkdir(parents=True)
        (path / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        self.index: list[dict] = []

    def blob(self, data: bytes) -> str:
        digest = digest_of(data)
        (self.path / "blobs" / "sha256" / digest.removeprefix("sha256:")).write_bytes(data)
        return digest

    def blob_path(self, digest: str) -> Path:
        return self.path / "blobs" / "sha256" / digest.removeprefix("sha256:")

    def document(self, value: dict, media_type: str) -> dict:
        data = json.dumps(value).encode()
        return {"mediaType": media_type, "digest": self.blob(data), "size": len(data)}

    def image(
        self,
        layers: Sequence[Sequence[Item] | bytes],
        *,
        compression: str = "gzip",
        config: dict | None = None,
        platform: tuple[str, str] = ("linux", "amd64"),
        docker: bool = False,
    ) -> dict:
        """Add a manifest; returns its descriptor with its platform."""
        compress, layer_type = COMPRESSIONS[compression]
        if docker and compression == "gzip":
            layer_type = DOCKER + "image.rootfs.diff.tar.gzip"
        described, diff_ids = [], []
        for layer in layers:
            plain = layer if isinstance(layer, bytes) else make_tar(layer)
            data = compress(plain)
            diff_ids.append(digest_of(plain))
            described.append(
                {"mediaType": layer_type, "digest": self.blob(data), "size": len(data)}
            )
        body = {
            "architecture": platform[1],
            "os": platform[0],
            "config": config or {},
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        }
        config_type = DOCKER + "container.image.v1+json" if docker else OCI + "config.v1+json"
        manifest_type = (
            DOCKER + "distribution.manifest.v2+json" if docker else OCI + "manifest.v1+json"
        )
        manifest = {
            "schemaVersion": 2,
            "mediaType": manifest_type,
            "config": self.document(body, config_type),
            "layers": described,
        }
        descriptor = self.document(manifest, manifest_type)
        return {**descriptor, "platform": {"os": platform[0], "architecture": platform[1]}}

    def nested(self, entries: Sequence[dict], *, docker: bool = False) -> dict:
        """Add an index over the entries; returns its descriptor, without a platform."""
        kind = DOCKER + "distribution.manifest.list.v2+json" if docker else OCI + "index.v1+json"
        return self.document(
            {"schemaVersion": 2, "mediaType": kind, "manifests": list(entries)}, kind
        )

    def publish(self, descriptor: dict, tag: str = "latest") -> str:
        """List it in ``index.json``; returns a reference."""
        self.index.append({**descriptor, "annotations": {"org.opencontainers.image.ref.name": tag}})
        body = {"schemaVersion": 2, "manifests": self.index}
        (self.path / "index.json").write_text(json.dumps(body))
        return f"oci:{self.path}:{tag}"

    def archive(self, path: Path) -> Path:
        with tarfile.open(path, "w") as archive:
            for file in sorted(self.path.rglob("*")):
                archive.add(file, str(file.relative_to(self.path)), recursive=False)
        return path


def docker_archive(
    path: Path, layers: Sequence[Sequence[Item]], *, name: str, config: dict | None = None
) -> Path:
    """What ``docker save`` wrote before version 25."""
    tars = [make_tar(layer) for layer in layers]
    body = {
        "architecture": "amd64",
        "os": "linux",
        "config": config or {},
        "rootfs": {"type": "layers", "diff_ids": [digest_of(data) for data in tars]},
    }
    raw = json.dumps(body).encode()
    config_name = digest_of(raw).removeprefix("sha256:") + ".json"
    names = [f"{digest_of(data)[7:]}/layer.tar" for data in tars]
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": names}]
    files = {
        config_name: raw,
        **dict(zip(names, tars, strict=True)),
        "manifest.json": json.dumps(manifest).encode(),
    }
    path.write_bytes(make_tar([Item(key, value) for key, value in files.items()]))
    return path
