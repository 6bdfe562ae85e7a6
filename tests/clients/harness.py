# SPDX-License-Identifier: Apache-2.0
"""Runs the commands, plainly or on a terminal of their own."""
import os
import pty
import select
import subprocess
import sys
import time

BUILD = os.environ.get("BATON_BUILD", os.getcwd())
PATIENCE = 6 if os.environ.get("BATON_SLOW") else 1


def command(name):
    return os.path.join(BUILD, name)


def run(name, *args, timeout=30, **more):
    environ = {k: v for k, v in os.environ.items() if k == "BATON_TUNE_FILE" or not (k.startswith("BATON_") or k == "XDG_STATE_HOME")}
    environ.update(more.pop("env", {}))
    return subprocess.run([command(name), *args], capture_output=True, timeout=timeout * PATIENCE, env=environ, **more)


class Terminal:
    """A command on a pseudo-terminal."""

    def __init__(self, name, *args, env=None):
        self.text = b""
        pid, self.fd = pty.fork()
        if pid == 0:
            os.environ.update({"TERM": "xterm", "LC_ALL": "C.UTF-8", **(env or {})})
            os.execv(command(name), [command(name), *args])
        self.pid = pid

    def wait_for(self, what, timeout=10):
        """Reads until the output since the last call contains the text; returns everything up to it."""
        what, until = what.encode(), time.monotonic() + timeout * PATIENCE
        while what not in self.text:
            left = until - time.monotonic()
            assert left > 0, (what, self.text)
            if select.select([self.fd], [], [], left)[0]:
                try:
                    piece = os.read(self.fd, 65536)
                except OSError:  # the other side has closed
                    piece = b""
                assert piece, (what, self.text)
                self.text += piece
        before, self.text = self.text.split(what, 1)
        return before

    def type(self, keys):
        os.write(self.fd, keys.encode())

    def status(self, timeout=10):
        """Waits for the end; returns the exit status."""
        until = time.monotonic() + timeout * PATIENCE
        while time.monotonic() < until:
            if select.select([self.fd], [], [], 0.02)[0]:
                try:
                    self.text += os.read(self.fd, 65536)
                except OSError:
                    pass
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        raise AssertionError(f"still running: {self.text}")


def main(tests):
    only = sys.argv[1:]
    for test in tests:
        if only and test.__name__ not in only:
            continue
        began = time.monotonic()
        try:
            test()
        except BaseException:
            print(f"FAILED {test.__name__}", flush=True)
            raise
        print(f"ok {test.__name__} ({time.monotonic() - began:.1f} s)", flush=True)
