// SPDX-License-Identifier: Apache-2.0
// Reads and compares the daemon's metrics.
#include "tests/mount/fixture_metrics.h"

char *kvt_read_control(struct kvt_env *env, const char *name)
{
    char path[PATH_MAX];
    size_t size = 0, room = 1 << 20;
    char *text = malloc(room + 1);
    assert_non_null(text);
    snprintf(path, sizeof(path), "%s/.kvseal/%s", env->mnt, name);
    int fd = kvt_open(path, O_RDONLY);
    for (ssize_t n = 1; n > 0; size += (size_t)n) {
        n = read(fd, text + size, room - size);
        assert_true(n >= 0);
    }
    assert_int_equal(close(fd), 0);
    text[size] = '\0';
    return text;
}

double kvt_metric_in(const char *text, const char *sample)
{
    size_t len = strlen(sample);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, sample, len) == 0 && line[len] == ' ')
            return strtod(line + len, NULL);
    }
    return -1;
}

double kvt_metric(struct kvt_env *env, const char *sample)
{
    char *text = kvt_read_control(env, "metrics");
    double value = kvt_metric_in(text, sample);
    free(text);
    return value;
}

void kvt_watch_metrics(struct kvt_env *env, char **before_ret)
{
    kvt_wait_for(kvt_metric(env, "kvseal_open_files") == 0); /* RELEASE is asynchronous */
    *before_ret = kvt_read_control(env, "metrics");
}

char *kvt_start_and_watch(struct kvt_env *env, const char *options)
{
    char *before;
    kvt_start(env, options);
    kvt_watch_metrics(env, &before);
    return before;
}

/* The sample's metric counts something. */
static bool is_count(const char *sample)
{
    size_t len = strcspn(sample, "{");
    return strncmp(sample, "kvseal_", 7) == 0 && (strncmp(sample + len - 6, "_total", 6) == 0 ||
                                                  strncmp(sample + len - 6, "_count", 6) == 0);
}

static double expected_of(const char *sample, const struct kvt_growth *growth, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(growth[i].sample, sample) == 0)
            return growth[i].amount;
    }
    return 0;
}

void kvt_assert_growth(struct kvt_env *env, char *before, const struct kvt_growth *growth,
                       size_t count)
{
    char *after;
    size_t wrong = 0;
    kvt_watch_metrics(env, &after);
    for (size_t i = 0; i < count; i++) {
        if (kvt_metric_in(after, growth[i].sample) < 0 && growth[i].amount > 0)
            fail_msg("there is no %s", growth[i].sample);
    }
    for (char *line = strtok(after, "\n"); line; line = strtok(NULL, "\n")) {
        char *space = strrchr(line, ' ');
        *space = '\0';
        if (!is_count(line))
            continue;
        double old = kvt_metric_in(before, line);
        double grown = strtod(space + 1, NULL) - (old > 0 ? old : 0);
        double expected = expected_of(line, growth, count);
        if (grown != expected) {
            print_error("%s grew by %g, not %g\n", line, grown, expected);
            wrong++;
        }
    }
    free(after);
    free(before);
    assert_int_equal(wrong, 0);
}
