# Made by tools/make_sync.py from _async/secret.py. Do not edit.
"""Secrets: kept by the server and never shown again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Unpack
from urllib.parse import quote

from tupper.protocol.connect import as_list
from tupper.sdk._shared import errors
from tupper.sdk._shared.endpoint import find_target
from tupper.sdk._shared.link import Answer
from tupper.sdk._shared.pages import Pages
from tupper.sdk._shared.secret import SecretInfo, parse_secret
from tupper.sdk._shared.types import ApiParams
from tupper.sdk._sync.control import Control, decode

_ODD = re.compile(r"[{}\x00-\x1f\x7f-\x9f]")


class SecretPaginator(Pages):
    """Secrets, page by page. Made by ``Secret.list()``.

    Args:
        limit: how many on a page, 1 to 100.
        next_token: where to begin.
        opts: how to reach the server.
    """

    _error = errors.SecretException

    def __init__(
        self,
        limit: int | None = None,
        next_token: str | None = None,
        **opts: Unpack[ApiParams],
    ) -> None:
        super().__init__(limit, next_token)
        self._opts = opts

    def next_items(self, **opts: Unpack[ApiParams]) -> list[SecretInfo]:
        """The next page.

        Errors:
            SecretException: there is none.
        """
        answer = _ask("GET", "/secrets", {**self._opts, **opts}, query=self._place())
        self._advance(answer.headers)
        return [parse_secret(each) for each in as_list(decode(answer)) or ()]

    def __iter__(self) -> Iterator[SecretInfo]:
        """All of them, over all pages."""
        while self._has_next:
            for info in self.next_items():
                yield info


class Secret:
    """Keeps secrets. A value goes in and is never given back.

    Nothing takes a secret yet: ``network={"rules": …}``, which would put one into requests on their
    way out of a sandbox, is refused.
    """

    @staticmethod
    def fill(secret: str) -> str:
        """What stands for a secret's value in rules."""
        if not secret or _ODD.search(secret):
            raise errors.InvalidArgumentException(f"{secret!r} cannot be a secret's name")
        return f"${{e2b.secrets.{secret}}}"

    @classmethod
    def create(
        cls,
        name: str,
        value: str,
        metadata: Mapping[str, str] | None = None,
        **opts: Unpack[ApiParams],
    ) -> SecretInfo:
        """Keep a new secret.

        Args:
            name: unique; upper and lower case are the same.
            value: never shown again.
            metadata: labels.
            opts: how to reach the server.

        Errors:
            SecretException: the name is taken or cannot be one.
        """
        body = {"name": name, "value": value, "metadata": dict(metadata or {})}
        return parse_secret(decode(_ask("POST", "/secrets", opts, body=body)))

    @classmethod
    def update(
        cls,
        secret: str,
        value: str,
        metadata: Mapping[str, str] | None = None,
        **opts: Unpack[ApiParams],
    ) -> SecretInfo:
        """Give a secret, by id or name, a new value.

        Args:
            secret: which.
            value: the new one.
            metadata: labels; those that it has stay if not given.
            opts: how to reach the server.

        Errors:
            SecretNotFoundException: there is none.
        """
        body: dict[str, object] = {"value": value}
        if metadata is not None:
            body["metadata"] = dict(metadata)
        return parse_secret(decode(_ask("POST", _route(secret), opts, body=body)))

    @classmethod
    def get_info(cls, secret: str, **opts: Unpack[ApiParams]) -> SecretInfo:
        """What is known about a secret.

        Errors:
            SecretNotFoundException: there is none.
        """
        return parse_secret(decode(_ask("GET", _route(secret), opts)))

    @classmethod
    def exists(cls, secret: str, **opts: Unpack[ApiParams]) -> bool:
        """Whether there is a secret of this id or name."""
        try:
            cls.get_info(secret, **opts)
        except errors.SecretNotFoundException:
            return False
        return True

    @classmethod
    def destroy(cls, secret: str, **opts: Unpack[ApiParams]) -> bool:
        """Forget a secret. Returns False if there is none."""
        try:
            _ask("DELETE", _route(secret), opts)
        except errors.SecretNotFoundException:
            return False
        return True

    @classmethod
    def list(
        cls,
        limit: int | None = None,
        next_token: str | None = None,
        **opts: Unpack[ApiParams],
    ) -> SecretPaginator:
        """The secrets, page by page."""
        return SecretPaginator(limit, next_token, **opts)


def _route(secret: str) -> str:
    if not secret:
        raise errors.InvalidArgumentException("the secret's name is empty")
    return f"/secrets/{quote(secret, safe='')}"


def _ask(
    method: str,
    path: str,
    opts: ApiParams,
    *,
    body: Mapping[str, object] | None = None,
    query: Mapping[str, str] | None = None,
) -> Answer:
    control = Control(find_target(opts))
    try:
        return control.call(method, path, body=body, query=query)
    except errors.NotFoundException as error:
        raise errors.SecretNotFoundException(error.message, status_code=404) from error
    except errors.SandboxException as error:
        raise errors.secret_failure(error) from error
    finally:
        control.close()
