"""Package sources: both formats, and only the distribution's own."""

from __future__ import annotations

import pytest

from tupper.core.errors import Unavailable
from tupper.images.aptsources import AptSource, find_distribution

KEY = "/usr/share/keyrings/debian-archive-keyring.gpg"
DEB822 = f"""# a comment
Types: deb deb-src
URIs: http://mirror.invalid/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: {KEY}

Types: deb
URIs: http://mirror.invalid/debian-security
Suites: bookworm-security
Components: main
Signed-By: {KEY}

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main
Signed-By: {KEY}

Types: deb
URIs: https://deb.nodesource.com/node_20.x
Suites: nodistro
Components: main
Signed-By: /usr/share/keyrings/nodesource.gpg
"""
ONE_LINE = """deb https://user:word@mirror.example/debian bookworm main
deb-src http://mirror.example/debian bookworm main
deb [arch=amd64 signed-by=/etc/apt/keyrings/docker.asc] https://download.docker.com/linux/debian bookworm stable
deb [signed-by=/etc/apt/keyrings/x.asc] https://third.example/debian bookworm main # no
deb https://third.example/tool bookworm main
"""


def machine(tmp_path, release="ID=debian\nVERSION_CODENAME=bookworm\n", **files):
    (tmp_path / "etc/apt/sources.list.d").mkdir(parents=True)
    (tmp_path / "etc/os-release").write_text(release)
    for name, text in files.items():
        place = "sources.list" if name == "main" else f"sources.list.d/{name.replace('_', '.')}"
        (tmp_path / "etc/apt" / place).write_text(text)
    return tmp_path


def test_both_formats_and_no_third_parties(tmp_path):
    found = find_distribution(machine(tmp_path, main=ONE_LINE, debian_sources=DEB822))
    assert found.codename == "bookworm"
    assert [source.render() for source in found.sources] == [
        "deb https://user:word@mirror.example/debian bookworm main",
        f"deb [signed-by={KEY}] http://mirror.invalid/debian bookworm main",
        f"deb [signed-by={KEY}] http://mirror.invalid/debian bookworm-updates main",
        f"deb [signed-by={KEY}] http://mirror.invalid/debian-security bookworm-security main",
    ]


def test_passwords_stay_out_of_the_result():
    source = AptSource("https://user:word@mirror.example:8/debian", "bookworm", ("main",))
    assert source.without_secrets().uri == "https://mirror.example:8/debian"


def test_ubuntu_has_universe(tmp_path):
    text = "deb http://archive.ubuntu.com/ubuntu noble main restricted universe multiverse\n"
    found = find_distribution(
        machine(tmp_path, "ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=noble\n", main=text)
    )
    assert found.sources[0].components == ("main", "universe")


def test_other_systems_are_told_what_to_do(tmp_path):
    with pytest.raises(Unavailable) as failure:
        find_distribution(machine(tmp_path, "ID=fedora\n"))
    assert "image" in (failure.value.hint or "")


def test_a_machine_without_sources(tmp_path):
    with pytest.raises(Unavailable, match="no mirror for bookworm"):
        find_distribution(machine(tmp_path, main="deb cdrom:[x]/ bookworm main\n"))
