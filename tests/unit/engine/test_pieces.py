"""The small parts of the engine, each by itself."""

import asyncio
import base64
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tupper.core.backend import Mount, Usage
from tupper.core.errors import InvalidArgument, NotFound
from tupper.core.lifecycle import State
from tupper.core.sandbox import CreateRequest, SandboxRecord
from tupper.core.settings import Settings
from tupper.engine.deadlines import Deadlines
from tupper.engine.gate import Gate
from tupper.engine.listing import Query, select_page
from tupper.engine.metrics import Sample, sample_of
from tupper.engine.request import check_request, decide_limits
from tupper.engine.together import together
from tupper.engine.trust import Trust, TrustPlaces, find_added_authorities


def pem(text: str) -> str:
    body = base64.b64encode(text.encode()).decode()
    return f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"


@pytest.fixture
def places(tmp_path):
    for name in ("local", "own"):
        (tmp_path / name).mkdir()
    (tmp_path / "own" / "a.crt").write_text(pem("distribution"))
    (tmp_path / "bundle").write_text(pem("distribution") + pem("in the bundle only"))
    return TrustPlaces((tmp_path / "local",), (tmp_path / "bundle",), (tmp_path / "own",))


def found(text: str) -> list[str]:
    blocks = text.split("-----BEGIN CERTIFICATE-----")[1:]
    return [base64.b64decode(b.split("-----END")[0]).decode() for b in blocks]


def test_added_authorities_are_what_the_distribution_does_not_have(tmp_path, places):
    (tmp_path / "local" / "x.crt").write_text("noise\n" + pem("local") + pem("local"))
    (tmp_path / "named").write_text(pem("named") + pem("distribution"))
    text = find_added_authorities(places, {"SSL_CERT_FILE": str(tmp_path / "named")})
    assert found(text) == ["local", "in the bundle only", "named"]


def test_unknown_distribution_means_only_the_local_directories(tmp_path, places):
    (tmp_path / "local" / "x.crt").write_text(pem("local"))
    unknown = replace(places, distribution=(tmp_path / "nowhere",))
    assert found(find_added_authorities(unknown, {})) == ["local"]


def test_no_added_authorities(tmp_path, places):
    (tmp_path / "bundle").write_text(pem("distribution"))
    (tmp_path / "local" / "broken.crt").write_text("-----BEGIN CERTIFICATE-----\n%%%\n-----END")
    assert find_added_authorities(places, {}) == ""


async def test_trust_is_read_again_only_after_a_change(tmp_path, places, monkeypatch):
    reads = []
    real = find_added_authorities
    monkeypatch.setattr(
        "tupper.engine.trust.find_added_authorities", lambda p: reads.append(1) or real(p, {})
    )
    trust = Trust(places)
    assert found(await trust.added()) == found(await trust.added()) == ["in the bundle only"]
    assert len(reads) == 1
    (tmp_path / "local" / "x.crt").write_text(pem("local"))
    assert "local" in found(await trust.added())


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_deadlines_fire_once_in_order_and_follow_changes():
    clock, due = Clock(), []
    deadlines = Deadlines(due.append, clock)
    deadlines.set("b", 1002)
    deadlines.set("a", 1001)
    deadlines.set("c", 1003)
    deadlines.set("a", 1005)
    deadlines.set("c", None)
    clock.now = 1004
    deadlines._fire()
    assert due == ["b"]
    clock.now = 1006
    deadlines._fire()
    deadlines._fire()
    assert due == ["b", "a"]
    assert deadlines._timer is None


async def test_deadlines_fire_by_themselves():
    fired = asyncio.Event()
    deadlines = Deadlines(lambda _: fired.set())
    deadlines.set("a", 0)
    await asyncio.wait_for(fired.wait(), 5)
    deadlines.close()


async def test_gate_keeps_removers_out_while_in_use_and_users_out_while_removing():
    gate, log = Gate(), []

    async def use(until):
        async with gate.use():
            log.append("in")
            await until.wait()
        log.append("out")

    async def remove():
        async with gate.alone():
            log.append("removing")
            await asyncio.sleep(0)
            log.append("removed")

    release = asyncio.Event()
    users = [asyncio.create_task(use(release)) for _ in range(2)]
    await asyncio.sleep(0)
    remover = asyncio.create_task(remove())
    await asyncio.sleep(0)
    assert log == ["in", "in"]
    release.set()
    late = asyncio.create_task(use(release))
    await asyncio.wait_for(asyncio.gather(*users, remover, late), 5)
    assert log[log.index("removing") + 1] == "removed"


async def test_together_raises_the_plain_first_error_and_cancels_the_rest():
    ended = []

    async def wait():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def fail():
        await asyncio.sleep(0)
        raise NotFound("x")

    with pytest.raises(NotFound):
        await together(wait(), fail())
    assert ended == ["cancelled"]


def test_limits_come_from_the_request_or_the_settings():
    limits = decide_limits(CreateRequest(memory_mib=512), Settings(cpus=3))
    assert (limits.cpus, limits.memory_mib, limits.disk_mib, limits.pids) == (3, 512, 10240, 1024)


