import pytest
from hypothesis import given
from hypothesis import strategies as st

from tupper.server.head import find_destination, is_internal, parse_head, render_head

ID = "i" + "a" * 20


def head(target=b"/x", *fields: bytes):
    return parse_head(
        b"GET " + target + b" HTTP/1.1\r\n" + b"".join(f + b"\r\n" for f in fields) + b"\r\n"
    )


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ([b"Host: x"], None),
        ([b"Host: 8000-%s.localhost:3000" % ID.encode()], (ID, 8000, "")),
        ([b"Host: 8000-%s.localhost" % ID.upper().encode()], (ID, 8000, "")),
        ([b"E2b-Sandbox-Id: " + ID.encode(), b"e2b-sandbox-port: 49983"], (ID, 49983, "")),
        ([b"E2b-Sandbox-Id: " + ID.encode() + b"-abc", b"E2b-Sandbox-Port: 1"], (ID, 1, "")),
        ([b"E2b-Sandbox-Id: " + ID.encode()], ("", 0, "missing header")),
        ([b"E2b-Sandbox-Id: ../../x", b"E2b-Sandbox-Port: 1"], ("", 0, "Invalid sandbox ID")),
        ([b"E2b-Sandbox-Id: " + ID.encode(), b"E2b-Sandbox-Port: 65536"], (ID, 0, "Invalid port")),
        ([b"E2b-Sandbox-Id: " + ID.encode(), b"E2b-Sandbox-Port: \xb2"], (ID, 0, "Invalid port")),
    ],
)
def test_destinations(fields, want):
    destination = find_destination(head(b"/x", *fields))
    got = destination and (destination.sandbox_id, destination.port, destination.complaint)
    assert got == want


def test_two_ids_go_nowhere():
    both = [b"E2b-Sandbox-Id: " + ID.encode()] * 2 + [b"E2b-Sandbox-Port: 1"]
    assert find_destination(head(b"/x", *both)).complaint


@pytest.mark.parametrize(
    "raw",
    [b"GET / HTTP/1.0\r\n\r\n", b"get / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\n folded\r\n\r\n",
     b"GET / HTTP/1.1\r\nA : b\r\n\r\n", b"\r\n\r\n", b"GET / HTTP/1.1\nHost: x\r\n\r\n"],
)  # fmt: skip
def test_what_is_not_plain_is_not_ours(raw):
    assert parse_head(raw) is None


@given(st.binary(max_size=300))
def test_any_bytes_are_a_head_or_none(raw):
    parse_head(raw + b"\r\n\r\n")


@pytest.mark.parametrize(
    "target", [b"/init", b"/init/", b"//init", b"/%69nit", b"/x/../init", b"/init?a=b", b"/freeze"]
)
def test_internal_paths_however_spelled(target):
    assert is_internal(head(target), 49983)
    assert not is_internal(head(target), 8000)
    assert not is_internal(head(b"/initial"), 49983)


def test_one_request_per_connection_unless_it_upgrades():
    plain = render_head(head(b"/x", b"Connection: keep-alive", b"Keep-Alive: 5", b"A: b"))
    assert plain == b"GET /x HTTP/1.1\r\nA: b\r\nConnection: close\r\n\r\n"
    upgrade = render_head(head(b"/x", b"Connection: Upgrade", b"Upgrade: websocket"))
    assert b"Connection: Upgrade" in upgrade
    assert b"close" not in upgrade


def test_restart_forgets_the_starters_descriptor():
    from tupper.server.daemon import again

    argv = ["-m", "tupper.server", "--background", "--ready-fd", "5", "--listen", "a:1"]
    assert again(argv) == ["-m", "tupper.server", "--background", "--listen", "a:1"]
    assert again(["--ready-fd=5"]) == []
