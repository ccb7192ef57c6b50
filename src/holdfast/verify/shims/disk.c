/* A disk that fails or is slow, for the files below one directory.
 *
 * fsync and reads fail with EIO, writes with ENOSPC, so many times or until further notice. Each
 * that did is counted in the shared file: that is the proof. Which file a descriptor means is
 * looked up only while something is to fail. Not covered: stdio and mmap, which do not come
 * through here, and static programs. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <sys/uio.h>
#include <time.h>

#include "control.h"

enum { SYNC, READ, WRITE, SLOW, KINDS };

struct control {
    int64_t left[KINDS]; /* how many more fail, negative: all; of SLOW: nanoseconds for each call */
    int64_t done[KINDS];
    char directory[4096];
};

static struct control *control;

__attribute__((constructor)) static void begin(void)
{
    control = control_of("HOLDFAST_DISK", sizeof *control, 1);
}

/* Whether this call fails; waits first where the disk is slow. */
static int fails(int kind, int file)
{
    if (control == NULL || file < 0)
        return 0;
    int64_t slow_ns = kind == READ ? 0 : __atomic_load_n(&control->left[SLOW], __ATOMIC_SEQ_CST);
    int64_t left = __atomic_load_n(&control->left[kind], __ATOMIC_SEQ_CST);
    if ((slow_ns == 0 && left == 0) || !is_below(control->directory, file))
        return 0;
    if (slow_ns > 0) {
        struct timespec pause = {slow_ns / 1000000000, slow_ns % 1000000000};
        syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &pause, NULL);
        __atomic_add_fetch(&control->done[SLOW], 1, __ATOMIC_SEQ_CST);
    }
    while (left > 0 && !__atomic_compare_exchange_n(&control->left[kind], &left, left - 1, 0,
                                                    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
    if (left == 0)
        return 0;
    __atomic_add_fetch(&control->done[kind], 1, __ATOMIC_SEQ_CST);
    errno = kind == WRITE ? ENOSPC : EIO;
    return 1;
}

/* On to the next library, which may be the shim of the power supply. */
int fsync(int file)
{
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    return fails(SYNC, file) ? -1 : next(file);
}

int fdatasync(int file)
{
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    return fails(SYNC, file) ? -1 : next(file);
}

ssize_t read(int file, void *to, size_t size)
{
    return fails(READ, file) ? -1 : syscall(SYS_read, file, to, size);
}

ssize_t pread64(int file, void *to, size_t size, off64_t at)
{
    return fails(READ, file) ? -1 : syscall(SYS_pread64, file, to, size, at);
}

ssize_t pread(int file, void *to, size_t size, off_t at) { return pread64(file, to, size, at); }

/* What a compiler makes of them where it knows how large the buffer is. */
ssize_t __read_chk(int file, void *to, size_t size, size_t room)
{
    (void)room;
    return read(file, to, size);
}

ssize_t __pread_chk(int file, void *to, size_t size, off_t at, size_t room)
{
    (void)room;
    return pread64(file, to, size, at);
}

ssize_t __pread64_chk(int file, void *to, size_t size, off64_t at, size_t room)
{
    (void)room;
    return pread64(file, to, size, at);
}

ssize_t readv(int file, const struct iovec *parts, int count)
{
    return fails(READ, file) ? -1 : syscall(SYS_readv, file, parts, count);
}

ssize_t preadv(int file, const struct iovec *parts, int count, off_t at)
{
    return fails(READ, file) ? -1 : syscall(SYS_preadv, file, parts, count, at, 0);
}

ssize_t write(int file, const void *from, size_t size)
{
    return fails(WRITE, file) ? -1 : syscall(SYS_write, file, from, size);
}

ssize_t pwrite64(int file, const void *from, size_t size, off64_t at)
{
    return fails(WRITE, file) ? -1 : syscall(SYS_pwrite64, file, from, size, at);
}

ssize_t pwrite(int file, const void *from, size_t size, off_t at)
{
    return pwrite64(file, from, size, at);
}

ssize_t writev(int file, const struct iovec *parts, int count)
{
    return fails(WRITE, file) ? -1 : syscall(SYS_writev, file, parts, count);
}

ssize_t pwritev(int file, const struct iovec *parts, int count, off_t at)
{
    return fails(WRITE, file) ? -1 : syscall(SYS_pwritev, file, parts, count, at, 0);
}
