// SPDX-License-Identifier: Apache-2.0
// Writes and reads what a daemon knows: a header, then records that each say their kind.
#include "fuse/handover.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/util.h"
#include "fuse/file.h"
#include "fuse/ids.h"
#include "fuse/ops.h"
#include "fuse/reach.h"
#include "fuse/serve_passthrough.h"
#include "fuse/table.h"

/* Grows with every change of what is written, or of what it means. */
#define VERSION 1

enum kind { NODE = 1, NAME, BLOCK, HANDLE, DIRECTORY, END };

struct header {
    uint32_t version;
    uint32_t sizes[5]; /* of the records: a compiler may lay them out otherwise */
    uint64_t size;     /* of all of it */
    uint64_t fds;
    uint64_t dev, ino; /* of the source */
    uint32_t handles;  /* as of the table of nodes */
    uint32_t padding;
};

struct node_record {
    uint64_t number, dev, ino, nlookup;
    uint32_t mode, handle_type, handle_len;
    uint32_t kept; /* the descriptor that holds it, counted from 1; 0: none */
    uint64_t is_ended;
}; /* and the handle */

struct name_record {
    uint64_t parent, node;
    uint64_t len;
}; /* and the text */

struct block_record {
    uint64_t node, generation;
    uint32_t is_forgiven, written, summed; /* the latter: how many ranges */
    struct kvs_block block;
    struct kvs_verification cause;
}; /* and the ranges */

struct handle_record { /* of the block that stands before it */
    uint64_t number, writer, generation, size;
    uint64_t sums; /* how many */
    uint32_t fd, flags;
    uint32_t is_parallel, is_writing, is_verified, is_atime_due;
}; /* and the sums */

struct directory_record {
    uint64_t number, fd;
};

static struct header make_header(const struct kvs_fs *fs)
{
    return (struct header){
        .version = VERSION,
        .sizes = {sizeof(struct node_record), sizeof(struct name_record),
                  sizeof(struct block_record) + sizeof(struct kvs_digest_range),
                  sizeof(struct handle_record), sizeof(struct directory_record)},
        .dev = fs->table->root->dev,
        .ino = fs->table->root->ino,
        .handles = fs->table->handles,
    };
}

/* ---- writing; what fails shows at the end ---- */

struct writer {
    struct kvs_fs *fs;
    FILE *out;
    struct kvs_handover_fds *fds;
    int error;
};

static void put(struct writer *writer, const void *data, size_t size)
{
    if (size > 0 && fwrite(data, size, 1, writer->out) != 1)
        writer->error = -EIO;
}

static void put_record(struct writer *writer, uint32_t kind, const void *record, size_t size)
{
    put(writer, &kind, sizeof(kind));
    put(writer, record, size);
}

/* The descriptor's index. */
static uint32_t put_fd(struct writer *writer, int fd)
{
    struct kvs_handover_fds *fds = writer->fds;
    if (fds->count == fds->room) {
        size_t room = fds->room ? 2 * fds->room : 64;
        int *grown = realloc(fds->fds, room * sizeof(*grown));
        if (!grown) {
            writer->error = -ENOMEM;
            return 0;
        }
        fds->fds = grown;
        fds->room = room;
    }
    fds->fds[fds->count] = fd;
    return (uint32_t)fds->count++;
}

static void put_node(struct writer *writer, const struct kvs_node *node)
{
    struct node_record record = {
        .number = kvs_node_ino(writer->fs, node),
        .dev = node->dev,
        .ino = node->ino,
        .nlookup = node->nlookup,
        .mode = node->mode,
        .handle_type = node->handle_type,
        .handle_len = node->handle_len,
        .kept = node->kept_fd >= 0 ? put_fd(writer, node->kept_fd) + 1 : 0,
        .is_ended = node->is_ended,
    };
    put_record(writer, NODE, &record, sizeof(record));
    put(writer, node->handle, node->handle_len);
}

