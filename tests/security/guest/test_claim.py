"""A guest that owns the shared directory tries to have the engine touch something of the host."""

import asyncio
import contextlib
import os
import socket
import stat
import threading

import pytest

from tupper.core.errors import DeadlineExceeded, GuestMisbehaved
from tupper.guest import claim_socket


@pytest.fixture
def place(tmp_path):
    """(shared socket path, private path, victim socket of the host)."""
    (tmp_path / "run").mkdir(mode=0o700)
    (tmp_path / "run" / "guest").mkdir()
    (tmp_path / "private").mkdir(mode=0o700)
    victim = socket.socket(socket.AF_UNIX)
    victim.bind(str(tmp_path / "victim.sock"))
    victim.listen()
    os.chmod(tmp_path / "victim.sock", 0o644)
    with victim:
        yield (
            tmp_path / "run" / "guest" / "agent.sock",
            tmp_path / "private" / "s.sock",
            tmp_path / "victim.sock",
        )


def listen(path):
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(path))
    sock.listen()
    return sock


async def test_a_socket_is_moved_and_still_answers(place):
    shared, private, _ = place
    with listen(shared) as server:
        await claim_socket(shared, private, 5)
        assert not shared.exists()
        assert stat.S_ISSOCK(private.lstat().st_mode)
        assert private.stat().st_mode & 0o777 == 0o600
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(private))
            server.accept()[0].close()


async def test_a_socket_that_appears_later_is_awaited(place):
    shared, private, _ = place
    claim = asyncio.create_task(claim_socket(shared, private, 5))
    await asyncio.sleep(0)
    with listen(shared):
        await claim
    assert private.exists()


async def test_nothing_appears(place):
    shared, private, _ = place
    with pytest.raises(DeadlineExceeded):
        await claim_socket(shared, private, 0.01)


def put_link(shared, victim):
    shared.symlink_to(victim)


def put_file(shared, victim):
    shared.write_text("x")


def put_directory(shared, victim):
    shared.mkdir()


def put_pipe(shared, victim):
    os.mkfifo(shared)


def put_dangling(shared, victim):
    shared.symlink_to("/nonexistent")


@pytest.mark.parametrize("put", [put_link, put_file, put_directory, put_pipe, put_dangling])
async def test_what_is_no_socket_is_refused(place, put):
    shared, private, victim = place
    before = victim.lstat()
    put(shared, victim)
    with pytest.raises(GuestMisbehaved):
        await claim_socket(shared, private, 5)
    assert not os.path.lexists(private)
    assert victim.lstat().st_mode == before.st_mode
    assert victim.lstat().st_ino == before.st_ino


async def test_the_shared_directory_itself_may_not_be_a_link(place, tmp_path):
    shared, private, victim = place
    shared.parent.rmdir()
    shared.parent.symlink_to(tmp_path)
    with pytest.raises(OSError):
        await claim_socket(shared.parent / "victim.sock", private, 5)
    assert stat.S_ISSOCK(victim.lstat().st_mode)


async def test_a_guest_that_swaps_the_name_never_gets_a_link_through(place, tmp_path):
    """A thread replaces the name by turns with a socket, a link to the host's socket, nothing."""
    shared, private, victim = place
    before = victim.lstat()
    over = threading.Event()
    directory = shared.parent
    with listen(directory / "real.sock"):

        def swap():
            while not over.is_set():
                with contextlib.suppress(OSError):
                    os.link(directory / "real.sock", directory / "t", follow_symlinks=False)
                    os.rename(directory / "t", shared)
                with contextlib.suppress(OSError):
                    os.symlink(victim, directory / "t")
                    os.rename(directory / "t", shared)
                with contextlib.suppress(OSError):
                    os.unlink(directory / "t")

        guest = threading.Thread(target=swap)
        guest.start()
        taken = refused = 0
        try:
            for _ in range(400):
                try:
                    await claim_socket(shared, private, 5)
                except GuestMisbehaved:
                    refused += 1
                    assert not os.path.lexists(private)
                else:
                    taken += 1
                    assert stat.S_ISSOCK(private.lstat().st_mode)
                    assert private.lstat().st_ino != before.st_ino
                    private.unlink()
        finally:
            over.set()
            guest.join(30)
    assert taken + refused == 400
    assert taken
    assert victim.lstat().st_ino == before.st_ino
    assert victim.lstat().st_mode == before.st_mode, "the mode was changed through a link"


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a tmpfs: needs root")
async def test_on_another_file_system_the_socket_stays_beside_and_is_linked(place, tmp_path):
    import subprocess

    shared, private, _ = place
    run = tmp_path / "run"
    shared.parent.rmdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0700", "tmpfs", run], check=True)
    try:
        shared.parent.mkdir()
        with listen(shared):
            await claim_socket(shared, private, 5)
            assert private.is_symlink()
            assert stat.S_ISSOCK((run / "agent.sock").lstat().st_mode)
            assert not shared.exists()
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(private))
    finally:
        subprocess.run(["umount", run], check=True)
