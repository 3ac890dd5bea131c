// SPDX-License-Identifier: Apache-2.0
// What stands after -o, driven by two tables: our own settings, and the words that every mount may
// carry.
#include "fuse/options.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "core/parse.h"
#include "core/util.h"
#include "fuse/metrics_http.h"
#include "fuse/options_internal.h"

#define complain(...) kvs_log(KVS_LOG_ALWAYS, LOG_ERR, __VA_ARGS__)

#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

#define MIB ((uint64_t)1 << 20)
#define TIB ((uint64_t)1 << 40)

struct choice {
    const char *word; /* NULL ends the list */
    int value;
};

static const struct choice on_corrupt_choices[] = {
    {"remove", KVS_ON_CORRUPT_REMOVE},
    {"quarantine", KVS_ON_CORRUPT_QUARANTINE},
    {"keep", KVS_ON_CORRUPT_KEEP},
    {NULL, 0},
};
static const struct choice corrupt_errno_choices[] = {
    {"EBADMSG", EBADMSG},
    {"EIO", EIO},
    {"ENOENT", ENOENT},
    {NULL, 0},
};
static const struct choice unsealed_choices[] = {
    {"allow", KVS_UNSEALED_ALLOW},
    {"seal", KVS_UNSEALED_SEAL},
    {"deny", KVS_UNSEALED_DENY},
    {NULL, 0},
};

static const struct choice invalidate_choices[] = {
    {"auto", KVS_INVALIDATE_AUTO},
    {"names", KVS_INVALIDATE_NAMES},
    {NULL, 0},
};

static const struct choice checksums_choices[] = {
    {"on", KVS_CHECKSUMS_ON},
    {"off", KVS_CHECKSUMS_OFF},
    {NULL, 0},
};

static const struct choice buffers_choices[] = {
    {"auto", KVS_BUFFERS_AUTO},
    {"off", KVS_BUFFERS_OFF},
    {NULL, 0},
};

static const struct choice passthrough_choices[] = {
    {"auto", KVS_PASSTHROUGH_AUTO},
    {"off", KVS_PASSTHROUGH_OFF},
    {NULL, 0},
};

static const struct choice immutable_choices[] = {
    {"auto", true},
    {"off", false},
    {NULL, 0},
};

enum kind {
    KIND_CHOICE,  /* int */
    KIND_SIZE,    /* uint64_t */
    KIND_COUNT,   /* unsigned */
    KIND_SECONDS, /* double */
    KIND_ADDRESS, /* char *, malloc()ed */
    KIND_TIME,    /* uint64_t, seconds */
};

