"""Networks come and go, alone and many at once, beside other engines and other firewalls."""

import asyncio
import errno
import shutil
import threading
from pathlib import Path

import pytest

from integration.network.lab import (
    PUBLIC,
    RESOLVER,
    attempt,
    new_namespace,
    resolve,
    run_in,
)
from tupper.network import Policy, namespaces

REFUSED = "Connection refused"


def sandbox(number):
    return f"i{number:020d}"


def forwarding(device):
    return Path(f"/proc/sys/net/ipv4/conf/{device}/forwarding").read_text().strip()


def rules(lab):
    return run_in(lab.host, program=("nft", "list", "ruleset"))


def links(lab):
    return run_in(lab.host, program=("ip", "-br", "link"))


def namespaces_of(engine_id):
    return [p.name for p in Path("/run/netns").glob(f"tp-{engine_id}-*")]


async def test_nothing_is_left_after_the_last_one(lab, network, engine_id, tmp_path):
    before = (rules(lab), links(lab))
    assert forwarding("eth0") == "0"
    guests = [await network.attach(sandbox(n), Policy()) for n in range(2)]
    assert (forwarding("eth0"), forwarding("all")) == ("1", "0")
    await network.detach(guests[0])
    assert forwarding("eth0") == "1"
    await network.detach(guests[1])
    assert (rules(lab), links(lab)) == before
    assert forwarding("eth0") == "0"
    assert namespaces_of(engine_id) == []
    assert list((tmp_path / engine_id / "network").iterdir()) == []


async def test_24_at_once(lab, network, inside, engine_id):
    guests = await asyncio.gather(
        *(network.attach(sandbox(n), Policy(deny_out=(f"203.0.113.{n}",))) for n in range(24))
    )
    lab.serve(lab.internet, PUBLIC, 80)
    assert len({guest.address for guest in guests}) == 24
    for guest in guests:
        assert attempt(inside(guest), PUBLIC, 80) == b"hello\n"
    await asyncio.gather(*(network.detach(guest) for guest in guests))
    assert namespaces_of(engine_id) == []
    assert "tupper" not in rules(lab)


async def test_coming_and_going_at_once(lab, network, inside):
    """The table goes with the last one while others come: nobody may lose his rules."""
    lab.serve(lab.internet, PUBLIC, 80)

    async def life(number):
        for _ in range(4):
            guest = await network.attach(sandbox(number), Policy())
            assert attempt(inside(guest), PUBLIC, 80) == b"hello\n"
            await network.detach(guest)

    await asyncio.gather(*(life(number) for number in range(3)))
    assert "tupper" not in rules(lab)


async def test_two_engines_do_not_touch_each_others(lab, make_network, inside):
    lab.serve(lab.internet, PUBLIC, 80)
    one, two = make_network("zaaaa"), make_network("zbbbb")
    mine = await one.attach(sandbox(1), Policy())
    theirs = await two.attach(sandbox(1), Policy())
    assert await one.sweep([]) == [sandbox(1)]
    assert "tupper_zaaaa" not in rules(lab)
    assert attempt(inside(theirs), PUBLIC, 80) == b"hello\n"
    assert forwarding("eth0") == "1"
    await one.detach(mine)
    await two.detach(theirs)
    assert forwarding("eth0") == "0"


async def test_a_subnet_is_never_given_twice(lab, make_network, monkeypatch):
    """Two engines that choose the same subnet: the link's second name decides."""
    choices = iter([7, 7, 7, 8])
    monkeypatch.setattr("tupper.network.subnets.secrets.randbelow", lambda _: next(choices))
    one, two = make_network("zaaaa"), make_network("zbbbb")
    first = await one.attach(sandbox(1), Policy())
    second = await two.attach(sandbox(1), Policy())
    assert first.address == "10.231.0.30/30"
    assert second.address == "10.231.0.34/30"
    for network in (one, two):
        await network.sweep([])
    assert "tp" not in links(lab)


async def test_a_range_that_the_host_routes_is_left_alone(lab, network):
    run_in(
        lab.host,
        "link add vpn type veth peer name vpn1",
        "link set vpn1 up",
        "link set vpn up",
        "route add 10.0.0.0/8 dev vpn",
    )
    guest = await network.attach(sandbox(1), Policy())
    assert guest.address.startswith("172.29.")


