"""Policies, the text of the packet filter, resolvers and subnets: all of it pure."""

import ipaddress

import pytest

from tupper.core.errors import InvalidArgument
from tupper.network import Policy
from tupper.network.policy import BUILT_IN_DENIALS, check_policy
from tupper.network.resolvers import find_resolvers, parse_resolvers
from tupper.network.ruleset import (
    Member,
    elements_of,
    render_add,
    render_change,
    render_remove,
    render_table,
)
from tupper.network.subnets import POOLS, Subnet, find_pool, pick_subnet


@pytest.mark.parametrize(
    ("policy", "is_open"),
    [
        (Policy(), True),
        (Policy(internet=False), False),
        (Policy(deny_out=("0.0.0.0/0",)), False),
        (Policy(deny_out=("0.0.0.0/0",), allow_out=("0.0.0.0/0",)), True),
        (Policy(internet=False, allow_out=("0.0.0.0/0",)), True),
        (Policy(deny_out=("::/0",)), True),
    ],
)
def test_the_default_of_a_policy(policy, is_open):
    assert check_policy(policy).is_open is is_open


def test_lists_are_collapsed_so_that_no_interval_overlaps():
    verdicts = check_policy(
        Policy(
            allow_out=("203.0.113.7/24", "203.0.113.9", "198.51.100.1"),
            deny_out=("203.0.113.0/25", "203.0.113.128/25"),
            allow_host_ports=(80, 80, 22),
        )
    )
    assert verdicts.allowed == ("198.51.100.1/32", "203.0.113.0/24")
    assert verdicts.denied == ("203.0.113.0/24",)
    assert verdicts.host_ports == (22, 80)


@pytest.mark.parametrize(
    "policy",
    [
        Policy(deny_out=("example.com",)),
        Policy(allow_out=("*.example.com",)),
        Policy(allow_out=("2001:db8::/32",)),
        Policy(allow_out=("",)),
        Policy(allow_out=("1.2.3.4 } ; drop",)),
        Policy(allow_out=("1.2.3.4/33",)),
        Policy(allow_host_ports=(0,)),
        Policy(allow_host_ports=(65536,)),
        Policy(deny_out=tuple(f"10.{n // 256}.{n % 256}.0/24" for n in range(1001))),
    ],
)
def test_what_is_no_address_is_refused(policy):
    with pytest.raises(InvalidArgument):
        check_policy(policy)


def test_the_ranges_that_are_always_denied_cover_what_must_be():
    denied = [ipaddress.ip_network(text) for text in BUILT_IN_DENIALS]
    must = ["10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.100.100.200",
            "127.0.0.1", "224.0.0.1", "255.255.255.255", "0.0.0.0", "198.18.0.1"]  # fmt: skip
    for address in must:
        assert any(ipaddress.ip_address(address) in network for network in denied), address
    # Every range of our own subnets is denied: sandboxes do not see each other.
    assert all(any(pool.subnet_of(network) for network in denied) for pool in POOLS)


def member(policy=None, **options):
    verdicts = check_policy(policy or Policy())
    return Member("tpabcde00001", "10.231.0.6", verdicts, **options)


def test_a_closed_sandbox_has_no_name_service():
    dns = (("10.231.0.5", "10.0.0.53"),)
    assert elements_of(member(dns=dns))["dns"] == ("10.231.0.6 . 10.231.0.5 : 10.0.0.53",)
    closed = elements_of(member(Policy(internet=False), dns=dns))
    assert closed["dns"] == closed["dns_clients"] == closed["online"] == ()


def test_adding_and_removing_name_the_same_elements():
    added = render_add("abcde", member())
    assert added == (
        'add element inet tupper_abcde sources { "tpabcde00001" . 10.231.0.6 }\n'
        "add element inet tupper_abcde online { 10.231.0.6 }\n"
    )
    assert render_remove("abcde", member()) == added + added.replace("add ", "delete ")


