import contextlib
import socket
import threading

import httpcore2
import pytest

from tupper.sdk import _io_sync


@contextlib.contextmanager
def full_queue(path):
    """A listener that accepts nobody, and whose queue has no room."""
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as first:
        listener.bind(path)
        listener.listen(0)
        first.connect(path)
        yield listener


def connect(path, timeout):
    return _io_sync._Sockets().connect_unix_socket(path, timeout=timeout)


def test_a_full_queue_is_waited_for(tmp_path):
    path = str(tmp_path / "s")
    with full_queue(path) as listener, contextlib.ExitStack() as stack:
        accepted = []

        def accept():
            for _ in range(2):
                accepted.append(stack.enter_context(listener.accept()[0]))

        timer = threading.Timer(0.1, accept)
        timer.start()
        stream = connect(path, 60.0)
        stream.write(b"there", timeout=60.0)
        timer.join(60)
        assert accepted[1].recv(5) == b"there"
        stream.close()


def test_a_queue_that_stays_full_is_a_timeout(tmp_path):
    path = str(tmp_path / "s")
    with full_queue(path), pytest.raises(httpcore2.ConnectTimeout):
        connect(path, 0.05)
