/* The small shared file by which the kit and a shim talk while the process runs.
 *
 * Its path is taken from the environment before main(): Redis and PostgreSQL overwrite their
 * environment to show a process title. The kernel is called directly wherever we can: an
 * allocator that asks for the time during start must not wait for the dynamic linker, which
 * needs the allocator. */

#ifndef HOLDFAST_CONTROL_H
#define HOLDFAST_CONTROL_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The file that this variable names, mapped; NULL where there is none: then nothing is changed. */
static inline void *control_of(const char *variable, size_t size, int writable)
{
    const char *path = getenv(variable);
    if (path == NULL)
        return NULL;
    long file = syscall(SYS_openat, AT_FDCWD, path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC);
    if (file < 0)
        return NULL;
    void *at = mmap(NULL, size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED,
                    (int)file, 0);
    syscall(SYS_close, file);
    return at == MAP_FAILED ? NULL : at;
}

/* Whether the file that is open here lies below the directory, or is it. */
static inline int is_below(const char *directory, int file)
{
    char name[32], path[4096];
    size_t length = strlen(directory);
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    long found = syscall(SYS_readlinkat, AT_FDCWD, name, path, sizeof path - 1);
    if (length == 0 || found < (long)length || memcmp(path, directory, length) != 0)
        return 0;
    return found == (long)length || path[length] == '/';
}

#endif
