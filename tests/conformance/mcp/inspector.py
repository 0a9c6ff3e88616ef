"""Run every tool with the command line of the MCP Inspector, and read a resource.

Each call is a client of its own. Over HTTP they speak protocol 2026-07-28, in which there are no
sessions, so they all work in the sandbox that the first one makes; one more talks over stdio.
"""

import json
import os
import subprocess

from serving import NODE, OUT, PACKAGES, PRODUCT, over_http, write_junit

PROGRAM = PACKAGES / "@modelcontextprotocol" / "inspector" / "clients" / "launcher" / "build"
SHARE = OUT / "share"


class Inspector:
    """Calls, each a case."""

    def __init__(self, *target):
        self.target = target
        self.cases = []
        self.called = set()

    def run(self, case, *options):
        command = [NODE, PROGRAM / "index.js", "--cli", *self.target, "-q", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        good = done.returncode == 0
        self.cases.append(("inspector", case, "passed" if good else "failed", done.stderr))
        return json.loads(done.stdout) if good else {}

    def call(self, tool, **arguments):
        self.called.add(tool)
        number = sum(case.startswith(f"{tool} ") for _, case, *_ in self.cases) + 1
        given = json.dumps(arguments)
        options = ("--method", "tools/call", "--tool-name", tool, "--tool-args-json", given)
        return self.run(f"{tool} {number}", *options).get("structuredContent", {})

    def expect(self, case, is_so):
        self.cases.append(("inspector", case, "passed" if is_so else "failed", "it is not so"))


def every_tool(inspector):
    listed = inspector.run("tools/list", "--method", "tools/list", "--strict")
    sandbox = {"sandbox": inspector.call("create_sandbox", template="minimal").get("sandbox", "")}
    call = inspector.call
    call("write_file", path="/tmp/a.txt", content="one\ntwo\n", **sandbox)
    call("edit_file", path="/tmp/a.txt", old="two", new="2", **sandbox)
    read = call("read_file", path="/tmp/a.txt", **sandbox)
    inspector.expect("what was written is read", read.get("content") == "one\n2\n")
    call("list_files", path="/tmp", **sandbox)
    call("search_files", pattern="on[e]", path="/tmp", **sandbox)
    call("copy_files", direction="upload", host_path="in", sandbox_path="/tmp/in", **sandbox)
    call("copy_files", direction="download", host_path="out", sandbox_path="/tmp/a.txt", **sandbox)
    done = call("run_command", command="cat /tmp/in", **sandbox)
    inspector.expect("what was uploaded is there", done.get("stdout") == "in")
    begun = call("run_command", command="sleep 1000", background=True, **sandbox)
    call("poll_command", command_id=begun.get("command_id", ""))
    call("kill_command", command_id=begun.get("command_id", ""))
    call("expose_port", port=8000, **sandbox)
    saved = call("snapshot_sandbox", **sandbox)
    other = call("create_sandbox", snapshot=saved.get("snapshot", ""))
    call("kill_sandbox", sandbox=other.get("sandbox", ""))
    coder = call("create_sandbox", template="code-interpreter")
    done = call("run_code", code="6 * 7", sandbox=coder.get("sandbox", ""))
    inspector.expect("code gives its result", done.get("results") == [{"text": "42"}])
    call("list_sandboxes")
    uri = f"sandbox://{sandbox['sandbox']}/tmp/a.txt"
    inspector.run("resources/read", "--method", "resources/read", "--uri", uri)
    inspector.run("resources/templates/list", "--method", "resources/templates/list")
    return {tool["name"] for tool in listed.get("tools", ())}


def main():
    SHARE.mkdir(exist_ok=True)
    (SHARE / "in").write_text("in")
    home = ("-e", f"TUPPER_HOME={os.environ['TUPPER_HOME']}")
    stdio = Inspector(*PRODUCT, "--template", "minimal", *home)
    stdio.call("reset_sandbox")  # needs a session, which only stdio and older clients have
    listen = ("--http", "--listen", "127.0.0.1:0", "--share", f"{SHARE}:rw")
    with over_http(*PRODUCT, *listen) as url:
        inspector = Inspector(url, "--transport", "http", "--protocol-era", "modern")
        listed = every_tool(inspector)
    missing = listed - inspector.called - stdio.called
    inspector.expect("every tool was called", not missing)
    write_junit(stdio.cases + inspector.cases)


if __name__ == "__main__":
    main()
