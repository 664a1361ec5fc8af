/* LD_PRELOAD: counts the calls of fsync, fdatasync and msync(MS_SYNC) of all processes, in the file named by
 * SYNC_COUNTS, which begins with the count (8 bytes of this machine's order). A program without it does not start. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t *count;

__attribute__((constructor)) static void open_counts(void) {
    const char *name = getenv("SYNC_COUNTS");
    int fd = open(name ? name : "", O_RDWR | O_CLOEXEC);
    void *map = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) { perror("SYNC_COUNTS"); _exit(1); }
    close(fd);
    count = map;
}

static void one_more(void) { __atomic_add_fetch(count, 1, __ATOMIC_RELAXED); }

int fsync(int fd) { one_more(); return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd); }

int fdatasync(int fd) { one_more(); return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd); }

int msync(void *address, size_t length, int flags) {
    if (flags & MS_SYNC) one_more();
    return ((int (*)(void *, size_t, int))dlsym(RTLD_NEXT, "msync"))(address, length, flags);
}