/* Our own settings: NAME=VALUE goes to `offset` in struct kvs_options. */
static const struct setting {
    const char *name;
    enum kind kind;
    size_t offset;
    const struct choice *choices;
    uint64_t least, most;
    const char *allowed; /* for messages */
} settings[] = {
#define FIELD(name) #name, .offset = offsetof(struct kvs_options, name)
    {FIELD(on_corrupt), .kind = KIND_CHOICE, .choices = on_corrupt_choices,
     .allowed = "remove, quarantine or keep"},
    {FIELD(corrupt_errno), .kind = KIND_CHOICE, .choices = corrupt_errno_choices,
     .allowed = "EBADMSG, EIO or ENOENT"},
    {FIELD(unsealed), .kind = KIND_CHOICE, .choices = unsealed_choices,
     .allowed = "allow, seal or deny"},
    {FIELD(invalidate), .kind = KIND_CHOICE, .choices = invalidate_choices,
     .allowed = "auto or names"},
    {FIELD(max_reread), .kind = KIND_SIZE, .most = 1024 * TIB,
     .allowed = "a size from 0 to 1024T, as in 512M or 1G"},
    {FIELD(buffer_memory), .kind = KIND_SIZE, .least = 32 * MIB, .most = 64 * TIB,
     .allowed = "a size from 32M to 64T, as in 512M or 4G"},
    {FIELD(buffers), .kind = KIND_CHOICE, .choices = buffers_choices, .allowed = "auto or off"},
    {FIELD(checksums), .kind = KIND_CHOICE, .choices = checksums_choices, .allowed = "on or off"},
    {FIELD(passthrough), .kind = KIND_CHOICE, .choices = passthrough_choices,
     .allowed = "auto or off"},
    {FIELD(pinned_memory), .kind = KIND_SIZE, .least = MIB, .most = 64 * TIB,
     .allowed = "a size from 1M to 64T, as in 256M or 4G"},
    {FIELD(attr_timeout), .kind = KIND_SECONDS, .most = 86400,
     .allowed = "seconds from 0 to 86400, as in 0.5"},
    {FIELD(entry_timeout), .kind = KIND_SECONDS, .most = 86400,
     .allowed = "seconds from 0 to 86400, as in 0.5"},
    {FIELD(negative_timeout), .kind = KIND_SECONDS, .most = 86400,
     .allowed = "seconds from 0 to 86400, as in 0.5"},
    {FIELD(max_names), .kind = KIND_COUNT, .most = 1000000000,
     .allowed = "a whole number from 0 (no limit) to 1000000000"},
    {FIELD(scrub_within), .kind = KIND_TIME, .least = 1, .most = UINT64_C(3650) * 86400,
     .allowed = "a time from 1s to 3650d, as in 36h or 7d"},
    {FIELD(threads), .kind = KIND_COUNT, .least = 4, .most = 4096,
     .allowed = "a whole number from 4 to 4096"},
    {FIELD(metrics), .kind = KIND_ADDRESS,
     .allowed = "PORT, HOST:PORT or [IPV6]:PORT, as in 9457 or 0.0.0.0:9457"},
    {FIELD(grace), .kind = KIND_SECONDS, .least = 1, .most = 86400,
     .allowed = "seconds from 1 to 86400"},
    {FIELD(immutable), .kind = KIND_CHOICE, .choices = immutable_choices, .allowed = "auto or off"},
#undef FIELD
};

enum word_use {
    WORD_IGNORED, /* for mount(8), fstab or systemd, or what holds anyway */
    WORD_PASSED,  /* to libfuse as it stands */
    WORD_READ_ONLY,
    WORD_READ_WRITE,
    WORD_ALLOW_OTHER,
    WORD_ALLOW_ROOT,
    WORD_REQUIRE_SHARED,
    WORD_DEBUG,
    WORD_FSNAME,
    WORD_SUBTYPE,
};

/* Words that a mount may carry besides. A name that ends in '=' takes a value, in '*' anything. */
static const struct mount_word {
    const char *name;
    enum word_use use;
} mount_words[] = {
    {"ro", WORD_READ_ONLY},
    {"rw", WORD_READ_WRITE},
    {"allow_other", WORD_ALLOW_OTHER},
    {"allow_root", WORD_ALLOW_ROOT},
    {"debug", WORD_DEBUG},
    {"fsname=", WORD_FSNAME},
    {"subtype=", WORD_SUBTYPE},
    {"require_shared", WORD_REQUIRE_SHARED},
};

static const char *const passed_words[] = {
    "dev",         "nodev",    "suid",       "nosuid",      "exec",         "noexec",
    "async",       "sync",     "dirsync",    "noatime",     "nodiratime",   "symfollow",
    "nosymfollow", "context=", "fscontext=", "defcontext=", "rootcontext=",
};

/* default_permissions is always on; access times move as the source's own mount says (C17). */
static const char *const ignored_words[] = {
    "default_permissions",
    "atime",
    "diratime",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "lazytime",
    "nolazytime",
    "defaults",
    "auto",
    "noauto",
    "nofail",
    "user",
    "user=",
    "nouser",
    "users",
    "nousers",
    "owner",
    "noowner",
    "group",
    "nogroup",
    "_netdev",
    "comment=",
    "x-*",
    "X-*",
};

