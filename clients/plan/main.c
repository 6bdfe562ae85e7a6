/* SPDX-License-Identifier: Apache-2.0 */
/* baton-plan: the number of workers, and their devices, for given objectives.  Each command has its own file;
 * this one only looks up the name. */
#include "clients/plan/plan_cli.h"

#include "base/check.h"
#include "base/str.h"

#include <stdio.h>

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} COMMANDS[] = {
    {"plan", cmd_plan, "how many workers meet the objectives"},
    {"simulate", cmd_simulate, "the planned fleet in the simulator, beside the plan"},
    {"sweep", cmd_sweep, "the simulated fleet with one thing varied"},
    {"ratio", cmd_ratio, "workers from measured rates"},
    {"devices", cmd_devices, "the devices that it knows, with sources"},
    {"links", cmd_links, "the links that it knows"},
    {"models", cmd_models, "the models that it knows, with their counts"},
    {"validate", cmd_validate, "compare predictions with measurements of a table"},
    {"calibrate", cmd_calibrate, "fit constants to measurements"},
};

static void plan_main_print_help(FILE *file)
{
    fputs("Usage: baton-plan COMMAND [OPTIONS]\n"
          "Plans clusters for disaggregated and aggregated serving from published figures.\n"
          "\n",
          file);
    for (size_t i = 0; i < ARRAY_LEN(COMMANDS); i++)
        fprintf(file, "  %-10s %s\n", COMMANDS[i].name, COMMANDS[i].summary);
    fputs("\n"
          "  baton-plan COMMAND --help   the command's options\n"
          "  baton-plan --version        the version\n",
          file);
}

static int plan_main_unknown(const char *name)
{
    struct str_nearest near = {.text = name, .most = 3};
    const char *nearest;

    for (size_t i = 0; i < ARRAY_LEN(COMMANDS); i++)
        str_nearest_try(&near, COMMANDS[i].name);
    nearest = near.name;
    return complain_usage(PLAN_NAME, "no command \"%s\"%s%s%s", name, nearest ? "; did you mean \"" : "",
                          nearest ? nearest : "", nearest ? "\"?" : "");
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        plan_main_print_help(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        plan_main_print_help(stdout);
        return finish_output(PLAN_NAME);
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        puts("baton-plan " PACKAGE_VERSION);
        return finish_output(PLAN_NAME);
    }
    for (size_t i = 0; i < ARRAY_LEN(COMMANDS); i++)
        if (strcmp(argv[1], COMMANDS[i].name) == 0)
            return COMMANDS[i].run(argc - 1, argv + 1);
    return plan_main_unknown(argv[1]);
}
