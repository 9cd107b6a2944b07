/* Loaded into processes (LD_PRELOAD): sets the time of day of those that the file CLOCK_TABLE names.

   The file is a table of pairs: a process, and the seconds that its clock is ahead. Python asks clock_gettime, Redis
   gettimeofday, too. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { ENTRIES = 8 };
struct entry { volatile long long process, ahead_s; };
static struct entry *table;

static struct entry *mapped(void) {
    int file = open(getenv("CLOCK_TABLE"), O_RDONLY | O_CLOEXEC);
    void *found = mmap(NULL, sizeof(struct entry[ENTRIES]), PROT_READ, MAP_SHARED, file, 0);
    if (file < 0 || found == MAP_FAILED) abort();
    close(file);
    return found;
}

static long long ahead_s(void) {
    if (!table) table = mapped();
    for (int number = 0; number < ENTRIES; number++)
        if (table[number].process == getpid()) return table[number].ahead_s;
    return 0;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, time);
    if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += ahead_s();
    return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    static int (*real)(struct timeval *restrict, void *restrict);
    if (!real) real = (int (*)(struct timeval *restrict, void *restrict))dlsym(RTLD_NEXT, "gettimeofday");
    int result = real(time, zone);
    if (result == 0) time->tv_sec += ahead_s();
    return result;
}