int kvs_options_replace_text(char **text, const char *value)
{
    free(*text);
    *text = strdup(value);
    return *text ? 0 : -ENOMEM;
}

int kvs_options_parse_seconds(const char *text, double *seconds_ret)
{
    /* strtod() would also take "nan", "inf", hexadecimal, signs and white space. */
    if (!*text || strspn(text, "0123456789.") != strlen(text))
        return -EINVAL;
    char *end;
    *seconds_ret = strtod(text, &end);
    return *end || end == text ? -EINVAL : 0;
}

static int set_choice(const struct choice *choices, const char *value, void *field)
{
    for (; choices->word; choices++) {
        if (!strcmp(choices->word, value)) {
            *(int *)field = choices->value;
            return 0;
        }
    }
    return -EINVAL;
}

static int set_address(const char *value, char **field)
{
    char host[KVS_HTTP_HOST_SIZE], port[KVS_HTTP_PORT_SIZE];
    int error = kvs_http_parse(value, host, port);
    return error ? error : kvs_options_replace_text(field, value);
}

static int apply_setting(struct kvs_options *options, const struct setting *setting,
                         const char *value)
{
    void *field = (char *)options + setting->offset;
    uint64_t number = 0;
    double seconds = 0;
    int error = 0;
    switch (setting->kind) {
    case KIND_CHOICE:
        return set_choice(setting->choices, value, field);
    case KIND_SECONDS:
        error = kvs_options_parse_seconds(value, &seconds);
        if (error || seconds < (double)setting->least || seconds > (double)setting->most)
            return -EINVAL;
        *(double *)field = seconds;
        return 0;
    case KIND_ADDRESS:
        return set_address(value, field);
    case KIND_TIME:
        error = kvs_parse_duration(value, &number);
        break;
    case KIND_SIZE:
        error = kvs_parse_size(value, &number);
        break;
    case KIND_COUNT:
        error = kvs_parse_count(value, &number);
        break;
    }
    if (error || number < setting->least || number > setting->most)
        return -EINVAL;
    if (setting->kind != KIND_COUNT)
        *(uint64_t *)field = number;
    else
        *(unsigned *)field = (unsigned)number;
    return 0;
}

/* `item` is the whole NAME[=VALUE], `value` what follows '='. */
static int apply_word(struct kvs_parsing *parsing, enum word_use use, const char *item,
                      const char *value)
{
    switch (use) {
    case WORD_IGNORED:
        return 0;
    case WORD_PASSED:
        return fuse_opt_add_opt_escaped(&parsing->passed, item) ? -ENOMEM : 0;
    case WORD_READ_ONLY:
    case WORD_READ_WRITE:
        parsing->options->read_only = use == WORD_READ_ONLY;
        return 0;
    case WORD_ALLOW_OTHER:
    case WORD_ALLOW_ROOT:
        parsing->allow_other = use == WORD_ALLOW_OTHER;
        parsing->allow_root = use == WORD_ALLOW_ROOT;
        return 0;
    case WORD_REQUIRE_SHARED:
        parsing->options->require_shared = true;
        return 0;
    case WORD_DEBUG:
        parsing->options->debug = parsing->options->foreground = true;
        return 0;
    case WORD_FSNAME:
        return kvs_options_replace_text(&parsing->fsname, value);
    case WORD_SUBTYPE:
        return kvs_options_replace_text(&parsing->subtype, value);
    }
    return 0;
}

static const struct setting *find_setting(const char *item, size_t name_len)
{
    for (size_t i = 0; i < LENGTH(settings); i++) {
        if (strlen(settings[i].name) == name_len && !strncmp(settings[i].name, item, name_len))
            return &settings[i];
    }
    return NULL;
}

static bool word_fits(const char *word, const char *item)
{
    size_t len = strlen(word);
    if (word[len - 1] == '*')
        return !strncmp(item, word, len - 1);
    return word[len - 1] == '=' ? !strncmp(item, word, len) : !strcmp(item, word);
}

