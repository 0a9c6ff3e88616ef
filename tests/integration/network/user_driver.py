"""Runs as an ordinary user in a namespace of the lab; prints what happened as JSON.

Usage: user_driver.py DIRECTORY RESOLVER. Reads one command a line: attach JSON-of-policy, try ADDRESS PORT,
resolve, update JSON, detach, sweep, left. Answers each with one line of JSON.
"""

import asyncio
import dataclasses
import json
import subprocess
import sys
from pathlib import Path

from tupper.core.errors import TupperError
from tupper.network import Policy, holder

ENGINE, SANDBOX = "zuser", "i" + "a" * 20

TRY = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=4) as sock:
        sock.sendall(sys.argv[3].encode() if len(sys.argv) > 3 else b"")
        print(sock.recv(100).decode().strip())
except OSError as error:
    print(error.strerror or type(error).__name__)
"""
RESOLVE = """
import socket, sys
try:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(4)
        sock.connect((sys.argv[1], 53))
        sock.send(bytes.fromhex("123401000001000000000000046e616d65047465737400 00010001".replace(" ", "")))
        print(socket.inet_ntoa(sock.recv(2048)[-4:]))
except OSError as error:
    print(error.strerror or type(error).__name__)
"""


def inside(pid, script, *args):
    command = ["nsenter", "--preserve-credentials", "-U", "-n", "-t", str(pid), "--"]
    done = subprocess.run(
        [*command, "/usr/bin/python3", "-c", script, *args], capture_output=True, text=True,
        timeout=30, check=False,
    )  # fmt: skip
    return (done.stdout or done.stderr).strip()


def policy_of(text):
    fields = json.loads(text or "{}")
    return Policy(**{k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()})


async def refuse(*_):
    pids = [pid for _, pid in holder.Holders(ENGINE, Path(sys.argv[1]))._marked()]
    raise holder.NetworkError(f"{len(pids)} processes")


def left():
    return [pid for _, pid in holder.Holders(ENGINE, Path(sys.argv[1]))._marked()]


async def main():
    holder.find_resolvers = lambda: (sys.argv[2],)
    network = holder.Holders(ENGINE, Path(sys.argv[1]))
    guest = None
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        verb, _, rest = line.strip().partition(" ")
        try:
            if verb == "probe":
                answer = await holder.probe_user_network()
            elif verb == "attach":
                guest = await network.attach(SANDBOX, policy_of(rest))
                answer = dataclasses.asdict(guest)
            elif verb == "fail":
                broken = holder.Holders(ENGINE, Path(sys.argv[1]))
                broken._set_up = refuse
                answer = await broken.attach(SANDBOX, Policy())
            elif verb == "try":
                answer = inside(guest.holder_pid, TRY, *rest.split())
            elif verb == "resolve":
                answer = inside(guest.holder_pid, RESOLVE, rest)
            elif verb == "update":
                answer = await network.update(guest, policy_of(rest))
            elif verb == "detach":
                answer = await network.detach(guest)
            elif verb == "sweep":
                answer = await holder.Holders(ENGINE, Path(sys.argv[1])).sweep(json.loads(rest))
            else:
                answer = left()
        except TupperError as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer), flush=True)


asyncio.run(main())
