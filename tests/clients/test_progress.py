#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Long work on a terminal shows its progress, Ctrl-C ends it, and a pipe gets nothing.  Each program has more work than the test
waits for."""
import os
import pty
import signal
import subprocess
import sys
import tempfile
import time

BUILD = os.environ.get("BATON_BUILD", ".")


def hear_interrupts():
    """For the child: a test that runs in the background of a script has inherited that SIGINT is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run_on_terminal(command, wanted):
    """Runs the command with stderr on a terminal, interrupts it when `wanted` was shown; returns its status and its output."""
    main, side = pty.openpty()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=side, stdin=subprocess.DEVNULL,
                               preexec_fn=hear_interrupts)
    os.close(side)
    seen, end = b"", time.monotonic() + 120
    os.set_blocking(main, False)
    while wanted not in seen:
        assert process.poll() is None, (command, process.returncode, seen)
        assert time.monotonic() < end, (command, seen)
        try:
            seen += os.read(main, 4096)
        except BlockingIOError:
            time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    try:
        status = process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    finally:
        os.close(main)
    return status, seen


def program(name):
    return os.path.join(BUILD, name)


def simulations():
    load = ["--generate", "poisson", "--rate", "400", "--duration", "100000", "--prefill", "60", "--decode", "60"]
    status, seen = run_on_terminal([program("baton-sim"), *load], b" s left")
    assert status == 130 and b"simulating" in seen, (status, seen)
    quiet = subprocess.Popen([program("baton-sim"), *load], stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=hear_interrupts)
    time.sleep(3)
    quiet.send_signal(signal.SIGINT)
    out, err = quiet.communicate(timeout=60)
    assert quiet.returncode == 130 and b"partial: " in out and err == b"", (quiet.returncode, out, err)


def files():
    """A half-written model is removed."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "large.gguf")
        status, seen = run_on_terminal([program("baton-model"), "make", "--layers", "64", "--hidden", "2048", "--ffn", "8192",
                                        "--type", "Q6_K", path], b"writing")
        assert status == 128 + signal.SIGINT, (status, seen)
        assert os.listdir(folder) == [], os.listdir(folder)


for test in (simulations, files):
    test()
    print(f"ok {test.__name__}", flush=True)
sys.exit(0)
