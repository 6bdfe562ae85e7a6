/* SPDX-License-Identifier: Apache-2.0 */
/* Finds free ports: no process listens there, and no configuration file beside the new ones names them. */
#include "clients/setup/steps.h"

#include <ctype.h>
#include <dirent.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/str.h"
#include "net/link/addr.h"

#define PORTS_MAX_FILE_BYTES ((size_t)1 << 20)

/* Marks each number that follows a colon, outside comments. */
static void ports_read_text(struct setup_ports *ports, struct bytes text)
{
    bool is_comment = false, is_line_start = true;

    for (size_t i = 0; i + 1 < text.len_bytes; i++) {
        unsigned port = 0;
        char c = (char)text.data[i];

        if (c == '\n')
            is_comment = false;
        else if (is_line_start && (c == '#' || c == ';'))
            is_comment = true;
        is_line_start = c == '\n' || (is_line_start && isspace((unsigned char)c));
        if (is_comment || c != ':')
            continue;
        for (size_t j = i + 1; j < text.len_bytes && isdigit(text.data[j]) && port < 65536; j++)
            port = port * 10 + (unsigned)(text.data[j] - '0');
        if (port > 0 && port < 65536)
            ports->named[port / 64] |= (uint64_t)1 << port % 64;
    }
}

static void ports_read_file(struct setup_ports *ports, const char *folder, const char *name)
{
    char path[1024];
    const char *why;
    struct buf text = {0};
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = file_open(path, &why);
    if (file == NULL)
        return;
    if (file_read_rest(file, PORTS_MAX_FILE_BYTES, &text) == 0)
        ports_read_text(ports, buf_view(&text));
    buf_fini(&text);
    fclose(file);
}

static bool ports_name_ends(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n > m && strcmp(name + n - m, end) == 0;
}

/* Reads the .conf files of a folder, and those of its .conf.d folders. */
static void ports_read_folder(struct setup_ports *ports, const char *folder, bool has_drop_ins)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    char path[1024];

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (ports_name_ends(entry->d_name, ".conf"))
            ports_read_file(ports, folder, entry->d_name);
        if (has_drop_ins && ports_name_ends(entry->d_name, ".conf.d")) {
            snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
            ports_read_folder(ports, path, false);
        }
    }
    if (dir != NULL)
        closedir(dir);
}

void setup_ports_init(struct setup_ports *ports, const char *folder, const char *address)
{
    memset(ports, 0, sizeof(*ports));
    ports->address = address;
    ports_read_folder(ports, folder, true);
}

static bool ports_can_bind(const char *host, unsigned port)
{
    char text[300];
    struct addr addr;
    int fd, one = 1;
    bool is_free;

    snprintf(text, sizeof(text), strchr(host, ':') != NULL && host[0] != '[' ? "[%s]:%u" : "%s:%u", host,
             port);
    if (addr_parse(text, NULL, &addr) != 0 || !addr.is_numeric)
        return true; /* a host name: the daemon's own check reports its errors */
    fd = socket(addr.sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return true;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    is_free = bind(fd, (struct sockaddr *)&addr.sa, addr.sa_bytes) == 0;
    close(fd);
    return is_free;
}

bool setup_ports_is_free(void *arg, unsigned port)
{
    const struct setup_ports *ports = arg;

    if (port >= 65536 || (ports->named[port / 64] >> port % 64 & 1) != 0)
        return false;
    return ports_can_bind("127.0.0.1", port) &&
           (ports->address == NULL || ports_can_bind(ports->address, port));
}

int setup_own_address(const char *target, struct fault *fault, char out[64])
{
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *info = NULL;
    struct sockaddr_storage own;
    socklen_t own_bytes = sizeof(own);
    struct addr addr;
    char port[8];
    int fd = -1, rc = addr_parse(target, fault, &addr);

    if (rc != 0)
        return rc;
    snprintf(port, sizeof(port), "%u", addr.port);
    if (getaddrinfo(addr.host, port, &hints, &info) != 0)
        return fault_set(fault, E_NOT_FOUND, "%s: no address of this name is known", addr.host);
    fd = socket(info->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, info->ai_addr, info->ai_addrlen) != 0 ||
        getsockname(fd, (struct sockaddr *)&own, &own_bytes) != 0 ||
        getnameinfo((struct sockaddr *)&own, own_bytes, out, 64, NULL, 0, NI_NUMERICHOST) != 0)
        rc = fault_set(fault, E_IO, "%s: no route from this host; give --address", target);
    if (fd >= 0)
        close(fd);
    freeaddrinfo(info);
    return rc;
}
