# SPDX-License-Identifier: Apache-2.0
"""baton-model pull uses models that others fetched: an administrator's in /var/lib/baton/models, and the cache of the hub's own
libraries.  The stand-in of the hub says what it was asked."""
import hashlib
import os
import subprocess

from cluster import BUILD, main, patience
from test_pull import BYTES, TOKEN, TOOL, Hub, parts, same

SHA = hashlib.sha256(BYTES).hexdigest()


class User:
    """A user with a home of their own, on a machine whose /var/lib is a read-only folder of the test."""

    def __init__(self, hub):
        self.hub, self.lib, self.home = hub, os.path.join(hub.dir, "lib"), os.path.join(hub.dir, "home")
        self.kept = os.path.join(self.home, ".cache/baton/models/o/m")
        self.system = os.path.join(self.lib, "baton/models/o/m")
        os.makedirs(self.system)
        os.makedirs(self.home)

    def install(self, has_digest=True):
        """What an administrator does."""
        self.hub.pull("--to", os.path.join(self.lib, "baton/models"), "hf:o/m")
        if not has_digest:
            os.unlink(os.path.join(self.system, "tiny-Q8_0.gguf.sha256"))
        self.hub.asked.clear()

    def run(self, *line, status=0, says="", **environment):
        user = [] if os.getuid() == 0 else ["--map-root-user"]
        mount = 'mount --bind "$0" /var/lib && mount -o remount,bind,ro /var/lib && exec "$@"'
        names = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME")
        run = subprocess.run(["unshare", "--mount", *user, "sh", "-c", mount, self.lib, *line], capture_output=True, text=True,
                             timeout=patience(60), check=False,
                             env={**{k: v for k, v in os.environ.items() if k not in names}, "HF_ENDPOINT": self.hub.url,
                                  "HF_TOKEN": TOKEN, "http_proxy": "", "no_proxy": "*", "HOME": self.home, **environment})
        assert run.returncode == status and says in run.stderr, run
        return run.stdout.strip(), run.stderr

    def pull(self, *arguments, **more):
        return self.run(TOOL, "pull", *arguments, **more)

    def has_fetched(self):
        return len(self.hub.asked_of("store")) > 0


def may_mount():
    if subprocess.run(["unshare", "--mount", *([] if os.getuid() == 0 else ["--map-root-user"]), "true"], capture_output=True, check=False).returncode == 0:
        return True
    print("SKIP: no namespace of mounts here")
    return False


def put_cache(folder, files, hashes=None):
    """The layout of the hub's libraries: blobs by digest, and a snapshot of links."""
    root = os.path.join(folder, "models--o--m")
    for name, body in files.items():
        digest = (hashes or {}).get(name) or hashlib.sha256(body).hexdigest()
        link = os.path.join(root, "snapshots", "5a" * 20, name)
        os.makedirs(os.path.join(root, "blobs"), exist_ok=True)
        os.makedirs(os.path.dirname(link), exist_ok=True)
        with open(os.path.join(root, "blobs", digest), "wb") as f:
            f.write(body)
        os.symlink(os.path.relpath(os.path.join(root, "blobs", digest), os.path.dirname(link)), link)
    os.makedirs(os.path.join(root, "refs"), exist_ok=True)
    with open(os.path.join(root, "refs", "main"), "w") as f:
        f.write("5a" * 20)
    return os.path.join(root, "blobs")


def an_administrators_model_is_used_where_it_stands():
    if not may_mount():
        return
    with Hub() as hub:
        user, path = User(hub), "/var/lib/baton/models/o/m/tiny-Q8_0.gguf"
        user.install()
        for name in ("hf:o/m", "hf:o/m:Q8_0", "https://huggingface.co/o/m"):
            assert user.pull(name)[0] == path and not user.has_fetched(), name
            assert user.pull("--sha256", SHA, name)[0] == path and not user.has_fetched(), name
        asked = len(hub.asked)
        assert user.pull("--offline", "hf:o/m")[0] == path and user.pull("--offline", "--sha256", SHA, "hf:o/m")[0] == path
        assert len(hub.asked) == asked, "a server was asked"
        user.pull("--offline", "--sha256", "00" * 32, "hf:o/m", status=1, says=f"the copy of tiny-Q8_0.gguf has SHA-256 {SHA}, but --sha256 says 0000")
        assert user.pull("hf:o/m", HOME="")[0] == path, "a user without a home"
        assert not os.path.exists(user.kept), os.listdir(user.kept)
        hub.files["tiny-Q8_0.gguf"] = body = BYTES[:-1] + b"\1"  # a new version: the user's own folder gets it
        hub.tree[2]["lfs"]["oid"] = hashlib.sha256(body).hexdigest()
        assert user.pull("hf:o/m")[0] == os.path.join(user.kept, "tiny-Q8_0.gguf") and user.has_fetched()
        same(os.path.join(user.kept, "tiny-Q8_0.gguf"), body)
        same(os.path.join(user.system, "tiny-Q8_0.gguf"))
    with Hub() as hub:
        user = User(hub)
        user.install()
        hub.is_away()
        out, err = user.pull("hf:o/m")
        assert out == path and "the copy that is there is used" in err and SHA in err, (out, err)
        out, _ = user.run(os.path.join(BUILD, "baton"), "run", "--offline", "--both", "--once", "-t1", "-n3", "hf:o/m", BATON_PROGRAMS=BUILD,
                          XDG_RUNTIME_DIR=hub.dir, TMPDIR=hub.dir)
        assert "tiny-Q8_0" in out, out


