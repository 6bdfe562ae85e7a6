/* SPDX-License-Identifier: Apache-2.0 */
/* Files, key and units.  All files of a plan are written, or none; existing files are never changed. */
#include "clients/setup/steps.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/str.h"
#include "fleet/plan/model.h"
#include "gguf/gguf.h"
#include "net/link/tls.h"

#include <openssl/crypto.h>

extern char **environ;

int setup_model_read(const char *path, struct fault *fault, struct setup_model *out)
{
    struct setup_model model = {0};
    struct plan_model shape;
    struct gguf *gguf;
    char *real = realpath(path, NULL);
    int rc;

    if (real == NULL || !str_copy(model.path, sizeof(model.path), real)) {
        free(real);
        return fault_set(fault, E_NOT_FOUND, "%s: %s", path,
                         real == NULL ? strerror(errno) : "the path is too long");
    }
    free(real);
    rc = gguf_open(model.path, fault, &gguf);
    if (rc != 0)
        return rc;
    model.file_bytes = gguf_file_bytes(gguf);
    gguf_close(gguf);
    if (plan_model_from_gguf(model.path, NULL, &shape) == 0) {
        model.kv_token_bytes = (uint64_t)(plan_model_kv_elements(&shape) * 2);
        model.context = (uint64_t)shape.max_context;
    }
    *out = model;
    return 0;
}

bool setup_model_is_hidden(const struct setup_model *model, char *why, size_t cap)
{
    static const char *const hidden[] = {"/home/", "/root/", "/run/user/", "/tmp/", "/var/tmp/"};
    struct stat st;

    if (model->path[0] == '\0')
        return false;
    for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++)
        if (strncmp(model->path, hidden[i], strlen(hidden[i])) == 0) {
            snprintf(why, cap, "%s: the units cannot see %.*s; move the file, to /srv for example",
                     model->path, (int)strlen(hidden[i]) - 1, hidden[i]);
            return true;
        }
    if (stat(model->path, &st) == 0 && (st.st_mode & S_IROTH) == 0) {
        snprintf(why, cap, "%s: the units run as a user of their own, who cannot read it; chmod o+r",
                 model->path);
        return true;
    }
    return false;
}

/* ---- files ---- */

static int write_folder(const char *folder, struct fault *fault)
{
    char path[PATH_MAX];

    if (!str_copy(path, sizeof(path), folder) || path[0] == '\0')
        return fault_set(fault, E_INVAL, "--dir %s: the path is empty or too long", folder);
    for (char *at = path + 1; *at != '\0'; at++)
        if (*at == '/') {
            *at = '\0';
            if (mkdir(path, 0755) != 0 && errno != EEXIST)
                return fault_set(fault, E_IO, "%s: %s", path, strerror(errno));
            *at = '/';
        }
    if (mkdir(path, 0755) != 0 && errno != EEXIST)
        return fault_set(fault, E_IO, "%s: %s", path, strerror(errno));
    return 0;
}

static int write_path(const char *folder, const char *name, struct fault *fault, char out[PATH_MAX])
{
    if (snprintf(out, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX)
        return fault_set(fault, E_INVAL, "%s: the path is too long", folder);
    return 0;
}

static int write_exists(const char *path, struct fault *fault)
{
    return fault_set(fault, E_EXISTS,
                     "%s is there already, and setup overwrites nothing: move it away, or choose another "
                     "--name or --dir",
                     path);
}

/* True if a configuration file has comments and sections only. */
static bool write_is_bare(const char *path)
{
    const char *why;
    FILE *file = file_open(path, &why);
    char line[4096];
    bool is_bare = file != NULL;

    while (is_bare && fgets(line, sizeof(line), file) != NULL) {
        const char *at = line + strspn(line, " \t");

        is_bare = strchr("#;[\r\n", *at) != NULL;
    }
    if (file != NULL)
        fclose(file);
    return is_bare;
}

int setup_check_absent(const char *folder, struct setup_plan *plan, struct fault *fault)
{
    char path[PATH_MAX];
    int rc = 0;

    for (unsigned i = 0; rc == 0 && i < plan->n_files; i++) {
        struct setup_file *file = &plan->files[i];

        rc = write_path(folder, file->name, fault, path);
        if (rc == 0 && strcmp(file->name, "router.conf") == 0 && write_is_bare(path)) {
            str_copy(file->name, sizeof(file->name), "router.conf.d/setup.conf");
            rc = write_path(folder, file->name, fault, path);
        }
        if (rc == 0 && access(path, F_OK) == 0)
            rc = write_exists(path, fault);
    }
    return rc;
}

static int write_one(const char *path, const struct setup_file *file, struct fault *fault)
{
    struct buf text = {0};
    int fd, rc = setup_render(file, &text);

    if (rc != 0)
        return rc;
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0644);
    if (fd < 0 && errno == EEXIST)
        rc = write_exists(path, fault);
    else if (fd < 0)
        rc = fault_set(fault, E_IO, "%s: %s", path, strerror(errno));
    else if (write(fd, text.data, text.len_bytes) != (ssize_t)text.len_bytes || fsync(fd) != 0) {
        rc = fault_set(fault, E_IO, "%s: %s", path, strerror(errno));
        unlink(path);
    }
    if (fd >= 0)
        close(fd);
    buf_fini(&text);
    return rc;
}

