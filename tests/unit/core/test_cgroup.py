import errno
from pathlib import Path

import pytest

from tupper.core import cgroup
from tupper.core.cgroup import Cgroup, Hierarchy, Limits, find_hierarchy

V1 = """cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0
"""


def test_version_1_is_found():
    found = find_hierarchy(V1)
    assert found.version == 1
    assert found.roots["memory"] == Path("/sys/fs/cgroup/memory")
    group = Cgroup.named(found, "x")
    assert group.paths == (
        Path("/sys/fs/cgroup/memory/x"),
        Path("/sys/fs/cgroup/cpu,cpuacct/x"),
    )


def test_version_2_wins_only_with_the_memory_controller(tmp_path):
    mounts = V1 + f"cgroup2 {tmp_path} cgroup2 rw 0 0\n"
    (tmp_path / "cgroup.controllers").write_text("hugetlb\n")
    assert find_hierarchy(mounts).version == 1
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    assert find_hierarchy(mounts).version == 2


def test_none():
    assert find_hierarchy("proc /proc proc rw 0 0\n") is None


@pytest.fixture
def unified(tmp_path):
    """Files as the kernel would make them."""
    group = tmp_path / "tupper" / "x"
    group.mkdir(parents=True)
    for name in ("memory.max", "memory.swap.max", "cpu.max"):
        (group / name).write_text("max")
    (group / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    (group / "memory.current").write_text("4096\n")
    (group / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    return Hierarchy(2, {"memory": tmp_path, "cpu": tmp_path})


def test_limits_and_numbers_of_version_2(unified, tmp_path):
    group = Cgroup.create(unified, "x", Limits(memory_bytes=1 << 20, cpus=0.5))
    directory = tmp_path / "tupper" / "x"
    assert (directory / "memory.max").read_text() == "1048576"
    assert (directory / "memory.swap.max").read_text() == "0"
    assert (directory / "cpu.max").read_text() == "50000 100000"
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu"
    assert group.oom_kills() == 2
    assert group.memory_bytes() == 4096
    assert group.cpu_s() == 2.5


def test_a_limit_that_every_processor_keeps_is_left_out(unified, tmp_path, monkeypatch):
    monkeypatch.setattr(cgroup.os, "cpu_count", lambda: 2)
    Cgroup.create(unified, "x", Limits(cpus=2.0))
    assert (tmp_path / "tupper" / "x" / "cpu.max").read_text() == "max"
    Cgroup.create(unified, "x", Limits(cpus=1.9))
    assert (tmp_path / "tupper" / "x" / "cpu.max").read_text() == "190000 100000"


def test_numbers_of_version_1(tmp_path):
    (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    (tmp_path / "cpuacct.usage").write_text("1500000000\n")
    group = Cgroup(1, (tmp_path,))
    assert group.oom_kills() == 1
    assert group.cpu_s() == 1.5


def test_a_group_of_version_1_is_at_the_top_or_where_an_earlier_version_made_it(tmp_path):
    roots = {name: tmp_path / name for name in ("memory", "cpu")}
    for root in roots.values():
        (root / "tupper" / "t-old").mkdir(parents=True)
    hierarchy = Hierarchy(1, roots)
    new = Cgroup.create(hierarchy, "t-new", Limits())
    assert new.paths == tuple(root / "t-new" for root in roots.values())
    old = Cgroup.named(hierarchy, "t-old")
    assert old.paths == tuple(root / "tupper" / "t-old" for root in roots.values())
    assert Cgroup.find(hierarchy, "t-") == {"t-new": new, "t-old": old}
    assert [group.remove() for group in (new, old)] == [[], []]
    assert Cgroup.find(hierarchy, "t-") == {}


def test_groups_of_version_2_are_below_one(tmp_path):
    hierarchy = Hierarchy(2, {"memory": tmp_path, "cpu": tmp_path})
    (tmp_path / "t-other").mkdir()
    group = Cgroup.create(hierarchy, "t-x", Limits())
    assert group.paths == (tmp_path / "tupper" / "t-x",)
    assert Cgroup.find(hierarchy, "t-")["t-x"] == group


def test_a_group_that_is_gone_has_nothing(tmp_path):
    group = Cgroup(2, (tmp_path / "gone",))
    assert (group.pids(), group.oom_kills(), group.memory_bytes(), group.cpu_s()) == (
        set(),
        0,
        0,
        0,
    )
    assert group.remove() == []


def busy(monkeypatch, times):
    """A group that the kernel says is busy, so many times."""
    tries = []

    def rmdir(self):
        tries.append(self)
        if len(tries) <= times:
            raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr(Path, "rmdir", rmdir)
    return tries


def test_a_group_whose_last_threads_still_end_is_removed(tmp_path, monkeypatch):
    (tmp_path / "cgroup.procs").write_text("")
    tries = busy(monkeypatch, 2)
    assert Cgroup(2, (tmp_path,)).remove() == []
    assert len(tries) == 3


def test_a_group_with_processes_is_not_waited_for(tmp_path, monkeypatch):
    (tmp_path / "cgroup.procs").write_text("17\n")
    tries = busy(monkeypatch, 2)
    assert [error.errno for error in Cgroup(2, (tmp_path,)).remove()] == [errno.EBUSY]
    assert len(tries) == 1


def test_a_group_that_stays_busy_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(cgroup, "_EMPTIES_S", 0.0)
    busy(monkeypatch, 1_000_000)
    assert [error.errno for error in Cgroup(2, (tmp_path,)).remove()] == [errno.EBUSY]


def test_joining_enters_all_and_becomes_the_program(tmp_path):
    group = Cgroup(1, (tmp_path / "a", tmp_path / "b"))
    argv = group.joining(["prog", "--flag"])
    assert argv[:2] == ["/bin/sh", "-c"]
    files = [str(tmp_path / name / "cgroup.procs") for name in ("a", "b")]
    assert argv[3:] == ["sh", "2", *files, "prog", "--flag"]


def test_a_thread_enters_a_group_of_version_1_and_what_it_starts_is_inside(tmp_path):
    paths = (tmp_path / "memory" / "x", tmp_path / "cpu" / "tupper" / "x")
    for path in paths:
        path.mkdir(parents=True)
    group = Cgroup(1, paths)
    with group.holding_thread() as inside:
        assert inside
        assert [(path / "tasks").read_text() for path in paths] == ["0", "0"]
        assert not (tmp_path / "memory" / "tasks").exists()
    assert (tmp_path / "memory" / "tasks").read_text() == "0"
    assert (tmp_path / "cpu" / "tasks").read_text() == "0"
    assert group.joining(["prog"], inside=True)[3:] == ["sh", "0", "prog"]


def test_no_thread_enters_a_group_of_version_2(tmp_path):
    with Cgroup(2, (tmp_path / "gone",)).holding_thread() as inside:
        assert not inside
