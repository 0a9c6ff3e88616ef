"""A real registry on loopback, and an image store per test."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest

from oci_writer import Layout
from tupper.images import Images, Limits

USER, PASSWORD = "somebody", "a secret for tests"


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="unpacking with owners needs root")


@dataclass
class Registry:
    """A registry that runs."""

    address: str
    log: Path
    blobs: Path
    process: subprocess.Popen

    def requests(self) -> str:
        return self.log.read_text(errors="replace")

    def push(self, layout: Layout, tag: str, name: str, *, everything: bool = True) -> str:
        """Push what ``layout`` published under a tag, with all platforms, unchanged."""
        argv = [
            "skopeo",
            "copy",
            "--insecure-policy",
            "--dest-tls-verify=false",
            "--preserve-digests",
        ]
        argv += ["--all"] if everything else []
        subprocess.run(
            [*argv, f"oci:{layout.path}:{tag}", f"docker://{self.address}/{name}"],
            check=True,
            capture_output=True,
        )
        return f"{self.address}/{name}"

    def put(self, layout: Layout, descriptor: dict, repository: str, tag: str) -> str:
        """Push by the registry's own API, for what no tool would push: odd types, nested indexes."""
        self._put_tree(layout, descriptor, repository)
        self._put_manifest(layout, descriptor, repository, tag)
        return f"{self.address}/{repository}:{tag}"

    def _put_tree(self, layout: Layout, descriptor: dict, repository: str) -> None:
        body = json.loads(layout.blob_path(descriptor["digest"]).read_bytes())
        for child in body.get("manifests", []):
            if layout.blob_path(child["digest"]).exists():
                self._put_tree(layout, child, repository)
                self._put_manifest(layout, child, repository, child["digest"])
        for blob in [body["config"], *body["layers"]] if "layers" in body else []:
            start = self._call("POST", f"/v2/{repository}/blobs/uploads/", b"")
            mark = "&" if "?" in start else "?"
            url = f"{start}{mark}digest={blob['digest']}"
            self._call(
                "PUT",
                url,
                layout.blob_path(blob["digest"]).read_bytes(),
                "application/octet-stream",
            )

    def _put_manifest(self, layout: Layout, descriptor: dict, repository: str, tag: str) -> None:
        data = layout.blob_path(descriptor["digest"]).read_bytes()
        self._call("PUT", f"/v2/{repository}/manifests/{tag}", data, descriptor["mediaType"])

    def _call(self, method: str, path: str, data: bytes, kind: str = "") -> str:
        url = path if path.startswith("http") else f"http://{self.address}{path}"
        request = urllib.request.Request(
            url, data, {"Content-Type": kind} if kind else {}, method=method
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.headers.get("Location", "")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_registry(directory: Path, auth: str = "") -> Registry:
    port = free_port()
    config = directory / "config.yml"
    config.write_text(
        f"""version: 0.1
log: {{level: info}}
storage:
  filesystem: {{rootdirectory: {directory / "data"}}}
  delete: {{enabled: true}}
http: {{addr: "127.0.0.1:{port}"}}
{auth}"""
    )
    log = directory / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["docker-registry", "serve", str(config)], stdout=out, stderr=out
        )
    deadline = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/", timeout=5):
                break
        except urllib.error.HTTPError:
            break  # 401: it answers
        except OSError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, "the registry does not answer"
    blobs = directory / "data/docker/registry/v2/blobs/sha256"
    return Registry(f"127.0.0.1:{port}", log, blobs, process)


@pytest.fixture
def registry(tmp_path):
    if shutil.which("docker-registry") is None:
        pytest.skip("docker-registry is not installed")
    directory = tmp_path / "registry"
    directory.mkdir()
    running = start_registry(directory)
    yield running
    running.process.terminate()
    running.process.wait(20)


@pytest.fixture
def private_registry(tmp_path):
    if shutil.which("docker-registry") is None:
        pytest.skip("docker-registry is not installed")
    bcrypt = pytest.importorskip("bcrypt", reason="bcrypt makes the registry's password file")
    directory = tmp_path / "private"
    directory.mkdir()
    hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
    (directory / "htpasswd").write_text(f"{USER}:{hashed}\n")
    running = start_registry(
        directory, f"auth: {{htpasswd: {{realm: tests, path: {directory / 'htpasswd'}}}}}\n"
    )
    yield running
    running.process.terminate()
    running.process.wait(20)


def auth_file(path: Path, address: str) -> Path:
    token = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    path.write_text(json.dumps({"auths": {address: {"auth": token}}}))
    return path


@pytest.fixture
def images(tmp_path):
    return Images(tmp_path / "data", tmp_path / "cache", limits=Limits(min_free_bytes=0))


@pytest.fixture
def layout(tmp_path):
    return Layout(tmp_path / "layout")