@pytest.mark.parametrize("field", ["cpus", "memory_mib", "disk_mib", "pids"])
@pytest.mark.parametrize("value", [0, -1])
def test_too_small_limits_name_the_least(field, value):
    with pytest.raises(InvalidArgument) as error:
        decide_limits(CreateRequest(**{field: value}), Settings())
    assert "the least is" in error.value.hint


@pytest.mark.parametrize("path", ["/", "/proc", "/sys/fs", "/dev", "relative", "link-to-root"])
def test_dangerous_mounts_are_refused(tmp_path, path):
    (tmp_path / "link-to-root").symlink_to("/")
    if path == "link-to-root":
        path = str(tmp_path / path)
    with pytest.raises(InvalidArgument):
        check(Mount(Path(path), "/m"), tmp_path / "data")


def check(mount, data, *more):
    data.mkdir(exist_ok=True)
    return check_request(CreateRequest(mounts=(mount,)), Settings(), (data, *more)).mounts


def test_mount_of_our_own_data_is_refused_also_from_above_and_through_a_link(tmp_path):
    data = tmp_path / "home" / "data"
    (data / "sandboxes").mkdir(parents=True)
    (tmp_path / "link").symlink_to(data)
    for path in (data, data / "sandboxes", data.parent, tmp_path / "link"):
        with pytest.raises(InvalidArgument):
            check(Mount(path, "/m"), data)


def test_mount_of_sockets_and_of_cached_disks_is_refused(tmp_path):
    run, cache = tmp_path / "run" / "tupper" / "x", tmp_path / "cache"
    for place in (run, cache):
        place.mkdir(parents=True)
    for path in (run, run.parent, tmp_path / "run", cache):
        with pytest.raises(InvalidArgument):
            check(Mount(path, "/m"), tmp_path / "data", run, cache)


def test_mount_resolves_links_and_must_exist(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "file").touch()
    (mount,) = check(Mount(tmp_path / "link", "/m/"), tmp_path / "data")
    assert (mount.host_path, mount.guest_path) == (tmp_path / "real", "/m")
    with pytest.raises(NotFound):
        check(Mount(tmp_path / "nothing", "/m"), tmp_path / "data")
    with pytest.raises(InvalidArgument):
        check(Mount(tmp_path / "file", "/m"), tmp_path / "data")


@pytest.mark.parametrize("guest", ["/", "m", "/a/../b", "/proc/x", "/run/tupper", "//"])
def test_guest_paths_of_mounts(tmp_path, guest):
    (tmp_path / "real").mkdir()
    with pytest.raises(InvalidArgument):
        check(Mount(tmp_path / "real", guest), tmp_path / "data")


def record(at: float, name: str) -> SandboxRecord:
    return SandboxRecord(name, State.RUNNING, "t", started_at=at)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.text("ab", min_size=1, max_size=6)),
        unique_by=lambda x: x[1],
    ),
    st.booleans(),
    st.integers(1, 4),
)
def test_pages_together_are_the_whole_in_order(pairs, ascending, limit):
    records = [record(float(at), name) for at, name in pairs]
    whole = select_page(records, Query(ascending=ascending, limit=10**6)).records
    got, after = [], None
    while True:
        page = select_page(records, Query(ascending=ascending, limit=limit, after=after))
        got += page.records
        after = page.next_after
        if after is None:
            break
    assert got == list(whole)
    times = [r.started_at for r in whole]
    assert times == sorted(times, reverse=not ascending)


@pytest.mark.parametrize("lie", [None, "x", -1, math.nan, math.inf, 10**400, True, [1]])
def test_guest_that_lies_about_its_metrics_does_no_harm(lie):
    guest = dict.fromkeys(("cpu_used_pct", "mem_used", "mem_cache", "disk_used"), lie)
    sample = sample_of(replace(record(1, "i"), cpus=1.5, memory_mib=2), Usage(), guest, None, 1.0)
    assert (sample.cpu_used_pct, sample.memory_used, sample.memory_cache) == (0, 0, 0)
    assert (sample.cpu_count, sample.memory_total) == (2, 2 << 20)


def test_cpu_percentage_is_the_hosts_where_it_counts():
    before = Sample(10.0, 5.0, 1, 0, 0, 0, 0, 0, 0)
    sample = sample_of(record(1, "i"), Usage(cpu_s=6.0), {"cpu_used_pct": 99}, before, 12.0)
    assert sample.cpu_used_pct == 50.0


def test_mounts_below_a_directory_deepest_and_latest_first():
    from tupper.engine.mounts import mounts_below

    lines = [
        "1 0 8:1 / / rw - ext4 x rw",
        "2 1 0:1 / /d rw - tmpfs a rw",
        "3 1 0:2 / /data rw - tmpfs b rw",
        r"4 2 0:3 / /d/a\040b/c rw - tmpfs c rw",
        "5 2 0:4 / /d/e rw - tmpfs d rw",
    ]
    found = mounts_below(Path("/d"), "\n".join(lines))
    assert found == [Path("/d/a b/c"), Path("/d/e"), Path("/d")]


def test_build_is_no_sandbox_of_the_user():
    from tupper.engine.sandbox import Sandbox

    assert Sandbox(record(1, "i")).is_running
    assert not Sandbox(replace(record(1, "i"), purpose="build")).is_running
