"""A sandbox from its birth to its end: ``python examples/quickstart.py``."""

import sys
import time

from tupper import CommandExitException, Sandbox

PROGRAM = """
import platform, time
print("hello from", platform.node(), "on", platform.release(), flush=True)
for n in range(3):
    time.sleep(0.3)
    print("step", n, flush=True)
open("/tmp/result.txt", "w").write("42\\n")
"""


def main() -> None:
    """Create, write, run, stream, read back, kill."""
    started = time.perf_counter()
    with Sandbox.create() as sbx:
        info = sbx.get_info()
        print(f"created   {sbx.sandbox_id} in {time.perf_counter() - started:.2f} s")
        print(f"isolation {info.isolation} ({info.mechanism}), kernel {info.kernel}")

        sbx.files.write("/tmp/job.py", PROGRAM)
        print("wrote     /tmp/job.py")

        print("running   python3 /tmp/job.py")
        sbx.commands.run(
            "python3 /tmp/job.py",
            on_stdout=lambda text: print(
                "  inside |", text, end="" if text.endswith("\n") else "\n"
            ),
        )

        result = sbx.files.read("/tmp/result.txt").strip()
        print(f"result    {result}")

        try:
            sbx.commands.run("ls /etc/shadow && cat /etc/shadow")
        except CommandExitException as refused:
            print(f"refused   exit code {refused.exit_code}: {refused.stderr.strip()}")
    print(f"killed    {sbx.sandbox_id} after {time.perf_counter() - started:.2f} s")
    if result != "42":
        sys.exit("the result is not what the program wrote")


if __name__ == "__main__":
    main()
