"""Fixtures with real machines."""

import os
import shutil
from pathlib import Path

import pytest

from integration.engine.host import Host, why_not
from prepared import link_home


@pytest.fixture(scope="module")
def host():
    if reason := why_not():
        pytest.skip(reason)
    home = Path(os.environ["TUPPER_HOME"]) / "eng"
    link_home(home.parent, home, without={"code-interpreter"})
    host = Host(home)
    host.start()
    yield host
    with host.client() as http:
        for sandbox in http.get("/v2/sandboxes").json():
            http.delete(f"/sandboxes/{sandbox['sandboxID']}")
    host.process.terminate()
    host.process.wait(20)
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def http(host):
    with host.client() as client:
        yield client
    with host.client() as client:
        for sandbox in client.get("/v2/sandboxes").json():
            client.delete(f"/sandboxes/{sandbox['sandboxID']}")
