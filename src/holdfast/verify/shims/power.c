/* Keeps beside a directory what a disk would have of it: the shadow.
 *
 * A file's content reaches the shadow when it is synced, and only then; whatever is synced takes
 * all names of the directory along, as the journals of ext4 and xfs do. At the power cut the
 * kit puts the shadow in the directory's place. Contents are copied, calls of write are not
 * followed: so stdio, mmap and every other way to change a file are seen.
 *
 * A content is filed under inode and time of birth: an inode number alone is soon used again.
 * Not seen: O_SYNC and O_DSYNC (the kit looks for such descriptors itself), and msync, which is
 * counted, so that the kit can say that it does not know. */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include "control.h"

enum { CHUNK_BYTES = 1 << 16, PATH_BYTES = 4096, YOUNG_NS = 20000000 };

struct control {
    int64_t is_cut; /* nothing reaches the disk any more, and nobody is told that it did */
    int64_t synced;
    int64_t unseen;
    int64_t refuse; /* how many more fsyncs fail, negative: all */
    int64_t refused;
    char directory[PATH_BYTES];
    char shadow[PATH_BYTES];
};

static struct control *control;

__attribute__((constructor)) static void begin(void)
{
    control = control_of("HOLDFAST_POWER", sizeof *control, 1);
}

static void note_unseen(void)
{
    if (control != NULL)
        __atomic_add_fetch(&control->unseen, 1, __ATOMIC_SEQ_CST);
}

static long open_file(const char *path, int flags)
{
    return syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0666);
}

static int look(int at, const char *path, struct statx *found)
{
    return statx(at, path, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME,
                 found);
}

static void key_of(const struct statx *found, char *key, size_t size)
{
    snprintf(key, size, "%llu-%lld.%u", (unsigned long long)found->stx_ino,
             (long long)found->stx_btime.tv_sec, found->stx_btime.tv_nsec);
}

/* Make one file what the other is, chunk by chunk where it differs; none is an empty one. */
static void copy(int from, int to)
{
    char *new = malloc(2 * CHUNK_BYTES), *old = new + CHUNK_BYTES;
    off_t at = 0;
    for (ssize_t got; (got = syscall(SYS_pread64, from, new, CHUNK_BYTES, at)) > 0; at += got) {
        ssize_t had = syscall(SYS_pread64, to, old, got, at);
        if (had != got || memcmp(new, old, (size_t)got) != 0)
            syscall(SYS_pwrite64, to, new, got, at);
    }
    syscall(SYS_ftruncate, to, at);
    free(new);
}

/* The file comes to the disk as it is now, or is again what the disk has of it. Through the very
 * descriptor where it can be read: to close another one of the same file would take away the
 * locks that this process holds on it, and SQLite lives by them. */
static void move_content(int file, int to_disk)
{
    char path[2 * PATH_BYTES], key[64];
    struct statx found;
    if (look(file, "", &found) != 0 || !S_ISREG(found.stx_mode))
        return;
    key_of(&found, key, sizeof key);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    int is_readable = (syscall(SYS_fcntl, file, F_GETFL) & O_ACCMODE) != O_WRONLY;
    int live = is_readable ? file : (int)open_file(path, to_disk ? O_RDONLY : O_RDWR);
    snprintf(path, sizeof path, "%s/%s", control->shadow, key);
    int disk = (int)open_file(path, to_disk ? O_RDWR | O_CREAT : O_RDONLY);
    if (live < 0 || (to_disk && disk < 0))
        note_unseen();
    else if (to_disk) {
        fchmod(disk, 0666); /* the kit and the engine may be different users */
        copy(live, disk);
    } else
        copy(disk, live);
    if (live != file)
        syscall(SYS_close, live);
    syscall(SYS_close, disk);
}

/* The directories as they were when their names were last written down by this process. A change
 * within the same tick of the kernel's clock leaves no trace, so a young one proves nothing. */
static struct {
    char *path;
    struct statx_timestamp changed;
} *known;
static size_t known_count, known_room;
static struct timespec noted;

static void know(const char *path)
{
    struct statx found;
    if (known_count == known_room) {
        known_room = 2 * known_room + 64;
        known = realloc(known, known_room * sizeof *known);
    }
    if (look(AT_FDCWD, path, &found) != 0)
        return;
    known[known_count].path = strdup(path);
    known[known_count++].changed = found.stx_ctime;
}

static void forget_known(void)
{
    while (known_count > 0)
        free(known[--known_count].path);
    syscall(SYS_clock_gettime, CLOCK_REALTIME_COARSE, &noted);
}

static int names_are_known(void)
{
    struct statx now;
    for (size_t at = 0; at < known_count; at++) {
        struct statx_timestamp was = known[at].changed;
        int64_t age_ns = (noted.tv_sec - was.tv_sec) * 1000000000 + noted.tv_nsec - was.tv_nsec;
        if (age_ns < YOUNG_NS || look(AT_FDCWD, known[at].path, &now) != 0 ||
            memcmp(&now.stx_ctime, &was, sizeof was) != 0)
            return 0;
    }
    return known_count > 0;
}

