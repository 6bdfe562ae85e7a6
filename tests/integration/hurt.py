# SPDX-License-Identifier: Apache-2.0
"""The tools of the fault matrix: a proxy on the link between two workers, and a way to cut data connections.

A Wire listens in front of a worker's link port and passes bytes in both directions.  It can hold them (the connection
stays, no byte arrives), cut every connection, and be healed.  cut_data() shuts a data connection of any kind down from
outside: it borrows the daemon's descriptor with pidfd_getfd(), as a debugger would.
"""
import ctypes
import os
import select
import socket
import threading

from cluster import free_port

SYS_PIDFD_OPEN, SYS_PIDFD_GETFD = 434, 438


class Wire:
    def __init__(self, to_port):
        self.to_port, self.port = to_port, free_port()
        self.is_held, self.is_cut, self.is_over = False, False, False
        self.pairs, self.n_cut = [], 0
        self.listener = socket.create_server(("127.0.0.1", self.port))
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.is_over:
            if self.is_cut:
                self.close_pairs()
            ends = {end: other for a, b in self.pairs for end, other in ((a, b), (b, a))}
            watched = [self.listener] + ([] if self.is_held else list(ends))
            for ready in select.select(watched, [], [], 0.01)[0]:
                if ready is self.listener:
                    self.accept()
                elif ready.fileno() >= 0:
                    self.move(ready, ends[ready])
        self.close_pairs()
        self.listener.close()

    def accept(self):
        near, _ = self.listener.accept()
        try:
            self.pairs.append((near, socket.create_connection(("127.0.0.1", self.to_port), 5)))
        except OSError:
            near.close()

    def move(self, source, target):
        try:
            data = source.recv(65536)
            if data:
                target.sendall(data)
                return
        except OSError:
            pass
        for pair in [p for p in self.pairs if source in p]:
            self.pairs.remove(pair)
            for end in pair:
                end.close()

    def close_pairs(self):
        for pair in self.pairs:
            self.n_cut += 1
            for end in pair:
                end.close()
        self.pairs = []

    def stop(self):
        self.is_over = True
        self.thread.join()


def descriptors_of(pid):
    """Sockets of a process: descriptor, inode."""
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        if target.startswith("socket:["):
            yield int(name), target[8:-1]


def connected(inode_table, is_data):
    with open(inode_table) as table:
        return {row.split()[9 if "tcp" in inode_table else 6] for row in list(table)[1:] if is_data(row.split())}


def cut_data(sender, receiver):
    """Shuts the sender's data connections to this receiver down and returns how many.  PermissionError where a process
    may not."""
    libc = ctypes.CDLL(None, use_errno=True)
    address = receiver.kv_port
    wanted = connected("/proc/net/tcp", lambda row: row[2].endswith(f":{address:04X}")) if address else set()
    unix = {row.split()[6] for row in open("/proc/net/unix") if row.rstrip().endswith(f"/{receiver.name}.sock")}
    pid, end = (sender.process.pid, wanted) if address else (receiver.process.pid, unix)
    pidfd, n = libc.syscall(SYS_PIDFD_OPEN, pid, 0), 0
    for fd, inode in descriptors_of(pid):
        if inode not in end:
            continue
        copy = libc.syscall(SYS_PIDFD_GETFD, pidfd, fd, 0)
        if copy < 0:
            os.close(pidfd)
            raise PermissionError(ctypes.get_errno(), "pidfd_getfd")
        with socket.socket(fileno=copy) as s:
            if s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                continue
            s.shutdown(socket.SHUT_RDWR)
            n += 1
    os.close(pidfd)
    return n
