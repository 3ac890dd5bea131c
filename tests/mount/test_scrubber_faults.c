// SPDX-License-Identifier: Apache-2.0
// Scrubbing what hangs, fails or lies below: it is told from corruption, and holds up nobody.
#include "tests/mount/fixture_metrics.h"
#include "tests/mount/fixture_process.h"

#include <signal.h>
#include <sys/wait.h>

#define SIZE   ((size_t)100000)
#define BLOCKS 3

#define FOUND(result) "kvseal_scrub_blocks_total{result=\"" result "\"}"
#define PASSES        "kvseal_scrub_passes_total"
#define SUSPECTS      "kvseal_scrub_suspects"

static const char *name_of(unsigned i)
{
    static const char *const names[BLOCKS] = {"a", "b", "c"};
    return names[i];
}

static void store_blocks(struct kvt_env *env)
{
    for (unsigned i = 0; i < BLOCKS; i++)
        assert_int_equal(kvt_store(env, name_of(i), SIZE, i, 0), 0);
}

static void assert_blocks(struct kvt_env *env)
{
    for (unsigned i = 0; i < BLOCKS; i++)
        kvt_assert_sealed_block(env, name_of(i), SIZE, i);
}

static void wait_for_rounds(struct kvt_env *env, double rounds)
{
    double passes = kvt_metric(env, PASSES);
    kvt_wait_for(kvt_metric(env, PASSES) >= passes + rounds);
}

/* Goes round once, and meets the faults in a later round: nobody else reads then. */
static void scrub_into(struct kvt_env *env, const char *options, const char *faults)
{
    char commands[256];
    store_blocks(env);
    kvt_start(env, options);
    kvt_wait_for(kvt_metric(env, FOUND("intact")) >= BLOCKS);
    snprintf(commands, sizeof(commands), "clear\n%s", faults);
    kvt_fault(env, commands);
    kvt_wait_for(kvt_fault_report_has(env, "hit 1"));
}

static void c24_a_hung_read_of_the_scrub_holds_up_nobody(void **state)
{
    struct kvt_env *env = *state;
    int status;
    scrub_into(env, "scrub_within=1,grace=2", "read 1 hang\n");
    assert_int_equal(kvt_store(env, "new", SIZE, 9, 0), 0);
    assert_int_equal(kvt_load(env, "new", SIZE, 9, 0), 0);
    assert_int_equal(kvt_load(env, "b", SIZE, 1, KVT_DIRECT), 0);
    assert_int_equal(kvt_run(NULL, kvt_program("../../core/cli/kvseal"), "status", env->mnt, NULL),
                     0);
    double passes = kvt_metric(env, PASSES);
    usleep(1500000);
    assert_true(kvt_metric(env, PASSES) == passes); /* it still hangs */

    pid_t daemon = env->daemon;
    uint64_t start = kvt_now_ms();
    kill(daemon, SIGTERM);
    kvt_wait_for(!kvt_is_mounted(env->mnt));
    kvt_wait_for(kvt_log_has(env, "a read of the scrub hangs"));
    assert_true(kvt_now_ms() - start < 7000);
    env->daemon = 0;
    kvt_fault(env, "release\n");
    kvt_wait_for(waitpid(daemon, &status, WNOHANG) == daemon);
    assert_int_equal(WEXITSTATUS(status), 1);
    assert_blocks(env);
}

static void c24_the_scrub_goes_on_when_a_hung_read_does(void **state)
{
    struct kvt_env *env = *state;
    scrub_into(env, "scrub_within=1", "read 1 hang\n");
    kvt_fault(env, "release\n");
    wait_for_rounds(env, 2);
    assert_true(kvt_metric(env, FOUND("error")) == 0);
    assert_blocks(env);
}

/* An error of the file system is no corruption, EBADMSG is none either, and the block is looked at
 * again. */
static void meet_error(struct kvt_env *env, const char *fault, const char *backing,
                       const char *logged)
{
    scrub_into(env, "scrub_within=1,on_corrupt=remove", fault);
    kvt_wait_for(kvt_metric(env, FOUND("error")) == 1);
    assert_true(kvt_metric(env, backing) == 1);
    wait_for_rounds(env, 2);
    assert_true(kvt_metric(env, SUSPECTS) == 0);
    assert_true(kvt_metric(env, FOUND("corrupt")) == 0);
    assert_true(kvt_log_has(env, logged));
    assert_false(kvt_log_has(env, "corrupt block"));
    assert_blocks(env);
}

static void c14_a_read_error_is_counted_and_the_scrub_goes_on(void **state)
{
    meet_error(*state, "read 1 errno 5\n", BACKING("verify", "EIO"),
               "could not be verified: Input/output error");
}

static void c14_an_ebadmsg_from_below_is_an_error(void **state)
{
    meet_error(*state, "read 1 errno 74\n", BACKING("verify", "EBADMSG"),
               "could not be verified: Bad message");
}