def an_administrators_copy_without_a_digest_is_read_once():
    if not may_mount():
        return
    with Hub() as hub:
        user = User(hub)
        user.install(has_digest=False)
        path, err = user.pull("hf:o/m")
        assert path == os.path.join(user.kept, "tiny-Q8_0.gguf") and not user.has_fetched() and "checking" in err, (path, err)
        assert os.readlink(path) == "/var/lib/baton/models/o/m/tiny-Q8_0.gguf" and "and not fetched again" in err, err
        path, err = user.pull("hf:o/m")
        assert "checking" not in err and not user.has_fetched(), err
        body = BYTES[:-1] + b"\1"
        with open(os.path.join(user.system, "tiny-Q8_0.gguf"), "wb") as f:  # it changes behind the link
            f.write(body)
        path, err = user.pull("hf:o/m", says="tiny-Q8_0.gguf is not used: it has SHA-256 " + hashlib.sha256(body).hexdigest())
        assert user.has_fetched() and not os.path.islink(path), err
        same(os.path.join(user.system, "tiny-Q8_0.gguf"), body)


def a_changed_file_behind_a_link_is_not_accepted():
    """Its time of writing may be an older one, as cp -p and rsync -t leave it.  Without a server nothing else gives the bytes."""
    if not may_mount():
        return
    with Hub() as hub:
        user = User(hub)
        user.install(has_digest=False)
        system, body = os.path.join(user.system, "tiny-Q8_0.gguf"), BYTES[:-1] + b"\1"
        path, _ = user.pull("hf:o/m")
        assert os.path.islink(path) and "checking" not in user.pull("--offline", "hf:o/m")[1]
        os.utime(system, (1000000000, 1000000000))  # the same bytes: they are read once more
        assert "checking" in user.pull("--offline", "hf:o/m")[1] and "checking" not in user.pull("--offline", "hf:o/m")[1]
        os.rename(system, system + ".away")
        own = "--to", os.path.join(user.home, ".cache/baton/models")
        user.pull("--offline", *own, "hf:o/m", status=1, says="forbids to fetch it")
        with open(system, "wb") as f:
            f.write(body)
        os.utime(system, (1000000000, 1000000000))
        for more in ((), own):
            user.pull("--offline", *more, "hf:o/m", status=1, says="the file that it leads to has changed")
        user.pull("--offline", *own, "--sha256", SHA, "hf:o/m", status=1, says="--sha256 says")
        hub.is_away()
        user.pull(*own, "hf:o/m", status=1, says="SHA-256 not known")
    for arguments in ((), ("--offline", "--sha256", hashlib.sha256(body).hexdigest())):
        with Hub() as hub:
            user = User(hub)
            user.install(has_digest=False)
            path, _ = user.pull("hf:o/m")
            with open(os.path.join(user.system, "tiny-Q8_0.gguf"), "wb") as f:
                f.write(body)
            os.utime(os.path.join(user.system, "tiny-Q8_0.gguf"), (1000000000, 1000000000))
            assert user.pull(*arguments, "hf:o/m")[0] == path
            assert os.path.islink(path) == bool(arguments), "the old digest stayed for good"
            if not arguments:
                same(path)


def a_file_that_lost_its_digest_is_read_again():
    """A command that is killed between the name and the digest leaves it so."""
    if not may_mount():
        return
    with Hub() as hub:
        user = User(hub)
        path, _ = user.pull("hf:o/m")
        assert user.has_fetched()
        os.unlink(path + ".sha256")
        hub.asked.clear()
        assert "checking" in user.pull("hf:o/m")[1] and not user.has_fetched() and not os.path.islink(path)
        assert "checking" not in user.pull("hf:o/m")[1] and not user.has_fetched()


