"""From the arguments of create to the body of the request."""

import math

import pytest

from tupper import InvalidArgumentException, Mount, UnsupportedException
from tupper.sdk._shared.create import (
    Creation,
    parse_mib,
    parse_mounts,
    parse_ports,
    parse_volumes,
    render_creation,
)


def test_the_least_that_can_be_said():
    assert render_creation(Creation()) == {
        "templateID": "base",
        "timeout": 300,
        "metadata": {},
        "envVars": {},
    }


def test_our_extension():
    body = render_creation(
        Creation(
            image="alpine",
            memory="512m",
            disk="2GiB",
            cpus=0.5,
            labels={"a": "b"},
            metadata={"c": "d"},
            ports=[8000],
            idle_timeout=30,
            min_isolation="user-kernel",
            network={"deny_out": ["10.0.0.0/8"]},
            owner="process",
        )
    )
    ours = body["tupper"]
    assert ours["memoryMiB"] == 512
    assert ours["diskMiB"] == 2048
    assert ours["ports"] == [{"guest": 8000, "host": 0}]
    assert ours["minIsolation"] == "user-kernel"
    assert ours["ownerPid"] > 0
    assert ours["ownerStart"] > 0
    assert body["metadata"] == {"a": "b", "c": "d"}
    assert body["network"] == {"denyOut": ["10.0.0.0/8"]}


@pytest.mark.parametrize(
    ("size", "mib"),
    [(512, 512), ("512", 512), ("512m", 512), ("1GiB", 1024), ("1.5g", 1536), ("1 GB", 1024),
     ("1024k", 1), ("1500k", 2), ("2T", 2 * 2**20)],
)  # fmt: skip
def test_sizes(size, mib):
    assert parse_mib("memory", size) == mib


@pytest.mark.parametrize("size", ["", "much", "-1m", "1x", "0x10", True, None, "1e3"])
def test_sizes_that_are_none(size):
    with pytest.raises(InvalidArgumentException, match="memory"):
        parse_mib("memory", size)


def test_lifetimes():
    assert render_creation(Creation(timeout=math.inf))["timeout"] is None
    assert render_creation(Creation(timeout=1.2))["timeout"] == 2
    for bad in (0, -1, math.nan):
        with pytest.raises(InvalidArgumentException, match="timeout"):
            render_creation(Creation(timeout=bad))


def test_mounts_in_every_form(tmp_path):
    host = str(tmp_path)
    read_only = {"hostPath": host, "guestPath": "/d", "readOnly": True}
    read_write = read_only | {"readOnly": False}
    assert parse_mounts([Mount(tmp_path, "/d", read_only=True)]) == [read_only]
    assert parse_mounts([f"{host}:/d:ro", f"{host}:/d"]) == [read_only, read_write]
    assert parse_mounts([(tmp_path, "/d", "ro"), (host, "/d")]) == [read_only, read_write]
    assert parse_volumes({host: "/d"}) == [read_write]
    assert parse_volumes({host: {"bind": "/d", "mode": "ro"}}) == [read_only]


def test_mounts_are_relative_to_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    assert parse_volumes({"./data": "/d"})[0]["hostPath"] == str(tmp_path / "data")


@pytest.mark.parametrize(
    "spec", ["/nowhere/at/all:/d", "{host}:d", "{host}:/d:rx", "{host}", "a:b:c:d"]
)
def test_mounts_that_cannot_be(spec, tmp_path):
    with pytest.raises(InvalidArgumentException, match="mount"):
        parse_mounts([spec.format(host=tmp_path)])


def test_ports():
    assert parse_ports([80, "8080:81"]) == [{"guest": 80, "host": 0}, {"guest": 81, "host": 8080}]
    assert parse_ports({8080: 80}) == [{"guest": 80, "host": 8080}]
    for bad in ([0], [70000], ["x:80"], ["80:x"]):
        with pytest.raises(InvalidArgumentException):
            parse_ports(bad)


def test_a_profile_fills_what_is_open():
    defaults = {"template": "t", "image": "i", "memory": "1g", "cpus": 2}
    assert Creation(cpus=1).with_defaults(defaults).cpus == 1
    assert Creation(template="mine").with_defaults(defaults).image is None
    assert Creation(image="mine").with_defaults(defaults).template is None
    assert Creation().with_defaults(defaults).memory == "1g"


@pytest.mark.parametrize(
    ("lifecycle", "keys"),
    [
        ({"on_timeout": "kill"}, {"autoPause": False}),
        ({"on_timeout": "pause"}, {"autoPause": True}),
        (
            {"on_timeout": {"action": "pause"}, "auto_resume": True},
            {"autoPause": True, "autoResume": {"enabled": True}},
        ),
        (
            {"on_timeout": {"action": "pause", "mode": "filesystem"}},
            {"autoPause": True, "autoPauseMemory": False},
        ),
        ({"auto_resume": False}, {"autoResume": {"enabled": False}}),
    ],
)
def test_lifecycle_on_the_wire(lifecycle, keys):
    body = render_creation(Creation(lifecycle=lifecycle))
    assert {key: value for key, value in body.items() if key.startswith("auto")} == keys


@pytest.mark.parametrize(
    "lifecycle",
    [
        {"on_timeout": "sleep"},
        {"on_timeout": "kill", "auto_resume": True},
        {"on_timeout": {"action": "kill", "mode": "full"}},
        {"on_timeout": {"action": "pause", "mode": "half"}},
        {"on_timeout": {"action": "pause", "mode": "full", "keep_memory": True}},
        {"on_timeout": {"action": "pause", "keep_memory": False}, "auto_resume": True},
    ],
)
def test_lifecycles_that_contradict_themselves(lifecycle):
    with pytest.raises(InvalidArgumentException):
        render_creation(Creation(lifecycle=lifecycle))


def test_metadata_is_text():
    with pytest.raises(InvalidArgumentException, match="envs"):
        render_creation(Creation(envs={"A": 1}))


def test_an_owner_is_this_process_or_none():
    with pytest.raises(InvalidArgumentException, match="owner"):
        render_creation(Creation(owner="me"))


def test_functions_choose_addresses():
    network = {"allow_out": ["1.1.1.1"], "deny_out": lambda context: [context.all_traffic]}
    assert render_creation(Creation(network=network))["network"] == {
        "allowOut": ["1.1.1.1"],
        "denyOut": ["0.0.0.0/0"],
    }


def test_network_options_that_are_not_here():
    for key in ("rules", "egress_proxy", "dns_servers"):
        with pytest.raises(UnsupportedException, match=key):
            render_creation(Creation(network={key: ["x"]}))
        assert render_creation(Creation(network={key: None}))["network"] == {}
