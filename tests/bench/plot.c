// SPDX-License-Identifier: Apache-2.0
// The results as an SVG: a panel for each kind, a group of bars for each size and number of
// threads, and in it a bar for each side's ratio to native.
#include "core/util.h"
#include "tests/bench/report.h"

#define COLUMNS      2
#define PANEL_WIDTH  480
#define PANEL_HEIGHT 210
#define LEFT         34 /* within a panel: what is around the bars */
#define TOP          26
#define BOTTOM       40
#define HEADER       44
#define MOST_RATIO   2.0 /* longer bars are cut, and say what they are */

static const char *const colours[MAX_SIDES] = {"#888", "#2166ac", "#ef8a62",
                                               "#999", "#67a9cf", "#b2182b"};

static void print_text(FILE *file, double x, double y, const char *class, const char *text)
{
    fprintf(file, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", class, x, y);
    for (; *text; text++) {
        if (*text == '<' || *text == '&')
            fputs(*text == '<' ? "&lt;" : "&amp;", file);
        else
            fputc(*text, file);
    }
    fputs("</text>\n", file);
}

static double height_of(double ratio)
{
    return KVS_MIN(ratio, MOST_RATIO) / MOST_RATIO * (PANEL_HEIGHT - TOP - BOTTOM);
}

static void print_scale(FILE *file, double x, double y)
{
    for (int half = 0; half <= (int)(MOST_RATIO * 2); half++) {
        char label[16];
        double line = y + PANEL_HEIGHT - BOTTOM - height_of(half / 2.0);
        fprintf(file, "<line class=\"%s\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
                half == 2 ? "native" : "grid", x + LEFT, x + PANEL_WIDTH - 12, line, line);
        snprintf(label, sizeof(label), "%.1f", half / 2.0);
        print_text(file, x + LEFT - 5, line + 3, "right", label);
    }
}

static void print_bar(FILE *file, double x, double width, double base, double ratio, unsigned side)
{
    double height = height_of(ratio);
    char label[16];

    fprintf(file,
            "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\">"
            "<title>%.2f</title></rect>\n",
            x, base - height, width, height, colours[side], ratio);
    if (ratio > MOST_RATIO) {
        snprintf(label, sizeof(label), "%.1f", ratio);
        print_text(file, x + width / 2, base - height - 3, "middle", label);
    }
}

static unsigned count_kind(const struct results *results, enum kind kind)
{
    unsigned count = 0;
    for (unsigned c = 0; c < results->cell_count; c++)
        count += results->cells[c].kind == kind;
    return count;
}

static void print_panel(const struct results *results, FILE *file, enum kind kind, double x,
                        double y)
{
    double base = y + PANEL_HEIGHT - BOTTOM;
    double group = (double)(PANEL_WIDTH - LEFT - 12) / count_kind(results, kind);
    double bar = KVS_MIN(group * 0.8 / (results->side_count - 1), 24);
    double at = x + LEFT;

    print_text(file, x + LEFT, y + TOP - 10, "title", kind_names[kind]);
    print_scale(file, x, y);
    for (unsigned c = 0; c < results->cell_count; c++) {
        const struct cell *cell = &results->cells[c];
        char threads[16];
        if (cell->kind != kind)
            continue;
        double start = at + (group - bar * (results->side_count - 1)) / 2;
        for (unsigned i = 1; i < results->side_count; i++)
            print_bar(file, start + (i - 1) * bar, bar - 1, base, cell_ratio(cell, i), i);
        snprintf(threads, sizeof(threads), "x %u", cell->threads);
        print_text(file, at + group / 2, base + 12, "middle", size_text(cell->size).text);
        print_text(file, at + group / 2, base + 23, "middle", threads);
        at += group;
    }
}

static void print_legend(const struct results *results, FILE *file)
{
    double x = LEFT;

    print_text(file, x, 18, "title",
               "Throughput as a ratio to native (block size x threads; longer is faster)");
    for (unsigned i = 1; i < results->side_count; i++) {
        fprintf(file, "<rect x=\"%.1f\" y=\"27\" width=\"10\" height=\"10\" fill=\"%s\"/>\n", x,
                colours[i]);
        print_text(file, x + 14, 36, "left", results->sides[i].name);
        x += 200;
    }
}

void report_plot(const struct results *results, FILE *file)
{
    unsigned panels = 0;

    for (unsigned kind = 0; kind < KINDS; kind++)
        panels += count_kind(results, kind) > 0;
    unsigned rows = (panels + COLUMNS - 1) / COLUMNS;
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %u %u\" "
            "font-family=\"sans-serif\" font-size=\"9\">\n"
            "<style>.title{font-size:12px;font-weight:bold}.right{text-anchor:end}"
            ".middle{text-anchor:middle}.grid{stroke:#ddd}.native{stroke:#000}</style>\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            COLUMNS * PANEL_WIDTH, HEADER + rows * PANEL_HEIGHT);
    print_legend(results, file);
    panels = 0;
    for (unsigned kind = 0; kind < KINDS && results->side_count > 1; kind++) {
        if (count_kind(results, kind) == 0)
            continue;
        print_panel(results, file, kind, panels % COLUMNS * PANEL_WIDTH,
                    HEADER + panels / COLUMNS * PANEL_HEIGHT);
        panels++;
    }
    fputs("</svg>\n", file);
}
