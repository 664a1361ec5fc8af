/* LD_PRELOAD: each fsync and fdatasync takes as many ms more as the file named by SLOW_SYNC says. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int later(const char *symbol, int fd)
{
    const char *name = getenv("SLOW_SYNC");
    FILE *file = name ? fopen(name, "re") : NULL;
    unsigned int delay_ms = 0;
    if (file) {
        if (fscanf(file, "%u", &delay_ms) != 1)
            delay_ms = 0;
        fclose(file);
    }
    usleep(delay_ms * 1000);
    return ((int (*)(int))dlsym(RTLD_NEXT, symbol))(fd);
}

int fdatasync(int fd) { return later("fdatasync", fd); }

int fsync(int fd) { return later("fsync", fd); }
