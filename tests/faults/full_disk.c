/* LD_PRELOAD: posix_fallocate finds no room as long as the file named by FULL_DISK is there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

typedef int allocate(int, off64_t, off64_t);

static int unless_full(const char *symbol, int fd, off64_t offset, off64_t size)
{
    const char *name = getenv("FULL_DISK");
    if (name && access(name, F_OK) == 0)
        return ENOSPC;
    return ((allocate *)dlsym(RTLD_NEXT, symbol))(fd, offset, size);
}

int posix_fallocate(int fd, off_t offset, off_t size)
{
    return unless_full("posix_fallocate", fd, offset, size);
}

int posix_fallocate64(int fd, off64_t offset, off64_t size)
{
    return unless_full("posix_fallocate64", fd, offset, size);
}
