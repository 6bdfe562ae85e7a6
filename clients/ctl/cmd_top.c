/* SPDX-License-Identifier: Apache-2.0 */
/* top: the status table on the terminal's alternate screen, until q or Ctrl-C.
 *
 *   ask ──> draw ──> wait for the interval, a key or a signal ──┐
 *    ^                                                          │
 *    └──────────────────────────────────────────────────────────┘
 *
 * Everything runs on the call's loop, so a key or a signal also ends a request that gets no answer.  A new
 * screen overwrites the old one line by line, without clearing, so it does not flicker.  When a daemon does
 * not answer, its last table stays under the error message.  The terminal is restored on every exit that can
 * be caught. */
#include <getopt.h>
#include <inttypes.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "clients/ctl/commands.h"
#include "clients/ctl/status.h"
#include "clients/ctl/top_recent.h"
#include "clients/ctl/top_view.h"
#include "base/event/signals.h"

#define ROWS 24

struct top {
    const struct ctl *ctl;
    struct admin_door *door;
    struct ev_timer *tick;
    struct ev_fd *keys;
    struct ev_signal *signals[3];
    struct termios saved;
    bool is_over;
    uint64_t interval_ns;
    struct buf table;     /* the last good one */
    struct fault failure; /* of the last request; code 0: none */
    struct status_work work;
    uint64_t work_ns; /* when it was asked; 0: never */
    double placed_per_s;
    struct top_history history; /* a router's */
    bool is_utf8;               /* the terminal's */
};

static void cmd_top_on_tick(void *arg)
{
    struct top *top = arg;

    ev_loop_stop(admin_door_loop(top->door));
}

static void on_quit(void *arg)
{
    struct top *top = arg;

    top->is_over = true;
    ev_loop_stop(admin_door_loop(top->door));
}

static void on_key(void *arg, int fd, unsigned ready)
{
    char keys[32];
    ssize_t n = read(fd, keys, sizeof(keys));

    if (n == 0 || (n > 0 && (memchr(keys, 'q', (size_t)n) != NULL || memchr(keys, 'Q', (size_t)n) != NULL ||
                             memchr(keys, 4, (size_t)n) != NULL)))
        on_quit(arg);
}

static void set_screen(struct top *top, bool is_on)
{
    struct termios raw = top->saved;

    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    tcsetattr(STDIN_FILENO, TCSANOW, is_on ? &raw : &top->saved);
    /* Switches to the alternate screen without cursor and line wrap; and back. */
    fputs(is_on ? "\033[?1049h\033[?25l\033[?7l\033[2J" : "\033[?7h\033[?25h\033[?1049l", stdout);
    fflush(stdout);
}

/* Appends what the latest placements show.  An older router has no list of them. */
static void cmd_top_add_recent(struct top *top, struct buf *table)
{
    struct fault fault = {0};
    struct buf body = {0};

    if (admin_door_ask(top->door, false, "/admin/placements", &fault, &body) == 0)
        (void)top_recent_render(buf_view(&body), table);
    buf_fini(&body);
}

static void take_status(struct top *top, struct bytes body)
{
    struct status_work work;
    uint64_t now_ns = clock_now_ns();
    struct buf table = {0};
    double elapsed_s = top->work_ns > 0 ? (double)(now_ns - top->work_ns) / 1e9 : 0;
    int rc;

    if (top_history_take(&top->history, body, elapsed_s)) {
        (void)top_view_render(&top->history, body, top->is_utf8, &table);
        cmd_top_add_recent(top, &table);
        buf_append_byte(&table, '\n');
    }
    rc = status_render(body, false, &table);
    if (rc == 0)
        rc = status_work(body, &work);
    if (rc < 0) {
        fault_set(&top->failure, rc, "%s: not a status I can read", top->ctl->door.address);
        buf_fini(&table);
        return;
    }
    buf_fini(&top->table);
    top->table = table;
    if (top->work_ns > 0 && work.n_placed >= top->work.n_placed)
        top->placed_per_s =
            (double)(work.n_placed - top->work.n_placed) / ((double)(now_ns - top->work_ns) / 1e9);
    top->work = work;
    top->work_ns = now_ns;
    top->failure.code = 0;
}