def test_a_change_touches_only_the_difference():
    old = member(Policy(deny_out=("1.0.0.0/8", "2.0.0.0/8")))
    new = member(Policy(deny_out=("2.0.0.0/8", "9.0.0.0/8")))
    text = render_change("abcde", old, new)
    assert "delete element inet tupper_abcde denied { 10.231.0.6 . 1.0.0.0/8 }" in text
    assert "add element inet tupper_abcde denied { 10.231.0.6 . 9.0.0.0/8 }" in text
    assert "2.0.0.0/8" not in text
    assert render_change("abcde", old, old) == ""


def test_the_table_is_made_anew_in_one_transaction():
    text = render_table("abcde", [member()], resolvers=["10.0.0.53"], guarded=["eth0"])
    assert text.startswith("table inet tupper_abcde\ndelete table inet tupper_abcde\n")
    assert 'add element inet tupper_abcde guarded { "eth0" }' in text
    assert 'iifname "tpabcde*" jump judge' in text
    assert "flush" not in text


RESOLV = "# generated\nnameserver 127.0.0.53\noptions edns0\nsearch lan\n"


def test_TB035_the_stub_is_replaced_by_its_upstream(tmp_path):
    conf, upstream = tmp_path / "resolv.conf", tmp_path / "upstream.conf"
    conf.write_text(RESOLV)
    upstream.write_text("nameserver 192.168.1.1\nnameserver fe80::1%eth0\nnameserver 9.9.9.9\n")
    assert find_resolvers(conf, upstream) == ("192.168.1.1", "9.9.9.9")
    assert find_resolvers(conf, tmp_path / "none") == ("127.0.0.53",)
    assert find_resolvers(tmp_path / "none", upstream) == ()


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("nameserver 10.0.0.1\nnameserver 10.0.0.1", ("10.0.0.1",)),
        ("nameserver 0.0.0.0", ("127.0.0.1",)),
        ("nameserver ::1\nnameserver not-an-address\nnameserver", ()),
        (" nameserver\t10.0.0.1 # here\n;nameserver 10.0.0.2", ("10.0.0.1",)),
        ("nameserver 1.1.1.1\n" * 1 + "nameserver 1.0.0.1\nnameserver 8.8.8.8\nnameserver 8.8.4.4",
         ("1.1.1.1", "1.0.0.1", "8.8.8.8", "8.8.4.4")),
    ],
)  # fmt: skip
def test_lines_of_resolv_conf(text, servers):
    assert parse_resolvers(text) == servers


def test_at_most_three_servers(tmp_path):
    path = tmp_path / "resolv.conf"
    path.write_text("".join(f"nameserver 9.9.9.{n}\n" for n in range(5)))
    assert len(find_resolvers(path)) == 3


def test_a_subnet_and_its_names():
    subnet = Subnet(0, 1)
    assert (subnet.gateway, subnet.guest) == ("10.231.0.5", "10.231.0.6")
    assert subnet.virtual_servers == ("10.231.0.5", "10.231.255.253", "10.231.255.254")
    assert (subnet.code, subnet.claim) == ("00001", "tupper-10.231.0.4")
    assert len("tp" + "abcde" + Subnet(4, 2**14 - 2).code) <= 15
    # No sandbox has the virtual servers' addresses.
    assert Subnet(0, 2**14 - 2).guest == "10.231.255.250"


@pytest.mark.parametrize(
    ("taken", "pool"),
    [
        ([], 0),
        (["0.0.0.0/0"], 0),
        (["10.0.0.0/8"], 2),
        (["10.231.7.0/24"], 1),
        (["10.0.0.0/8", "172.16.0.0/12", "198.18.0.0/15", "100.64.0.0/10"], 0),
        (["10.231.0.0/24", "10.173.0.0/16", "172.16.0.0/12", "198.18.0.0/15", "100.64.0.0/10"], 4),
    ],
)
def test_a_range_is_chosen_around_the_hosts_routes(taken, pool):
    assert find_pool(map(ipaddress.IPv4Network, taken)) == pool


def test_a_picked_subnet_is_in_its_pool():
    for pool, network in enumerate(POOLS):
        assert pick_subnet(pool).network.subnet_of(network)
