# SPDX-License-Identifier: Apache-2.0
"""Links and KV connections with certificates instead of the cluster key: a relay, a reload, and hostile peers."""
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time

from cluster import BUILD, Cluster, free_port, main, patience

LONG = ("The relay hands the baton over: who reads the prompt, who writes the answer, and what moves between the two? " * 2).strip()


class Authority:
    """A certificate authority in a folder, made with openssl."""

    def __init__(self, folder, name):
        self.folder = os.path.join(folder, name)
        os.mkdir(self.folder)
        self.ca, self.ca_key, self.n = self.path("ca.pem"), self.path("ca.key"), 0
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "60", "-subj",
                     f"/CN={name}", "-keyout", self.ca_key, "-out", self.ca)
        with open(self.path("ca.conf"), "w") as f:
            f.write(f"[ca]\ndefault_ca=d\n[d]\nnew_certs_dir={self.folder}\ndatabase={self.path('index')}\nserial={self.path('serial')}\n"
                    "default_md=sha256\npolicy=p\nunique_subject=no\ncopy_extensions=copy\n[p]\ncommonName=supplied\n")
        open(self.path("index"), "w").close()
        with open(self.path("serial"), "w") as f:
            f.write("1000\n")

    def path(self, name):
        return os.path.join(self.folder, name)

    def openssl(self, *arguments):
        out = subprocess.run(["openssl", *arguments], capture_output=True, text=True)
        assert out.returncode == 0, out.stderr

    def issue(self, name, days=40, usage="serverAuth,clientAuth"):
        """Returns the paths of a certificate for this DNS name, and of its key. Negative days: it has expired."""
        self.n += 1
        certificate, key, request = (self.path(f"{self.n}.{kind}") for kind in ("pem", "key", "csr"))
        self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}", "-addext",
                     f"subjectAltName=DNS:{name}", "-addext", f"extendedKeyUsage={usage}", "-keyout", key, "-out", request)
        dates = ["-days", str(days)] if days > 0 else ["-startdate", "20200101000000Z", "-enddate", "20210101000000Z"]
        self.openssl("ca", "-batch", "-config", self.path("ca.conf"), "-cert", self.ca, "-keyfile", self.ca_key, "-in", request,
                     "-out", certificate, "-notext", *dates)
        os.chmod(key, 0o600)
        return certificate, key

    def settings(self, name, **fields):
        certificate, key = self.issue(name, **fields)
        return {"link.ca": self.ca, "link.certificate": certificate, "link.key": key}


def log_of(daemon):
    return open(daemon.log_path, errors="replace").read()


def wait_until(what, condition, seconds=20):
    until = time.monotonic() + patience(seconds)
    while not condition():
        assert time.monotonic() < until, what() if callable(what) else what
        time.sleep(0.05)


def relay(cluster, authority, **settings):
    cluster.router(**authority.settings("router.baton.test"), **settings)
    for role in ("prefill", "decode"):
        cluster.worker(role, **{"kv.transport": "tcp", **authority.settings(f"{role}.baton.test"), **settings})
    cluster.wait_ready(prefill=1, decode=1)


