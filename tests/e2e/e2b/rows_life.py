"""Lives, networks, git, and what does not exist here. Rows of the checklist; see ``rows``."""

import datetime as dt
import os
import uuid

from rows_common import NotHere, new_name, row

# --- life -----------------------------------------------------------------------------------


@row
def row_life_info(w):
    info = w.sbx.get_info()
    assert info.sandbox_id == w.sbx.sandbox_id
    assert info.metadata == {"kind": "shared"}
    assert (info.state.value, info.template_id) == ("running", "base")
    assert 800 < (info.end_at - info.started_at).total_seconds() < 1000
    assert info.cpu_count >= 1
    assert info.memory_mb >= 128
    assert isinstance(info.envd_version, str)
    assert w.Sandbox.get_info(w.sbx.sandbox_id).sandbox_id == w.sbx.sandbox_id


@row
def row_life_connect_never_shortens(w):
    before = w.sbx.get_info().end_at
    other = w.Sandbox.connect(w.sbx.sandbox_id, timeout=10)
    assert other.sandbox_id == w.sbx.sandbox_id
    assert other.get_info().end_at == before
    assert other.commands.run("echo $LEVEL").stdout == "sandbox\n"
    w.sbx.connect(timeout=2000)
    assert w.sbx.get_info().end_at > before
    w.sbx.set_timeout(900)


@row
def row_life_set_timeout_both_ways(w):
    w.sbx.set_timeout(300)
    shorter = w.sbx.get_info().end_at
    w.sbx.set_timeout(1200)
    assert (w.sbx.get_info().end_at - shorter).total_seconds() > 800
    w.Sandbox.set_timeout(w.sbx.sandbox_id, 900)


@row
def row_life_not_found(w):
    nothing = "i" + "0" * 20
    assert w.Sandbox.kill(nothing) is False
    assert w.Sandbox.kill("nonsense") is False
    w.raises("SandboxNotFoundException", lambda: w.Sandbox.connect(nothing))
    w.raises("NotFoundException", lambda: w.Sandbox.get_info(nothing))
    w.raises("NotFoundException", lambda: w.Sandbox.set_timeout(nothing, 10))


@row
def row_life_unknown_template(w):
    w.raises("SandboxException", lambda: w.create("no-such-template"), "no-such-template")


@row
def row_life_kill(w):
    made = w.create(metadata={"kill": "me"})
    assert made.is_running() is True
    handle = made.commands.run("sleep 60", background=True)
    assert made.kill() is True
    assert made.is_running() is False
    assert made.kill() is False
    paginator = w.Sandbox.list(query=w.sdk.SandboxQuery(state=[w.sdk.SandboxState.RUNNING]))
    assert made.sandbox_id not in [each.sandbox_id for each in paginator.next_items()]
    w.raises("TimeoutException", handle.wait)
    w.raises("TimeoutException", lambda: made.commands.run("echo x"))


@row
def row_life_after_the_kill(w):
    made = w.create()
    assert w.Sandbox.kill(made.sandbox_id) is True
    w.raises("SandboxNotFoundException", lambda: w.Sandbox.connect(made.sandbox_id))
    w.raises("SandboxNotFoundException", made.get_info)
    w.raises("SandboxNotFoundException", lambda: made.set_timeout(10))
    w.raises("TimeoutException", lambda: made.files.read("x"))
    w.raises("TimeoutException", lambda: made.files.list("/"))


@row
def row_life_killed_in_flight(w):
    import threading

    made = w.create()
    killer = threading.Thread(target=made.kill)
    error = w.raises(
        "TimeoutException",
        lambda: made.commands.run("echo begun; sleep 60", on_stdout=lambda _: killer.start()),
    )
    killer.join()
    assert "end of life while the request was in flight" in str(error), str(error)


@row
def row_life_expires(w):
    made = w.create(timeout=300)
    assert made.is_running() is True
    made.set_timeout(1)
    w.wait_for(lambda: not made.is_running(), 20)


@row
def row_life_with_block(w):
    with w.Sandbox.create(timeout=60) as made:
        assert made.commands.run("echo in").stdout == "in\n"
    assert w.Sandbox.kill(made.sandbox_id) is False


@row
def row_life_list_pages(w):
    mark = uuid.uuid4().hex
    made = [w.create(metadata={"mark": mark, "odd key &=": "a b&c=d/ä"}) for _ in range(2)]
    old, new = (each.sandbox_id for each in made)
    query = w.sdk.SandboxQuery(metadata={"mark": mark, "odd key &=": "a b&c=d/ä"})
    pages = w.Sandbox.list(query=query, limit=1)
    assert pages.has_next is True
    assert [each.sandbox_id for each in pages.next_items()] == [new]
    assert pages.has_next is True
    assert pages.next_token
    assert [each.sandbox_id for each in pages.next_items()] == [old]
    assert (pages.has_next, pages.next_token) == (False, None)
    w.raises("Exception", pages.next_items)
    other = w.Sandbox.list(query=w.sdk.SandboxQuery(metadata={"mark": "none"}))
    assert other.next_items() == []
    _list_options(w, mark, old, new)
    for each in made:
        each.kill()


