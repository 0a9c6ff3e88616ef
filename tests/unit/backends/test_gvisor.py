import json
import os
from pathlib import Path, PurePosixPath

import pytest

from tupper.backends.gvisor.bundle import AGENT_PATH, Layout, render_command, render_config
from tupper.backends.gvisor.options import Options, Platform, parse_options
from tupper.backends.gvisor.probing import choose
from tupper.backends.gvisor.program import parse_version
from tupper.backends.gvisor.setup import (
    Source,
    candidate_sources,
    parse_source_line,
    parse_source_stanza,
    read_sources,
    render_source,
)
from tupper.backends.gvisor.skeleton import build_skeleton, resolve_inside, sudo_places
from tupper.backends.gvisor.trial import Trial, parse_ldd
from tupper.core.backend import Attachment, ImageConfig, MachinePlan, Mount, Rootfs
from tupper.core.errors import InvalidArgument


def plan(tmp_path, **changes):
    values = {
        "sandbox_id": "i" + "a" * 20,
        "host_name": "t-1",
        "directory": tmp_path,
        "rootfs": Rootfs("sha256:0", Path("/store/root"), ImageConfig()),
        "disk_image": tmp_path / "disk",
        "disk_mib": 100,
        "attachment": Attachment(netns="ns1"),
        "mounts": (Mount(Path("/host/data"), "/data", read_only=True),),
        "cpus": 1.0,
        "memory_mib": 256,
        "pids": 10,
        "hostname": "box",
        "agent_binary": Path("/bin/agent"),
        "agent_config": {"accessToken": "t", "listen": "tcp:0.0.0.0:1"},
    }
    return MachinePlan(**{**values, **changes})


@pytest.mark.parametrize(
    ("given", "settings", "expected"),
    [
        ({}, False, Options()),
        ({"platform": "ptrace"}, False, Options(Platform.PTRACE)),
        ({"platform": "auto"}, True, Options()),
        ({"runsc": "/opt/runsc"}, True, Options(None, "/opt/runsc")),
    ],
)
def test_options(given, settings, expected):
    assert parse_options(given, settings=settings) == expected


@pytest.mark.parametrize(
    ("given", "settings", "hint"),
    [
        ({"platfrom": "ptrace"}, False, "did you mean 'platform'?"),
        ({"runsc": "/opt/runsc"}, False, "its options are: platform"),  # never from a caller
        ({"platform": "systrab"}, False, "did you mean 'systrap'?"),
        ({"platform": 7}, False, "choose from"),
    ],
)
def test_refused_options(given, settings, hint):
    with pytest.raises(InvalidArgument) as caught:
        parse_options(given, settings=settings)
    assert hint in (caught.value.hint or "")


def test_config_gives_the_guest_no_more_than_it_needs(tmp_path):
    config = json.loads(
        render_config(plan(tmp_path), Layout(tmp_path), sudo=["/usr/bin/sudo"], etc={})
    )
    process = config["process"]
    for held in process["capabilities"].values():
        assert not {"CAP_SYS_ADMIN", "CAP_NET_RAW", "CAP_SYS_MODULE", "CAP_NET_ADMIN"} & set(held)
    assert set(process["capabilities"]) == {"bounding", "effective", "permitted"}
    mounts = {mount["destination"]: mount for mount in config["mounts"]}
    assert mounts["/data"]["options"] == ["rbind", "ro"]
    assert mounts[AGENT_PATH]["options"] == ["rbind", "ro"]
    assert mounts["/usr/bin/sudo"]["source"] == "/bin/agent"
    assert "/tmp" not in mounts  # it is on the disk, with its limit
    assert config["root"]["path"] == str(Layout(tmp_path).root)
    agent = json.loads(process["env"][-1].partition("=")[2])
    assert agent == {"accessToken": "t", "listen": "unix:/run/tupper/agent.sock"}


def test_command(tmp_path):
    command = render_command(Path("/r"), Platform.PTRACE, plan(tmp_path), Layout(tmp_path))
    assert "--network=sandbox" in command
    assert f"--overlay2=root:dir={tmp_path}/disk" in command
    assert "--net-disconnect-ok" in command
    offline = plan(tmp_path, attachment=None, disk_image=None)
    command = render_command(Path("/r"), Platform.PTRACE, offline, Layout(tmp_path))
    assert "--network=none" in command
    assert "--overlay2=none" in command


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "root"
    for name in ("etc", "run", "usr/bin", "usr/local/bin", "real"):
        (root / name).mkdir(parents=True)
    return root


@pytest.mark.parametrize(
    ("link", "target", "path", "expected"),
    [
        ("var", "real", "/var/x", "real/x"),
        ("var", "/real", "/var/x", "real/x"),
        ("var", "../../../../real", "/var/x", "real/x"),
        ("var", "/etc/../../../real", "/var/x", "real/x"),
        ("var", "/nowhere", "/var/x", "nowhere/x"),
        ("etc/x", "/real/y", "/etc/x/z", "real/y/z"),
    ],
)
def test_tb035_links_stay_inside(root, link, target, path, expected):
    (root / link).symlink_to(target)
    assert resolve_inside(root, path) == PurePosixPath(expected)


