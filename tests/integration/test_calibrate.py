#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""baton-plan measures real prefill and decode daemons and a host, and plans with the results."""
import csv
import json
import os
import subprocess
import tempfile
import urllib.request

from cluster import BUILD, MODEL, Cluster, main, patience

PLAN = os.path.join(BUILD, "baton-plan")
WORK = ["--isl", "300", "--osl", "32", "--rate", "3", "--ttft", "5s", "--itl", "200ms", "--link", "eth-10g", "--json"]


def plan(*args, status=0):
    done = subprocess.run([PLAN, *args], capture_output=True, text=True, timeout=patience(120))
    assert done.returncode == status, (args, done.stdout[-1000:], done.stderr)
    return done


def a_relay_is_calibrated_on():
    with Cluster() as c, tempfile.TemporaryDirectory() as folder:
        c.relay()
        url = f"http://127.0.0.1:{c.routers[0].http}"
        served = json.load(urllib.request.urlopen(url + "/v1/models"))["data"][0]["id"]
        table, constants = os.path.join(folder, "table.tsv"), os.path.join(folder, "constants")
        done = plan("calibrate", "--url", url, "--split", "--model", MODEL, "--served", served, "--device", "dev-2vcpu-zen5",
                    "--weights", "q8_0", "--kv", "f16", "--time", "6s" if os.environ.get("BATON_SANITIZED") else "8s", "--measured", table, "-o", constants)
        print(done.stderr)
        with open(table, encoding="utf-8") as file:
            rows = list(csv.DictReader(file, delimiter="\t"))
        assert len(rows) >= 3 and all(r["mode"] == "split" and float(r["tpot_ms"]) > 0 for r in rows), rows
        asked = (64, 128, 256, 512, 1024, 1536, 2048, 4096, 8192)
        for row in rows:  # the server's count equals the wanted number, except for words of several tokens
            tokens = float(row["isl"])
            assert min(abs(tokens / n - 1) for n in asked) < 0.25, row
        checked = json.loads(plan("validate", "--model", MODEL, "-c", constants, "-j", table).stdout)
        assert checked["rows"] == len(rows) and checked["refused"] == 0, checked
        assert "no model" in plan("validate", "-c", constants, table, status=1).stderr
        report = json.loads(plan("plan", "-m", MODEL, "-d", "dev-2vcpu-zen5", "-w", "q8_0", "--kv", "f16", "--constants", constants,
                                 *WORK).stdout)
        assert report["constants"] == "calibrated" and report["plans"], report
        c.assert_quiet()


def a_host_is_planned_with():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "myhost.json")
        with open(path, "wb") as file:
            subprocess.run([os.path.join(BUILD, "baton-model"), "bench", "--json", "--pp", "64", "--tg", "8", MODEL], stdout=file,
                           stderr=subprocess.DEVNULL, check=True, timeout=patience(120))
        done = plan("plan", "-m", MODEL, "-d", path + ",memory=8GB", "-w", "q8_0", "--kv", "f16", *WORK)
        assert "calibrate" not in done.stderr, done.stderr
        assert json.loads(done.stdout)["plans"][0]["prefill"].startswith("myhost"), done.stdout


if __name__ == "__main__":
    main([a_relay_is_calibrated_on, a_host_is_planned_with])