def _list_options(w, mark, old, new):
    import inspect

    query = w.sdk.SandboxQuery
    inner = getattr(w.Sandbox, "inner", w.Sandbox)
    if "order" not in inspect.signature(inner.list).parameters:
        return
    found = w.Sandbox.list(query=query(metadata={"mark": mark}), order="asc").next_items()
    assert [each.sandbox_id for each in found] == [old, new]
    start = found[1].started_at

    def after(moment):
        wanted = query(metadata={"mark": mark}, started_after=moment)
        return [each.sandbox_id for each in w.Sandbox.list(query=wanted).next_items()]

    assert after(start) == [new]
    assert after(start + dt.timedelta(seconds=1)) == []
    for template, expected in (("base", [new, old]), ("no-such", [])):
        wanted = query(metadata={"mark": mark}, template=template)
        items = w.Sandbox.list(query=wanted).next_items()
        assert [each.sandbox_id for each in items] == expected


@row
def row_life_metrics(w):
    found = w.wait_for(w.sbx.get_metrics, 40)
    first = found[0]
    assert first.cpu_count >= 1
    assert first.cpu_used_pct >= 0
    assert 0 < first.mem_used <= first.mem_total
    assert 0 < first.disk_used <= first.disk_total
    now = dt.datetime.now(dt.timezone.utc)
    stamp = first.timestamp
    stamp = stamp if stamp.tzinfo else stamp.replace(tzinfo=dt.timezone.utc)
    assert abs((now - stamp).total_seconds()) < 600
    start = w.sbx.get_info().started_at - dt.timedelta(hours=2)
    assert w.sbx.get_metrics(start=start, end=start + dt.timedelta(hours=1)) == []


@row
def row_life_idempotent_create(w):
    import inspect

    inner = getattr(w.Sandbox, "inner", w.Sandbox)
    if "idempotency_key" not in inspect.signature(inner.create).parameters:
        raise NotHere("no idempotency_key in this version")
    key = uuid.uuid4().hex
    first = w.create(idempotency_key=key, metadata={"a": "b"})
    second = w.create(idempotency_key=key, metadata={"a": "b"})
    assert first.sandbox_id == second.sandbox_id
    w.raises("Exception", lambda: w.create(idempotency_key=key, metadata={"a": "c"}))
    first.kill()


@row
def row_life_request_timeout_and_bad_values(w):
    w.raises("Exception", lambda: w.create(timeout=-1))
    w.raises("Exception", lambda: w.create(envs={"A": 1}))


# --- network --------------------------------------------------------------------------------

# Two addresses with a web server, in a network of the test's own. Nothing else is dialled.
ONE, TWO = (os.environ.get("ROWS_PLACES") or ",").split(",")
_DIAL = (
    "curl -s -o /dev/null --noproxy '*' --max-time 5 http://%s:8080/ && echo open || echo denied"
)


def reach(sandbox, address):
    """Whether the policy of a sandbox lets it out to an address."""
    return sandbox.commands.run(_DIAL % address).stdout.strip()


def need_places():
    """Skip a row where there is no such network."""
    if not ONE:
        raise NotHere("a network of the test's own needs root")


@row
def row_network_no_internet(w):
    need_places()
    made = w.create(allow_internet_access=False)
    assert reach(made, ONE) == "denied"
    assert reach(w.sbx, ONE) == "open"
    assert made.get_info().allow_internet_access is False
    made.kill()


@row
def row_network_lists(w):
    need_places()
    made = w.create(network={"allow_out": [ONE], "deny_out": [w.sdk.ALL_TRAFFIC]})
    assert (reach(made, ONE), reach(made, TWO)) == ("open", "denied")
    made.kill()
    made = w.create(network={"deny_out": [f"{TWO}/32"]})
    assert (reach(made, ONE), reach(made, TWO)) == ("open", "denied")
    _update(w, made)
    made.kill()


def _update(w, made):
    if not hasattr(getattr(made, "inner", made), "update_network"):
        return
    made.update_network({"deny_out": [ONE]})
    assert (reach(made, ONE), reach(made, TWO)) == ("denied", "open")
    made.update_network({"allow_out": [TWO], "deny_out": [w.sdk.ALL_TRAFFIC]})
    assert (reach(made, ONE), reach(made, TWO)) == ("denied", "open")
    made.update_network({"allow_internet_access": False})
    assert reach(made, TWO) == "denied"
    made.update_network({})
    assert (reach(made, ONE), reach(made, TWO)) == ("open", "open")


@row
def row_network_selectors(w):
    need_places()
    made = w.create(network={"allow_out": [ONE], "deny_out": lambda context: [context.all_traffic]})
    assert (reach(made, ONE), reach(made, TWO)) == ("open", "denied")
    made.kill()


@row
def row_network_refused(w):
    all_traffic = w.sdk.ALL_TRAFFIC
    for network in (
        {"allow_out": ["example.com"], "deny_out": [all_traffic]},
        {"allow_out": ["example.com"]},
        {"deny_out": ["example.com"]},
    ):
        w.raises("SandboxException", lambda network=network: w.create(network=network))


