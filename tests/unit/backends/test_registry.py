import importlib.metadata
import sys
import types
from pathlib import Path

import pytest

from tupper.backends.gvisor import GVisor
from tupper.backends.registry import GROUP, installed, load_backends
from tupper.core.backend import Backend, BackendContext, Probe
from tupper.core.errors import BackendUnavailable


class Good(Backend):
    name = "good"

    def __init__(self, context):
        self.context = context

    async def probe(self):
        return Probe("good", usable=False, reason=str(dict(self.context.settings)))

    async def start(self, plan):
        raise NotImplementedError

    async def adopt(self, record):
        raise NotImplementedError


class Exploding(Good):
    name = "exploding"

    def __init__(self, context):
        raise RuntimeError("no such luck")


@pytest.fixture
def module(monkeypatch):
    module = types.ModuleType("some_plugin")
    module.Good, module.Exploding, module.number = Good, Exploding, 7
    monkeypatch.setitem(sys.modules, "some_plugin", module)


def contexts(**settings):
    return lambda name: BackendContext(Path("/data"), "e1", settings.get(name, {}))


def load(name, value, **settings):
    point = importlib.metadata.EntryPoint(name, value, GROUP)
    return load_backends(contexts(**settings), entry_points=[point])[name]


async def test_plugin_gets_its_settings(module):
    backend = load("good", "some_plugin:Good", good={"a": 1}, other={"b": 2})
    assert (await backend.probe()).reason == "{'a': 1}"


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("x", "no_such_module_anywhere:X", "ModuleNotFoundError"),
        ("x", "some_plugin:Missing", "AttributeError"),
        ("x", "some_plugin:number", "not a tupper backend"),
        ("exploding", "some_plugin:Exploding", "no such luck"),
        ("x", "some_plugin:Good", "does not call itself 'x'"),
    ],
)
async def test_broken_plugin_is_an_unusable_probe(module, name, value, reason):
    backend = load(name, value)
    probe = await backend.probe()
    assert (probe.backend, probe.usable) == (name, False)
    assert reason in probe.reason
    assert probe.remedy
    with pytest.raises(BackendUnavailable, match=name):
        await backend.start(None)


async def test_bad_settings_do_not_hide_other_backends(module):
    points = [
        importlib.metadata.EntryPoint("gvisor", "tupper.backends.gvisor:GVisor", GROUP),
        importlib.metadata.EntryPoint("good", "some_plugin:Good", GROUP),
    ]
    found = load_backends(contexts(gvisor={"platfrom": "x"}), entry_points=points)
    assert "platfrom" in (await found["gvisor"].probe()).reason
    assert isinstance(found["good"], Good)


def test_gvisor_is_a_backend_once_with_and_without_metadata(monkeypatch):
    assert isinstance(load_backends(contexts())["gvisor"], GVisor)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [])
    assert [point.name for point in installed()] == ["gvisor", "qemu"]
