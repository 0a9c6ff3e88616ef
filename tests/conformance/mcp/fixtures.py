"""What the conformance suite wants a server to have, on the transport of ours.

Names and texts are those that the scenarios of ``@modelcontextprotocol/conformance`` ask for. The
application is made by the function that makes the one of ``tupper mcp --http``, so what passes here is
said of its transport, its checks of hosts and origins, and its sessions.

As a program: serve on a free port of 127.0.0.1, and print the URL on standard error.
"""

import asyncio
import base64
import struct
import sys
import warnings
import zlib
from typing import Annotated

import mcp_types as types
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp.server.mcpserver.tools import Tool
from mcp.server.streamable_http import EventMessage, EventStore
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from pydantic import Field

from tupper.mcp import http


def png():
    def chunk(kind, data):
        checksum = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(b"\0\xff\0\0")), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def wav():
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 8000, 8000, 1, 8)
    data = struct.pack("<4sI", b"data", 2) + b"\x80\x80"
    return struct.pack("<4sI4s", b"RIFF", 4 + len(form) + len(data), b"WAVE") + form + data


def text(said):
    return types.TextContent(type="text", text=said)


def image():
    data = base64.b64encode(png()).decode()
    return types.ImageContent(type="image", data=data, mime_type="image/png")


def embedded(uri, said, mime_type="text/plain"):
    resource = types.TextResourceContents(uri=uri, mime_type=mime_type, text=said)
    return types.EmbeddedResource(type="resource", resource=resource)


def result(*content):
    return types.CallToolResult(content=list(content))


def schema(**properties):
    return {"type": "object", "properties": properties, "required": list(properties)}


SCHEMA_2020_12 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


class Events(EventStore):
    """What clients that lost a stream get again."""

    def __init__(self):
        self.events = []

    async def store_event(self, stream_id, message):
        self.events.append((stream_id, message))
        return str(len(self.events))

    async def replay_events_after(self, last_event_id, send_callback):
        last = int(last_event_id)
        stream_id = self.events[last - 1][0]
        for number, (stream, message) in enumerate(self.events[last:], last + 1):
            if stream == stream_id and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream_id


# --- tools ----------------------------------------------------------------------------------------


async def test_simple_text() -> types.CallToolResult:
    return result(text("This is a simple text response for testing."))


async def test_image_content() -> types.CallToolResult:
    return result(image())


async def test_audio_content() -> types.CallToolResult:
    data = base64.b64encode(wav()).decode()
    return result(types.AudioContent(type="audio", data=data, mime_type="audio/wav"))


async def test_embedded_resource() -> types.CallToolResult:
    return result(embedded("test://embedded-resource", "This is an embedded resource content."))


async def test_multiple_content_types() -> types.CallToolResult:
    resource = embedded("test://mixed-content-resource", '{"test":"data"}', "application/json")
    return result(text("Multiple content types test:"), image(), resource)


async def test_tool_with_logging(ctx: Context) -> types.CallToolResult:
    for said in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.session.send_log_message("info", said, related_request_id=ctx.request_id)
        await asyncio.sleep(0.05)  # the scenario asks for pauses
    return result(text("logged"))


async def test_logging_tool(ctx: Context) -> types.CallToolResult:
    await ctx.session.send_log_message("info", "said", related_request_id=ctx.request_id)
    return result(text("logged"))


async def test_error_handling() -> types.CallToolResult:
    raise ToolError("This tool intentionally returns an error for testing")


async def test_tool_with_progress(ctx: Context) -> types.CallToolResult:
    for done in (0, 50, 100):
        await ctx.report_progress(done, 100, f"Completed step {done} of 100")
        await asyncio.sleep(0.05)  # the scenario asks for pauses
    return result(text("done"))


async def test_sampling(prompt: str, ctx: Context) -> types.CallToolResult:
    message = types.SamplingMessage(role="user", content=text(prompt))
    answer = await ctx.session.create_message(
        [message], max_tokens=100, related_request_id=ctx.request_id
    )
    return result(text(f"LLM response: {answer.content.text}"))


async def ask(ctx, message, wanted):
    answer = await ctx.session.elicit_form(message, wanted, related_request_id=ctx.request_id)
    return f"action={answer.action}, content={answer.content}"


async def test_elicitation(message: str, ctx: Context) -> types.CallToolResult:
    wanted = schema(
        username={"type": "string", "description": "User's response"},
        email={"type": "string", "description": "User's email address"},
    )
    return result(text(f"User response: {await ask(ctx, message, wanted)}"))


