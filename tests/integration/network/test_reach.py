"""What a sandbox reaches and what it does not, on a host and an internet of our own."""

import asyncio
import contextlib
import json
import socket
import struct
from pathlib import Path

import pytest

from integration.network.lab import (
    HOST,
    METADATA,
    OTHER_PUBLIC,
    PRIVATE,
    PUBLIC,
    RESOLVER,
    SECOND_RESOLVER,
    attempt,
    call_in,
    resolve,
    run_in,
)
from tupper.core.errors import AlreadyExists, InvalidArgument, NotFound
from tupper.network import Policy, ruleset

REFUSED = "Connection refused"
SANDBOX = "i" + "a" * 20
OTHER = "i" + "b" * 20


@pytest.fixture
def world(lab):
    """Servers everywhere a guest might try."""
    lab.serve(lab.internet, "0.0.0.0", 80, b"internet\n")
    lab.serve(lab.host, "0.0.0.0", 9998, b"host\n")
    lab.serve(lab.host, "127.0.0.1", 9999, b"loopback\n")
    return lab


async def test_the_internet_and_nothing_else(world, network, inside):
    guest = await network.attach(SANDBOX, Policy())
    fd = inside(guest)
    assert attempt(fd, PUBLIC, 80) == b"internet\n"
    for address in (METADATA, PRIVATE, RESOLVER, "10.231.0.1", "192.168.0.1", "100.64.0.1"):
        assert attempt(fd, address, 80) == REFUSED, address


async def test_nothing_passes_before_it_is_admitted(world, network, inside):
    await network.attach(OTHER, Policy())  # so that the host forwards, and the rules are there
    guest = await network.prepare(SANDBOX, Policy(allow_host_ports=(9998,)))
    fd = inside(guest)
    counters = ("ip", "-j", "-s", "link", "show", "dev", str(guest.data["link"]))
    assert attempt(fd, PUBLIC, 80) != b"internet\n"
    assert attempt(fd, guest.gateway, 9998) != b"host\n"
    [device] = json.loads(run_in(world.host, program=counters))
    assert device["stats64"]["rx"]["packets"] == 0
    await network.admit(guest)
    assert attempt(fd, PUBLIC, 80) == b"internet\n"
    assert attempt(fd, guest.gateway, 9998) == b"host\n"


async def test_what_is_gone_is_not_admitted(world, network):
    guest = await network.prepare(SANDBOX, Policy())
    await network.detach(guest)
    with pytest.raises(NotFound):
        await network.admit(guest)
    assert await network.sweep([]) == []


async def test_TB045_the_host_is_closed(world, network, inside):
    guest = await network.attach(SANDBOX, Policy())
    fd = inside(guest)
    for address in (guest.gateway, HOST, "10.0.2.2", "127.0.0.1"):
        for port in (9998, 9999):
            assert attempt(fd, address, port) == REFUSED, (address, port)


async def test_TB045_one_port_of_the_host_is_opened(world, network, inside):
    guest = await network.attach(SANDBOX, Policy(allow_host_ports=(9999,)))
    fd = inside(guest)
    assert guest.data["hosts"]["host.tupper.internal"] == guest.gateway
    assert attempt(fd, guest.gateway, 9999) == b"loopback\n"
    assert attempt(fd, guest.gateway, 9998) == REFUSED
    assert attempt(fd, HOST, 9998) == REFUSED
    assert attempt(fd, "127.0.0.1", 9999) == REFUSED  # the guest's own loopback
    world.serve(world.host, HOST, 9999, b"lan\n")
    assert attempt(fd, HOST, 9999) == b"lan\n"


async def test_without_internet_nothing_answers_and_all_at_once(world, network, inside):
    world.resolver(world.internet, RESOLVER, PUBLIC)
    guest = await network.attach(SANDBOX, Policy(internet=False))
    fd = inside(guest)
    assert attempt(fd, PUBLIC, 80) == REFUSED
    assert resolve(fd, guest.gateway) == REFUSED
    assert attempt(fd, HOST, 9998) == REFUSED