static void put_name(struct writer *writer, const struct kvs_name *name)
{
    struct name_record record = {.parent = kvs_node_ino(writer->fs, name->parent),
                                 .node = kvs_node_ino(writer->fs, name->node),
                                 .len = strlen(name->text)};
    put_record(writer, NAME, &record, sizeof(record));
    put(writer, name->text, record.len);
}

static void put_handle(struct writer *writer, struct kvs_handle *handle)
{
    bool has_sums = handle->is_verified && handle->piece_sums;
    int mode = handle->can_write ? (handle->can_read ? O_RDWR : O_WRONLY) : O_RDONLY;
    struct handle_record record = {
        .number = handle->number ? handle->number : kvs_id_of(writer->fs, handle),
        .writer = atomic_load(&handle->writer),
        .generation = handle->generation,
        .size = handle->size,
        .sums = has_sums ? (handle->size + KVS_PIECE_SIZE - 1) / KVS_PIECE_SIZE : 0,
        .fd = put_fd(writer, handle->fd),
        .flags = (uint32_t)(mode | (handle->is_direct ? O_DIRECT : 0) |
                            (handle->is_noatime ? O_NOATIME : 0)),
        .is_parallel = handle->is_parallel,
        .is_writing = atomic_load(&handle->is_writing),
        .is_verified = handle->is_verified,
        .is_atime_due = atomic_load(&handle->is_atime_due),
    };
    put_record(writer, HANDLE, &record, sizeof(record));
    put(writer, handle->piece_sums, record.sums * sizeof(uint32_t));
}

static void put_block(struct writer *writer, struct kvs_file *file)
{
    struct kvs_digest_list written, summed;
    kvs_digest_save(&file->digest, &written, &summed);
    struct block_record record = {
        .node = kvs_node_ino(writer->fs, file->node),
        .generation = atomic_load(&file->generation),
        .is_forgiven = file->is_forgiven,
        .written = (uint32_t)written.count,
        .summed = (uint32_t)summed.count,
        .block = file->block,
        .cause = file->cause,
    };
    put_record(writer, BLOCK, &record, sizeof(record));
    put(writer, written.ranges, written.count * sizeof(*written.ranges));
    put(writer, summed.ranges, summed.count * sizeof(*summed.ranges));
    for (struct kvs_handle *handle = file->handles; handle; handle = handle->next)
        put_handle(writer, handle);
}

static int put_directory(void *context, uint64_t number, int fd)
{
    struct directory_record record = {.number = number, .fd = put_fd(context, fd)};
    put_record(context, DIRECTORY, &record, sizeof(record));
    return 0;
}

/* Nodes before their names, and both before what is open. */
static void put_all(struct writer *writer)
{
    const struct kvs_table *table = writer->fs->table;
    for (size_t i = 0; i < table->node_buckets; i++) {
        for (const struct kvs_node *node = table->nodes[i]; node; node = node->hash_next)
            put_node(writer, node);
    }
    for (size_t i = 0; i < table->name_buckets; i++) {
        for (const struct kvs_name *name = table->names[i]; name; name = name->hash_next)
            put_name(writer, name);
    }
    for (struct kvs_file *file = writer->fs->files; file; file = file->following)
        put_block(writer, file);
    kvs_dirs_each(writer->fs, put_directory, writer);
    put_record(writer, END, NULL, 0);
}

int kvs_handover_write(struct kvs_fs *fs, FILE *out, struct kvs_handover_fds *fds_ret)
{
    *fds_ret = (struct kvs_handover_fds){0};
    struct writer writer = {.fs = fs, .out = out, .fds = fds_ret};
    struct header header = make_header(fs);
    off_t start = ftello(out);
    put(&writer, &header, sizeof(header));
    put_all(&writer);
    off_t end = ftello(out);
    if (start < 0 || end < 0)
        return -EIO;
    header.size = (uint64_t)(end - start);
    header.fds = fds_ret->count;
    if (!writer.error && fseeko(out, start, SEEK_SET) < 0)
        return -errno;
    put(&writer, &header, sizeof(header));
    if (!writer.error && (fflush(out) || fseeko(out, end, SEEK_SET) < 0))
        return -errno;
    return writer.error;
}

