"""Which runsc is used, and how one is got."""

import hashlib
import http.server
import platform
import threading

import pytest

from backend_parts import remove, shared_data_dir, temporary
from tupper.backends.gvisor import GVisor
from tupper.backends.gvisor.program import private_copy
from tupper.backends.gvisor.setup import fetch_package, fetch_release, setup
from tupper.core.backend import BackendContext
from tupper.core.errors import BackendUnavailable, ProgramFailed

pytestmark = pytest.mark.root


@pytest.fixture
def top():
    place = temporary("tg-")
    yield place
    remove(place)


def fake_runsc(path, body):
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo runsc version 9 && exit\n{body}\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def release():
    """A server on the loopback that offers what ``files`` holds."""
    files = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            content = files.get(self.path)
            self.send_response(200 if content is not None else 404)
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", files
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("good", [True, False])
async def test_release_must_have_its_published_digest(release, top, good):
    url, files = release
    name = f"/{platform.machine()}/runsc"
    files[name] = b"program"
    digest = hashlib.sha512(b"program" if good else b"other").hexdigest()
    files[f"{name}.sha512"] = f"{digest}  runsc\n".encode()
    if good:
        await fetch_release(top, base_url=url)
        assert (top / "runsc").read_bytes() == b"program"
    else:
        with pytest.raises(ProgramFailed, match="SHA-512"):
            await fetch_release(top, base_url=url)


async def test_release_that_cannot_be_reached_is_told(release, top):
    url, _ = release
    with pytest.raises(OSError, match="404"):
        await fetch_release(top, base_url=url)


async def test_no_mirror_is_told(top):
    with pytest.raises(ProgramFailed, match="no Debian or Ubuntu mirror"):
        await fetch_package(top, etc_apt=top)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("echo 'flag provided but not defined' >&2; exit 2", "flag provided but not defined"),
        ("echo broken", "too old"),
        ("true", "not get ready"),
    ],
)
async def test_runsc_that_cannot_run_a_guest_is_refused(top, body, reason):
    runsc = fake_runsc(top / "runsc", body)
    backend = GVisor(BackendContext(top / "data", "t", {"runsc": str(runsc)}))
    probe = await backend.probe()
    assert not probe.usable
    assert reason in probe.reason
    assert probe.remedy
    assert [p.name for p in (top / "data" / "backends" / "gvisor").iterdir()] == ["probe.json"]


async def test_missing_runsc_of_the_settings_is_never_replaced(top):
    context = BackendContext(top / "data", "t", {"runsc": str(top / "gone")})
    probe = await GVisor(context).probe()
    assert not probe.usable
    assert "gone" in probe.reason


async def test_setup_is_safe_to_repeat_and_uses_what_works():
    context = BackendContext(shared_data_dir(), "t", {})
    try:
        first = await setup(context, progress=lambda _: None)
    except BackendUnavailable as error:
        pytest.skip(f"no runsc can be had here: {error.message}")
    again = await setup(context, progress=lambda _: None)
    assert again.startswith("uses ")
    assert "gVisor" in first
    backend = GVisor(context)
    assert (await backend.probe()).usable


async def test_setup_repairs_a_broken_private_copy(top, monkeypatch):
    """A file that was cut short is replaced, in one step, by one that has run a guest."""
    from tupper.backends.gvisor import setup as module

    source = private_copy(shared_data_dir() / "backends" / "gvisor")
    if not source.exists():
        pytest.skip("there is no private copy of runsc to try this with")
    home = top / "data" / "backends" / "gvisor"
    home.mkdir(parents=True)
    (home / "runsc").write_bytes(source.read_bytes()[:100000])
    (home / "runsc").chmod(0o755)

    async def from_here(into):
        (into / "runsc").write_bytes(source.read_bytes())
        return "installed a copy"

    monkeypatch.setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
    monkeypatch.setattr(module, "fetch_release", from_here)
    said = await setup(BackendContext(top / "data", "t", {}), progress=lambda _: None)
    assert said.startswith("installed a copy")
    assert sorted(p.name for p in home.iterdir()) == ["probe.json", "runsc"]