static void c14_a_record_that_cannot_be_read_is_an_error(void **state)
{
    meet_error(*state, "getxattr 1 errno 5\n", BACKING("verify", "EIO"),
               "could not be verified: Input/output error");
}

/* Each reading has another bit wrong. */
static const char two_wrong_readings[] = "read 1 flip 100\nread 2 flip 200\n";

static void c15_two_wrong_readings_that_differ_are_an_error(void **state)
{
    struct kvt_env *env = *state;
    scrub_into(env, "scrub_within=1,on_corrupt=remove", two_wrong_readings);
    kvt_wait_for(kvt_metric(env, FOUND("unstable")) == 1);
    wait_for_rounds(env, 2);
    assert_true(kvt_metric(env, SUSPECTS) == 0);
    assert_true(kvt_metric(env, FOUND("corrupt")) == 0);
    assert_true(kvt_log_has(env, "reads differently each time: kept"));
    assert_blocks(env);
}

static void c15_a_wrong_reading_and_a_right_one_are_a_transient(void **state)
{
    struct kvt_env *env = *state;
    scrub_into(env, "scrub_within=1,on_corrupt=remove", "read 1 flip 100\n");
    kvt_wait_for(kvt_metric(env, FOUND("transient")) == 1);
    wait_for_rounds(env, 2);
    assert_true(kvt_metric(env, FOUND("corrupt")) == 0);
    assert_blocks(env);
}

static void c13_two_wrong_readings_that_agree_are_corruption(void **state)
{
    struct kvt_env *env = *state;
    scrub_into(env, "scrub_within=1,on_corrupt=remove", "read 1 flip-always 100\n");
    kvt_wait_for(kvt_is_gone(kvt_src(env, "a")));
    kvt_wait_for(kvt_metric(env, FOUND("corrupt")) >= 1);
}

/* ---- the tool ---- */

/* Its exit status; what it said is in WORK/said. */
static int scrub(struct kvt_env *env, const char *faults, char said[8192])
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/said", env->work);
    unlink(path);
    kvt_fault(env, "clear\n");
    kvt_fault(env, faults);
    int status = kvt_run(path, kvt_program("../../core/cli/kvseal"), "scrub", "--verbose",
                         "--min-age", "0", "--on-corrupt", "remove", env->source, NULL);
    int fd = kvt_open(path, O_RDONLY);
    ssize_t len = read(fd, said, 8191);
    assert_true(len >= 0);
    said[len] = '\0';
    close(fd);
    return status;
}

static void c15_verify_tells_of_a_wrong_reading(void **state)
{
    struct kvt_env *env = *state;
    const char *said = kvt_work_path(env, "said");
    store_blocks(env);
    for (unsigned i = 0; i < BLOCKS; i++)
        kvt_drop_cache(kvt_src(env, name_of(i)));
    unlink(said);
    kvt_fault(env, "clear\nread 1 flip 100\n");
    assert_int_equal(kvt_run(said, kvt_program("../../core/cli/kvseal"), "verify", "--json",
                             kvt_src(env, "."), NULL),
                     0);
    assert_true(kvt_file_has(said, "\"verdict\":\"transient\""));
    assert_true(kvt_file_has(said, "\"intact\":2,\"transient\":1"));
}

/* What an earlier test left in the cursor would be looked at, too. */
static void forget_rounds(struct kvt_env *env)
{
    char cursor[PATH_MAX];
    snprintf(cursor, sizeof(cursor), "%s/.kvseal/scrub-1-of-1", env->source);
    unlink(cursor);
}

static void c15_the_tool_looks_first_at_what_had_no_verdict(void **state)
{
    struct kvt_env *env = *state;
    char said[8192], first[64];
    store_blocks(env);
    forget_rounds(env);
    assert_int_equal(scrub(env, two_wrong_readings, said), 2);
    assert_non_null(strstr(said, "no verdict: it reads differently each time"));
    assert_non_null(strstr(said, " 1 unstable,"));
    assert_blocks(env);
    snprintf(first, sizeof(first), "%s", strstr(said, "kvseal: ") + strlen("kvseal: "));
    *strstr(first, ": no verdict") = '\0';
    strcat(first, ": intact\n");
    assert_int_equal(scrub(env, "clear\n", said), 0);
    assert_memory_equal(said, first, strlen(first)); /* and again in its turn */
    assert_non_null(strstr(said + strlen(first), first));
    assert_int_equal(scrub(env, "clear\n", said), 0);
}

static void c14_the_tool_goes_on_behind_an_error(void **state)
{
    struct kvt_env *env = *state;
    char said[8192];
    store_blocks(env);
    forget_rounds(env);
    assert_int_equal(scrub(env, "read 1 errno 5\n", said), 2);
    assert_non_null(strstr(said, "cannot be read: Input/output error"));
    assert_non_null(strstr(said, " 1 error,"));
    assert_non_null(strstr(said, ": intact\n"));
    assert_blocks(env);
    assert_int_equal(scrub(env, "clear\n", said), 0);
}