async def test_allowed_beats_denied_beats_the_default(world, network, inside):
    policy = Policy(allow_out=(PUBLIC,), deny_out=("198.51.100.0/24",))
    fd = inside(await network.attach(SANDBOX, policy))
    assert attempt(fd, PUBLIC, 80) == b"internet\n"
    assert attempt(fd, OTHER_PUBLIC, 80) == REFUSED
    assert attempt(fd, "1.1.1.1", 80) == b"internet\n"


async def test_built_in_denials_cannot_be_opened(world, network, inside):
    everything = ("0.0.0.0/0", "10.0.0.0/8", "169.254.169.254", HOST)
    guest = await network.attach(SANDBOX, Policy(allow_out=everything))
    fd = inside(guest)
    for address in (METADATA, PRIVATE, HOST, guest.gateway):
        assert attempt(fd, address, 9998) == REFUSED, address


async def test_deny_all_with_one_resolver_allowed(world, network, inside):
    """What E2B's own suite expects of ``dig @server`` under such a policy."""
    world.resolver(world.internet, "1.1.1.1", PUBLIC)
    world.resolver(world.internet, OTHER_PUBLIC, PUBLIC)
    policy = Policy(allow_out=("1.1.1.1",), deny_out=("0.0.0.0/0",))
    guest = await network.attach(SANDBOX, policy)
    fd = inside(guest)
    assert resolve(fd, "1.1.1.1") == PUBLIC
    assert resolve(fd, OTHER_PUBLIC) == REFUSED
    assert resolve(fd, guest.gateway) == REFUSED


async def test_a_policy_is_replaced_under_open_connections(lab, network, inside):
    server = call_in(lab.internet, socket.create_server, (PUBLIC, 81))
    guest = await network.attach(SANDBOX, Policy())
    fd = inside(guest)
    client = call_in(fd, socket.create_connection, (PUBLIC, 81), 5)
    far, _ = server.accept()
    with server, client, far:
        client.sendall(b"before")
        assert far.recv(100) == b"before"
        await network.update(guest, Policy(deny_out=(PUBLIC,)))
        client.sendall(b"after")
        with pytest.raises(ConnectionResetError):
            client.recv(100)
    await network.update(guest, Policy(internet=False, allow_out=(PUBLIC,)))
    lab.serve(lab.internet, PUBLIC, 80)
    assert attempt(fd, PUBLIC, 80) == b"hello\n"
    assert attempt(fd, OTHER_PUBLIC, 80) == REFUSED


async def test_an_invalid_update_changes_nothing(world, network, inside):
    guest = await network.attach(SANDBOX, Policy())
    with pytest.raises(InvalidArgument):
        await network.update(guest, Policy(internet=False, deny_out=("example.com",)))
    assert attempt(inside(guest), PUBLIC, 80) == b"internet\n"
    await network.detach(guest)
    with pytest.raises(NotFound):
        await network.update(guest, Policy())


async def test_TB035_names_are_resolved_by_the_hosts_private_server(lab, network, inside):
    resolver = lab.resolver(lab.internet, RESOLVER, PUBLIC)
    guest = await network.attach(SANDBOX, Policy())
    assert guest.dns == (guest.gateway,)
    fd = inside(guest)
    assert resolve(fd, guest.gateway) == PUBLIC
    assert resolver.queries == 1
    assert resolve(fd, RESOLVER) == REFUSED
    assert resolver.queries == 1


async def test_TB035_a_second_server_and_a_change_of_servers(lab, network, inside):
    first = lab.resolver(lab.internet, RESOLVER, PUBLIC)
    second = lab.resolver(lab.internet, SECOND_RESOLVER, OTHER_PUBLIC)
    lab.resolvers = (RESOLVER, SECOND_RESOLVER)
    guest = await network.attach(SANDBOX, Policy())
    fd = inside(guest)
    assert [resolve(fd, server) for server in guest.dns] == [PUBLIC, OTHER_PUBLIC]
    assert (first.queries, second.queries) == (1, 1)
    lab.resolvers = (SECOND_RESOLVER,)  # the host moved to another network
    await network.attach(OTHER, Policy())
    assert resolve(fd, guest.gateway) == OTHER_PUBLIC