static bool list_fits(const char *const *words, size_t count, const char *item)
{
    for (size_t i = 0; i < count; i++) {
        if (word_fits(words[i], item))
            return true;
    }
    return false;
}

/* False: no such word. */
static bool find_word(const char *item, enum word_use *use_ret)
{
    for (size_t i = 0; i < LENGTH(mount_words); i++) {
        if (word_fits(mount_words[i].name, item)) {
            *use_ret = mount_words[i].use;
            return true;
        }
    }
    bool passed = list_fits(passed_words, LENGTH(passed_words), item);
    *use_ret = passed ? WORD_PASSED : WORD_IGNORED;
    return passed || list_fits(ignored_words, LENGTH(ignored_words), item);
}

int kvs_options_apply_item(struct kvs_parsing *parsing, const char *item)
{
    const char *equals = strchr(item, '=');
    const char *value = equals ? equals + 1 : NULL;
    size_t name_len = equals ? (size_t)(equals - item) : strlen(item);

    const struct setting *setting = find_setting(item, name_len);
    if (setting && value && !apply_setting(parsing->options, setting, value))
        return 0;
    if (setting && value) {
        complain("bad value '%s' for option '%s': allowed is %s", value, setting->name,
                 setting->allowed);
        return -EINVAL;
    }
    if (setting) {
        complain("option '%s' needs a value: %s", setting->name, setting->allowed);
        return -EINVAL;
    }
    enum word_use use;
    if (find_word(item, &use))
        return apply_word(parsing, use, item, value ? value : "");
    complain("unknown option '%.*s' in -o %s: see kvsealfs -h", (int)name_len, item,
             parsing->given);
    return -EINVAL;
}

int kvs_options_apply_list(struct kvs_parsing *parsing, const char *list)
{
    kvs_cleanup_free char *item = malloc(strlen(list) + 1);
    if (!item)
        return -ENOMEM;
    parsing->given = list;
    for (const char *c = list;; c++) {
        size_t len = 0;
        for (; *c && *c != ','; c++) {
            if (c[0] == '\\' && (c[1] == ',' || c[1] == '\\'))
                c++;
            item[len++] = *c;
        }
        item[len] = 0;
        int error = len ? kvs_options_apply_item(parsing, item) : 0;
        if (error || !*c)
            return error;
    }
}

static int add_session_option(char **options, const char *name, const char *value)
{
    kvs_cleanup_free char *item = NULL;
    if (asprintf(&item, "%s%s", name, value) < 0) {
        item = NULL;
        return -ENOMEM;
    }
    return fuse_opt_add_opt_escaped(options, item) ? -ENOMEM : 0;
}

int kvs_options_make_session_args(struct kvs_parsing *parsing)
{
    struct kvs_options *options = parsing->options;
    bool allow_other = parsing->allow_other || (geteuid() == 0 && !parsing->allow_root);
    const char *fsname = parsing->fsname ? parsing->fsname : options->source;
    const char *subtype = parsing->subtype ? parsing->subtype : "kvsealfs";
    char **all = &parsing->passed;
    int error = add_session_option(all, "fsname=", fsname);
    error = error ? error : add_session_option(all, "subtype=", subtype);
    error = error ? error : add_session_option(all, "default_permissions", "");
    error = error ? error : add_session_option(all, options->read_only ? "ro" : "rw", "");
    if (!error && allow_other)
        error = add_session_option(all, "allow_other", "");
    if (!error && parsing->allow_root)
        error = add_session_option(all, "allow_root", "");
    if (!error && options->debug)
        error = add_session_option(all, "debug", "");
    if (error)
        return error;
    struct fuse_args *args = &options->session_args;
    return fuse_opt_add_arg(args, "kvsealfs") || fuse_opt_add_arg(args, "-o") ||
                   fuse_opt_add_arg(args, parsing->passed)
               ? -ENOMEM
               : 0;
}