def knock(port, authority, certificate=None, version=ssl.TLSVersion.TLSv1_3, says=b"x" * 64):
    """Connects as a TLS client would. Returns the server's certificate (DER) if the server took the client, else None."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.minimum_version = context.maximum_version = version
    context.load_verify_locations(authority.ca)
    if certificate is not None:
        context.load_cert_chain(*certificate)
    try:
        with socket.create_connection(("127.0.0.1", port), patience(10)) as plain, context.wrap_socket(plain) as tls:
            tls.settimeout(patience(10))
            served = tls.getpeercert(True)
            # With TLS 1.3 a refusal comes after the client's own handshake: with the first bytes read.
            return served if tls.recv(1) else None
    except (ssl.SSLError, ConnectionError):
        return None


def a_relay_and_a_reload():
    with Cluster() as c:
        authority = Authority(c.dir, "ca")
        relay(c, authority)
        router, prefill, decode = c.routers[0], *c.workers
        answer = c.ask(LONG)
        assert answer.serving["transferred"] > 0 and answer.serving["transport"] == "tcp", answer.serving
        left_s = router.status()["link_keys"]["certificate_expires_unix_s"] - time.time()
        assert 39 * 86400 < left_s < 41 * 86400, left_s
        assert all("keys" not in w for w in router.status()["workers"])
        gauge = decode.metric("baton_link_certificate_expiry_seconds")
        assert abs(gauge - left_s) < 3600, (gauge, left_s)

        # new files, by rename as tools do, and a reload: new links are shown the new certificate, old links stay
        mine = authority.issue("operator.baton.test")
        before = knock(decode.link, authority, mine)
        assert before is not None
        for daemon in (router, prefill, decode):
            fresh = authority.issue(f"{daemon.name}.baton.test", days=50)
            for path, name in zip(fresh, ("link.certificate", "link.key")):
                shutil.copy2(path, daemon.settings[name] + ".new")
                os.rename(daemon.settings[name] + ".new", daemon.settings[name])
            said = subprocess.run([os.path.join(BUILD, "batonctl"), "--cluster-key", c.key, "--admin", f"127.0.0.1:{daemon.admin}",
                                   "reload"], capture_output=True, text=True)
            assert said.returncode == 0, said.stderr
        after = knock(decode.link, authority, mine)
        assert after is not None and after != before
        assert router.status()["link_keys"]["certificate_expires_unix_s"] - time.time() > 45 * 86400
        again = c.ask("Once more. " + LONG)
        assert again.serving["transferred"] > 0, again.serving
        assert not [line for d in (router, prefill, decode) for line in log_of(d).splitlines() if '"link_down"' in line]

        # links name no keys: key status says so; a host that joins gets a note on certificates, and nothing is WRONG
        ctl = [os.path.join(BUILD, "batonctl"), "--cluster-key", c.key, "--admin", f"127.0.0.1:{router.admin}"]
        said = subprocess.run([*ctl, "key", "status"], capture_output=True, text=True)
        assert said.returncode == 0 and "ask each daemon" in said.stdout, said
        door = f"127.0.0.1:{free_port()}"
        token = subprocess.Popen([*ctl, "token", "--listen", door], stdout=subprocess.PIPE, text=True)
        try:
            text = next(line for line in token.stdout if "--token" in line).split()[-1]
            said = subprocess.run([ctl[0], "--cluster-key", os.path.join(c.dir, "joined.key"), "join", "--token", text, door],
                                  capture_output=True, text=True, timeout=patience(60))
        finally:
            token.kill()
            token.communicate()
        assert said.returncode == 0 and "link.ca, link.certificate and link.key" in said.stdout, said
        assert re.search(r"^ok +router +\S+ answers$", said.stdout, re.M), said

        # a refused file changes nothing
        with open(decode.settings["link.certificate"], "w") as f:
            f.write("nothing\n")
        said = subprocess.run([os.path.join(BUILD, "batonctl"), "--cluster-key", c.key, "--admin", f"127.0.0.1:{decode.admin}", "reload"],
                              capture_output=True, text=True)
        assert said.returncode == 1, said.stdout
        assert knock(decode.link, authority, mine) == after
        c.assert_quiet()


def strangers_are_refused():
    with Cluster() as c:
        authority, other = Authority(c.dir, "ca"), Authority(c.dir, "other")
        kv = free_port()
        relay(c, authority, **{})
        decode = c.worker("decode", **{"kv.transport": "tcp", "kv.tcp_listen": f"127.0.0.1:{kv}", **authority.settings("decode.baton.test")})
        c.wait_ready(prefill=1, decode=2)
        good = authority.issue("operator.baton.test")
        for port in (c.routers[0].link, decode.link, kv):
            assert knock(port, authority, good) is not None, port
            assert knock(port, authority) is None, "without a certificate"
            assert knock(port, authority, other.issue("operator.baton.test")) is None, "of another authority"
            assert knock(port, authority, authority.issue("operator.baton.test", days=-1)) is None, "expired"
            assert knock(port, authority, authority.issue("operator.baton.test", usage="serverAuth")) is None, "not for clients"
            assert knock(port, authority, good, ssl.TLSVersion.TLSv1_2) is None, "TLS 1.2"
            self_made = authority.path("self.pem"), authority.path("self.key")
            authority.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "9", "-subj",
                              "/CN=ca", "-keyout", self_made[1], "-out", self_made[0])
            assert knock(port, authority, self_made) is None, "self-made"
        assert c.ask(LONG).is_whole

        # daemons that dial: with the key, with another authority; each side says why, by name
        for settings, ours, theirs in (({}, "TLS", "is link.cluster_key the same on both sides, or does the peer use certificates?"),
                                       (other.settings("decode.baton.test"), "certificate", "unable to get local issuer certificate")):
            stranger = c.worker("decode", **settings)
            wait_until(lambda: [l for l in log_of(stranger).splitlines() if "TLS" in l or "link_failed" in l][-2:], lambda: theirs in log_of(stranger))
            wait_until(lambda: log_of(c.routers[0])[-2000:], lambda: '"link_refused"' in log_of(c.routers[0]) or '"link_failed"' in log_of(c.routers[0]))
            assert len([w for w in c.routers[0].status()["workers"] if w["usable"]]) == 3
            assert stranger.stop() == 0
            c.workers.remove(stranger)


def a_key_router_refuses_certificates():
    with Cluster() as c:
        authority = Authority(c.dir, "ca")
        c.relay()
        stranger = c.worker("decode", **authority.settings("decode.baton.test"))
        wait_until(lambda: log_of(stranger)[-2000:], lambda: "(does the peer have a link.certificate of the same link.ca?)" in log_of(stranger))
        assert len(c.routers[0].status()["workers"]) == 2
        assert c.ask(LONG).is_whole
        stranger.stop()
        c.workers.remove(stranger)


def names_decide():
    with Cluster() as c:
        authority = Authority(c.dir, "ca")
        relay(c, authority, **{"link.names": ["router.baton.test", ".workers.test", "prefill.baton.test", "decode.baton.test"]})
        decode = c.workers[1]
        for name, is_taken in (("a.workers.test", True), ("prefill.baton.test", True), ("workers.test", False), ("x.baton.test", False),
                               ("a.workers.test.evil", False)):
            served = knock(decode.link, authority, authority.issue(name))
            assert (served is not None) == is_taken, name
        assert c.ask(LONG).is_whole


def files_are_checked_before_the_start():
    with Cluster() as c:
        authority, other = Authority(c.dir, "ca"), Authority(c.dir, "other")

        conf = os.path.join(c.dir, "empty.conf")
        open(conf, "w").close()

        def check(role, settings):
            line = [os.path.join(BUILD, f"baton-{role}"), "--config", conf, "--check-config", "--set", f"link.cluster_key={c.key}"]
            if role != "router":
                line += ["--set", f"model.path={os.path.join(os.environ.get('BATON_SOURCE', '.'), 'share', 'baton-demo.gguf')}"]
            for name, value in settings.items():
                line += ["--set", f"{name}={value}"]
            return subprocess.run(line, capture_output=True, text=True)

        good = authority.settings("a.test")
        cases = [(good, 0, ""),
                 (authority.settings("a.test", days=5), 0, "link.certificate"),
                 (authority.settings("a.test", days=-1), 1, "the certificate expired"),
                 ({**good, "link.key": other.issue("a.test")[1]}, 1, "link.key: "),
                 ({**good, "link.ca": "/nonexistent"}, 1, "link.ca: "),
                 ({"link.certificate": good["link.certificate"], "link.key": good["link.key"]}, 1, "all of link.ca, link.certificate and link.key"),
                 ({"link.names": "a.test"}, 1, "link.names: ")]
        for role in ("router", "decode"):
            for settings, status, text in cases:
                said = check(role, settings)
                assert said.returncode == status and text in said.stderr, (role, settings, said)
            said = check(role, cases[1][0])
            assert re.search(r"expires in [45] days", said.stderr), said
        os.chmod(good["link.key"], 0o644)
        assert "link.key: " in check("router", good).stderr


if not shutil.which("openssl"):
    print("openssl is not installed")
    sys.exit(77)
main([a_relay_and_a_reload, strangers_are_refused, a_key_router_refuses_certificates, names_decide, files_are_checked_before_the_start])
