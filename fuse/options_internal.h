// SPDX-License-Identifier: Apache-2.0
// What the two halves of the options share: the command line, and what stands after -o.
#ifndef KVSEAL_FUSE_OPTIONS_INTERNAL_H
#define KVSEAL_FUSE_OPTIONS_INTERNAL_H

#include "fuse/options.h"

/* What is gathered while parsing and ends up in session_args. */
struct kvs_parsing {
    struct kvs_options *options;
    const char *given; /* the -o argument at hand, for messages */
    char *fsname, *subtype;
    char *passed; /* for libfuse, escaped */
    bool allow_other, allow_root;
    bool has_user, has_timeout;
};

/* Each of these gives 0, -EINVAL after one line in the log, or -ENOMEM. */

/* The argument of -o: items between commas; "\," and "\\" stand for a comma and a backslash. */
int kvs_options_apply_list(struct kvs_parsing *parsing, const char *list);
/* One NAME or NAME=VALUE, already unescaped. */
int kvs_options_apply_item(struct kvs_parsing *parsing, const char *item);
/* Everything that libfuse is told, as one "-o" argument. */
int kvs_options_make_session_args(struct kvs_parsing *parsing);

/* Frees *text and makes it a copy of `value`. 0 or -ENOMEM. */
int kvs_options_replace_text(char **text, const char *value);

/* "0.5": digits and at most one point. 0 or -EINVAL. */
int kvs_options_parse_seconds(const char *text, double *seconds_ret);

#endif
