"""Watching directories."""

import pytest

from e2e.cases.waiting import wait_for
from tupper import FilesystemEventType, SandboxException


def test_tb075_directories_that_appear_later(sbx):
    sbx.commands.run("rm -rf /tmp/w; mkdir /tmp/w")
    handle = sbx.files.watch_dir("/tmp/w", recursive=True)
    events = []

    def seen(name, kind):
        events.extend(handle.get_new_events())
        return any(event.name == name and event.type == kind for event in events)

    sbx.commands.run("cd /tmp/w; mkdir -p a/b/c && echo x > a/b/c/d")
    wait_for(lambda: seen("a/b/c/d", FilesystemEventType.WRITE) or _created(events, "a/b/c/d"))
    sbx.commands.run("cd /tmp/w; mv a/b e; echo y > e/c/f")
    wait_for(lambda: seen("e/c/f", FilesystemEventType.WRITE) or _created(events, "e/c/f"))
    assert any(event.type == FilesystemEventType.RENAME for event in events)
    sbx.commands.run("cd /tmp/w; rm -r e")
    wait_for(lambda: seen("e", FilesystemEventType.REMOVE))
    handle.stop()


def _created(events, name):
    return any(event.name == name and event.type == FilesystemEventType.CREATE for event in events)


def test_tb075_a_tree_moved_in(sbx):
    sbx.commands.run("rm -rf /tmp/w2 /tmp/out; mkdir -p /tmp/w2 /tmp/out/x/y")
    handle = sbx.files.watch_dir("/tmp/w2", recursive=True)
    sbx.commands.run("mv /tmp/out /tmp/w2/in; echo z > /tmp/w2/in/x/y/f")
    events = []
    wait_for(
        lambda: (
            events.extend(handle.get_new_events())
            or any(event.name == "in/x/y/f" for event in events)
        )
    )
    handle.stop()


def test_tb075_wrong_targets(sbx):
    with pytest.raises(SandboxException):
        sbx.files.watch_dir("/tmp/does-not-exist")
    with pytest.raises(SandboxException):
        sbx.files.watch_dir("/etc/hostname")


def test_an_upload_is_exactly_three_events(sbx):
    sbx.commands.run("rm -rf /tmp/w3; mkdir /tmp/w3")
    handle = sbx.files.watch_dir("/tmp/w3")
    sbx.files.write("/tmp/w3/new.txt", "content")
    events = handle.get_new_events()
    assert [event.type for event in events] == [
        FilesystemEventType.CREATE,
        FilesystemEventType.CHMOD,
        FilesystemEventType.WRITE,
    ]
    handle.stop()