/* Makes the folder of a file. */
static int write_parent(const char *path, struct fault *fault)
{
    char folder[PATH_MAX];

    snprintf(folder, sizeof(folder), "%.*s", (int)(strrchr(path, '/') - path), path);
    return write_folder(folder, fault);
}

int setup_write(const char *folder, const struct setup_plan *plan, struct fault *fault)
{
    char path[PATH_MAX];
    unsigned n = 0;
    int rc = 0;

    for (; rc == 0 && n < plan->n_files; n++) {
        rc = write_path(folder, plan->files[n].name, fault, path);
        if (rc == 0)
            rc = write_parent(path, fault);
        if (rc == 0)
            rc = write_one(path, &plan->files[n], fault);
        if (rc != 0)
            break;
    }
    while (rc != 0 && n-- > 0)
        if (write_path(folder, plan->files[n].name, NULL, path) == 0)
            unlink(path); /* written above by this call */
    return rc;
}

int setup_key(const char *path, struct fault *fault, bool *made_out)
{
    uint8_t key[32];
    int rc = cluster_key_create(path, fault);

    *made_out = rc == 0;
    if (rc != E_EXISTS)
        return rc;
    rc = cluster_key_load(path, fault, key);
    OPENSSL_cleanse(key, sizeof(key));
    return rc;
}

/* ---- programs ---- */

/* Runs a program and waits. Returns its exit status, or -1 when it does not run. */
static int write_run(const char *program, char *const argv[])
{
    pid_t pid;
    int status;

    fflush(stdout);
    if (posix_spawnp(&pid, program, NULL, NULL, argv, environ) != 0)
        return -1;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/* The daemon beside this program, else by its name alone, which the PATH finds. */
static void write_find(const char *name, char out[PATH_MAX])
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char *slash;

    str_copy(out, PATH_MAX, name);
    if (n <= 0)
        return;
    self[n] = '\0';
    slash = strrchr(self, '/');
    if (slash == NULL || (size_t)(slash - self) + strlen(name) + 2 > PATH_MAX)
        return;
    str_copy(slash + 1, PATH_MAX - (size_t)(slash + 1 - self), name);
    if (access(self, X_OK) == 0)
        str_copy(out, PATH_MAX, self);
}

int setup_check(const char *folder, const struct setup_plan *plan, const char *key_path, struct fault *fault)
{
    char program[PATH_MAX], path[PATH_MAX], set[PATH_MAX + 32];
    int status, rc;

    for (unsigned i = 0; i < plan->n_files; i++) {
        char *argv[] = {program, "--config", path, "--check-config", NULL, NULL, NULL};

        write_find(plan->files[i].daemon, program);
        rc = write_path(folder, plan->files[i].conf, fault, path);
        if (rc != 0)
            return rc;
        if (key_path != NULL) {
            snprintf(set, sizeof(set), "link.cluster_key=%s", key_path);
            argv[4] = "--set";
            argv[5] = set;
        }
        status = write_run(program, argv);
        if (status < 0 || status == 127)
            return fault_set(fault, E_NOT_FOUND, "%s is not installed: %s is written and not checked",
                             plan->files[i].daemon, path);
        if (status != 0)
            return fault_set(
                fault, E_INVAL,
                "%s refuses %s (see above): mend the file, then run %s --config %s --check-config",
                plan->files[i].daemon, path, plan->files[i].daemon, path);
    }
    return 0;
}

static int start_unit(const char *unit, const char *verb, struct fault *fault)
{
    char *argv[] = {"systemctl", "enable", (char *)verb, (char *)unit, NULL};
    int status = write_run("systemctl", argv);

    if (status < 0 || status == 127)
        return fault_set(fault, E_PEER,
                         "systemctl is not there: this host has no systemd; start the daemons by hand");
    if (status != 0)
        return fault_set(fault, E_PEER, "%s did not start; see: journalctl -u %s -n 50", unit, unit);
    return 0;
}

int setup_start(const struct setup_plan *plan, struct fault *fault)
{
    int rc = start_unit("baton.target", "--quiet", fault); /* it starts the units at the next boot */

    for (unsigned i = 0; rc == 0 && i < plan->n_files; i++) {
        rc = start_unit(plan->files[i].unit, "--now", fault);
        if (rc == 0)
            printf("started %s\n", plan->files[i].unit);
    }
    return rc;
}
