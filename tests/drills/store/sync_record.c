/* Loaded into redis-server (LD_PRELOAD): writes down how far each file was synced, as "SIZE PATH" lines.

   A power cut keeps what was synced. The size is taken before the sync: what is written meanwhile may be lost. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static int record = -1;

static void note(int descriptor, long long size) {
    char link[64], path[PATH_MAX], line[PATH_MAX + 32];
    if (record < 0) record = open(getenv("SYNC_RECORD"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (record < 0 || length < 0) abort();
    path[length] = 0;
    int bytes = snprintf(line, sizeof line, "%lld %s\n", size, path);
    if (write(record, line, bytes) != bytes) abort();
}

static int synced(const char *name, int descriptor) {
    struct stat before;
    int known = fstat(descriptor, &before) == 0 && S_ISREG(before.st_mode);
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    int result = real(descriptor);
    if (result == 0 && known) note(descriptor, (long long)before.st_size);
    return result;
}

int fdatasync(int descriptor) { return synced("fdatasync", descriptor); }
int fsync(int descriptor) { return synced("fsync", descriptor); }
