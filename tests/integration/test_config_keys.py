# SPDX-License-Identifier: Apache-2.0
"""Every key of every daemon, as its own sample configuration lists them, with ill values: --check-config and a real start give the same
verdict, with the same errors.  Then all numbers of a daemon at their minimum, and at their maximum.

By default each key gets N_VALUES of the values, others in each role; BATON_VALUES=100 gives it all of them.  Sanitizers
get one for each key, and a key of workers in one of their two roles: these read one table."""
import os
import re
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor

from cluster import BUILD, main
from test_config import IS_SANITIZED, ROLES, Bench, check, errors_of, start

N_VALUES = int(os.environ.get("BATON_VALUES", "1" if IS_SANITIZED else "2"))
VALUES = ("", "-1", "0", "1", "9" * 25, "1.5", "5x", "10 s", "yes", "loud", "0x10", "1e3", "\u00e9", "a,b", "127.0.0.1:0", "127.0.0.1:70000",
          "/no/such/file", "x" * 3000, "10000d", "64PiB", "16", "3s", "-0.5", "%s%n", "..", "*", "[::1]:0")
CHECKED = re.compile(r"c\d+\.conf")


def keys_of(role):
    """(key, limits) of all lines of the sample."""
    text = subprocess.run([os.path.join(BUILD, "baton-" + role), "--sample-config"], capture_output=True, text=True, check=True).stdout
    section, limits, found = None, [], []
    for line in text.splitlines():
        key = re.match(r"#?([a-z][a-z0-9_]*) =", line)
        if line.startswith("["):
            section = line[1:-1]
        elif line.startswith("# ("):
            limits = [x for pair in re.findall(r"(?:between (\S+) and|at least|at most|and) ([^\s;)]+)", line) for x in pair if x]
        elif key:
            found.append((f"{section}.{key[1]}", limits))
            limits = []
    return found


def compare(bench, role, change):
    """The verdict of both: True, they take it."""
    values = bench.good(role)
    values.update(change)
    conf, _ = bench.file(values)
    code, said = check(role, conf)
    started, said_at_start = start(role, conf)
    shown = {key: value[:60] for key, value in change.items()}
    assert code == started, (role, shown, code, started, said[-800:], said_at_start[-800:])
    errors = errors_of(said_at_start)
    assert code == 0 or [re.sub("^baton-[a-z]*: ", "", e) for e in errors_of(said)] == [re.sub("^baton-[a-z]*: ", "", e) for e in errors], \
        (role, shown, errors_of(said), errors)
    return code == 0


def every_key_with_ill_values():
    with tempfile.TemporaryDirectory(prefix="baton-it.") as folder:
        os.chdir(folder)  # relative paths among the values lead here
        jobs, n_keys = [], 0
        for r, role in enumerate(ROLES):
            for i, (key, _) in enumerate(keys_of(role)):
                n_keys += 1
                if IS_SANITIZED and role != "router" and i % 5 != r % 5:
                    continue
                chosen = {VALUES[(7 * i + 11 * j + 5 * r) % len(VALUES)] for j in range(min(N_VALUES, len(VALUES)))}
                jobs += [(role, {key: value}) for value in (VALUES if N_VALUES >= len(VALUES) else sorted(chosen))]
        assert n_keys > 150, n_keys
        benches = [Bench(os.path.join(folder, str(k))) for k in range(2) if not os.mkdir(os.path.join(folder, str(k)))]

        def some(k):
            return [compare(benches[k], role, change) for role, change in jobs[k::2]]

        with ThreadPoolExecutor(2) as pool:
            verdicts = [v for part in pool.map(some, range(2)) for v in part]
        assert 0 < sum(verdicts) < len(verdicts), "all alike"
        print(f"{n_keys} keys, {len(verdicts)} configurations, {len(verdicts) - sum(verdicts)} refused by both")
        os.chdir("/")


def all_numbers_at_their_limits():
    with tempfile.TemporaryDirectory(prefix="baton-it.") as folder:
        bench = Bench(folder)
        for role in ROLES:
            limited = [(key, limits) for key, limits in keys_of(role) if limits and not key.startswith("stop.")]
            assert len(limited) > 10, limited
            for which in (0, -1):
                compare(bench, role, {key: limits[which] for key, limits in limited})


if __name__ == "__main__":
    main([every_key_with_ill_values, all_numbers_at_their_limits])
