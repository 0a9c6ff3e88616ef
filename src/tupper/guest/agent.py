"""The engine's client of an agent: the few calls that the host itself makes.

Everything a user does (commands, files, terminals) goes from the SDK to the agent; this is only
what keeps a sandbox: is it there, what does it use, when does it end, end now. The agent is part
of the guest, so its answers are bounded and checked before anybody sees them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from tupper.core.backend import AgentAddress
from tupper.core.errors import (
    Conflict,
    GuestMisbehaved,
    InvalidArgument,
    MachineUnreachable,
    NotFound,
    TupperError,
    Unauthenticated,
    Unavailable,
)
from tupper.guest import wire
from tupper.protocol import tunnel
from tupper.protocol.connect import as_list, as_object, parse_error, parse_json, render_json
from tupper.protocol.envd import (
    Fields,
    is_printable_utf8,
    parse_metrics,
    parse_status,
    render_bytes,
)

_CALL_S = 10.0
_SWITCHING = 101
_BODY_MAX = 1024 * 1024
_LOG_MAX = 1024 * 1024
_PAUSE_S = 0.003
_STATUS_ERRORS: Mapping[int, type[TupperError]] = {
    400: InvalidArgument,
    401: Unauthenticated,
    404: NotFound,
    409: Conflict,
}


class Agent:
    """One sandbox's agent, as the engine sees it.

    Args:
        address: where it listens.
        token: the sandbox's secret.
        timeout_s: seconds for one call.

    Errors:
        Every method raises MachineUnreachable when the agent does not answer in time,
        Unauthenticated for a wrong token, and GuestMisbehaved for an answer that no honest agent
        gives.
    """

    def __init__(self, address: AgentAddress, token: str, *, timeout_s: float = _CALL_S) -> None:
        self._address = address
        self._token = token
        self._timeout_s = timeout_s

    async def health(self, *, timeout_s: float | None = None) -> None:
        """Return when the agent has answered; connects again while nobody listens yet."""
        limit = self._timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit
        while True:
            left = max(deadline - time.monotonic(), 0.001)
            try:
                await self._call("GET", "/health", timeout_s=left)
            except MachineUnreachable:
                if time.monotonic() + _PAUSE_S >= deadline:
                    raise
            else:
                return
            await asyncio.sleep(_PAUSE_S)

    async def init(
        self,
        *,
        env_vars: Mapping[str, str] | None = None,
        default_user: str = "",
        default_workdir: str = "",
        ca_bundle: str = "",
        timestamp: str = "",
    ) -> None:
        """Set the environment, user, directory, certificates and clock.

        Args:
            env_vars: replace those of an earlier call.
            default_user, default_workdir: left as they are when empty.
            ca_bundle: PEM.
            timestamp: RFC 3339; older than an earlier one, the whole call is ignored.
        """
        body: dict[str, object] = {"accessToken": self._token}
        if env_vars is not None:
            body["envVars"] = dict(env_vars)
        optional = {
            "defaultUser": default_user,
            "defaultWorkdir": default_workdir,
            "caBundle": ca_bundle,
            "timestamp": timestamp,
        }
        body |= {key: value for key, value in optional.items() if value}
        await self._post("/init", body)

    async def add_env(self, env: Mapping[str, str]) -> None:
        """Give further variables to every process from now on; those that there are stay."""
        have = as_object(await self._get_json("/envs")) or {}
        known = {name: value for name, value in have.items() if isinstance(value, str)}
        await self.init(env_vars=known | dict(env))

    async def status(self) -> Mapping[str, object]:
        """Its own view, checked.

        **Shape**: see :class:`tupper.protocol.envd.Status`, keys as it sent them: ``lastActivity``
        and ``startedAt`` in unix milliseconds.
        """
        value = await self._get_json("/tupper/status")
        parse_status(value)
        return as_object(value) or {}

    async def metrics(self) -> Mapping[str, object]:
        """What the guest uses, by its own word. **Shape**: ``cpu_used_pct``, ``mem_used``, …."""
        value = await self._get_json("/metrics")
        parse_metrics(value)
        return as_object(value) or {}

    async def deadline(self, unix_s: float) -> None:
        """Tell when the sandbox ends; 0 for never."""
        await self._post("/tupper/deadline", {"deadline": unix_s})

    async def shutdown(self, *, grace_s: float) -> None:
        """Ask for an orderly end. Returns when the agent has agreed, not when it is over."""
        await self._post("/tupper/shutdown", {"graceMs": int(grace_s * 1000)})

    async def log(self) -> str:
        """Its log, at most 1 MiB. Anything may stand in it."""
        reply = await self._call("GET", "/tupper/log", body_max=_LOG_MAX, cut=True)
        return reply.body.decode(errors="replace")

    async def ports(self) -> list[tuple[str, int]]:
        """The TCP sockets that listen inside: (address, port)."""
        fields = Fields(await self._get_json("/tupper/ports"), "port list")
        found: list[tuple[str, int]] = []
        for item in as_list(fields.get("ports")) or ():
            inner = Fields(item, "port")
            found.append((inner.text("address"), inner.integer("port", low=1, high=65535)))
        return found

    async def hold(self, *, lease_s: float = 5.0, close: bool = True, stop: bool = False) -> None:
        """Prepare for a snapshot: outputs are kept, and its deadline is forgotten.

        Args:
            lease_s: it goes on by itself after this long, at most 60.
            close: whether listeners and connections are closed; they are when this returns.
            stop: whether everything else that runs is stopped until then.
        """
        body = render_json({"leaseMs": int(lease_s * 1000), "close": close, "stop": stop})
        await self._call("POST", "/tupper/hold", body=body, to_end=True)

    async def release(self) -> None:
        """End a hold."""
        await self._post("/tupper/release", {})

    async def identity(
        self,
        *,
        sandbox_id: str = "",
        token: str = "",
        hostname: str = "",
        machine_id: str = "",
        seed: bytes = b"",
        deadline_unix_s: float = 0,
        texts: Mapping[str, tuple[str, str]] | None = None,
    ) -> list[str]:
        """Make a restored sandbox itself again, or a fork somebody else; sets its clock.

        A new token counts from the answer on, for this client too.

        Args:
            sandbox_id, token, hostname, machine_id: left as they are when empty.
            seed: for the guest's random numbers.
            deadline_unix_s: when the sandbox ends; 0 for never.
            texts: guest path → a text in that file, and what takes its place.

        Returns:
            What could not be done, for the log.
        """
        body: dict[str, object] = {"time": time.time_ns()}
        optional: dict[str, object] = {
            "sandboxId": sandbox_id,
            "accessToken": token,
            "hostname": hostname,
            "machineId": machine_id,
            "seed": render_bytes(seed),
            "deadline": deadline_unix_s,
            "texts": {path: {"old": a, "new": b} for path, (a, b) in (texts or {}).items()},
        }
        body |= {key: value for key, value in optional.items() if value}
        reply = await self._post("/tupper/identity", body)
        if token:
            self._token = token
        return list(Fields(parse_json(reply.body, "identity"), "identity").texts("problems"))

    async def open_tunnel(self, port: int) -> wire.Streams:
        """Connect to a TCP port inside.

        Errors:
            Unavailable: nothing listens there.
        """
        return await dial(self._address, self._token, port, timeout_s=self._timeout_s)

    async def close(self) -> None:
        """Nothing is kept open between calls; here for symmetry with clients that do."""

    async def _get_json(self, path: str) -> object:
        return parse_json((await self._call("GET", path)).body, path)

    async def _post(self, path: str, body: Mapping[str, object]) -> wire.Reply:
        return await self._call("POST", path, body=render_json(body))

    async def _call(
        self,
        method: str,
        path: str,
        *,
        body: bytes = b"",
        body_max: int = _BODY_MAX,
        cut: bool = False,
        to_end: bool = False,
        timeout_s: float | None = None,
    ) -> wire.Reply:
        headers = {"X-Access-Token": self._token, "Content-Type": "application/json"}
        reply = await wire.request(
            self._address,
            method,
            path,
            headers=headers,
            body=body,
            body_max=body_max,
            cut=cut,
            to_end=to_end,
            timeout_s=self._timeout_s if timeout_s is None else timeout_s,
        )
        if 200 <= reply.status < 300:
            return reply
        raise _error_of(reply, path)


async def dial(
    address: AgentAddress, token: str, port: int, *, carry: str = "", timeout_s: float = _CALL_S
) -> wire.Streams:
    """Connect to a TCP port inside a sandbox; 49983 is its agent itself.

    Args:
        address: of the agent.
        token: of the sandbox.
        port: inside.
        carry: the name to continue the connection by after a snapshot; empty for none. To the agent
            itself, the first request has to bring it.
        timeout_s: seconds.

    Errors:
        Unavailable: nothing listens there. MachineUnreachable: the agent does not answer.
    """
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await wire.connect(address)
            if port == tunnel.AGENT_PORT:
                return reader, writer
            try:
                await _upgrade(reader, writer, token, port, carry)
            except BaseException:
                writer.close()
                raise
    except TimeoutError as error:
        raise MachineUnreachable(
            f"the agent opened no tunnel to port {port} within {timeout_s:g} s"
        ) from error
    return reader, writer


async def carry_on(
    address: AgentAddress, token: str, carry: str, *, timeout_s: float = _CALL_S
) -> wire.Streams | None:
    """Continue a connection after a snapshot; None if it was over before.

    Errors:
        MachineUnreachable: the agent does not answer.
    """
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await wire.connect(address)
            try:
                writer.write(tunnel.render_continuation(carry, token))
                status = await _read_status(reader)
            except BaseException:
                writer.close()
                raise
    except TimeoutError as error:
        raise MachineUnreachable(f"the agent said nothing within {timeout_s:g} s") from error
    if status == _SWITCHING:
        return reader, writer
    writer.close()
    return None


async def _upgrade(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str, port: int, carry: str
) -> None:
    writer.write(tunnel.render_request(port, token, carry=carry))
    status = await _read_status(reader)
    if status == _SWITCHING:
        return
    if status in (401, 403):
        raise Unauthenticated("the agent refuses the sandbox's token")
    raise Unavailable(f"nothing listens at port {port} inside (HTTP status {status})")


async def _read_status(reader: asyncio.StreamReader) -> int:
    """The status of an answer, read to the end of its head and not a byte further."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise GuestMisbehaved("the head of a tunnel is too long") from None
    except (OSError, asyncio.IncompleteReadError) as error:
        raise MachineUnreachable("the agent closed a tunnel before it was open") from error
    reply = tunnel.ReplyParser().feed(head)
    return 0 if reply is None else reply.status


def _error_of(reply: wire.Reply, path: str) -> TupperError:
    try:
        value = parse_json(reply.body or b"null", path)
    except GuestMisbehaved:
        value = None
    error = parse_error(value, status=reply.status)
    kind = _STATUS_ERRORS.get(reply.status, Unavailable)
    text = error.message if is_printable_utf8(error.message) else ""
    return kind(f"agent: {path}: HTTP status {reply.status}: {text[:500]}")
