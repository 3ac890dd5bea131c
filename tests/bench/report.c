// SPDX-License-Identifier: Apache-2.0
// The results as text.
#include "tests/bench/report.h"

#include <string.h>

#include "core/crc32c.h"
#include "core/util.h"
#include "tests/bench/goals.h"

#define LABEL 34 /* columns */

/* A side's column is as wide as its name, and at least as its figures. */
static int width_of(const struct side *side)
{
    return KVS_MAX((int)strlen(side->name), 17) + 2;
}

static void print_header(const struct results *results, FILE *file, const char *title)
{
    fprintf(file, "\n%-*s", LABEL, title);
    for (unsigned i = 0; i < results->side_count; i++)
        fprintf(file, "%*s", width_of(&results->sides[i]), results->sides[i].name);
    fputc('\n', file);
}

static void print_label(FILE *file, size_t size, unsigned threads)
{
    char label[64];

    snprintf(label, sizeof(label), "  %s, %u thread%s", size_text(size).text, threads,
             threads == 1 ? "" : "s");
    fprintf(file, "%-*s", LABEL, label);
}

static void print_field(const struct results *results, FILE *file, unsigned side, const char *text)
{
    fprintf(file, "%*s", width_of(&results->sides[side]), text);
}

/* "1.23 (0.95)": a figure and its ratio to native's */
static void print_rate(const struct results *results, FILE *file, unsigned side, double rate,
                       double native)
{
    char text[64];

    if (side == 0)
        snprintf(text, sizeof(text), "%.3g", rate);
    else
        snprintf(text, sizeof(text), "%.3g (%.2f)", rate, rate / native);
    print_field(results, file, side, text);
}

/* Prints the rows of one kind each field by `print_cell`. */
static void
print_kind(const struct results *results, FILE *file, enum kind kind, bool one_thread_only,
           void (*print_cell)(const struct results *, FILE *, const struct cell *, unsigned side))
{
    bool has_header = false;

    for (unsigned c = 0; c < results->cell_count; c++) {
        const struct cell *cell = &results->cells[c];
        if (cell->kind != kind || (one_thread_only && cell->threads != 1))
            continue;
        if (!has_header)
            print_header(results, file, kind_names[kind]);
        has_header = true;
        print_label(file, cell->size, cell->threads);
        for (unsigned i = 0; i < results->side_count; i++)
            print_cell(results, file, cell, i);
        fputc('\n', file);
    }
}

static void print_throughput(const struct results *results, FILE *file, const struct cell *cell,
                             unsigned side)
{
    print_rate(results, file, side, cell_rate(cell, side), cell_rate(cell, 0));
}

static void print_latency(const struct results *results, FILE *file, const struct cell *cell,
                          unsigned side)
{
    const struct samples *latencies = &cell->outcomes[side].latencies;
    char text[64];

    snprintf(text, sizeof(text), "%.0f / %.0f", samples_min(latencies) * 1e6,
             samples_median(latencies) * 1e6);
    print_field(results, file, side, text);
}

static void print_cpu(const struct results *results, FILE *file, const struct cell *cell,
                      unsigned side)
{
    const struct outcome *outcome = &cell->outcomes[side];
    double gigabytes = (double)outcome->bytes / 1e9;
    char text[64];

    snprintf(text, sizeof(text), "%.2f + %.2f", outcome->client_cpu / gigabytes,
             outcome->daemon_cpu / gigabytes);
    print_field(results, file, side, text);
}

static void print_cells(const struct results *results, FILE *file)
{
    fputs("\n== Throughput: GB/s, median of the rounds (ratio to native)\n", file);
    for (unsigned kind = 0; kind < KINDS; kind++)
        print_kind(results, file, kind, false, print_throughput);
    fputs("\n== One job at a time: microseconds a block, least / median\n", file);
    for (unsigned kind = 0; kind < KINDS; kind++)
        print_kind(results, file, kind, true, print_latency);
    fputs("\n== CPU seconds a GB: client + daemon\n", file);
    for (unsigned kind = 0; kind < KINDS; kind++)
        print_kind(results, file, kind, false, print_cpu);
}