/* ---- reading ---- */

struct reader {
    struct kvs_fs *fs;
    const char *at;
    size_t left;
    int *fds;
    size_t fd_count;
    struct kvs_file *file; /* of the handles that come; with a reference, or NULL */
};

/* Copies, as nothing is aligned. 0, or -EBADMSG: it ends before. */
static int take(struct reader *reader, void *data_ret, size_t size)
{
    if (size > reader->left)
        return -EBADMSG;
    if (size > 0)
        memcpy(data_ret, reader->at, size);
    reader->at += size;
    reader->left -= size;
    return 0;
}

/* An array, malloc()ed (NULL: it is empty). 0 or -errno. */
static int take_array(struct reader *reader, size_t count, size_t size, void *array_ret)
{
    void *array = NULL;
    if (count > reader->left / size)
        return -EBADMSG;
    if (count > 0 && !(array = malloc(count * size)))
        return -ENOMEM;
    *(void **)array_ret = array;
    return take(reader, array, count * size);
}

/* Handed over to the caller. -EBADMSG: there is none. */
static int take_fd(struct reader *reader, uint64_t index)
{
    return index < reader->fd_count && reader->fds[index] >= 0 ? kvs_steal_fd(&reader->fds[index])
                                                               : -EBADMSG;
}

static struct kvs_node *find_node(struct reader *reader, uint64_t number)
{
    return number == FUSE_ROOT_ID ? reader->fs->table->root
                                  : kvs_ids_find(reader->fs->ids, KVS_ID_NODE, number);
}

static int read_node(struct reader *reader)
{
    struct kvs_table *table = reader->fs->table;
    struct node_record record;
    unsigned char handle[KVS_HANDLE_MAX];
    int error = take(reader, &record, sizeof(record));
    if (!error && record.handle_len > sizeof(handle))
        return -EBADMSG;
    error = error ? error : take(reader, handle, record.handle_len);
    if (error)
        return error;
    kvs_cleanup_fd int fd = record.kept > 0 ? take_fd(reader, record.kept - 1) : -1;
    if (record.kept > 0 && fd < 0)
        return fd;
    const struct kvs_node saved = {.dev = record.dev,
                                   .ino = record.ino,
                                   .nlookup = record.nlookup,
                                   .number = record.number,
                                   .mode = record.mode,
                                   .handle_type = record.handle_type,
                                   .handle_len = record.handle_len,
                                   .is_ended = record.is_ended};
    struct kvs_node *node;
    error = kvs_table_restore(table, &saved, handle, &node);
    if (!error && fd >= 0)
        kvs_node_keep(reader->fs, node, kvs_steal_fd(&fd));
    return error;
}

static int read_name(struct reader *reader)
{
    struct name_record record;
    char text[NAME_MAX + 1];
    int error = take(reader, &record, sizeof(record));
    if (!error && record.len > NAME_MAX)
        return -EBADMSG;
    error = error ? error : take(reader, text, record.len);
    if (error)
        return error;
    text[record.len] = 0;
    struct kvs_node *parent = find_node(reader, record.parent);
    struct kvs_node *node = find_node(reader, record.node);
    return parent && node ? kvs_names_add(reader->fs, parent, text, node) : -EBADMSG;
}

static void leave_file(struct reader *reader)
{
    if (reader->file)
        kvs_file_put(reader->fs, reader->file);
    reader->file = NULL;
}

