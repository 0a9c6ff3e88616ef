"""Files, environment, profiles; what is wrong in them is named."""

import json

import pytest

from tupper.core.config import load_config
from tupper.core.errors import InvalidArgument, ProfileNotFound
from tupper.core.paths import find_paths


@pytest.fixture
def paths(tmp_path):
    found = find_paths({"TUPPER_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)})
    found.config.mkdir(parents=True)
    return found


def write(directory, name, text):
    (directory / name).write_text(text)


def test_nothing_is_needed(paths, tmp_path):
    config = load_config(paths, cwd=tmp_path)
    assert (config.url, config.profiles, config.create_defaults()) == ("", {}, {})
    assert config.settings.max_sandboxes == 1000


TOML = """
url = "http://server:1"
profile = "small"
[settings]
allow_internet_access = false
default_timeout_s = 60
[settings.backends.gvisor]
platform = "ptrace"
[defaults]
memory = "2GiB"
cpus = 2
[profiles.small]
memory = 256
[profiles.data-science]
extends = "small"
image = "python:3.13"
"""


@pytest.mark.parametrize("form", ["toml", "yaml", "json"])
def test_one_configuration_in_three_forms(paths, form):
    import tomllib

    import yaml

    content = tomllib.loads(TOML)
    text = {"toml": TOML, "yaml": yaml.safe_dump(content), "json": json.dumps(content)}[form]
    write(paths.config, f"config.{form}", text)
    config = load_config(paths)
    assert config.url == "http://server:1"
    assert config.settings.allow_internet_access is False
    assert config.settings.default_timeout_s == 60.0
    assert config.settings.backends == {"gvisor": {"platform": "ptrace"}}
    assert config.create_defaults() == {"memory": 256, "cpus": 2}
    assert config.create_defaults("data-science") == {
        "memory": 256,
        "cpus": 2,
        "image": "python:3.13",
    }


def test_the_project_wins_over_the_user_and_the_environment_over_both(paths, tmp_path):
    write(paths.config, "config.toml", '[defaults]\nimage = "user"\ntimeout = 1\ncpus = 1\n')
    write(tmp_path, "tupper.yaml", "defaults: {image: project, timeout: 2}")
    config = load_config(paths, cwd=tmp_path, environ={"TUPPER_TIMEOUT": "3"})
    assert config.create_defaults() == {"image": "project", "timeout": 3.0, "cpus": 1}


def test_environment_of_the_settings(paths):
    environ = {
        "TUPPER_ALLOW_INTERNET_ACCESS": "no",
        "TUPPER_MAX_SANDBOXES": "7",
        "TUPPER_BACKEND": "gvisor",
        "TUPPER_URL": "unix:/x",
        "TUPPER_SOMETHING_ELSE": "ignored",
    }
    config = load_config(paths, environ=environ)
    assert config.settings.allow_internet_access is False
    assert config.settings.max_sandboxes == 7
    assert config.settings.backend == "gvisor"
    assert config.url == "unix:/x"
    with pytest.raises(InvalidArgument, match="TUPPER_MAX_SANDBOXES='many'"):
        load_config(paths, environ={"TUPPER_MAX_SANDBOXES": "many"})


@pytest.mark.parametrize(
    ("text", "key", "meant"),
    [
        ("[profile.x]\n", "profile", None),
        ("[seting]\n", "seting", "settings"),
        ("[settings]\nmax_sandboxs = 1\n", "settings.max_sandboxs", "max_sandboxes"),
        ("[profiles.p]\nmemroy = 1\n", "profiles.p.memroy", "memory"),
        ("[defaults]\nimmage = 'x'\n", "defaults.immage", "image"),
    ],
)
def test_unknown_keys_name_file_key_and_what_was_meant(paths, text, key, meant):
    write(paths.config, "config.toml", text)
    with pytest.raises(InvalidArgument) as caught:
        load_config(paths)
    assert str(paths.config / "config.toml") in str(caught.value)
    assert key in str(caught.value)
    if meant:
        assert caught.value.hint == f"did you mean {meant!r}?"


@pytest.mark.parametrize(
    "text",
    [
        "[settings]\nmax_sandboxes = 'x'\n",
        "[settings]\nallow_internet_access = 1\n",
        "[defaults]\ncpus = true\n",
        "[profiles.p]\nenvs = 'A=1'\n",
        "profiles = 3\n",
        "url = 3\n",
        "not toml at all",
    ],
)
def test_values_of_the_wrong_kind(paths, text):
    write(paths.config, "config.toml", text)
    with pytest.raises(InvalidArgument, match=r"config\.toml"):
        load_config(paths)


def test_unknown_profiles_list_the_known_ones(paths):
    write(paths.config, "config.toml", "[profiles.web]\n[profiles.data]\nextends = 'base'\n")
    config = load_config(paths)
    with pytest.raises(ProfileNotFound, match="'wed'; known: data, web") as caught:
        config.create_defaults("wed")
    assert caught.value.hint == "did you mean 'web'?"
    with pytest.raises(ProfileNotFound, match="which profile 'data' extends"):
        config.create_defaults("data")


def test_profiles_in_a_circle(paths):
    write(paths.config, "config.toml", "[profiles.a]\nextends='b'\n[profiles.b]\nextends='a'\n")
    with pytest.raises(InvalidArgument, match="a -> b -> a"):
        load_config(paths).create_defaults("a")


@pytest.mark.parametrize(
    "text",
    [
        "url = 'http://evil'\n",
        "api_key = 'x'\n",
        "[settings]\nallow_internet_access = true\n",
        "[defaults]\nallow_host_ports = [22]\n",
        "[defaults]\nfallback = ['e2b']\n",
        "[profiles.a]\nbackend = 'e2b'\n",
        "[profiles.p.backend_options]\nx = 1\n",
        "[defaults]\nmounts = ['/:/host']\n",
        "[defaults]\nmounts = ['../..:/host']\n",
        "[defaults]\nmounts = ['~:/host']\n",
        "[profiles.p]\nvolumes = {'/etc' = '/etc'}\n",
        "[profiles.p]\nmounts = [['/etc', '/etc']]\n",
        "[profiles.p]\nmounts = ['link:/etc']\n",
    ],
)
def test_a_project_file_cannot_open_the_host(paths, tmp_path, text):
    (tmp_path / "link").symlink_to("/etc")
    write(tmp_path, "tupper.toml", text)
    with pytest.raises(InvalidArgument, match=r"tupper\.toml"):
        load_config(paths, cwd=tmp_path)


def test_mounts_are_relative_to_the_file(paths, tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    write(project, "tupper.toml", "[defaults]\nmounts = ['data:/d:ro']\nvolumes = {'.' = '/w'}\n")
    defaults = load_config(paths, cwd=project).create_defaults()
    assert defaults["mounts"] == [f"{project}/data:/d:ro"]
    assert defaults["volumes"] == {str(project): "/w"}


def test_two_files_are_one_too_many(paths):
    write(paths.config, "config.toml", "")
    write(paths.config, "config.json", "{}")
    with pytest.raises(InvalidArgument, match="two configuration files"):
        load_config(paths)


def test_every_create_key_is_an_argument_of_create():
    from tupper.core.config import CREATE_KEYS
    from tupper.sdk._shared.create import Creation

    assert set(CREATE_KEYS) <= set(Creation.__dataclass_fields__)