async def test_TB035_a_name_server_on_the_hosts_loopback(lab, network, inside):
    lab.resolver(lab.host, "127.0.0.1", PUBLIC)
    lab.serve(lab.host, "127.0.0.1", 8080)
    lab.resolvers = ("127.0.0.1",)
    guest = await network.attach(SANDBOX, Policy())
    fd = inside(guest)
    assert resolve(fd, guest.gateway) == PUBLIC
    assert attempt(fd, guest.gateway, 8080) == REFUSED


@pytest.mark.parametrize("mode", ["1", "2"])
async def test_a_host_that_filters_by_reverse_path(lab, network, inside, mode):
    for name in ("all", "default", "eth0"):
        Path(f"/proc/sys/net/ipv4/conf/{name}/rp_filter").write_text(mode)
    lab.resolver(lab.host, "127.0.0.1", PUBLIC)
    lab.serve(lab.internet, PUBLIC, 80)
    lab.serve(lab.host, "127.0.0.1", 9999, b"loopback\n")
    lab.resolvers = ("127.0.0.1",)
    guest = await network.attach(SANDBOX, Policy(allow_host_ports=(9999,)))
    fd = inside(guest)
    assert attempt(fd, PUBLIC, 80) == b"hello\n"
    assert attempt(fd, guest.gateway, 9999) == b"loopback\n"
    assert resolve(fd, guest.gateway) == PUBLIC


async def test_sandboxes_do_not_reach_each_other(lab, make_network, network, inside):
    other_engine = make_network("zother"[:5])
    one = await network.attach(SANDBOX, Policy())
    two = await network.attach(OTHER, Policy(allow_out=("10.0.0.0/8",)))
    three = await other_engine.attach(SANDBOX, Policy())
    try:
        fds = {a.address.partition("/")[0]: inside(a) for a in (one, two, three)}
        for address, fd in fds.items():
            lab.serve(fd, "0.0.0.0", 80)
            for target in fds.keys() - {address}:
                assert attempt(fd, target, 80) == REFUSED, (address, target)
        # The host itself may talk to them.
        assert attempt(lab.host, one.address.partition("/")[0], 80) == b"hello\n"
    finally:
        await other_engine.sweep([])


async def test_the_lan_cannot_open_connections_into_a_sandbox(lab, network, inside):
    guest = await network.attach(SANDBOX, Policy())
    lab.serve(inside(guest), "0.0.0.0", 80)
    address = guest.address.partition("/")[0]
    run_in(lab.internet, f"route add {address}/32 via {HOST}")
    assert attempt(lab.internet, address, 80) == "TimeoutError"


async def test_forged_addresses_go_nowhere(lab, network, inside):
    """The guest is root over its stack: it may add addresses as it likes."""
    sink = call_in(lab.internet, socket.socket, socket.AF_INET, socket.SOCK_DGRAM)
    call_in(lab.internet, sink.bind, (PUBLIC, 5000))
    guest = await network.attach(SANDBOX, Policy())
    fd = inside(guest)
    run_in(fd, "address add 203.0.113.7/32 dev eth0")

    def send(source, payload):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind((source, 0))
            sock.sendto(payload, (PUBLIC, 5000))

    call_in(fd, send, "203.0.113.7", b"forged")
    call_in(fd, send, guest.address.partition("/")[0], b"honest")
    with sink:
        sink.settimeout(5)
        data, peer = sink.recvfrom(100)
    assert (data, peer[0]) == (b"honest", HOST)


async def test_there_is_no_ipv6(network, inside):
    fd = inside(await network.attach(SANDBOX, Policy()))

    def dial():
        with socket.create_connection(("2001:db8::1", 80), timeout=4):
            pass

    with pytest.raises(OSError, match=r"unreachable|assign"):
        call_in(fd, dial)
    assert "inet6" not in run_in(fd, program=("ip", "addr", "show", "dev", "eth0"))
    assert "inet6" not in run_in(fd, program=("ip", "addr", "show", "dev", "eth0"))


