"""What helper programs see of our environment."""

import os

import pytest

from tupper.core.process import downloading_env, minimal_env


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


def test_only_who_fetches_something_is_told_of_proxies(monkeypatch):
    proxies = {"https_proxy": "http://proxy:1", "NO_PROXY": "localhost"}
    for name, value in {**proxies, "PROXY_PASSWORD": "secret"}.items():
        monkeypatch.setenv(name, value)
    assert downloading_env(MORE="1") == minimal_env(MORE="1") | proxies
    assert minimal_env().keys() == {"PATH", "HOME", "LANG", "LC_ALL"}
