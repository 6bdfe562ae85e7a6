/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration files of this host, read for three settings only.  The daemons themselves check the files. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/str.h"
#include "clients/ctl/join.h"
#include "net/link/addr.h"

#define CONF_MAX_BYTES ((size_t)1 << 20)

static struct bytes conf_trim(struct bytes text)
{
    while (text.len_bytes > 0 && strchr(" \t\r", text.data[0]) != NULL)
        text = bytes_of(text.data + 1, text.len_bytes - 1);
    while (text.len_bytes > 0 && strchr(" \t\r", text.data[text.len_bytes - 1]) != NULL)
        text.len_bytes--;
    return text;
}

static void conf_add_place(const char *name, struct bytes value, struct join_conf *out)
{
    char address[128];
    struct addr addr;

    if (value.len_bytes >= sizeof(address) || out->probe.n_places == JOIN_MAX_PROBE)
        return;
    memcpy(address, value.data, value.len_bytes);
    address[value.len_bytes] = '\0';
    if (addr_parse(address, NULL, &addr) != 0 || addr.port == 0 || addr_is_loopback(&addr) ||
        addr_is_any(&addr))
        return;
    (void)join_message_place(&out->probe, name, address);
}

static void conf_set(struct bytes section, struct bytes key, struct bytes value, struct join_conf *out)
{
    if (bytes_is(section, "link") && bytes_is(key, "listen"))
        conf_add_place("link", value, out);
    else if (bytes_is(section, "kv") && bytes_is(key, "tcp_listen"))
        conf_add_place("kv", value, out);
    else if (bytes_is(section, "model") && bytes_is(key, "path") && out->n_models < JOIN_MAX_MODELS &&
             value.len_bytes > 0 && value.len_bytes < sizeof(out->models[0])) {
        memcpy(out->models[out->n_models], value.data, value.len_bytes);
        out->models[out->n_models++][value.len_bytes] = '\0';
    }
}

void join_conf_parse(struct bytes text, struct join_conf *out)
{
    struct bytes section = bytes_str("");

    for (size_t at = 0; at < text.len_bytes;) {
        size_t stop = bytes_find(text, bytes_str("\n"), at), equals;
        struct bytes line;

        if (stop == SIZE_MAX)
            stop = text.len_bytes;
        line = conf_trim(bytes_of(text.data + at, stop - at));
        at = stop + 1;
        equals = bytes_find(line, bytes_str("="), 0);
        if (line.len_bytes > 2 && line.data[0] == '[' && line.data[line.len_bytes - 1] == ']')
            section = bytes_of(line.data + 1, line.len_bytes - 2);
        else if (line.len_bytes > 0 && line.data[0] != '#' && line.data[0] != ';' && equals != SIZE_MAX)
            conf_set(section, conf_trim(bytes_of(line.data, equals)),
                     conf_trim(bytes_of(line.data + equals + 1, line.len_bytes - equals - 1)), out);
    }
}

void join_conf_read(const char *folder, struct join_conf *out)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;

    memset(out, 0, sizeof(*out));
    out->probe.kind = JOIN_PROBE;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        size_t n = strlen(entry->d_name);
        char path[1024];
        struct buf text = {0};
        const char *why;
        FILE *file = NULL;

        if (n > 5 && strcmp(entry->d_name + n - 5, ".conf") == 0 &&
            snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name) < (int)sizeof(path))
            file = file_open(path, &why);
        if (file == NULL)
            continue;
        if (file_read_rest(file, CONF_MAX_BYTES, &text) == 0)
            join_conf_parse(buf_view(&text), out);
        buf_fini(&text);
        fclose(file);
    }
    if (dir != NULL)
        closedir(dir);
    for (unsigned i = 0; i < JOIN_MAX_PLACES; i++)
        out->listen_fd[i] = -1;
}

void join_conf_listen(struct join_conf *conf)
{
    for (unsigned i = 0; i < conf->probe.n_places; i++) {
        int fd = join_listen(conf->probe.places[i].address, NULL);

        conf->listen_fd[i] = fd >= 0 ? fd : -1;
    }
}

void join_conf_close(struct join_conf *conf)
{
    for (unsigned i = 0; i < JOIN_MAX_PLACES; i++)
        if (conf->listen_fd[i] >= 0) {
            close(conf->listen_fd[i]);
            conf->listen_fd[i] = -1;
        }
}