static void save_content_of(int folder, const char *name)
{
    int file = (int)syscall(SYS_openat, folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    move_content(file, 1);
    syscall(SYS_close, file);
}

/* One entry for each name: mode, owner, key and the path below the directory, which may hold
 * anything but a zero byte. */
static void save_names(FILE *out, const char *below, int with_content)
{
    char path[2 * PATH_BYTES], key[64];
    struct statx found;
    snprintf(path, sizeof path, "%s%s", control->directory, below);
    know(path); /* before it is listed: a name that comes meanwhile is seen the next time */
    DIR *entries = opendir(path);
    if (entries == NULL && errno != ENOENT)
        note_unseen(); /* a directory of another user: what is in there is not lost, but not seen */
    if (entries == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (look(dirfd(entries), entry->d_name, &found) != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", below, entry->d_name);
        key_of(&found, key, sizeof key);
        fprintf(out, "%o %u %u %s %s%c", found.stx_mode, found.stx_uid, found.stx_gid, key,
                path + 1, '\0');
        if (S_ISDIR(found.stx_mode))
            save_names(out, path, with_content);
        else if (with_content && S_ISREG(found.stx_mode))
            save_content_of(dirfd(entries), entry->d_name);
    }
    closedir(entries);
}

/* Written beside and renamed: names are committed all at once. */
static void commit_names(const char *to, int with_content)
{
    char new[2 * PATH_BYTES], names[2 * PATH_BYTES];
    snprintf(new, sizeof new, "%s/%s.new", control->shadow, to);
    snprintf(names, sizeof names, "%s/%s", control->shadow, to);
    unlink(new); /* another user's may be there from a moment ago */
    FILE *out = fopen(new, "we");
    if (out == NULL)
        return;
    forget_known();
    save_names(out, "", with_content);
    if (fclose(out) == 0)
        rename(new, names);
}

/* The lock is that of an open file: it holds between threads and processes alike. */
static int take_lock(void)
{
    char path[2 * PATH_BYTES];
    snprintf(path, sizeof path, "%s/lock", control->shadow);
    int lock = (int)open_file(path, O_RDWR);
    while (flock(lock, LOCK_EX) != 0 && errno == EINTR)
        ;
    return lock;
}

/* A file, or with -1 all there is, comes to the disk: to the shadow. The machine's own disk has
 * no part in it, and needs not be waited for. */
static void bring(int file)
{
    int before = errno, lock = take_lock();
    while (__atomic_load_n(&control->is_cut, __ATOMIC_SEQ_CST))
        poll(NULL, 0, -1);
    if (file >= 0)
        move_content(file, 1);
    if (file < 0 || !names_are_known())
        commit_names("names", file < 0);
    __atomic_add_fetch(&control->synced, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_close, lock);
    errno = before;
}

/* An fsync that fails. What it should have brought to the disk is thrown away, as btrfs does; with
 * ext4 and xfs it would stay readable and be taken for clean. Either way no later fsync that works
 * brings it back, and a program that only tries again has lost it. */
static int refuse(int file)
{
    int64_t left = __atomic_load_n(&control->refuse, __ATOMIC_SEQ_CST);
    while (left > 0 && !__atomic_compare_exchange_n(&control->refuse, &left, left - 1, 0,
                                                    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
    if (left == 0)
        return 0;
    int lock = take_lock();
    move_content(file, 0);
    __atomic_add_fetch(&control->refused, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_close, lock);
    errno = EIO;
    return -1;
}

static int bring_or(long call, int file)
{
    if (control == NULL || !is_below(control->directory, file))
        return (int)syscall(call, file);
    if (refuse(file) != 0)
        return -1;
    bring(file);
    return 0;
}

/* For the kit itself: what is in the directory now, on the disk or not; with its content, it is. */
void holdfast_list(struct control *of, const char *to, int with_content)
{
    control = of;
    int lock = take_lock();
    commit_names(to, with_content);
    syscall(SYS_close, lock);
    control = NULL;
}

int fsync(int file) { return bring_or(SYS_fsync, file); }
int fdatasync(int file) { return bring_or(SYS_fdatasync, file); }

int msync(void *from, size_t size, int flags)
{
    if (flags & MS_SYNC)
        note_unseen();
    return (int)syscall(SYS_msync, from, size, flags);
}

int syncfs(int file)
{
    if (control == NULL || !is_below(control->directory, file))
        return (int)syscall(SYS_syncfs, file);
    if (refuse(file) != 0)
        return -1;
    bring(-1);
    return 0;
}

void sync(void)
{
    if (control == NULL)
        syscall(SYS_sync);
    else
        bring(-1);
}
