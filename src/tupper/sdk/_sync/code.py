# Made by tools/make_sync.py from _async/code.py. Do not edit.
"""Running code in kernels: ``sandbox.run_code(…)``, in the template ``code-interpreter``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from urllib.parse import quote

from tupper.core.errors import TupperError
from tupper.sdk._io_sync import Http, Reply, tell
from tupper.sdk._shared import errors
from tupper.sdk._shared.code import (
    DEFAULT_TIMEOUT_S,
    PORT,
    Context,
    Execution,
    ExecutionError,
    OutputMessage,
    Result,
    RunCodeLanguage,
    parse_context,
    parse_contexts,
    parse_line,
)
from tupper.sdk._shared.link import Answer, Ask, LinkError
from tupper.sdk._shared.types import OutputHandler
from tupper.sdk._sync.agent import Agent, find_port
from tupper.sdk._sync.control import Control, decode

_GRACE_S = 30.0  # for an interrupted kernel to heed that
_LINE_MAX = 256 * 1024 * 1024
_JSON = {"Content-Type": "application/json"}


class _Hearer:
    """Hears what is said of one execution, and tells the user's handlers."""

    def __init__(
        self,
        on_stdout: OutputHandler[OutputMessage] | None,
        on_stderr: OutputHandler[OutputMessage] | None,
        on_result: OutputHandler[Result] | None,
        on_error: OutputHandler[ExecutionError] | None,
    ) -> None:
        self._on_stdout = on_stdout
        self._on_stderr = on_stderr
        self._on_result = on_result
        self._on_error = on_error

    def hear(self, reply: Reply) -> Execution:
        """Read an answer to its end."""
        if reply.status >= 300:
            raise _refusal(reply.status, reply.read_all())
        execution = Execution()
        for line in _lines(reply):
            match parse_line(line, execution):
                case OutputMessage(error=True) as said:
                    tell(self._on_stderr, said)
                case OutputMessage() as said:
                    tell(self._on_stdout, said)
                case Result() as said:
                    tell(self._on_result, said)
                case ExecutionError() as said:
                    tell(self._on_error, said)
                case None:
                    pass
        return execution


class CodeRunner:
    """What a sandbox can do with code. Needs the service of ``code-interpreter`` in it."""

    _control: Control
    _agent: Agent
    _interpreter: Http | None = None

    def run_code(
        self,
        code: str,
        language: RunCodeLanguage | None = None,
        context: Context | None = None,
        on_stdout: OutputHandler[OutputMessage] | None = None,
        on_stderr: OutputHandler[OutputMessage] | None = None,
        on_result: OutputHandler[Result] | None = None,
        on_error: OutputHandler[ExecutionError] | None = None,
        envs: Mapping[str, str] | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> Execution:
        """Run code; variables stay for the next time.

        Args:
            code: of the language.
            language: ``python`` if None; or ``javascript``, ``typescript``.
            context: a kernel made by :meth:`create_code_context`, instead of a language.
            on_stdout, on_stderr: called with each piece of output.
            on_result: called with each result.
            on_error: called with what the code raised.
            envs: environment variables while it runs.
            timeout: seconds; 300 if None, no limit if 0.
            request_timeout: seconds until the service answers at all.

        Errors:
            TimeoutException: the time was over; the code was interrupted.
            SandboxException: the sandbox has no code interpreter.
        """
        if language and context:
            raise errors.InvalidArgumentException(
                "You can provide context or language, but not both at the same time."
            )
        limit_s = None if timeout == 0 else (timeout or DEFAULT_TIMEOUT_S)
        body: dict[str, object] = {
            "code": code,
            "context_id": context.id if context else None,
            "language": language,
            "env_vars": dict(envs) if envs else None,
            "timeout": limit_s,
        }
        hearer = _Hearer(on_stdout, on_stderr, on_result, on_error)
        silence_s = None if limit_s is None else limit_s + _GRACE_S
        ask = Ask("POST", "/execute", {}, _JSON, silence_s)
        del request_timeout  # the time of the execution is the longer one
        try:
            reply = (self._service()).open(ask, json.dumps(body).encode())
            try:
                return hearer.hear(reply)
            finally:
                reply.close()
        except TimeoutError as error:
            raise errors.TimeoutException(
                f"the code was not over within {limit_s or 0:g} s and was interrupted",
                hint="timeout=… gives it more",
            ) from error
        except LinkError as error:
            raise self._agent.explain(error) from error

    def create_code_context(
        self,
        cwd: str | None = None,
        language: RunCodeLanguage | None = None,
        request_timeout: float | None = None,
    ) -> Context:
        """A new kernel.

        Args:
            cwd: where it begins; the home if None.
            language: ``python`` if None.
            request_timeout: seconds.
        """
        body = {name: value for name, value in (("language", language), ("cwd", cwd)) if value}
        answer = self._call("POST", "/contexts", body, request_timeout)
        return parse_context(decode(answer))

    def list_code_contexts(self) -> list[Context]:
        """All kernels, those of the languages that ran without a context too."""
        return parse_contexts(decode(self._call("GET", "/contexts")))

    def restart_code_context(self, context: Context | str) -> None:
        """Forget all that was run in a kernel."""
        self._call("POST", f"{_path(context)}/restart", {})

    def remove_code_context(self, context: Context | str) -> None:
        """End a kernel."""
        self._call("DELETE", _path(context))

    def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        request_timeout: float | None = None,
    ) -> Answer:
        ask = Ask(method, path, {}, _JSON, self._agent.limit(request_timeout))
        content = None if body is None else json.dumps(body).encode()
        try:
            answer = (self._service()).call(ask, content)
        except LinkError as error:
            raise self._agent.explain(error) from error
        if answer.status >= 300:
            raise _refusal(answer.status, answer.body)
        return answer

    def _service(self) -> Http:
        """The way to the service, through the server."""
        if self._interpreter is None:
            grant, headers = self._agent.grant, dict[str, str]()
            if self._control.target.cloud is not None and grant.token:
                headers["X-Access-Token"] = grant.token
            if grant.traffic_token:
                headers["E2B-Traffic-Access-Token"] = grant.traffic_token
            self._interpreter = Http(find_port(self._control, grant, PORT, headers))
        return self._interpreter


def _lines(reply: Reply) -> Iterator[bytes]:
    pending = bytearray()
    while chunk := reply.read():
        pending += chunk
        while (end := pending.find(b"\n")) >= 0:
            line = bytes(pending[:end])
            del pending[: end + 1]
            if line:
                yield line
        if len(pending) > _LINE_MAX:
            raise errors.ProtocolException("a result of the code is too large")


def _refusal(status: int, body: bytes) -> TupperError:
    text = body.decode(errors="replace").strip()[:1000]
    if status == 404:
        return errors.NotFoundException(text or "there is no such context")
    if status == 502:
        return errors.SandboxException(
            "no code interpreter answers in this sandbox",
            hint='create it with template="code-interpreter"',
        )
    return errors.SandboxException(f"{status}: {text}")


def _path(context: Context | str) -> str:
    context_id = context.id if isinstance(context, Context) else context
    return f"/contexts/{quote(context_id, safe='')}"
