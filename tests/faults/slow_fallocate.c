/* LD_PRELOAD: posix_fallocate waits as long as the file named by SLOW_FALLOCATE is there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

typedef int allocate(int, off64_t, off64_t);

static int later(const char *symbol, int fd, off64_t offset, off64_t size)
{
    const char *name = getenv("SLOW_FALLOCATE");
    while (name && access(name, F_OK) == 0)
        usleep(10000);
    return ((allocate *)dlsym(RTLD_NEXT, symbol))(fd, offset, size);
}

int posix_fallocate(int fd, off_t offset, off_t size)
{
    return later("posix_fallocate", fd, offset, size);
}

int posix_fallocate64(int fd, off64_t offset, off64_t size)
{
    return later("posix_fallocate64", fd, offset, size);
}
