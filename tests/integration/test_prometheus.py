#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes real daemons under load.  It accepts each query of the dashboards and rules, and their
series have values. promtool tests each alert.  Skips without Debian's prometheus."""
import glob
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import BUILD, SOURCE, Cluster, main, patience  # noqa: E402

MONITORING = os.path.join(SOURCE, "share", "monitoring")
# Series without values here: they need hardware, faults or the named feature.
MAY_BE_EMPTY = ("rdma", "preemptions", "unfit", "lost", "drafted", "spoilt", "queue_wait", "prefix_fetch", "ALERTS", "loop_stall",
                "refused", "auth_failures")


def queries():
    """(where, query) of all dashboards and rules, with Grafana's variable filled in."""
    for path in sorted(glob.glob(os.path.join(MONITORING, "dashboard-*.json"))):
        with open(path, encoding="utf-8") as f:
            for panel in json.load(f)["panels"]:
                for target in panel["targets"]:
                    yield f"{os.path.basename(path)}: {panel['title']}", target["expr"].replace("$__rate_interval", "1m")
    with open(os.path.join(MONITORING, "rules.yml"), encoding="utf-8") as f:
        for name, query in re.findall(r"- (?:alert|record): (\S+)\n\s+expr: (.*)", f.read()):
            yield f"rules.yml: {name}", query


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Prometheus:
    def __init__(self, folder, daemons, token):
        self.port = free_port()
        shutil.copy(os.path.join(MONITORING, "rules.yml"), folder)
        with open(os.path.join(folder, "baton-metrics-token"), "w", encoding="utf-8") as f:
            f.write(token)
        with open(os.path.join(MONITORING, "prometheus.yml"), encoding="utf-8") as f:
            conf = f.read().replace("scrape_interval: 5s", "scrape_interval: 250ms").replace("evaluation_interval: 15s", "evaluation_interval: 500ms")
        for role, port in (("router", 8081), ("prefill", 8083), ("decode", 8085)):
            targets = ", ".join(f'"127.0.0.1:{d.admin}"' for d in daemons if d.role == role)
            assert f'"127.0.0.1:{port}"' in conf
            conf = conf.replace(f'"127.0.0.1:{port}"', targets)
        with open(os.path.join(folder, "prometheus.yml"), "w", encoding="utf-8") as f:
            f.write(conf)
        self.log = open(os.path.join(folder, "prometheus.log"), "w", encoding="utf-8")
        self.process = subprocess.Popen(["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                                         f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=warn"], stdout=self.log, stderr=self.log)

    def get(self, path, **arguments):
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
        try:
            with urllib.request.urlopen(url, timeout=patience(10)) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return json.load(error)

    def wait_for(self, query, what):
        until = time.monotonic() + patience(30)
        while time.monotonic() < until:
            try:
                if self.get("query", query=query)["data"]["result"]:
                    return
            except OSError:
                assert self.process.poll() is None, "Prometheus ended"
            time.sleep(0.2)
        raise AssertionError(f"{what} did not come")

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()


def alerts_are_raised_as_promised():
    subprocess.run([os.path.join(MONITORING, "make-dashboards"), MONITORING], check=True)
    done = subprocess.run(["promtool", "test", "rules", os.path.join(MONITORING, "rules_test.yml")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with open(os.path.join(MONITORING, "rules.yml"), encoding="utf-8") as f:
        alerts = set(re.findall(r"- alert: (\S+)", f.read()))
    with open(os.path.join(MONITORING, "rules_test.yml"), encoding="utf-8") as f:
        tested = set(re.findall(r"alertname: (\S+?)[\s,}]", f.read()))
    assert alerts == tested, alerts ^ tested


def each_query_has_values():
    with tempfile.TemporaryDirectory() as folder, Cluster() as c:
        c.relay()
        daemons = c.routers + c.workers
        token = subprocess.run([os.path.join(BUILD, "batonctl"), "--cluster-key", c.key, "metrics-token"], capture_output=True, text=True,
                               check=True).stdout.strip()
        prometheus = Prometheus(folder, daemons, token)
        try:
            prometheus.wait_for(f"count(up == 1) == {len(daemons)}", "a scrape of every daemon")
            for _ in range(2):
                subprocess.run([os.path.join(BUILD, "baton-bench"), "-u", f"http://127.0.0.1:{c.routers[0].http}", "-n", "24", "-c", "4", "-p",
                                "200:400", "-a", "16"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            prometheus.wait_for("sum(rate(baton_requests_total[1m])) > 0", "the rate of requests")
            prometheus.wait_for("baton:prompt_cached:ratio5m", "a recorded rule")
            n, empty = 0, []
            for where, query in queries():
                answer = prometheus.get("query", query=query)
                assert answer["status"] == "success", (where, query, answer)
                n += 1
                if not answer["data"]["result"] and "rules.yml: Baton" not in where and not any(word in query for word in MAY_BE_EMPTY):
                    empty.append((where, query))
            assert not empty, empty
            firing = [a["labels"]["alertname"] for a in prometheus.get("alerts")["data"]["alerts"] if a["state"] == "firing"]
            assert not firing, firing
            print(f"   {n} queries")
        finally:
            prometheus.close()


if __name__ == "__main__":
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        print("prometheus is not installed")
        sys.exit(77)
    main([alerts_are_raised_as_promised, each_query_has_values])
