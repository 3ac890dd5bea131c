// SPDX-License-Identifier: Apache-2.0
// Measures directories against each other as a tier would use them. tests/bench/run makes the
// mounts and calls this, first without any side: then it only checks the options.
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/util.h"
#include "tests/bench/measure.h"
#include "tests/bench/report.h"
#include "tests/bench/tier.h"

#define MOST_SIZE    ((size_t)64 << 20)
#define MOST_THREADS 400 /* the clients of C24 */

static double parse_number(const char *option, const char *text, double least, double most)
{
    char *end = NULL;
    double number = strtod(text, &end);

    if (end == text || *end != '\0' || !(number >= least && number <= most))
        die("--%s=%s: a number from %g to %g is wanted", option, text, least, most);
    return number;
}

static unsigned parse_count(const char *option, const char *text, unsigned most)
{
    double number = parse_number(option, text, 1, most);
    if (number != (unsigned)number)
        die("--%s=%s: a whole number is wanted", option, text);
    return (unsigned)number;
}

static size_t parse_size(const char *text)
{
    char *end = NULL;
    unsigned long number = strtoul(text, &end, 10);
    size_t unit = *end == 'K' ? (size_t)1 << 10 : *end == 'M' ? (size_t)1 << 20 : 1;

    if (unit > 1)
        end++;
    if (end == text || *end != '\0' || number == 0 || number > MOST_SIZE / unit ||
        number * unit % 4096 != 0)
        die("--sizes: %s: a multiple of 4K, at most 64M, is wanted", text);
    return number * unit;
}

/* Sizes and threads are given as lists. */
static void parse_list(struct settings *settings, const char *option, char *list)
{
    bool is_sizes = strcmp(option, "sizes") == 0;
    unsigned count = 0;

    for (char *item = strtok(list, ","); item != NULL; item = strtok(NULL, ",")) {
        if (count == MAX_CHOICES)
            die("--%s: at most %d are possible", option, MAX_CHOICES);
        if (is_sizes)
            settings->sizes[count++] = parse_size(item);
        else
            settings->threads[count++] = parse_count(option, item, MOST_THREADS);
    }
    if (count == 0)
        die("--%s: the list is empty", option);
    *(is_sizes ? &settings->size_count : &settings->thread_count) = count;
    settings->all_cells = true;
}

/* Opened before the measuring: a name that is no good is better known now. */
static FILE *create(const char *path)
{
    FILE *file = fopen(path, "we");
    if (file == NULL)
        die("%s: %s", path, strerror(errno));
    return file;
}

static void finish(FILE *file, const char *what)
{
    if (fclose(file) != 0)
        die("writing the %s: %s", what, strerror(errno));
}

/* NAME DIRECTORY DIRECTORY-BELOW PROCESS, for each side */
static void parse_sides(struct results *results, char **arguments, int count)
{
    if (count % 4 != 0 || count / 4 > MAX_SIDES)
        die("call tests/bench/run");
    for (; count > 0; arguments += 4, count -= 4) {
        struct side *side = &results->sides[results->side_count++];
        *side = (struct side){
            .name = arguments[0],
            .dir = arguments[1],
            .below = arguments[2],
            .daemon = atoi(arguments[3]),
            .sums = strcmp(arguments[0], SIDE_CLIENT_CRC) == 0,
        };
        side_make_directories(side);
    }
}

static void measure(struct results *results)
{
    const struct settings *settings = &results->settings;
    size_t most_size = 0;
    unsigned most_threads = 4; /* of tier_fill() */

    for (unsigned i = 0; i < settings->size_count; i++)
        most_size = KVS_MAX(most_size, settings->sizes[i]);
    for (unsigned i = 0; i < settings->thread_count; i++)
        most_threads = KVS_MAX(most_threads, settings->threads[i]);
    tier_prepare(most_size, most_threads);
    cells_measure(results);
    if (settings->cells_only)
        return;
    lookup_measure(results);
    device_measure(results);
    crc_measure(results);
}

struct outputs {
    FILE *json;
    FILE *plot;
};

static void parse_options(int argc, char **argv, struct settings *settings,
                          struct outputs *outputs_ret)
{
    static const struct option options[] = {
        {"quick", no_argument, NULL, 'q'},
        {"cells-only", no_argument, NULL, 'c'},
        {"json", required_argument, NULL, 'j'},
        {"plot", required_argument, NULL, 'p'},
        {"sizes", required_argument, NULL, 'l'},
        {"threads", required_argument, NULL, 'l'},
        {"rounds", required_argument, NULL, 'r'},
        {"seconds", required_argument, NULL, 's'},
        {0},
    };
    bool is_quick = false;
    int option, index = 0;

    while ((option = getopt_long(argc, argv, "+", options, &index)) != -1) {
        if (option == 'q')
            is_quick = true;
        else if (option == 'c')
            settings->cells_only = true;
        else if (option == 'j')
            outputs_ret->json = create(optarg);
        else if (option == 'p')
            outputs_ret->plot = create(optarg);
        else if (option == 'l')
            parse_list(settings, options[index].name, optarg);
        else if (option == 'r')
            settings->rounds = parse_count("rounds", optarg, 1000);
        else if (option == 's')
            settings->seconds = parse_number("seconds", optarg, 0.001, 60);
        else
            exit(1);
    }
    if (settings->seconds == 0)
        settings->seconds = is_quick ? 0.1 : 0.2;
    settings->all_cells |= !is_quick;
}

int main(int argc, char **argv)
{
    static struct results results = {
        .settings =
            {
                .sizes = {256 << 10, 1 << 20, 4 << 20, 16 << 20},
                .size_count = 4,
                .threads = {1, 4, 16},
                .thread_count = 3,
                .rounds = 5,
            },
    };
    struct outputs outputs = {0};

    parse_options(argc, argv, &results.settings, &outputs);
    parse_sides(&results, argv + optind, argc - optind);
    if (results.side_count == 0)
        return 0;
    cells_plan(&results);
    measure(&results);
    report_text(&results, stdout);
    if (outputs.json != NULL) {
        report_json(&results, outputs.json);
        finish(outputs.json, "JSON");
    }
    if (outputs.plot != NULL) {
        report_plot(&results, outputs.plot);
        finish(outputs.plot, "plot");
    }
    return 0;
}
