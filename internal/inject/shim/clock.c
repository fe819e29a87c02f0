/* Moves the wall clock of one process: a preloaded library whose offset, in
 * microseconds, is read from the file that LOCKBENCH_CLOCK names, at every
 * look at the clock. The monotonic clocks stay. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;

__attribute__((constructor)) static void map_offset(void) {
	const char *path = getenv("LOCKBENCH_CLOCK");
	if (path == NULL) return;
	int fd = open(path, O_RDONLY);
	if (fd < 0) return;
	void *p = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (p != MAP_FAILED) offset = p;
}

static void shift(struct timespec *ts) {
	if (offset == NULL) return;
	int64_t us = ts->tv_sec * INT64_C(1000000) + ts->tv_nsec / 1000 + *offset;
	ts->tv_nsec = us % 1000000 * 1000 + ts->tv_nsec % 1000;
	ts->tv_sec = us / 1000000;
}

static int wall(clockid_t id) { return id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE; }

int clock_gettime(clockid_t id, struct timespec *ts) {
	int r = syscall(SYS_clock_gettime, id, ts);
	if (r == 0 && wall(id)) shift(ts);
	return r;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
	struct timespec ts;
	(void)zone;
	int r = clock_gettime(CLOCK_REALTIME, &ts);
	if (r == 0) {
		tv->tv_sec = ts.tv_sec;
		tv->tv_usec = ts.tv_nsec / 1000;
	}
	return r;
}

time_t time(time_t *t) {
	struct timespec ts;
	if (clock_gettime(CLOCK_REALTIME, &ts) != 0) return -1;
	if (t != NULL) *t = ts.tv_sec;
	return ts.tv_sec;
}