static int read_block(struct reader *reader)
{
    struct block_record record;
    struct kvs_digest_list written = {0}, summed = {0};
    leave_file(reader);
    int error = take(reader, &record, sizeof(record));
    if (error)
        return error;
    struct kvs_node *node = find_node(reader, record.node);
    error = node ? kvs_file_get(reader->fs, node, &reader->file) : -EBADMSG;
    error = error ? error
                  : take_array(reader, record.written, sizeof(*written.ranges), &written.ranges);
    error = error ? error
                  : take_array(reader, record.summed, sizeof(*summed.ranges), &summed.ranges);
    if (!error) {
        written.count = record.written;
        summed.count = record.summed;
        kvs_digest_restore(&reader->file->digest, &written, &summed);
        reader->file->block = record.block;
        reader->file->cause = record.cause;
        reader->file->is_forgiven = record.is_forgiven;
        atomic_store(&reader->file->generation, record.generation);
    }
    free(written.ranges);
    free(summed.ranges);
    return error;
}

static void set_handle(struct kvs_handle *handle, const struct handle_record *record)
{
    handle->is_parallel = record->is_parallel;
    atomic_store(&handle->writer, record->writer);
    atomic_store(&handle->is_writing, record->is_writing);
    atomic_store(&handle->is_atime_due, record->is_atime_due);
    handle->is_verified = record->is_verified;
    handle->generation = record->generation;
    handle->size = record->size;
}

static int read_handle(struct reader *reader)
{
    struct handle_record record;
    uint32_t *sums = NULL;
    int error = take(reader, &record, sizeof(record));
    error = error ? error : take_array(reader, record.sums, sizeof(*sums), &sums);
    if (!error && (!reader->file || (record.is_verified && record.size > 0 && !sums)))
        error = -EBADMSG;
    int fd = error ? error : take_fd(reader, record.fd);
    struct kvs_handle *handle = NULL;
    if (fd >= 0)
        handle = kvs_handle_create(reader->fs, reader->file, fd, (int)record.flags);
    if (!handle) {
        free(sums);
        return fd < 0 ? fd : -ENOMEM;
    }
    set_handle(handle, &record);
    handle->piece_sums = sums;
    struct fuse_file_info ignored = {0}; /* no passthrough on a held mount */
    error = kvs_passthrough_settle(reader->fs, handle, &ignored);
    error = error ? error : kvs_ids_add(reader->fs->ids, KVS_ID_HANDLE, record.number, handle);
    if (!error)
        handle->number = record.number;
    return error;
}

static int read_directory(struct reader *reader)
{
    struct directory_record record;
    int error = take(reader, &record, sizeof(record));
    int fd = error ? error : take_fd(reader, record.fd);
    return fd < 0 ? fd : kvs_dirs_restore(reader->fs, record.number, fd);
}

static int read_record(struct reader *reader, uint32_t kind)
{
    switch (kind) {
    case NODE:
        return read_node(reader);
    case NAME:
        return read_name(reader);
    case BLOCK:
        return read_block(reader);
    case HANDLE:
        return read_handle(reader);
    case DIRECTORY:
        return read_directory(reader);
    default:
        return -EBADMSG;
    }
}

long kvs_handover_count_fds(const struct kvs_fs *fs, const void *data, size_t size)
{
    struct header header, ours = make_header(fs);
    if (size < sizeof(header))
        return -1;
    memcpy(&header, data, sizeof(header));
    ours.size = size;
    ours.fds = header.fds;
    bool is_known = memcmp(&header, &ours, sizeof(header)) == 0 && header.fds < INT32_MAX;
    return is_known ? (long)header.fds : -1;
}

int kvs_handover_read(struct kvs_fs *fs, const void *data, size_t size,
                      const struct kvs_handover_fds *fds)
{
    struct reader reader = {.fs = fs,
                            .at = (const char *)data + sizeof(struct header),
                            .left = size - sizeof(struct header),
                            .fds = fds->fds,
                            .fd_count = fds->count};
    uint32_t kind = 0;
    int error = 0;
    while (!error && kind != END) {
        error = take(&reader, &kind, sizeof(kind));
        if (!error && kind != END)
            error = read_record(&reader, kind);
    }
    leave_file(&reader);
    return error;
}
