/* LD_PRELOAD: fdatasync fails with EIO while the file named by FAILING_FDATASYNC is there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

int fdatasync(int fd)
{
    static int (*original)(int);
    const char *name = getenv("FAILING_FDATASYNC");
    if (name && access(name, F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    if (!original)
        original = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    return original(fd);
}