# --- git ------------------------------------------------------------------------------------


@row
def row_git_init_commit_status(w):
    git, path = w.sbx.git, f"/home/user/{new_name()}"
    git.init(path, initial_branch="main")
    git.configure_user("A U Thor", "a@example.com", scope="local", path=path)
    w.sbx.files.write(f"{path}/a.txt", "1")
    status = git.status(path)
    assert status.current_branch == "main"
    assert [(each.name, each.status, each.staged) for each in status.file_status] == [
        ("a.txt", "untracked", False)
    ]
    assert (status.is_clean, status.has_untracked) == (False, True)
    git.add(path)
    assert git.status(path).has_staged is True
    git.commit(path, "first")
    assert git.status(path).is_clean is True
    git.create_branch(path, "topic")
    branches = git.branches(path)
    assert (sorted(branches.branches), branches.current_branch) == (["main", "topic"], "topic")
    git.checkout_branch(path, "main")
    git.delete_branch(path, "topic")
    assert git.branches(path).branches == ["main"]
    assert git.get_config("user.email", scope="local", path=path) == "a@example.com"


@row
def row_git_clone_push_pull(w):
    git, name = w.sbx.git, new_name()
    bare, one, two = (f"/home/user/{name}-{each}" for each in ("bare", "one", "two"))
    git.init(bare, bare=True, initial_branch="main")
    git.init(one, initial_branch="main")
    git.configure_user("A", "a@example.com")
    w.sbx.files.write(f"{one}/f", "1")
    git.add(one)
    git.commit(one, "one")
    git.remote_add(one, "origin", bare)
    assert git.remote_get(one, "origin") == bare
    git.push(one, remote="origin", branch="main", set_upstream=True)
    git.clone(bare, path=two)
    assert w.sbx.files.read(f"{two}/f") == "1"
    w.sbx.files.write(f"{one}/f", "2")
    git.commit(one, "two", allow_empty=True)
    git.add(one)
    git.commit(one, "three")
    git.push(one)
    git.pull(two)
    assert w.sbx.files.read(f"{two}/f") == "2"


# --- what does not exist here answers cleanly ------------------------------------------------


@row
def row_git_errors(w):
    git, path = w.sbx.git, f"/home/user/{new_name()}"
    git.init(path, initial_branch="main")
    git.configure_user("A", "a@example.com", "local", path)
    git.commit(path, "one", allow_empty=True)
    git.remote_add(path, "origin", "/nowhere")
    git.remote_add(path, "origin", f"{path}/.git", overwrite=True)
    w.raises("CommandExitException", lambda: git.remote_add(path, "origin", "/nowhere"))
    w.raises("GitUpstreamException", lambda: git.push(path))
    w.raises("GitUpstreamException", lambda: git.pull(path))
    assert git.remote_get(path, "none") is None
    assert git.get_config("none.such") is None
    bad = "InvalidArgumentException"
    w.raises(bad, lambda: git.get_config("a.b", scope="elsewhere"))
    w.raises(bad, lambda: git.get_config("a.b", scope="local"))
    w.raises(bad, lambda: git.restore(path, []))
    w.raises(bad, lambda: git.restore(path, ["a"], staged=False, worktree=False))
    w.raises(bad, lambda: git.reset(path, mode="strange"))
    w.raises(bad, lambda: git.dangerously_authenticate("u", ""))


_STATES = """cd %s; git config user.name a; git config user.email a@b
for i in a b c d e f; do echo $i$i$i$i > $i; done; git add .; git commit -qm 1
git mv a moved; echo 1 >> b; git rm -q c; rm d; echo x >> e; git add e; echo y >> e
echo n > new; git add new; echo u > untracked; mkdir dir; echo 1 > dir/f"""


@row
def row_git_states(w):
    git, path = w.sbx.git, f"/home/user/{new_name()}"
    git.init(path, initial_branch="main")
    w.sbx.commands.run(_STATES % path)
    status = git.status(path)
    found = {each.name: each for each in status.file_status}
    assert {
        name: (each.status, each.index_status, each.working_tree_status, each.staged)
        for name, each in found.items()
    } == {
        "moved": ("renamed", "R", " ", True),
        "b": ("modified", " ", "M", False),
        "c": ("deleted", "D", " ", True),
        "d": ("deleted", " ", "D", False),
        "e": ("modified", "M", "M", True),
        "new": ("added", "A", " ", True),
        "untracked": ("untracked", "?", "?", False),
        "dir/": ("untracked", "?", "?", False),
    }
    assert found["moved"].renamed_from == "a"
    assert (status.staged_count, status.unstaged_count, status.untracked_count) == (4, 4, 2)
    git.reset(path, mode="hard")
    git.restore(path, ["."])
    w.sbx.commands.run("git checkout -q --detach", cwd=path)
    status = git.status(path)
    assert (status.current_branch, status.detached) == (None, True)