async def test_udp_is_refused_at_once_too(network, inside):
    fd = inside(await network.attach(SANDBOX, Policy()))

    def ask(address):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(4)
            sock.connect((address, 5353))
            sock.send(b"x")
            sock.recv(100)

    for address in (PRIVATE, METADATA, HOST):
        with pytest.raises(ConnectionRefusedError):
            call_in(fd, ask, address)


async def test_a_sandbox_cannot_fill_the_hosts_table_of_connections(
    lab, network, inside, monkeypatch
):
    monkeypatch.setattr(ruleset, "FLOWS_MAX", 20)
    listener = call_in(lab.internet, socket.create_server, (PUBLIC, 80))
    greedy = inside(await network.attach(SANDBOX, Policy()))
    other = inside(await network.attach(OTHER, Policy()))

    def dial():
        return socket.create_connection((PUBLIC, 80), timeout=4)

    with contextlib.ExitStack() as stack:
        stack.enter_context(listener)
        opened = [stack.enter_context(call_in(greedy, dial)) for _ in range(20)]
        with pytest.raises(ConnectionRefusedError):
            call_in(greedy, dial)
        stack.enter_context(call_in(other, dial))
        for client in opened[:5]:  # both ends close: room again
            client.close()
            listener.accept()[0].close()
        # The kernel forgets closed connections a few at a time, as new ones come.
        async with asyncio.timeout(20):
            while not (room := dial_or_none(greedy, dial)):
                await asyncio.sleep(0.01)
        stack.enter_context(room)


def dial_or_none(fd, dial):
    try:
        return call_in(fd, dial)
    except ConnectionRefusedError:
        return None


async def test_the_same_sandbox_twice_is_refused(network):
    guest = await network.attach(SANDBOX, Policy())
    with pytest.raises(AlreadyExists):
        await network.attach(SANDBOX, Policy())
    await network.detach(guest)
    await network.detach(guest)


async def test_TB045_a_published_port_of_a_container_is_no_way_in(lab, network, inside):
    """The host translates its port 8080 to a container: refused before the translation."""
    lab.serve(lab.internet, PRIVATE, 80, b"container\n")
    run_in(
        lab.host,
        "table ip nat { chain pre { type nat hook prerouting priority dstnat;"
        f" tcp dport 8080 dnat to {PRIVATE}:80; }}\n }}",
        program=("nft", "-f", "-"),
    )
    guest = await network.attach(SANDBOX, Policy())
    fd = inside(guest)
    for address in (HOST, guest.gateway):
        assert attempt(fd, address, 8080) == REFUSED


async def test_TB097_the_mtu_is_the_uplinks(monkeypatch, engine_id, tmp_path):
    from integration.network import lab as labs
    from tupper.network import namespaces
    from tupper.network.forwarding import Forwarding

    monkeypatch.setattr(namespaces, "find_resolvers", lambda: (RESOLVER,))
    with labs.Lab(uplink_mtu=1420) as lab:
        network = namespaces.Namespaces(engine_id, tmp_path, forwarding=Forwarding(tmp_path / "r"))
        guest = await network.attach(SANDBOX, Policy())
        try:
            fd = lab.close_later(labs.named(guest.netns))
            assert guest.mtu == 1420
            assert "mtu 1420" in run_in(fd, program=("ip", "link", "show", "dev", "eth0"))
            size = 20 << 20
            lab.serve(lab.internet, PUBLIC, 80, b"x" * size)
            assert call_in(fd, _download, PUBLIC) == size
            # A guest that believes in more is told less by the clamp in SYN packets.
            run_in(fd, "link set dev eth0 mtu 1500")
            assert call_in(fd, _segment_size, PUBLIC) <= 1420 - 40
        finally:
            await network.sweep([])


def _download(address):
    with socket.create_connection((address, 80), timeout=20) as sock:
        total = 0
        while chunk := sock.recv(1 << 20):
            total += len(chunk)
        return total


def _segment_size(address):
    with socket.create_connection((address, 80), timeout=20) as sock:
        return struct.unpack("i", sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 4))[0]