/* ---- the tool, above what hangs ---- */

/* Lets the command of the tool run into a hang, which the report of faults shows so, sends it the
 * signal, and gives its exit status, or 128 and the signal that it died of. What it said is in
 * WORK/said. */
static int interrupt_hung(struct kvt_env *env, const char *faults, const char *shown, int number,
                          const char *command, const char *option)
{
    const char *said = kvt_work_path(env, "said");
    unlink(said);
    int output = kvt_open(said, O_WRONLY | O_CREAT | O_CLOEXEC);
    kvt_fault(env, "clear\n");
    kvt_fault(env, faults);
    pid_t tool = fork();
    if (tool == 0) {
        dup2(output, STDOUT_FILENO);
        dup2(output, STDERR_FILENO);
        execl(kvt_program("../../core/cli/kvseal"), "kvseal", command, option, env->source, NULL);
        _exit(127);
    }
    close(output);
    kvt_wait_for(kvt_fault_report_has(env, shown));
    uint64_t start = kvt_now_ms();
    assert_int_equal(kill(tool, number), 0);
    int status = kvt_end_of(tool);
    assert_true(kvt_now_ms() - start < 15000);
    return status;
}

static void c24_an_interrupted_scrub_ends_though_its_read_hangs(void **state)
{
    struct kvt_env *env = *state;
    char said[8192], first[PATH_MAX];
    store_blocks(env);
    forget_rounds(env);
    assert_int_equal(interrupt_hung(env, "read 2 hang\n", "hit 1", SIGTERM, "scrub", "-va0"), 2);
    assert_true(kvt_file_has(kvt_work_path(env, "said"), "hangs in the file system below"));
    FILE *lines = fopen(kvt_work_path(env, "said"), "re");
    assert_non_null(lines);
    assert_non_null(fgets(first, sizeof(first), lines));
    fclose(lines);
    assert_non_null(strstr(first, ": intact\n"));

    /* Whose place it was is kept until the read is over; then the next one goes on behind it. */
    assert_int_equal(scrub(env, "clear\n", said), 2);
    assert_non_null(strstr(said, "is being scrubbed already"));
    kvt_fault(env, "release\n");
    kvt_wait_for(scrub(env, "clear\n", said) == 0);
    assert_non_null(strstr(said, first));
    assert_true(strncmp(said, first, strlen(first)) != 0);
    assert_blocks(env);
}

static void c24_an_interrupted_scrub_tells_what_it_found(void **state)
{
    struct kvt_env *env = *state;
    char said[8192];
    store_blocks(env);
    forget_rounds(env);
    static const char faults[] = "read 1 flip 9\nread 2 flip 9\nread 3 hang\n";
    assert_int_equal(interrupt_hung(env, faults, "read 3", SIGINT, "scrub", "-va0"), 1);
    kvt_fault(env, "release\n");
    kvt_wait_for(scrub(env, "clear\n", said) == 0);
}

static void c24_an_interrupted_verify_ends_though_its_read_hangs(void **state)
{
    struct kvt_env *env = *state;
    store_blocks(env);
    assert_int_equal(interrupt_hung(env, "read 1 hang-always\n", "hit 1", SIGINT, "verify", "-v"),
                     128 + SIGINT);
    kvt_fault(env, "clear\nrelease\n");
    assert_int_equal(interrupt_hung(env, "read 1 hang-always\n", "hit 1", SIGTERM, "verify", "-v"),
                     128 + SIGTERM);
    kvt_fault(env, "clear\nrelease\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        kvt_test(c24_a_hung_read_of_the_scrub_holds_up_nobody),
        kvt_test(c24_the_scrub_goes_on_when_a_hung_read_does),
        kvt_test(c14_a_read_error_is_counted_and_the_scrub_goes_on),
        kvt_test(c14_an_ebadmsg_from_below_is_an_error),
        kvt_test(c14_a_record_that_cannot_be_read_is_an_error),
        kvt_test(c15_two_wrong_readings_that_differ_are_an_error),
        kvt_test(c15_a_wrong_reading_and_a_right_one_are_a_transient),
        kvt_test(c13_two_wrong_readings_that_agree_are_corruption),
        kvt_test(c15_the_tool_looks_first_at_what_had_no_verdict),
        kvt_test(c14_the_tool_goes_on_behind_an_error),
        kvt_test(c15_verify_tells_of_a_wrong_reading),
        kvt_test(c24_an_interrupted_scrub_ends_though_its_read_hangs),
        kvt_test(c24_an_interrupted_scrub_tells_what_it_found),
        kvt_test(c24_an_interrupted_verify_ends_though_its_read_hangs),
    };
    return kvt_main("scrubber_faults", tests, COUNT_OF(tests), KVT_FAULTFS);
}