async def test_elicitation_sep1034_defaults(ctx: Context) -> types.CallToolResult:
    wanted = schema(
        name={"type": "string", "default": "John Doe"},
        age={"type": "integer", "default": 30},
        score={"type": "number", "default": 95.5},
        status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        verified={"type": "boolean", "default": True},
    )
    return result(text(f"Elicitation completed: {await ask(ctx, 'Please fill in', wanted)}"))


async def test_elicitation_sep1330_enums(ctx: Context) -> types.CallToolResult:
    def titled(word):
        values = zip(("value1", "value2", "value3"), ("First", "Second", "Third"), strict=True)
        return [{"const": value, "title": f"{title} {word}"} for value, title in values]

    plain = {"type": "string", "enum": ["option1", "option2", "option3"]}
    names = ["Option One", "Option Two", "Option Three"]
    wanted = schema(
        untitledSingle=plain,
        titledSingle={"type": "string", "oneOf": titled("Option")},
        legacyEnum={"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": names},
        untitledMulti={"type": "array", "items": plain},
        titledMulti={"type": "array", "items": {"anyOf": titled("Choice")}},
    )
    return result(text(f"Elicitation completed: {await ask(ctx, 'Please choose', wanted)}"))


async def test_reconnection(ctx: Context) -> types.CallToolResult:
    await ctx.close_sse_stream()
    return result(text("Reconnection test completed"))


async def test_custom_headers(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})],
) -> types.CallToolResult:
    """Has an argument that is also a header."""
    return result(text(f"region {region}"))


async def json_schema_2020_12_tool() -> types.CallToolResult:
    return result(text("called"))


async def test_missing_capability(ctx: Context) -> types.CallToolResult:
    capabilities = ctx.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        needed = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "sampling is needed", needed)
    return result(text("sampling is there"))


async def test_streaming_elicitation(ctx: Context) -> types.CallToolResult:
    await ctx.report_progress(1, 2)
    return result(text("no request of its own"))


async def test_trigger_tool_change(ctx: Context) -> types.CallToolResult:
    await ctx.notify_tools_changed()
    return result(text("told"))


async def test_trigger_prompt_change(ctx: Context) -> types.CallToolResult:
    await ctx.notify_prompts_changed()
    return result(text("told"))


# --- input that is required ------------------------------------------------------------------------


def form(message, **properties):
    params = types.ElicitRequestFormParams(message=message, requested_schema=schema(**properties))
    return types.ElicitRequest(params=params)


def sample(said, max_tokens):
    message = types.SamplingMessage(role="user", content=text(said))
    params = types.CreateMessageRequestParams(messages=[message], max_tokens=max_tokens)
    return types.CreateMessageRequest(params=params)


def missing(ctx, state=None, **wanted):
    """What is to be asked for again; None when all answers are there."""
    if set(wanted) <= set(ctx.input_responses or {}):
        return None
    return types.InputRequiredResult(input_requests=wanted, request_state=state)


Answer = types.CallToolResult | types.InputRequiredResult
NAME = {"name": {"type": "string"}}


async def test_input_required_result_elicitation(ctx: Context) -> Answer:
    if asked := missing(ctx, user_name=form("What is your name?", **NAME)):
        return asked
    answer = ctx.input_responses["user_name"]
    return result(text(f"Hello, {answer.content['name']}!"))


async def test_input_required_result_sampling(ctx: Context) -> Answer:
    if asked := missing(ctx, capital_question=sample("What is the capital of France?", 100)):
        return asked
    return result(text(ctx.input_responses["capital_question"].content.text))


async def test_input_required_result_list_roots(ctx: Context) -> Answer:
    if asked := missing(ctx, client_roots=types.ListRootsRequest()):
        return asked
    roots = ctx.input_responses["client_roots"].roots
    return result(text("roots: " + ", ".join(str(root.uri) for root in roots)))


async def test_input_required_result_request_state(ctx: Context) -> Answer:
    if asked := missing(ctx, "round-1", confirm=form("Please confirm", ok={"type": "boolean"})):
        return asked
    if ctx.request_state != "round-1":
        raise MCPError(types.INVALID_PARAMS, "the state is not the one of round 1")
    return result(text("state-ok"))


async def test_input_required_result_tampered_state(ctx: Context) -> Answer:
    return await test_input_required_result_request_state(ctx)


async def test_input_required_result_multiple_inputs(ctx: Context) -> Answer:
    asked = missing(
        ctx,
        "all",
        user_name=form("What is your name?", **NAME),
        greeting=sample("Generate a greeting", 50),
        client_roots=types.ListRootsRequest(),
    )
    return asked or result(text("all inputs are there"))


