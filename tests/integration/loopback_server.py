# SPDX-License-Identifier: Apache-2.0
"""A server of a test's own, on a free port of the loopback: the part that Redis and the S3 servers have in common."""
import signal
import subprocess
import time

from cluster import patience


class Server:
    name, process = "", None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def run(self, command, is_up, seconds=60, **more):
        """Starts the program, and returns the result of is_up() once that raises no OSError."""
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **more)
        end = time.monotonic() + patience(seconds)
        while True:
            try:
                return is_up()
            except OSError:
                assert self.process.poll() is None and time.monotonic() < end, f"{self.name} does not start"
                time.sleep(0.01)

    def kill(self):
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
            self.process = None
