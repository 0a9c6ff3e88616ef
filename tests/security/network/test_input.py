"""Text that would mean something to the programs that make networks never reaches them."""

import pytest

from tupper.core import process
from tupper.core.errors import InvalidArgument
from tupper.network import Policy
from tupper.network.holder import Holders
from tupper.network.namespaces import Namespaces

IDS = ["", "..", "../x", "a/b", "a b", "a\nlink del eth0", "-force", "a" * 65, "é", "a;b", "a\0"]


@pytest.fixture(autouse=True)
def no_programs(monkeypatch):
    async def refuse(argv, **_):
        raise AssertionError(f"started {argv}")

    monkeypatch.setattr(process, "run", refuse)


@pytest.mark.parametrize("kind", [Namespaces, Holders])
@pytest.mark.parametrize("sandbox_id", IDS)
async def test_an_id_that_is_more_than_a_name_is_refused(tmp_path, kind, sandbox_id):
    with pytest.raises(InvalidArgument):
        await kind("abcde", tmp_path).attach(sandbox_id, Policy())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [Namespaces, Holders])
@pytest.mark.parametrize("engine_id", ["", "abcd", "abcdef", "ABCDE", "a*b+c", "../..", "ab\nde"])
def test_an_engine_id_that_could_match_anothers_names_is_refused(tmp_path, kind, engine_id):
    with pytest.raises(InvalidArgument):
        kind(engine_id, tmp_path)


@pytest.mark.parametrize("kind", [Namespaces, Holders])
@pytest.mark.parametrize(
    "policy",
    [
        Policy(allow_out=("1.1.1.1 }\nflush ruleset\n",)),
        Policy(deny_out=("1.1.1.1, 2.2.2.2",)),
        Policy(deny_out=("$x",)),
        Policy(allow_host_ports=(-1,)),
    ],
)
async def test_a_policy_that_is_more_than_addresses_is_refused(tmp_path, kind, policy):
    with pytest.raises(InvalidArgument):
        await kind("abcde", tmp_path).attach("i" + "a" * 20, policy)
    assert list(tmp_path.iterdir()) == []