async def test_input_required_result_multi_round(ctx: Context) -> Answer:
    second = form("Step 2: What is your favorite color?", color={"type": "string"})
    if ctx.request_state == "round-2":
        return missing(ctx, "round-2", step2=second) or result(text("both rounds are over"))
    first = missing(ctx, "round-1", step1=form("Step 1: What is your name?", **NAME))
    return first or types.InputRequiredResult(
        input_requests={"step2": second}, request_state="round-2"
    )


async def test_input_required_result_capabilities(ctx: Context) -> Answer:
    can, wanted = ctx.client_capabilities, {}
    if can is not None and can.elicitation is not None:
        wanted["user_name"] = form("What is your name?", **NAME)
    if can is not None and can.sampling is not None:
        wanted["greeting"] = sample("Generate a greeting", 50)
    return missing(ctx, **wanted) or result(text("all inputs are there"))


# --- resources, prompts, the rest -----------------------------------------------------------------


async def static_text() -> str:
    return "This is the content of the static text resource."


async def static_binary() -> bytes:
    return png()


async def watched() -> str:
    return "Watched resource content"


async def template(id: str) -> str:  # noqa: A002 - the variable of the URI
    return f'{{"id":"{id}","templateTest":true,"data":"Data for ID: {id}"}}'


def test_simple_prompt() -> str:
    return "This is a simple prompt for testing."


def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


def test_prompt_with_embedded_resource(resourceUri: str) -> list:
    resource = embedded(resourceUri, "Embedded resource content for testing.")
    return [UserMessage(resource), UserMessage("Please process the embedded resource above.")]


def test_prompt_with_image() -> list:
    return [UserMessage(image()), UserMessage("Please analyze the image above.")]


async def test_input_required_result_prompt(ctx: Context) -> str | types.InputRequiredResult:
    wanted = form("What context should the prompt use?", context={"type": "string"})
    return missing(ctx, user_context=wanted) or "A prompt with its context."


TOOLS = (
    test_simple_text, test_image_content, test_audio_content, test_embedded_resource,
    test_multiple_content_types, test_tool_with_logging, test_logging_tool, test_error_handling,
    test_tool_with_progress, test_sampling, test_elicitation, test_elicitation_sep1034_defaults,
    test_elicitation_sep1330_enums, test_reconnection, test_custom_headers, test_missing_capability,
    test_streaming_elicitation, test_trigger_tool_change, test_trigger_prompt_change,
    test_input_required_result_elicitation,
    test_input_required_result_sampling, test_input_required_result_list_roots,
    test_input_required_result_request_state, test_input_required_result_tampered_state,
    test_input_required_result_multiple_inputs, test_input_required_result_multi_round,
    test_input_required_result_capabilities,
)  # fmt: skip
PROMPTS = (
    test_simple_prompt, test_prompt_with_arguments, test_prompt_with_embedded_resource,
    test_prompt_with_image, test_input_required_result_prompt,
)  # fmt: skip
RESOURCES = (
    ("test://static-text", static_text, "text/plain"),
    ("test://static-binary", static_binary, "image/png"),
    ("test://watched-resource", watched, "text/plain"),
    ("test://template/{id}/data", template, "application/json"),
)


async def done(_ctx, _params):
    return types.EmptyResult()


def build_server():
    special = Tool.from_function(json_schema_2020_12_tool, description="Has a rich schema.")
    special.parameters = SCHEMA_2020_12
    warnings.simplefilter("ignore", MCPDeprecationWarning)  # older clients are judged too
    server = MCPServer("fixtures", version="1", tools=[special], log_level="CRITICAL")
    for tool in TOOLS:
        server.add_tool(tool, description=tool.__name__.replace("_", " "))
    for uri, function, mime_type in RESOURCES:
        server.resource(uri, description=uri, mime_type=mime_type)(function)
    for prompt in PROMPTS:
        server.prompt(description=prompt.__name__.replace("_", " "))(prompt)

    @server.completion()
    async def complete(_ref, argument, _context):
        return types.Completion(values=[f"{argument.value}aris"], total=1, has_more=False)

    lowlevel = server._lowlevel_server
    lowlevel.add_request_handler("logging/setLevel", types.SetLevelRequestParams, done)
    lowlevel.add_request_handler("resources/subscribe", types.SubscribeRequestParams, done)
    lowlevel.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, done)
    return server


def main():
    def ready(url):
        print(url, file=sys.stderr, flush=True)

    http.serve(build_server(), http.Place(), ready, events=Events())


if __name__ == "__main__":
    main()