def the_cache_of_the_hubs_libraries_is_reused():
    if not may_mount():
        return
    for place, environment in ((".cache/huggingface/hub", {}), ("x/hub", {"HF_HOME": "{}/x"}), ("y", {"HF_HUB_CACHE": "{}/y", "HF_HOME": "/absent"}),
                               ("z/huggingface/hub", {"XDG_CACHE_HOME": "{}/z"})):
        with Hub() as hub:
            user = User(hub)
            environment = {k: v.format(user.home) for k, v in environment.items()}
            put_cache(os.path.join(user.home, place), hub.files)
            kept = os.path.join(user.home, "z/baton/models/o/m") if "XDG_CACHE_HOME" in environment else user.kept
            path, err = user.pull("--offline", "hf:o/m", **environment)
            assert path == os.path.join(kept, "tiny-Q8_0.gguf") and not hub.asked and "checking" in err, (path, err, hub.asked)
            same(path)
            subprocess.run(["sha256sum", "-c", "--quiet", path + ".sha256"], cwd=kept, check=True)
            os.unlink(path)
            os.unlink(path + ".sha256")
            assert user.pull("hf:o/m", **environment)[0] == path and os.path.islink(path) and not user.has_fetched()
            _, err = user.pull("--sha256", SHA, "hf:o/m", **environment)
            assert "checking" not in err and not user.has_fetched(), err


def a_cache_is_checked():
    """Other bytes under a digest's name, another size, no revision, and a blob that was removed later."""
    if not may_mount():
        return
    for body, said in ((BYTES[:-1] + b"\1", "is not used: it has SHA-256"), (BYTES[:-1], "")):
        with Hub() as hub:
            user = User(hub)
            put_cache(os.path.join(user.home, ".cache/huggingface/hub"), {"tiny-Q8_0.gguf": body}, {"tiny-Q8_0.gguf": SHA})
            user.pull("--offline", "hf:o/m", status=1, says="--offline forbids to fetch it")
            path, _ = user.pull("hf:o/m", says=said)
            assert user.has_fetched() and not os.path.islink(path)
            same(path)
    with Hub() as hub:
        user = User(hub)
        blobs = put_cache(os.path.join(user.home, ".cache/huggingface/hub"), hub.files)
        with open(os.path.join(blobs, "../refs/main"), "w") as f:
            f.write("../../../elsewhere")
        user.pull("--offline", "hf:o/m", status=1, says="nothing in")
        path, _ = user.pull("hf:o/m")
        assert os.path.islink(path) and not user.has_fetched()
        os.unlink(os.path.join(blobs, SHA))
        assert user.pull("hf:o/m")[0] == path and user.has_fetched() and not os.path.islink(path)
        same(path)


def a_folder_that_is_named_is_the_only_one():
    if not may_mount():
        return
    with Hub() as hub:
        user, folder = User(hub), os.path.join(hub.dir, "other")
        user.install()
        put_cache(os.path.join(user.home, ".cache/huggingface/hub"), hub.files)
        user.pull("--to", folder, "--offline", "hf:o/m", status=1, says="--offline forbids to fetch it")
        path, _ = user.pull("--to", folder, "hf:o/m")
        assert path == os.path.join(folder, "o/m/tiny-Q8_0.gguf") and user.has_fetched() and not os.path.islink(path)


def a_split_model_of_a_cache_is_whole():
    """All parts are links beside each other; a part that the cache lacks is fetched."""
    if not may_mount():
        return
    files = parts()
    with Hub(**files) as hub:
        user = User(hub)
        blobs = put_cache(os.path.join(user.home, ".cache/huggingface/hub"), hub.files)
        path, _ = user.pull("--offline", "hf:o/m:Q4_K_M")
        assert path == os.path.join(user.kept, "Q4_K_M/big-Q4_K_M-00001-of-00003.gguf") and not hub.asked, path
        user.run(TOOL, "info", path)
        os.unlink(os.path.join(blobs, hub.hash("Q4_K_M/big-Q4_K_M-00002-of-00003.gguf")))
        assert user.pull("hf:o/m")[0] == path and {a[1] for a in hub.asked_of("store")} == {"/Q4_K_M/big-Q4_K_M-00002-of-00003.gguf"}, hub.asked
        user.run(TOOL, "info", path)


if __name__ == "__main__":
    main([an_administrators_model_is_used_where_it_stands, an_administrators_copy_without_a_digest_is_read_once,
          a_changed_file_behind_a_link_is_not_accepted, a_file_that_lost_its_digest_is_read_again,
          the_cache_of_the_hubs_libraries_is_reused, a_cache_is_checked, a_folder_that_is_named_is_the_only_one,
          a_split_model_of_a_cache_is_whole])
