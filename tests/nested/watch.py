"""Noticing that the emulator stands still: it works, and its processor's registers never change.

QEMU 7.2 with ``-icount`` does so now and then when its guest runs a guest of its own, which waits
for ever at a write to its APIC then (docs/design/qemu.md). What ran inside says nothing in that case.
"""

import os
import socket
import threading

_LOOK_S = 3.0
# So much work, and so many looks, without any change: no guest is like that but one that idles,
# and that takes no processor.
_WORKED_S, _LOOKS = 15.0, 6
_PROMPT = b"(qemu) "


class Watch:
    """Looks at a machine from time to time, in a thread, and ends it when it stands still.

    Args:
        machine: the process.
        monitor: its socket, which it makes.
    """

    def __init__(self, machine, monitor):
        self.stood_still = False
        self._machine = machine
        self._monitor = monitor
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nested-watch")
        self._thread.start()

    def end(self):
        """Look no more."""
        self._over.set()
        self._thread.join()

    def _run(self):
        seen, since_s, looks = "", 0.0, 0
        while not self._over.wait(_LOOK_S):
            try:
                now, worked_s = self._registers(), self._worked_s()
            except OSError:
                continue  # it has not begun, or has ended
            if now != seen:
                seen, since_s, looks = now, worked_s, 0
            looks += 1
            if looks >= _LOOKS and worked_s - since_s >= _WORKED_S:
                self.stood_still = True
                self._machine.kill()
                return

    def _registers(self):
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(30)
            link.connect(str(self._monitor))
            self._answer(link)
            link.sendall(b"info registers\n")
            return self._answer(link)

    def _answer(self, link):
        said = b""
        while not said.endswith(_PROMPT):
            more = link.recv(1 << 16)
            if not more:
                raise OSError("the monitor has ended")
            said += more
        return said

    def _worked_s(self):
        with open(f"/proc/{self._machine.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
