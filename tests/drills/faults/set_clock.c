/* Loaded into the processes of a standalone (LD_PRELOAD): sets the time of day of those that the file CLOCK_TABLE names.

   The file is a table of pairs: a process, and the seconds that its clock is ahead. Python asks clock_gettime alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
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

int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, time);
    if (result != 0 || clock != CLOCK_REALTIME) return result;
    if (!table) table = mapped();
    for (int number = 0; number < ENTRIES; number++)
        if (table[number].process == getpid()) time->tv_sec += table[number].ahead_s;
    return result;
}
