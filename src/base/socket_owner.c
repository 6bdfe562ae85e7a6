/* SPDX-License-Identifier: Apache-2.0 */
/* address --/proc/net/tcp, tcp6, unix--> inode --/proc/PID/fd--> process --/proc/PID/cgroup--> unit */
#include "base/socket_owner.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"

#define STATE_LISTEN 0x0a
#define FLAG_LISTENS 0x10000 /* __SO_ACCEPTCON of the kernel */

/* A line of /proc/net/tcp or tcp6.  0: another port, or not listening. */
static unsigned long owner_inode_of_port(const char *line, unsigned port)
{
    unsigned line_port, state;
    unsigned long inode;

    if (sscanf(line, " %*u: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %*u %*u %lu", &line_port,
               &state, &inode) != 3)
        return 0;
    return line_port == port && state == STATE_LISTEN ? inode : 0;
}

/* A line of /proc/net/unix.  0: another path, or not listening: accepted connections have the same path. */
static unsigned long owner_inode_of_path(const char *line, const char *path)
{
    unsigned flags;
    unsigned long inode;
    char line_path[sizeof(((struct sockaddr_un *)0)->sun_path) + 1];

    if (sscanf(line, "%*s %*s %*s %x %*s %*s %lu %108[^\n]", &flags, &inode, line_path) != 3)
        return 0;
    return (flags & FLAG_LISTENS) != 0 && strcmp(line_path, path) == 0 ? inode : 0;
}

static unsigned long owner_find_inode(const char *table, const struct sockaddr *sa)
{
    const struct sockaddr_un *un = (const struct sockaddr_un *)(const void *)sa;
    const struct sockaddr_in *in =
        (const struct sockaddr_in *)(const void *)sa; /* the port is at the same offset in both */
    FILE *file = fopen(table, "re");
    unsigned long inode = 0;
    char line[512];

    while (file != NULL && inode == 0 && fgets(line, sizeof(line), file) != NULL)
        inode = sa->sa_family == AF_UNIX ? owner_inode_of_path(line, un->sun_path)
                                         : owner_inode_of_port(line, ntohs(in->sin_port));
    if (file != NULL)
        fclose(file);
    return inode;
}

static bool owner_has_socket(const char *pid, unsigned long inode)
{
    char path[300], wanted[40], link[64];
    struct dirent *entry;
    bool has = false;
    DIR *folder;

    snprintf(wanted, sizeof(wanted), "socket:[%lu]", inode);
    snprintf(path, sizeof(path), "/proc/%s/fd", pid);
    folder = opendir(path);
    if (folder == NULL)
        return false;
    while (!has && (entry = readdir(folder)) != NULL) {
        ssize_t n = readlinkat(dirfd(folder), entry->d_name, link, sizeof(link) - 1);

        link[n > 0 ? n : 0] = '\0';
        has = strcmp(link, wanted) == 0;
    }
    closedir(folder);
    return has;
}

/* The first line of /proc/PID/NAME, without its end. */
static void owner_read_line(const char *pid, const char *name, char *out, size_t cap)
{
    char path[300];

    snprintf(path, sizeof(path), "/proc/%s/%s", pid, name);
    (void)file_read_line(path, out, cap);
}

static void owner_describe(const char *pid, char out[SOCKET_OWNER_BYTES])
{
    char comm[32], group[512], *unit;
    size_t n;

    owner_read_line(pid, "comm", comm, sizeof(comm));
    owner_read_line(pid, "cgroup", group, sizeof(group));
    unit = strrchr(group, '/');
    n = unit != NULL ? strlen(unit) : 0;
    if (n > 9 && n < 100 && strcmp(unit + n - 8, ".service") == 0)
        snprintf(out, SOCKET_OWNER_BYTES, ": %s is there already (process %s, unit %s)", comm, pid, unit + 1);
    else
        snprintf(out, SOCKET_OWNER_BYTES, ": %s is there already (process %.12s)", comm, pid);
}

static bool owner_find_process(unsigned long inode, char out[SOCKET_OWNER_BYTES])
{
    DIR *folder = opendir("/proc");
    struct dirent *entry;
    bool has = false;

    while (folder != NULL && !has && (entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9' || strlen(entry->d_name) > 12)
            continue;
        has = owner_has_socket(entry->d_name, inode);
        if (has)
            owner_describe(entry->d_name, out);
    }
    if (folder != NULL)
        closedir(folder);
    return has;
}

void socket_owner_text(const struct sockaddr *sa, char out[SOCKET_OWNER_BYTES])
{
    static const char *const tables[] = {"/proc/net/tcp", "/proc/net/tcp6"};
    unsigned long inode = 0;

    out[0] = '\0';
    if (sa->sa_family == AF_UNIX)
        inode = owner_find_inode("/proc/net/unix", sa);
    else if (sa->sa_family == AF_INET || sa->sa_family == AF_INET6)
        for (unsigned i = 0; i < 2 && inode == 0; i++)
            inode = owner_find_inode(tables[i], sa);
    if (inode != 0 && !owner_find_process(inode, out))
        snprintf(out, SOCKET_OWNER_BYTES, ": a process of another user is there already");
}

int socket_owner_fault(struct fault *fault, const char *address, const struct sockaddr *sa)
{
    char owner[SOCKET_OWNER_BYTES] = "";
    int error = errno;

    if (error == EADDRINUSE)
        socket_owner_text(sa, owner);
    return fault_set(fault, E_IO, "cannot listen on %s: %s%s", address, strerror(error), owner);
}
