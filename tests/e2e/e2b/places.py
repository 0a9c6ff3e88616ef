"""Two addresses that a sandbox can be kept from: a namespace beside the host, with a web server.

The addresses are of TEST-NET-3 (RFC 5737), so no real network is dialled.
"""

import contextlib
import os
import subprocess
import sys

_GATE, ONE, TWO = "203.0.113.241", "203.0.113.242", "203.0.113.243"
_SERVER = (
    "import http.server as h, sys\n"
    "class Page(h.BaseHTTPRequestHandler):\n"
    "    def do_GET(self):\n"
    "        self.send_response(200); self.send_header('Content-Length', '0'); self.end_headers()\n"
    "    def log_message(self, *_): pass\n"
    "server = h.ThreadingHTTPServer(('0.0.0.0', 8080), Page)\n"
    "print('ready', flush=True); server.serve_forever()\n"
)


def _ip(*words, check=True):
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=20, check=False)
    if check and done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr}")


@contextlib.contextmanager
def places():
    """Make them; the value is for ``ROWS_PLACES``, empty where it cannot be done."""
    if os.geteuid():
        yield ""
        return
    name, link = f"rows{os.getpid()}", f"rw{os.getpid()}"
    inside = ("-n", name)
    try:
        _ip("netns", "add", name)
        _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("addr", "add", f"{_GATE}/28", "dev", link)
        _ip("link", "set", link, "up")
        with open(f"/proc/sys/net/ipv4/conf/{link}/forwarding", "w") as file:
            file.write("1")
        for address in (ONE, TWO):
            _ip(*inside, "addr", "add", f"{address}/28", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip(*inside, "link", "set", device, "up")
        _ip(*inside, "route", "add", "default", "via", _GATE)
        server = subprocess.Popen(
            ["ip", "netns", "exec", name, sys.executable, "-c", _SERVER], stdout=subprocess.PIPE
        )
        with server:
            try:
                assert server.stdout.readline() == b"ready\n"
                yield f"{ONE},{TWO}"
            finally:
                server.kill()
    finally:
        _ip("netns", "del", name, check=False)
        _ip("link", "del", link, check=False)