static void print_lookups(const struct results *results, FILE *file)
{
    if (results->lookup_count == 0)
        return;
    fputs("\n== Look-ups: thousands of access() a second (ratio to native)\n", file);
    for (unsigned l = 0; l < results->lookup_count; l++) {
        const struct lookup *lookup = &results->lookups[l];
        if (l == 0 || lookup->look != results->lookups[l - 1].look)
            print_header(results, file, look_names[lookup->look]);
        fprintf(file, "  %2u thread%-*s", lookup->threads, LABEL - 11,
                lookup->threads == 1 ? "" : "s");
        for (unsigned i = 0; i < results->side_count; i++)
            print_rate(results, file, i, samples_median(&lookup->rates[i]) / 1e3,
                       samples_median(&lookup->rates[0]) / 1e3);
        fputc('\n', file);
    }
}

static void print_traffic(const struct results *results, FILE *file, const struct device_row *row,
                          bool is_store)
{
    const struct traffic *traffic = is_store ? row->store : row->load;
    char text[64];

    snprintf(text, sizeof(text), "  %s, %s", is_store ? "store" : "load",
             size_text(row->size).text);
    fprintf(file, "%-*s", LABEL, text);
    for (unsigned i = 0; i < results->side_count; i++) {
        snprintf(text, sizeof(text), "%.1f + %.1f", traffic[i].read / 1024,
                 traffic[i].written / 1024);
        print_field(results, file, i, text);
    }
    fputc('\n', file);
}

static void print_device(const struct results *results, FILE *file)
{
    if (results->device_count == 0)
        return;
    fputs("\n== The device, O_DIRECT: KiB read + written a block (least of the rounds)\n", file);
    print_header(results, file, "");
    for (unsigned is_store = 0; is_store < 2; is_store++) {
        for (unsigned d = 0; d < results->device_count; d++)
            print_traffic(results, file, &results->device[d], is_store);
    }
}

static void print_crc(const struct results *results, FILE *file)
{
    if (results->crc_count == 0)
        return;
    fprintf(file,
            "\n== CRC32C: GB/s of one thread (ratio to reading the same memory)\n"
            "%-*s%16s%16s%16s%16s    (kvseal here: %s)\n",
            LABEL, "", summer_names[SUM_READ], summer_names[SUM_FAST], summer_names[SUM_STREAM],
            summer_names[SUM_PORTABLE], kvs_crc32c_name());
    for (unsigned c = 0; c < results->crc_count; c++) {
        const struct crc_row *row = &results->crc[c];
        char text[64];
        snprintf(text, sizeof(text), "  %s, %s", size_text(row->size).text,
                 row->cold ? "cold" : "hot");
        fprintf(file, "%-*s%16.1f", LABEL, text, row->rates[SUM_READ]);
        for (unsigned summer = SUM_READ + 1; summer < SUMMERS; summer++) {
            snprintf(text, sizeof(text), "%.1f (%.2f)", row->rates[summer],
                     row->rates[summer] / row->rates[SUM_READ]);
            fprintf(file, "%16s", text);
        }
        fputc('\n', file);
    }
}

static void print_goals(const struct results *results, FILE *file)
{
    struct judgement judgements[MOST_GOALS];
    unsigned count = goals_judge(results, judgements);

    if (count == 0)
        return;
    fprintf(file,
            "\n== Must hold: the mount as a ratio to native, the worst of what a line covers\n"
            "%-60s%9s%9s%10s  %s\n",
            "", "goal", "floor", "measured", "verdict");
    for (unsigned g = 0; g < count; g++) {
        const struct judgement *judgement = &judgements[g];
        int digits = judgement->goal > 10 ? 0 : 2;
        fprintf(file, "  %-58s%3s%6.*f%9.*f", judgement->text,
                judgement->is_limit ? "<=" : ">=", digits, judgement->goal, digits,
                judgement->floor);
        if (judgement->verdict == NOT_MEASURED)
            fprintf(file, "%10s  %s\n", "-", verdict_names[NOT_MEASURED]);
        else
            fprintf(file, "%10.*f  %-9s  (%s)\n", digits ? 3 : 0, judgement->measured,
                    verdict_names[judgement->verdict], judgement->where);
    }
}

void report_text(const struct results *results, FILE *file)
{
    if (results->cell_count > 0)
        print_cells(results, file);
    print_lookups(results, file);
    print_device(results, file);
    print_crc(results, file);
    print_goals(results, file);
}
