# SPDX-License-Identifier: Apache-2.0
"""A command under a memory limit as a container sees it: a mount namespace of its own where /sys/fs/cgroup is a folder with the
files of both versions of control groups.  The kernel does not enforce the limit."""
import os
import shlex
import subprocess


def limited(folder, limit_bytes, command):
    """The command line that runs a command under the limit, or None where namespaces of mounts are not allowed."""
    mount = os.path.join(folder, "cgroup")
    os.makedirs(os.path.join(mount, "memory"), exist_ok=True)
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with open(os.path.join(mount, name), "w") as f:
            f.write(f"{limit_bytes}\n")
    user = [] if os.getuid() == 0 else ["--map-root-user"]
    before = ["unshare", "--mount", *user, "sh", "-c", f"mount --bind {shlex.quote(mount)} /sys/fs/cgroup && exec \"$@\"", "sh"]
    try:
        subprocess.run([*before, "true"], check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as e:
        print("SKIP: no namespace of mounts here:", e)
        return None
    return before + command
