/* LD_PRELOAD: a disk below the page cache, so that a power cut can be played.
 *
 * Every file of the file system of PAGE_CACHE_SHADOW has up to three others there, by inode:
 * N.disk is what the disk has, N.clean what was last written (or given up) by a sync, N.dirty a byte
 * for each page that was written again with the same content. A sync brings the pages that are dirty
 * to N.disk. Once FAILING_SYNC is there, the next sync of a file whose path holds FAILING_PATH, and
 * that has something to write, does as Linux does: it fails with EIO, the pages are clean now, and
 * the disk has none of them. That removes FAILING_SYNC: the next sync succeeds.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096

static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);

static void find_originals(void)
{
    if (!real_pwrite)
        real_pwrite = (ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite");
}

/* The size of a file that is watched, -1 for others. */
static off_t watched(int fd, struct stat *st)
{
    struct stat shadow;
    const char *directory = getenv("PAGE_CACHE_SHADOW");
    if (!directory || fstat(fd, st) || !S_ISREG(st->st_mode) || stat(directory, &shadow))
        return -1;
    return st->st_dev == shadow.st_dev ? st->st_size : -1;
}

static int shadow_of(const struct stat *st, const char *kind)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%llu.%s", getenv("PAGE_CACHE_SHADOW"),
             (unsigned long long)st->st_ino, kind);
    return open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

static void read_page(int fd, off_t at, char *page)
{
    memset(page, 0, PAGE);
    if (pread(fd, page, PAGE, at) < 0)
        abort();
}

static int shall_fail(int fd)
{
    char link[64], path[1024];
    const char *name = getenv("FAILING_SYNC"), *part = getenv("FAILING_PATH");
    if (!name || access(name, F_OK))
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = 0;
    return (!part || strstr(path, part)) && unlink(name) == 0;
}

static int sync_pages(int fd)
{
    struct stat st;
    char page[PAGE], known[PAGE], again, none = 0;
    off_t size = watched(fd, &st);
    if (size < 0)
        return 0;
    find_originals();
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    int file = open(name, O_RDONLY | O_CLOEXEC); /* The caller's may be for writing only. */
    int dirty = shadow_of(&st, "dirty"), clean = shadow_of(&st, "clean");
    int disk = shadow_of(&st, "disk"), decided = 0, fails = 0;
    flock(dirty, LOCK_EX);
    for (off_t at = 0; at < size; at += PAGE) {
        read_page(file, at, page);
        read_page(clean, at, known);
        again = 0;
        if (pread(dirty, &again, 1, at / PAGE) < 0)
            abort();
        if (!again && !memcmp(page, known, PAGE))
            continue;
        if (!decided++)
            fails = shall_fail(fd);
        real_pwrite(clean, page, PAGE, at);
        real_pwrite(dirty, &none, 1, at / PAGE);
        if (!fails)
            real_pwrite(disk, page, PAGE, at);
    }
    close(disk);
    close(clean);
    close(dirty);
    close(file);
    if (fails)
        errno = EIO;
    return fails ? -1 : 0;
}

int fdatasync(int fd) { return sync_pages(fd); }

int fsync(int fd) { return sync_pages(fd); }

int syncfs(int fd)
{
    (void)fd;
    errno = EIO; /* Each file is synced by itself then. */
    return -1;
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at)
{
    struct stat st;
    char one = 1;
    find_originals();
    ssize_t done = real_pwrite(fd, data, size, at);
    if (done > 0 && watched(fd, &st) >= 0) {
        int dirty = shadow_of(&st, "dirty");
        flock(dirty, LOCK_EX);
        for (off_t page = at / PAGE; page <= (at + done - 1) / PAGE; page++)
            real_pwrite(dirty, &one, 1, page);
        close(dirty);
    }
    return done;
}

ssize_t pwrite64(int fd, const void *data, size_t size, off_t at)
{
    return pwrite(fd, data, size, at);
}