async def test_sweep_keeps_the_living_and_says_what_went(lab, make_network, inside, engine_id):
    lab.serve(lab.internet, PUBLIC, 80)
    crashed = make_network()
    kept = await crashed.attach(sandbox(1), Policy(allow_host_ports=(99,)))
    await crashed.attach(sandbox(2), Policy())
    # A crash in the middle of making one: a namespace without a link, a link without rules.
    run_in(lab.host, f"netns add tp-{engine_id}-{sandbox(3)}")
    run_in(
        lab.host,
        f"link add tp{engine_id}03fff type veth peer name eth0 netns tp-{engine_id}-{sandbox(3)}",
    )
    network = make_network()  # the next process
    assert await network.sweep([sandbox(1)]) == [sandbox(2), sandbox(3)]
    assert namespaces_of(engine_id) == [f"tp-{engine_id}-{sandbox(1)}"]
    assert links(lab).count(f"tp{engine_id}") == 1
    assert attempt(inside(kept), PUBLIC, 80) == b"hello\n"
    await network.update(kept, Policy(internet=False))
    assert attempt(inside(kept), PUBLIC, 80) == REFUSED
    await network.detach(kept)
    assert forwarding("eth0") == "0"


async def test_a_sweep_while_one_is_made_leaves_that_alone(lab, network, monkeypatch, inside):
    lab.serve(lab.internet, PUBLIC, 80)
    reached, go_on = threading.Event(), threading.Event()
    set_up = network._set_up_guest

    def slowly(subnet):
        reached.set()
        assert go_on.wait(60)
        set_up(subnet)

    monkeypatch.setattr(network, "_set_up_guest", slowly)
    making = asyncio.create_task(network.attach(sandbox(1), Policy()))
    assert await asyncio.to_thread(reached.wait, 20)
    assert await network.sweep([]) == []
    go_on.set()
    assert attempt(inside(await making), PUBLIC, 80) == b"hello\n"


async def test_rules_that_somebody_flushed_are_made_again(lab, network, inside):
    lab.serve(lab.internet, PUBLIC, 80)
    lab.resolver(lab.internet, RESOLVER, PUBLIC)
    first = await network.attach(sandbox(1), Policy())
    run_in(lab.host, program=("nft", "flush", "ruleset"))
    await network.attach(sandbox(2), Policy())
    assert attempt(inside(first), PUBLIC, 80) == b"hello\n"
    assert resolve(inside(first), first.gateway) == PUBLIC
    run_in(lab.host, program=("nft", "flush", "ruleset"))
    await network.sweep([sandbox(1), sandbox(2)])
    assert attempt(inside(first), PUBLIC, 80) == b"hello\n"


async def test_a_failed_attach_leaves_nothing(lab, network, monkeypatch, engine_id):
    before = (rules(lab), links(lab))

    def fail(_):
        raise OSError(errno.EPERM, "no")

    monkeypatch.setattr(network, "_set_up_guest", fail)
    with pytest.raises(namespaces.NetworkError):
        await network.attach(sandbox(1), Policy())
    assert (rules(lab), links(lab)) == before
    assert namespaces_of(engine_id) == []
    assert forwarding("eth0") == "0"


async def test_a_cancelled_attach_leaves_nothing(lab, network, monkeypatch, engine_id):
    reached, go_on = threading.Event(), threading.Event()

    def wait(_):
        reached.set()
        assert go_on.wait(60)

    monkeypatch.setattr(network, "_set_up_guest", wait)
    task = asyncio.create_task(network.attach(sandbox(1), Policy()))
    assert await asyncio.to_thread(reached.wait, 20)
    task.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert namespaces_of(engine_id) == []
    assert "tupper" not in rules(lab)
    assert "tp" not in links(lab)


async def test_a_namespace_that_is_still_in_use_is_removed_all_the_same(lab, network, inside):
    guest = await network.attach(sandbox(1), Policy())
    inside(guest)  # the descriptor keeps the namespace and its devices alive
    await network.detach(guest)
    assert "tp" not in links(lab)


async def test_a_host_that_forwards_already_stays_so(lab, network):
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    guest = await network.attach(sandbox(1), Policy())
    await network.detach(guest)
    assert (forwarding("all"), forwarding("eth0")) == ("1", "1")


async def test_forwarding_that_somebody_switched_on_meanwhile_stays_on(lab, network):
    guest = await network.attach(sandbox(1), Policy())
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")  # a container engine starts
    await network.detach(guest)
    assert (forwarding("all"), forwarding("eth0")) == ("1", "1")


async def test_the_host_does_not_become_a_router(lab, network):
    """A neighbour of the uplink tries to get through us into another network of the host."""
    behind = lab.close_later(new_namespace())
    run_in(lab.host, "link add lan0 type veth peer name lan1", "link set lan0 up")
    holder = in_namespace(behind)
    run_in(lab.host, f"link set lan1 netns {holder.pid}", "address add 10.55.0.1/24 dev lan0")
    holder.release()
    run_in(behind, "link set lo up", "address add 10.55.0.2/24 dev lan1", "link set lan1 up",
           "route add default via 10.55.0.1")  # fmt: skip
    run_in(lab.internet, "route add 10.55.0.0/24 via 192.0.2.10")
    lab.serve(behind, "0.0.0.0", 80)
    await network.attach(sandbox(1), Policy())
    assert attempt(lab.internet, "10.55.0.2", 80) == "TimeoutError"


