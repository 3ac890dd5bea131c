// SPDX-License-Identifier: Apache-2.0
// The results as JSON: every round, so that others can draw their own conclusions.
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "core/crc32c.h"
#include "tests/bench/goals.h"
#include "tests/bench/report.h"

static void print_string(FILE *file, const char *text)
{
    fputc('"', file);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fprintf(file, "\\%c", *text);
        else if ((unsigned char)*text < 0x20)
            fprintf(file, "\\u%04x", *text);
        else
            fputc(*text, file);
    }
    fputc('"', file);
}

static void print_values(FILE *file, const struct samples *samples)
{
    for (size_t i = 0; i < samples->count; i++)
        fprintf(file, "%s%.6g", i ? ", " : "", samples->values[i]);
}

static void print_outcome(const struct results *results, FILE *file, const struct cell *cell,
                          unsigned side)
{
    const struct outcome *outcome = &cell->outcomes[side];
    double gigabytes = (double)outcome->bytes / 1e9;

    fputs("      ", file);
    print_string(file, results->sides[side].name);
    fprintf(file, ": {\"gb_per_s\": %.6g, \"ratio\": %.4f, \"gb_per_s_rounds\": [",
            cell_rate(cell, side), cell_ratio(cell, side));
    print_values(file, &outcome->rates);
    fprintf(file,
            "], \"latency_us_min\": %.1f, \"latency_us_median\": %.1f, "
            "\"client_cpu_s_per_gb\": %.4f, \"daemon_cpu_s_per_gb\": %.4f}%s\n",
            samples_min(&outcome->latencies) * 1e6, samples_median(&outcome->latencies) * 1e6,
            outcome->client_cpu / gigabytes, outcome->daemon_cpu / gigabytes,
            side + 1 < results->side_count ? "," : "");
}

static void print_cells(const struct results *results, FILE *file)
{
    fputs("  \"cells\": [\n", file);
    for (unsigned c = 0; c < results->cell_count; c++) {
        const struct cell *cell = &results->cells[c];
        fprintf(file, "    {\"kind\": \"%s\", \"size\": %zu, \"threads\": %u, \"sides\": {\n",
                kind_names[cell->kind], cell->size, cell->threads);
        for (unsigned i = 0; i < results->side_count; i++)
            print_outcome(results, file, cell, i);
        fprintf(file, "    }}%s\n", c + 1 < results->cell_count ? "," : "");
    }
    fputs("  ],\n", file);
}

static void print_lookups(const struct results *results, FILE *file)
{
    fputs("  \"lookups\": [\n", file);
    for (unsigned l = 0; l < results->lookup_count; l++) {
        const struct lookup *lookup = &results->lookups[l];
        fprintf(file, "    {\"names\": \"%s\", \"threads\": %u, \"calls_per_s\": {",
                look_names[lookup->look], lookup->threads);
        for (unsigned i = 0; i < results->side_count; i++) {
            fputs(i ? ", " : "", file);
            print_string(file, results->sides[i].name);
            fprintf(file, ": %.6g", samples_median(&lookup->rates[i]));
        }
        fprintf(file, "}}%s\n", l + 1 < results->lookup_count ? "," : "");
    }
    fputs("  ],\n", file);
}

static void print_device(const struct results *results, FILE *file)
{
    fputs("  \"device_bytes_per_block\": [\n", file);
    for (unsigned d = 0; d < results->device_count; d++) {
        const struct device_row *row = &results->device[d];
        fprintf(file, "    {\"size\": %zu", row->size);
        for (unsigned i = 0; i < results->side_count; i++) {
            fputs(", ", file);
            print_string(file, results->sides[i].name);
            fprintf(file,
                    ": {\"load_read\": %.0f, \"load_written\": %.0f, \"store_read\": %.0f, "
                    "\"store_written\": %.0f}",
                    row->load[i].read, row->load[i].written, row->store[i].read,
                    row->store[i].written);
        }
        fprintf(file, "}%s\n", d + 1 < results->device_count ? "," : "");
    }
    fputs("  ],\n", file);
}

static void print_crc(const struct results *results, FILE *file)
{
    fputs("  \"crc32c_gb_per_s\": [\n", file);
    for (unsigned c = 0; c < results->crc_count; c++) {
        const struct crc_row *row = &results->crc[c];
        fprintf(file, "    {\"size\": %zu, \"cold\": %s", row->size, row->cold ? "true" : "false");
        for (unsigned summer = 0; summer < SUMMERS; summer++)
            fprintf(file, ", \"%s\": %.3f", summer_names[summer], row->rates[summer]);
        fprintf(file, "}%s\n", c + 1 < results->crc_count ? "," : "");
    }
    fputs("  ],\n", file);
}

static void print_goals(const struct results *results, FILE *file)
{
    struct judgement judgements[MOST_GOALS];
    unsigned count = goals_judge(results, judgements);

    fputs("  \"must_hold\": [\n", file);
    for (unsigned g = 0; g < count; g++) {
        const struct judgement *judgement = &judgements[g];
        fprintf(file,
                "    {\"text\": \"%s\", \"goal\": %g, \"floor\": %g, \"lower_is_better\": %s, "
                "\"verdict\": \"%s\"",
                judgement->text, judgement->goal, judgement->floor,
                judgement->is_limit ? "true" : "false", verdict_names[judgement->verdict]);
        if (judgement->verdict != NOT_MEASURED)
            fprintf(file, ", \"measured\": %.4f, \"where\": \"%s\"", judgement->measured,
                    judgement->where);
        fprintf(file, "}%s\n", g + 1 < count ? "," : "");
    }
    fputs("  ]\n", file);
}

void report_json(const struct results *results, FILE *file)
{
    struct utsname system;

    uname(&system);
    fprintf(file,
            "{\n  \"kvseal\": \"%s\", \"kernel\": \"%s\", \"machine\": \"%s\", \"cpus\": %ld, "
            "\"crc32c\": \"%s\",\n  \"rounds\": %u, \"seconds\": %g,\n",
            KVSEAL_VERSION, system.release, system.machine, sysconf(_SC_NPROCESSORS_ONLN),
            kvs_crc32c_name(), results->settings.rounds, results->settings.seconds);
    print_cells(results, file);
    print_lookups(results, file);
    print_device(results, file);
    print_crc(results, file);
    print_goals(results, file);
    fputs("}\n", file);
}
