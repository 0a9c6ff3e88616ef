"""Calls to a sandbox's agent: the data plane.

On one machine the agent's own socket is dialled, elsewhere the server forwards. When a connection
fails nobody guesses: the agent's health is asked for, then the control plane, and the exception
says what is known. Source: wire specification 7; ``docs/design/interfaces.md``.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping

from tupper.core.errors import GuestMisbehaved, TupperError
from tupper.protocol import connect
from tupper.sdk._async.control import Control
from tupper.sdk._io_async import Body, Http, Reply
from tupper.sdk._shared import errors
from tupper.sdk._shared.endpoint import AGENT_PORT
from tupper.sdk._shared.info import Grant
from tupper.sdk._shared.link import REQUEST_TIMEOUT_S, Answer, Ask, LinkError, Origin, Trouble

HEALTH_TIMEOUT_S = 4.0
# A sandbox may be saved again and again, and each time nobody listens for a moment.
TRIES = 5
PROCESS = "/process.Process/"
FILESYSTEM = "/filesystem.Filesystem/"
UNARY_MAX = 64 * 1024 * 1024  # bytes: a listing of some 100,000 entries


class Agent:
    """The agent of one sandbox. May be used by several tasks.

    Args:
        control: whom to ask when the agent does not answer.
        grant: where the agent is, and its token.
        request_timeout_s: seconds for a call that does not say; None for no limit.
    """

    def __init__(self, control: Control, grant: Grant, request_timeout_s: float | None) -> None:
        self.grant = grant
        self._control = control
        self._request_timeout_s = request_timeout_s
        self._http: Http | None = None

    async def http(self) -> Http:
        """The connection pool."""
        if self._http is None:
            self._http = Http(await self._find_origin())
        return self._http

    async def _find_origin(self) -> Origin:
        headers = {"X-Access-Token": self.grant.token} if self.grant.token else {}
        if self.grant.socket:
            return Origin("http://agent", self.grant.socket, headers)
        return await find_port(self._control, self.grant, AGENT_PORT, headers)

    def limit(self, request_timeout: float | None) -> float | None:
        """Seconds for a call: None means the usual, 0 no limit."""
        return self._request_timeout_s if request_timeout is None else request_timeout or None

    def refuse_cloud(self, what: str) -> None:
        """Refuse what only an agent of tupper's can do."""
        self._control.target.refuse_cloud(what)

    async def unary(
        self,
        route: str,
        message: Mapping[str, object],
        *,
        user: str | None = None,
        request_timeout: float | None = None,
        missing: type[errors.NotFoundException] = errors.NotFoundException,
    ) -> object:
        """One message there, one back.

        Args:
            route: of the call.
            message: JSON.
            user: on whose behalf; None for the default user.
            request_timeout: seconds; None for the usual, 0 for no limit.
            missing: the exception for "not found".
        """
        limit_s = self.limit(request_timeout)
        headers = {
            "Content-Type": connect.CONTENT_TYPE_UNARY,
            connect.VERSION_HEADER: "1",
            **user_header(user),
        }
        if limit_s is not None:
            headers[connect.TIMEOUT_HEADER] = str(max(1, int(limit_s * 1000)))
        ask = Ask("POST", route, {}, headers, limit_s)
        answer = await self.buffered(ask, connect.render_json(message))
        return parse_unary(answer, route, missing)

    async def buffered(self, ask: Ask, body: Body = None) -> Answer:
        """A call whose answer fits into memory. Failures of the connection are explained."""
        http = await self.http()
        tries = 0
        while True:
            tries += 1
            try:
                return await http.call(ask, body, limit=UNARY_MAX)
            except LinkError as error:
                if tries == TRIES or not await self.may_repeat(error):
                    raise await self.explain(error) from error

    async def stream(
        self, route: str, message: bytes, headers: Mapping[str, str], silence_s: float | None
    ) -> Reply:
        """Open a stream of messages.

        Args:
            route: of the call.
            message: the request's envelope.
            headers: on top of the protocol's.
            silence_s: seconds without a byte after which a read fails; None for never.

        Errors:
            LinkError: the connection failed; the caller decides whether to attach again.
        """
        sent = {"Content-Type": connect.CONTENT_TYPE_STREAM, connect.VERSION_HEADER: "1", **headers}
        reply = await self.open(Ask("POST", route, {}, sent, silence_s), message)
        if reply.status == 200:
            return reply
        try:
            body = await reply.read_all(UNARY_MAX)
        finally:
            await reply.close()
        raise errors.from_connect(parse_failure(reply.status, body))

    async def open(self, ask: Ask, body: Body = None) -> Reply:
        """Send a request and return when the head of the answer is there.

        While its sandbox is being saved nobody listens; then the request, none of which was sent,
        is made again.

        Errors:
            LinkError: the connection failed.
        """
        tries = 0
        while True:
            tries += 1
            try:
                return await (await self.http()).open(ask, body)
            except LinkError as error:
                if tries == TRIES or not await self.may_repeat(error):
                    raise

    async def is_healthy(self) -> bool:
        """Whether the agent answers now.

        Errors:
            LinkError: it could not be asked.
        """
        ask = Ask("GET", "/health", timeout_s=HEALTH_TIMEOUT_S)
        answer = await (await self.http()).call(ask)
        return answer.status < 300

    async def is_well(self) -> bool:
        """Whether the agent answers; waits while its sandbox is being saved.

        Errors:
            LinkError: it could not be asked.
        """
        tries = 0
        while True:
            tries += 1
            try:
                return await self.is_healthy()
            except LinkError as error:
                if tries == TRIES or error.trouble is Trouble.SILENT:
                    raise
                if not await self._control.is_there(self.grant.sandbox_id):
                    raise

    async def may_repeat(self, error: LinkError) -> bool:
        """Whether a request never got to the agent, and would now."""
        if error.trouble is not Trouble.REFUSED:
            return False
        try:
            return await self.is_well()
        except LinkError:
            return False

    async def explain(self, error: LinkError) -> TupperError:
        """The exception for a failed connection, after asking whoever may know more."""
        try:
            healthy = await self.is_well()
        except LinkError as second:
            return await self._control.explain(self.grant.sandbox_id, second.trouble)
        if not healthy:
            return await self._control.explain(self.grant.sandbox_id, Trouble.BROKEN)
        name = f"sandbox {self.grant.sandbox_id}"
        if error.trouble is Trouble.SILENT:
            return errors.TimeoutException(
                f"{name} did not answer within the time of the request",
                hint="request_timeout=… gives it more",
            )
        return errors.SandboxException(
            f"the connection to {name} broke: {error.detail}", code="unavailable"
        )

    async def close(self) -> None:
        """Close the connections; the object can be used again."""
        if self._http is not None:
            await self._http.close()


