"""Secrets, as far as they are kept. Rows of the checklist; see ``rows``."""

from rows_common import NotHere, new_name, row


def secret_class(w):
    """The class of secrets of this SDK's half, with one face."""
    name = "AsyncSecret" if w.is_async else "Secret"
    if not hasattr(w.sdk, name):
        raise NotHere(f"no {name} in this SDK")
    return w.face(getattr(w.sdk, name))


@row
def row_secrets_kept_and_never_shown(w):
    Secret, name = secret_class(w), new_name()
    made = Secret.create(name, "the-value", metadata={"a": "b"})
    assert (made.name, made.version, made.metadata) == (name, 1, {"a": "b"})
    assert "the-value" not in repr(made)
    assert Secret.update(name, "another").version == 2
    assert Secret.get_info(made.secret_id).version == 2
    assert Secret.exists(name) is True
    pages, names = Secret.list(limit=1), []
    while pages.has_next:
        names += [each.name for each in pages.next_items()]
    assert name in names
    w.raises("SecretException", lambda: Secret.create(name, "again"))
    assert Secret.destroy(name) is True
    assert Secret.destroy(name) is False
    assert Secret.exists(name) is False
    w.raises("SecretNotFoundException", lambda: Secret.get_info(name))


@row
def row_secrets_in_requests_are_refused(w):
    Secret = secret_class(w)
    rules = {"example.com": [{"transform": {"headers": {"X": w.sdk.Secret.fill("name")}}}]}
    w.raises("SandboxException", lambda: w.create(network={"rules": rules}), "not support")
    assert Secret.exists("name") is False
