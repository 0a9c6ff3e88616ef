from urllib.parse import quote, unquote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tupper.core import errors
from tupper.core.errors import InvalidArgument, TupperError
from tupper.core.lifecycle import State
from tupper.core.sandbox import SandboxRecord
from tupper.protocol import e2b
from tupper.protocol.e2b import (
    NotYet,
    create_request,
    file_signature,
    parse_metadata_filter,
    parse_time,
    parse_token,
    render_detail,
    render_time,
    render_token,
    status_of,
)
from tupper.protocol.fields import Fields


def request(**body):
    return create_request(Fields(body), default_timeout_s=300)


def test_what_the_sdks_send():
    made = request(
        templateID="base", timeout=77, autoPause=False, secure=True, metadata={"k": "v"},
        envVars={"A": "b"}, network={"allowOut": ["1.1.1.1"], "denyOut": ["0.0.0.0/0"]},
        allow_internet_access=False, mcp={"x": {}}, autoResume={"enabled": False},
    )  # fmt: skip
    assert (made.template, made.timeout_s, made.metadata, made.env) == (
        "base",
        77,
        {"k": "v"},
        {"A": "b"},
    )
    assert (made.allow_out, made.deny_out) == (("1.1.1.1",), ("0.0.0.0/0",))
    assert made.allow_internet is False


def test_timeout_absent_is_the_default_and_null_is_never():
    assert request().timeout_s == 300
    assert request(timeout=None).timeout_s is None


@pytest.mark.parametrize(
    "body",
    [
        {"network": {"rules": {"a": []}}},
        {"network": {"egressProxy": {"address": "a:1"}}},
        {"network": {"dnsServers": ["1.1.1.1"]}},
        {"network": {"allowOut": ["example.com"], "denyOut": ["0.0.0.0/0"]}},
        {"iam": {"tokens": {}}},
    ],
)
def test_what_cannot_be_honoured_is_refused(body):
    with pytest.raises(NotYet) as error:
        request(**body)
    assert status_of(error.value.code) == 501


@pytest.mark.parametrize(
    "tupper",
    [
        [], {"cpus": True}, {"cpus": "2"}, {"memoryMiB": 1.5}, {"memoryMiB": 1e400}, {"mounts": [1]},
        {"ports": {"a": 1}}, {"minIsolation": "none"}, {"allowHostPorts": ["1"]}, {"name": 1},
        {"backendOptions": []}, {"workdir": "a\0b"},
    ],
)  # fmt: skip
def test_wrong_types_are_refused(tupper):
    with pytest.raises(InvalidArgument):
        request(tupper=tupper)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda c: st.lists(c, max_size=3) | st.dictionaries(st.text(max_size=5), c, max_size=3),
    )
)
def test_any_json_is_a_request_or_a_typed_error(value):
    for key in ("timeout", "metadata", "network", "tupper", "envVars", "templateID"):
        try:
            request(**{key: value})
        except TupperError:
            continue


def test_metadata_filter_as_recorded():
    assert parse_metadata_filter(unquote("a%252520b%3Dc%252526d")) == {"a b": "c&d"}


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_metadata_filter_undoes_what_the_sdk_does(metadata):
    try:
        pairs = {quote(k, safe=""): quote(v, safe="") for k, v in metadata.items()}
    except UnicodeEncodeError:
        return
    assert parse_metadata_filter(urlencode(pairs)) == metadata


@given(st.floats(0, 4e9), st.booleans())
def test_tokens_come_back(at, ascending):
    at = round(at, 6)
    token = render_token((at, "i1"), ascending=ascending)
    assert parse_token(token, ascending=ascending) == (at, "i1")
    with pytest.raises(InvalidArgument):
        parse_token(token, ascending=not ascending)


@pytest.mark.parametrize("token", ["", "%", "AAAA", "é", "x" * 5000])
def test_nonsense_tokens(token):
    with pytest.raises(InvalidArgument):
        parse_token(token, ascending=False)


def test_times():
    assert render_time(0.5) == "1970-01-01T00:00:00.500000Z"
    assert parse_time("1970-01-01T00:00:00.5Z") == 0.5
    assert parse_time("1970-01-01T01:00:00+01:00") == 0
    with pytest.raises(InvalidArgument):
        parse_time("yesterday")


def test_signature_vector():
    assert (
        file_signature("a.txt", "read", "", "tok")
        == "v1_gDv73H8R9a10OdCSX0/JNMqMYLPpmCQAYJY+U68oQjM"
    )


def test_sandbox_without_an_end_still_has_a_time_for_clients():
    record = SandboxRecord("i", State.RUNNING, "t", started_at=1.0, cpus=0.5)
    body = render_detail(record, domain=None, health="ok", local=False)
    assert body["endAt"].startswith("9999")
    assert body["cpuCount"] == 1
    assert "network" not in body


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("sandbox_not_found", 404), ("program_not_found", 500), ("backend_unavailable", 503),
        ("machine_unreachable", 503), ("image_not_found", 404), ("internal", 500),
        ("unsupported", 501), ("out_of_disk", 507), ("capacity_reached", 429),
    ],
)  # fmt: skip
def test_statuses(code, status):
    assert status_of(code) == status


def test_every_error_has_a_status():
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, TupperError):
            assert 400 <= status_of(kind.code) < 600


def test_listing_never_shows_tokens():
    record = SandboxRecord("i", State.RUNNING, "secret-token")
    assert "secret-token" not in repr(e2b.render_listed(record, health="ok", local=True))