async def find_port(
    control: Control, grant: Grant, port: str, headers: Mapping[str, str]
) -> Origin:
    """Where a port of a sandbox is reached through its server's edge."""
    server = (await control.connect()).origin
    if (cloud := control.target.cloud) is not None:
        return cloud.origin(grant.sandbox_id, grant.domain, port, headers, server.proxy)
    routed = {"E2b-Sandbox-Id": grant.sandbox_id, "E2b-Sandbox-Port": port}
    return Origin(server.url, server.socket, {**headers, **routed}, server.proxy)


def user_header(user: str | None) -> dict[str, str]:
    """How a call says on whose behalf it is made."""
    if not user:
        return {}
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:".encode()).decode()}


def parse_failure(status: int, body: bytes) -> connect.ConnectError:
    """The error in a body that may be a proxy's."""
    try:
        return connect.parse_error(connect.parse_json(body or b"null", "answer"), status=status)
    except GuestMisbehaved:
        return connect.ConnectError(connect.code_from_status(status), f"HTTP status {status}")


def parse_unary(answer: Answer, route: str, missing: type[errors.NotFoundException]) -> object:
    """The message of an answer, or its error as an exception."""
    if answer.status != 200:
        raise errors.from_connect(parse_failure(answer.status, answer.body), missing=missing)
    try:
        return connect.parse_json(answer.body or b"{}", route)
    except GuestMisbehaved as error:
        raise errors.ProtocolException(error.message) from error


__all__ = ["FILESYSTEM", "PROCESS", "REQUEST_TIMEOUT_S", "Agent", "user_header"]
