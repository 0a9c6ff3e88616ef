"""A small internet in network namespaces, so that the real host stays untouched.

``Lab`` makes a "host" namespace (uplink 192.0.2.10, default route) and an "internet" one that owns
the public address 198.51.100.10, a metadata service, a private neighbour and a private resolver.
Namespaces are held by descriptors. Sockets are made in a namespace by a thread that enters it, so
that servers and clients are plain Python in this process.
"""

import contextlib
import ctypes
import os
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)

PUBLIC = "198.51.100.10"
OTHER_PUBLIC = "198.51.100.20"
METADATA = "169.254.169.254"
PRIVATE = "10.99.0.1"
RESOLVER = "10.99.0.53"
SECOND_RESOLVER = "10.99.0.54"
HOST = "192.0.2.10"
ROUTER = "192.0.2.1"


def _check(result):
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def enter(fd):
    """Move the calling thread into a network namespace."""
    _check(_libc.setns(fd, _CLONE_NEWNET))


def current():
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def in_thread(function, *args):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *args).result(30)


def new_namespace():
    def make():
        _check(_libc.unshare(_CLONE_NEWNET))
        return current()

    return in_thread(make)


def call_in(fd, function, *args):
    """Call a function in a namespace, in a thread of its own."""

    def work():
        enter(fd)
        return function(*args)

    return in_thread(work)


def run_in(fd, *lines, program=("ip", "-batch", "-"), check=True):
    """Run a program in a namespace with these lines as its input."""

    def work():
        enter(fd)
        text = "\n".join(lines) + "\n"
        return subprocess.run(
            program, input=text, text=True, capture_output=True, timeout=30, check=False
        )

    done = in_thread(work)
    if check and done.returncode:
        raise AssertionError(f"{program}: {done.stderr} {done.stdout}")
    return done.stdout


def named(name):
    return os.open(f"/run/netns/{name}", os.O_RDONLY | os.O_CLOEXEC)


class Server:
    """Answers every TCP connection with a greeting, on any number of addresses of a namespace."""

    def __init__(self, fd, address, port, greeting=b"hello\n", family=socket.AF_INET):
        self._socket = call_in(fd, self._listen, family, address, port)
        self._greeting = greeting
        self.hears_first = False
        self.port = self._socket.getsockname()[1]
        self.peers = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @staticmethod
    def _listen(family, address, port):
        sock = socket.socket(family)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
        sock.listen(64)
        return sock

    def _serve(self):
        while True:
            try:
                connection, peer = self._socket.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                self.peers.append(peer[0])
                connection.settimeout(10)
                if self.hears_first:
                    connection.recv(65536)
                    time.sleep(0.2)  # so that what was sent is acknowledged by itself
                connection.sendall(self._greeting)

    def close(self):
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(10)


class Resolver:
    """Answers every query over UDP with one address, and remembers from whom queries came."""

    def __init__(self, fd, address, answer):
        self._socket = call_in(fd, self._bind, address)
        self._answer = socket.inet_aton(answer)
        self.queries = 0
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @staticmethod
    def _bind(address):
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind((address, 53))
        return sock

    def _serve(self):
        while True:
            data, peer = self._socket.recvfrom(2048)
            if data == b"stop":
                return
            self.queries += 1
            head = data[:2] + b"\x81\x80\x00\x01\x00\x01\x00\x00\x00\x00" + data[12:]
            record = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04" + self._answer
            self._socket.sendto(head + record, peer)

    def close(self):
        # Woken by a datagram from the same socket: closing does not end a blocked recvfrom.
        self._socket.sendto(b"stop", self._socket.getsockname())
        self._thread.join(10)
        self._socket.close()


def _query(server, timeout_s):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(timeout_s)
        sock.connect((server, 53))
        sock.send(
            b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04name\x04test\x00\x00\x01\x00\x01"
        )
        return socket.inet_ntoa(sock.recv(2048)[-4:])


def _read(address, port, timeout_s):
    with socket.create_connection((address, port), timeout=timeout_s) as sock:
        return sock.recv(100)


WAIT_S = 4  # a refusal is an answer; whoever waits this long got none


def attempt(fd, address, port):
    """What a client in a namespace gets: the greeting, or the name of the error."""
    try:
        return call_in(fd, _read, address, port, WAIT_S)
    except OSError as error:
        return type(error).__name__ if error.errno is None else os.strerror(error.errno)


def resolve(fd, server):
    """What a query from a namespace gets: the address, or the name of the error."""
    try:
        return call_in(fd, _query, server, WAIT_S)
    except OSError as error:
        return type(error).__name__ if error.errno is None else os.strerror(error.errno)


class Lab:
    """The namespaces. Use as a context manager; the calling thread is inside the host's."""

    def __init__(self, *, uplink_mtu=1500):
        self._stack = contextlib.ExitStack()
        self.host, self.internet = new_namespace(), new_namespace()
        self._mtu = uplink_mtu
        self.resolvers = (RESOLVER,)

    def __enter__(self):
        back = current()
        for fd in (self.host, self.internet, back):
            self._stack.callback(os.close, fd)
        holder = call_in_held(self.internet)
        run_in(
            self.host, "link set lo up",
            f"link add eth0 mtu {self._mtu} type veth peer name up0 mtu {self._mtu} netns {holder.pid}",
            f"address add {HOST}/24 dev eth0", "link set eth0 up",
            f"route add default via {ROUTER}",
        )  # fmt: skip
        holder.release()
        addresses = (PUBLIC, OTHER_PUBLIC, METADATA, PRIVATE, RESOLVER, SECOND_RESOLVER, "1.1.1.1")
        run_in(
            self.internet, "link set lo up", f"address add {ROUTER}/24 dev up0", "link set up0 up",
            *(f"address add {address}/32 dev lo" for address in addresses),
        )  # fmt: skip
        enter(self.host)
        self._stack.callback(enter, back)
        return self

    def __exit__(self, *_):
        self._stack.close()

    def serve(self, fd, address, port, greeting=b"hello\n"):
        server = Server(fd, address, port, greeting)
        self._stack.callback(server.close)
        return server

    def resolver(self, fd, address, answer):
        resolver = Resolver(fd, address, answer)
        self._stack.callback(resolver.close)
        return resolver

    def close_later(self, fd):
        self._stack.callback(os.close, fd)
        return fd


class call_in_held:
    """A child process that sits in a namespace, so that ``ip`` can name it by pid."""

    def __init__(self, fd):
        self._process = call_in(fd, lambda: subprocess.Popen(["cat"], stdin=subprocess.PIPE))
        self.pid = self._process.pid

    def release(self):
        self._process.communicate(timeout=10)