@pytest.mark.parametrize("target", ["loop", "/loop", "loop/loop"])
def test_links_in_a_circle_are_refused(root, target):
    (root / "loop").symlink_to(target)
    with pytest.raises(InvalidArgument, match="circle"):
        resolve_inside(root, "/loop/x")


def test_path_below_a_file_is_refused(root):
    (root / "etc" / "hosts").write_text("")
    with pytest.raises(InvalidArgument, match="below a file"):
        resolve_inside(root, "/etc/hosts/x")


def test_tb035_hostile_links_do_not_make_the_host_write_elsewhere(root, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "victims").mkdir()
    (root / "etc" / "resolv.conf").symlink_to(victim)
    (root / "etc" / "hosts").symlink_to("../" * 20 + str(victim))
    (root / "run").rmdir()
    (root / "run").symlink_to(tmp_path / "victims")
    skeleton = tmp_path / "skeleton"
    skeleton.mkdir()
    build_skeleton(
        skeleton,
        root,
        directories=["/run/tupper", "/proc"],
        files={"/etc/resolv.conf": "ours", "/etc/hosts": "ours", "/.tupper/agent": None},
    )
    assert victim.read_text() == "mine"
    assert list((tmp_path / "victims").iterdir()) == []
    assert (skeleton / "etc" / "resolv.conf").read_text() == "ours"
    assert not (skeleton / "etc" / "hosts").is_symlink()
    assert (skeleton / "proc").is_dir()
    assert (skeleton / ".tupper" / "agent").stat().st_size == 0
    assert sorted(p.name for p in (root / "etc").iterdir()) == ["hosts", "resolv.conf"]


def test_directories_keep_their_modes(root, tmp_path):
    (root / "etc").chmod(0o711)
    skeleton = tmp_path / "skeleton"
    skeleton.mkdir()
    build_skeleton(skeleton, root, directories=[], files={"/etc/hosts": "x"})
    assert (skeleton / "etc").stat().st_mode & 0o7777 == 0o711


def test_sudo_goes_where_a_shell_would_find_it(root):
    assert sudo_places(root) == ["/usr/local/bin/sudo"]
    (root / "usr" / "bin" / "sudo").write_text("")
    assert sudo_places(root) == ["/usr/local/bin/sudo", "/usr/bin/sudo"]
    os.rmdir(root / "usr" / "local" / "bin")
    assert sudo_places(root) == ["/usr/bin/sudo"]


def test_choice_of_platform():
    def trial(platform, start_ms, *, works=True):
        return Trial(platform, works=works, start_ms=start_ms)

    systrap, ptrace = trial(Platform.SYSTRAP, 9), trial(Platform.PTRACE, 5)
    broken = trial(Platform.SYSTRAP, 1, works=False)
    assert choose([ptrace, systrap], None) == systrap
    assert choose([ptrace, broken], None) == ptrace
    assert choose([ptrace, systrap], Platform.PTRACE) == ptrace
    assert choose([broken], Platform.SYSTRAP) is None
    assert choose([], None) is None


def test_versions_of_runsc():
    assert parse_version("runsc version release-20240729.0\nspec: 1.1.0") == "release-20240729.0"
    assert parse_version("segmentation fault") == ""


def test_ldd():
    text = """\tlinux-vdso.so.1 (0x00007ffd)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f1e)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f1f)
\tlibgone.so => not found"""
    assert parse_ldd(text) == ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]
    assert parse_ldd("\tnot a dynamic executable") == []


DEBIAN = """# comment
Types: deb deb-src
URIs: http://mirror.example/debian/
Suites: bookworm bookworm-updates
Components: main
 contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""


def test_sources_in_both_formats(tmp_path):
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list").write_text(
        "# deb http://off.example/debian x main\n"
        "deb [arch=amd64 signed-by=/k.gpg] http://one.example/ubuntu noble main universe # why\n"
        "deb-src http://one.example/ubuntu noble main\n"
    )
    (tmp_path / "sources.list.d" / "debian.sources").write_text(
        f"{DEBIAN}\nEnabled: no\n{DEBIAN}\n"
    )
    (tmp_path / "sources.list.d" / "bad.sources").write_bytes(b"\xff\xfe: \n")
    found = read_sources(tmp_path)
    assert found[0] == Source("http://one.example/ubuntu", "noble", ("main", "universe"), "/k.gpg")
    assert [source.suite for source in found[1:]] == ["bookworm", "bookworm-updates"]
    assert found[1].uri == "http://mirror.example/debian"
    assert found[1].components == ("main", "contrib")


def test_newer_suites_come_from_the_same_mirror_with_the_same_key():
    known = [
        *parse_source_stanza(DEBIAN),
        *parse_source_line("deb http://security.example/debian-security bookworm-security main"),
        *parse_source_line("deb https://vendor.example/apt nodistro main"),
    ]
    found = candidate_sources(known)
    assert {source.uri for source in found} == {"http://mirror.example/debian"}
    assert found[0].suite == "stable"
    assert render_source(found[0]) == (
        "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] "
        "http://mirror.example/debian stable main\n"
    )
