"""Ports inside, reached from outside. Rows of the checklist; see ``rows``."""

import json
import socket

from rows_common import NotHere, http, row

_ECHO = (
    "import http.server as h, json, ssl, sys\n"
    "class Page(h.BaseHTTPRequestHandler):\n"
    "    def do_GET(self):\n"
    "        body = json.dumps({k.lower(): v for k, v in self.headers.items()}).encode()\n"
    "        self.send_response(200); self.send_header('Content-Length', str(len(body)))\n"
    "        self.end_headers(); self.wfile.write(body)\n"
    "    def log_message(self, *_): pass\n"
    "server = h.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Page)\n"
    "if sys.argv[2:]:\n"
    "    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); context.load_cert_chain('c', 'k')\n"
    "    server.socket = context.wrap_socket(server.socket, server_side=True)\n"
    "server.serve_forever()\n"
)


def ask(w, host, path="/", headers=None):
    """A GET at what ``get_host`` gave; names below ``localhost`` are not asked of any server."""
    address = host.partition(".")[2] if ".localhost:" in host else host
    return http(f"http://{address}{path}", headers={"Host": host, **(headers or {})})


def open_page(w, sandbox, port, *more):
    """Start the page that shows a request's fields; what ``get_host`` gives for it."""
    sandbox.files.write("/tmp/echo.py", _ECHO)
    sandbox.commands.run(
        f"python3 /tmp/echo.py {port} {' '.join(more)}", background=True, timeout=0
    )
    return sandbox.get_host(port)


@row
def row_ports_host(w):
    host = w.sbx.get_host(8000)
    assert isinstance(host, str)
    assert "://" not in host
    server = w.sbx.commands.run(
        "mkdir -p www && echo served > www/f && python3 -m http.server 8000 -d www",
        background=True,
        timeout=0,
    )
    found = w.wait_for(lambda: (got := ask(w, host, "/f"))[0] == 200 and got, 30)
    assert found[1] == b"served\n"
    server.kill()


@row
def row_ports_private_with_another_host_name(w):
    made = w.create(
        network={"allow_public_traffic": False, "mask_request_host": "inside.example:${PORT}"}
    )
    host = open_page(w, made, 8001)
    token = made.traffic_access_token
    assert token
    for headers in ({}, {"e2b-traffic-access-token": "wrong"}):
        status, body = ask(w, host, headers=headers)
        assert (status, json.loads(body)["code"]) == (403, 403), body
    right = {"e2b-traffic-access-token": token}
    status, body = w.wait_for(lambda: (got := ask(w, host, headers=right))[0] == 200 and got, 30)
    assert json.loads(body)["host"] == "inside.example:8001"
    assert made.commands.run("echo still").stdout == "still\n"
    made.kill()


_SHAKE = (
    "import base64, hashlib, socket\n"
    "server = socket.create_server(('127.0.0.1', 8002))\n"
    "guest, _ = server.accept()\n"
    "head = guest.recv(65536).decode()\n"
    "key = [x.split(': ')[1] for x in head.split('\\r\\n') if x.lower().startswith('sec-websocket-key')][0]\n"
    "magic = key + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'\n"
    "accept = base64.b64encode(hashlib.sha1(magic.encode()).digest()).decode()\n"
    "guest.sendall(('HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\n'\n"
    "    'Connection: Upgrade\\r\\nSec-WebSocket-Accept: ' + accept + '\\r\\n\\r\\n').encode())\n"
    "while data := guest.recv(65536): guest.sendall(data)\n"
)


@row
def row_ports_websocket(w):
    w.sbx.files.write("/tmp/shake.py", _SHAKE)
    server = w.sbx.commands.run("python3 /tmp/shake.py", background=True, timeout=0)
    host = w.sbx.get_host(8002)
    address = host.partition(".")[2] if ".localhost:" in host else host
    if w.package == "tupper":  # a published port is open before the one inside is
        w.wait_for(lambda: ":1F42 " in w.sbx.files.read("/proc/net/tcp").upper(), 30)
    with socket.create_connection(address.split(":"), timeout=60) as connection:
        connection.sendall(
            f"GET /chat HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )
        stream = connection.makefile("rb")
        head = b"".join(iter(stream.readline, b"\r\n"))
        assert head.startswith(b"HTTP/1.1 101"), head
        assert b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head, head
        frame = b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58"  # RFC 6455, 5.7
        for _ in range(3):
            connection.sendall(frame)
            assert stream.read(len(frame)) == frame
    server.kill()


@row
def row_ports_that_speak_tls(w):
    if w.package == "e2b" and w.version < (2, 48):
        raise NotHere("no https_ports in this version")
    made = w.create(network={"https_ports": [8443]})
    made.commands.run(
        "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=x -days 2 -keyout k -out c", timeout=60
    )
    host = open_page(w, made, 8443, "tls")
    _, body = w.wait_for(lambda: (got := ask(w, host))[0] == 200 and got, 30)
    assert json.loads(body)["host"] == host, body
    made.kill()
