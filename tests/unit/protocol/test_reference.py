"""References: what people write, and what they mean."""

from __future__ import annotations

import pytest

from tupper.core.errors import InvalidArgument
from tupper.protocol.reference import LocalPath, RegistryName, Stored, Transport, parse_reference

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("alpine", "docker.io/library/alpine:latest"),
        ("alpine:3.20", "docker.io/library/alpine:3.20"),
        ("user/app", "docker.io/user/app:latest"),
        ("docker.io/alpine", "docker.io/library/alpine:latest"),
        ("index.docker.io/library/alpine", "docker.io/library/alpine:latest"),
        ("docker://quay.io/a/b:1", "quay.io/a/b:1"),
        ("localhost/app", "localhost/app:latest"),
        ("localhost:5000/a/b/c", "localhost:5000/a/b/c:latest"),
        ("[::1]:5000/app:1", "[::1]:5000/app:1"),
        ("ghcr.io/o/r" + "@" + DIGEST, "ghcr.io/o/r@" + DIGEST),
        ("r.example/x:1@" + DIGEST, "r.example/x:1@" + DIGEST),
        ("a__b/c-d.e", "docker.io/a__b/c-d.e:latest"),
    ],
)
def test_names_at_registries(text, canonical):
    parsed = parse_reference(text)
    assert isinstance(parsed, RegistryName)
    assert parsed.canonical == canonical


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("oci:dir", LocalPath(Transport.OCI, "dir")),
        ("oci:/a/dir:tag", LocalPath(Transport.OCI, "/a/dir", "tag")),
        ("oci-archive:f.tar", LocalPath(Transport.OCI_ARCHIVE, "f.tar")),
        ("docker-archive:f.tar:app:1", LocalPath(Transport.DOCKER_ARCHIVE, "f.tar", "app:1")),
        ("docker-daemon:app:1", LocalPath(Transport.DOCKER_DAEMON, "app:1")),
        ("./x", LocalPath(None, "./x")),
        ("/abs/x", LocalPath(None, "/abs/x")),
        ("~/x", LocalPath(None, "~/x")),
        ("image.tar", LocalPath(None, "image.tar")),
        (DIGEST, Stored(DIGEST)),
    ],
)
def test_places_on_this_machine(text, expected):
    assert parse_reference(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "a b", "a\nb", "UPPER", "a:", "a:b:c", "a@sha256:12", "a@md5:" + "a" * 32, "oci:", "docker-daemon:",
        "-flag", "--tls-verify=false", "a//b", "a/", "/", "a/../b", "host:port/x", "é", "a:" + "t" * 129, "a" * 256, "http://x/y",
        "docker://", "x.example/", "a\x00b",
    ],
)  # fmt: skip
def test_what_is_no_reference(text):
    if text == "/":
        assert parse_reference(text) == LocalPath(None, "/")
        return
    with pytest.raises(InvalidArgument):
        parse_reference(text)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost:5000", True), ("127.0.0.1:5000", True), ("127.9.9.9", True), ("[::1]:5000", True),
        ("localhost.evil.example", False), ("127.0.0.1.evil.example", False), ("10.0.0.1:5000", False),
        ("docker.io", False), ("[2001:db8::1]:5000", False),
    ],
)  # fmt: skip
def test_plain_http_only_on_loopback(host, loopback):
    parsed = parse_reference(f"{host}/app")
    assert isinstance(parsed, RegistryName)
    assert parsed.is_loopback is loopback