static void cmd_top_ask(struct top *top)
{
    struct buf body = {0};

    if (admin_door_ask(top->door, false, "/admin/status", &top->failure, &body) == 0)
        take_status(top, buf_view(&body));
    buf_fini(&body);
}

/* A screen has ROWS lines at least: a smaller one scrolls. */
static unsigned cmd_top_rows(void)
{
    struct winsize size;

    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row >= ROWS ? size.ws_row : ROWS;
}

static void cmd_top_draw(const struct top *top)
{
    time_t now = (time_t)(clock_unix_ns() / NS_PER_S);
    struct tm tm;
    struct buf screen = {0};
    struct bytes table = buf_view(&top->table);
    unsigned n_left = cmd_top_rows() - 3; /* two lines of head, and one that stays empty */

    localtime_r(&now, &tm);
    buf_printf(&screen, "\033[H%02d:%02d:%02d  %s  %.1f requests/s  q quits\033[K\n", tm.tm_hour, tm.tm_min,
               tm.tm_sec, top->ctl->door.address, top->placed_per_s);
    buf_printf(&screen, "%s\033[K\n", top->failure.code < 0 ? top->failure.text : "");
    for (size_t at = 0; at < table.len_bytes && n_left > 0; n_left--) {
        size_t end = bytes_find(table, bytes_str("\n"), at);

        if (end == SIZE_MAX)
            end = table.len_bytes;
        buf_append(&screen, table.data + at, end - at);
        buf_append_str(&screen, "\033[K\n");
        at = end + 1;
    }
    buf_append_str(&screen, "\033[J");
    if (!screen.is_bad)
        fwrite(screen.data, 1, screen.len_bytes, stdout);
    fflush(stdout);
    buf_fini(&screen);
}

static int cmd_top_watch(struct top *top)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct ev_loop *loop = admin_door_loop(top->door);
    int rc = ev_timer_new(loop, cmd_top_on_tick, top, &top->tick);

    if (rc == 0)
        rc = ev_fd_new(loop, STDIN_FILENO, on_key, top, &top->keys);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]) && rc == 0; i++)
        rc = ev_signal_new(loop, numbers[i], on_quit, top, &top->signals[i]);
    if (rc < 0)
        return complain(CTL_NAME, "top: %s", err_text(rc));
    set_screen(top, true);
    while (!top->is_over) {
        cmd_top_ask(top);
        if (top->is_over)
            break;
        cmd_top_draw(top);
        ev_timer_start(top->tick, top->interval_ns);
        ev_loop_run(loop);
        ev_timer_stop(top->tick);
    }
    set_screen(top, false);
    return EXIT_DONE;
}

int cmd_top(const struct ctl *ctl, int argc, char **argv)
{
    static const struct option options[] = {{"interval", required_argument, NULL, 'i'}, {NULL, 0, NULL, 0}};
    struct top top = {.ctl = ctl, .interval_ns = NS_PER_S};
    int status;
    int c;

    while ((c = getopt_long(argc, argv, "i:", options, NULL)) != -1)
        if (c == '?' || !option_duration(CTL_NAME, "--interval", optarg, &top.interval_ns))
            return EXIT_USAGE;
    if (optind < argc)
        return complain_usage(CTL_NAME, "top: unexpected argument: %s", argv[optind]);
    if (top.interval_ns < 100 * NS_PER_MS)
        return complain_usage(CTL_NAME, "top: --interval wants at least 100ms");
    if (!isatty(STDOUT_FILENO) || tcgetattr(STDIN_FILENO, &top.saved) < 0)
        return complain(CTL_NAME, "top wants a terminal; status --line is for everything else");
    setlocale(LC_CTYPE, "");
    top.is_utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    top.door = ctl_open(ctl);
    if (top.door == NULL)
        return EXIT_FAILED;
    status = cmd_top_watch(&top);
    for (size_t i = 0; i < sizeof(top.signals) / sizeof(top.signals[0]); i++)
        ev_signal_free(top.signals[i]);
    ev_fd_free(top.keys);
    ev_timer_free(top.tick);
    admin_door_close(top.door);
    buf_fini(&top.table);
    return status;
}