def in_namespace(fd):
    from integration.network.lab import call_in_held

    return call_in_held(fd)


needs_iptables = pytest.mark.skipif(not shutil.which("iptables"), reason="iptables: not installed")


def dockers_rules(lab, *, user_chain=True):
    """What dockerd puts there, as far as it matters."""
    lines = ["*filter", ":INPUT ACCEPT", ":FORWARD DROP", ":OUTPUT ACCEPT", ":DOCKER -"]
    if user_chain:
        lines += [":DOCKER-USER -", "-A FORWARD -j DOCKER-USER", "-A DOCKER-USER -j RETURN"]
    lines += ["-A FORWARD -o docker0 -j DOCKER", "COMMIT"]
    run_in(lab.host, *lines, program=("iptables-restore",))


@needs_iptables
@pytest.mark.parametrize("user_chain", [True, False])
async def test_beside_docker(lab, network, inside, user_chain):
    dockers_rules(lab, user_chain=user_chain)
    before = run_in(lab.host, program=("iptables", "-S"))
    lab.serve(lab.internet, PUBLIC, 80)
    guests = [await network.attach(sandbox(n), Policy()) for n in range(2)]
    for guest in guests:
        assert attempt(inside(guest), PUBLIC, 80) == b"hello\n"
    during = run_in(lab.host, program=("iptables", "-S"))
    assert during.count("tupper") == 2
    assert set(before.splitlines()) < set(during.splitlines())
    chain = "DOCKER-USER" if user_chain else "FORWARD"
    assert all(line.startswith(f"-A {chain} ") for line in during.splitlines() if "tupper" in line)
    for guest in guests:
        await network.detach(guest)
    assert run_in(lab.host, program=("iptables", "-S")) == before


@needs_iptables
async def test_docker_that_comes_later_is_noticed_by_the_next_attach(lab, network, inside):
    lab.serve(lab.internet, PUBLIC, 80)
    first = await network.attach(sandbox(1), Policy())
    dockers_rules(lab)
    await network.attach(sandbox(2), Policy())
    assert attempt(inside(first), PUBLIC, 80) == b"hello\n"


async def test_beside_a_native_firewall_that_drops(lab, network, inside):
    table = """table inet mine {
      chain forward { type filter hook forward priority 0; policy drop;
        ip daddr 203.0.113.1 accept
      }
    }"""
    run_in(lab.host, table, program=("nft", "-f", "-"))
    before = rules(lab)
    lab.serve(lab.internet, PUBLIC, 80)
    guest = await network.attach(sandbox(1), Policy())
    assert attempt(inside(guest), PUBLIC, 80) == b"hello\n"
    await network.detach(guest)
    assert rules(lab) == before


async def test_beside_firewalld(lab, network, inside):
    table = """table inet firewalld {
      chain filter_FORWARD { type filter hook forward priority 10; policy accept;
        ct state established,related accept
        reject with icmpx admin-prohibited
      }
    }"""
    run_in(lab.host, table, program=("nft", "-f", "-"))
    before = rules(lab)
    lab.serve(lab.internet, PUBLIC, 80)
    guest = await network.attach(sandbox(1), Policy())
    assert attempt(inside(guest), PUBLIC, 80) == b"hello\n"
    await network.detach(guest)
    assert rules(lab) == before


async def test_those_who_come_together_are_let_in_by_one_transaction(
    lab, network, monkeypatch, inside
):
    """Also when it fails: that is the matter of one of them, the others try again together."""
    lab.serve(lab.internet, PUBLIC, 80)
    await network.attach(sandbox(1), Policy())
    all_there, begun, scripts = asyncio.Event(), [], []
    admit, apply = network._admit, network._apply

    async def admit_counted(*arguments):
        begun.append(arguments)
        if len(begun) == 5:
            all_there.set()
        await admit(*arguments)

    async def apply_but_not_at_first(script):
        scripts.append(script)
        if len(scripts) == 1:
            raise namespaces.NetworkError("no")
        await apply(script)

    monkeypatch.setattr(network, "_admit", admit_counted)
    monkeypatch.setattr(network, "_apply", apply_but_not_at_first)
    async with network._lock:
        attaching = [asyncio.create_task(network.attach(sandbox(n), Policy())) for n in range(2, 7)]
        await asyncio.wait_for(all_there.wait(), 20)
    results = await asyncio.gather(*attaching, return_exceptions=True)
    failed = [result for result in results if isinstance(result, namespaces.NetworkError)]
    assert len(failed) == 1
    for guest in results:
        if guest not in failed:
            assert attempt(inside(guest), PUBLIC, 80) == b"hello\n"
    assert sum("add element" in script for script in scripts[:2]) == 2
    assert scripts[1].count("sources") == 4
