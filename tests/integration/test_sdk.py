# SPDX-License-Identifier: Apache-2.0
"""The stock SDKs, both generations, against three real daemons with the bundled model."""
import os
import subprocess
import sys

from cluster import BUILD, SOURCE, Cluster, main

skipped = False


def failures(text):
    """The failures that node's reporter lists at the end of each suite, without the stacks."""
    kept, is_list = [], False
    for line in text.splitlines():
        is_list = "failing tests:" in line or (is_list and not line.startswith("\u25b6"))
        if is_list and line.strip() and not line.lstrip().startswith("at "):
            kept.append(line)
    return "\n".join(kept) or text[-2000:]


def the_stock_sdks_work_unchanged():
    global skipped
    with Cluster() as c:
        c.relay(http__metrics="clients")  # the suites wait for the server to become idle
        run = subprocess.run([os.path.join(SOURCE, "tests", "integration", "sdk", "run-sdk-test")], cwd=BUILD,
                             env={**os.environ, "BASE_URL": f"http://127.0.0.1:{c.routers[0].http}", "MODEL": "baton-demo"},
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        print(run.stdout)
        skipped = run.returncode == 77
        # Failures are also printed last: of a long log only the end is read.
        assert run.returncode in (0, 77), f"exit status {run.returncode}\n{failures(run.stdout)}"
        c.assert_quiet()


main([the_stock_sdks_work_unchanged])
sys.exit(77 if skipped else 0)
