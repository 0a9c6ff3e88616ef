"""Noticing an emulator that stands still, with a process that works and a monitor of ours."""

import contextlib
import itertools
import socket
import subprocess
import sys
import threading

import pytest

from nested import watch

BUSY = "while True: pass"


@contextlib.contextmanager
def monitored(path, registers):
    """Answers questions for registers as QEMU's monitor does."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        over = threading.Event()

        def serve():
            while not over.is_set():
                link, _ = listener.accept()
                with link, contextlib.suppress(OSError):
                    link.sendall(b"QEMU monitor\r\n(qemu) ")
                    if question := link.recv(100):
                        link.sendall(question + f"\r\nRIP={next(registers)}\r\n(qemu) ".encode())

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            over.set()
            with socket.socket(socket.AF_UNIX) as last:
                last.connect(str(path))
            thread.join()


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(watch, "_LOOK_S", 0.02)
    monkeypatch.setattr(watch, "_WORKED_S", 0.2)


def test_one_that_works_and_does_not_change_is_ended(tmp_path, quick):
    with (
        monitored(tmp_path / "monitor", itertools.repeat(7)),
        subprocess.Popen([sys.executable, "-c", BUSY]) as machine,
    ):
        seen = watch.Watch(machine, tmp_path / "monitor")
        assert machine.wait(60) == -9
        seen.end()
    assert seen.stood_still


@pytest.mark.parametrize(
    ("program", "registers"),
    [(BUSY, itertools.count()), ("import time; time.sleep(60)", itertools.repeat(7))],
)
def test_one_that_changes_and_one_that_idles_go_on(tmp_path, quick, program, registers):
    asked = threading.Semaphore(0)

    def counted():
        for value in registers:
            asked.release()
            yield value

    with (
        monitored(tmp_path / "monitor", counted()),
        subprocess.Popen([sys.executable, "-c", program]) as machine,
    ):
        seen = watch.Watch(machine, tmp_path / "monitor")
        try:
            for _ in range(40):
                assert asked.acquire(timeout=60)
            assert machine.poll() is None
        finally:
            seen.end()
            machine.kill()
    assert not seen.stood_still
