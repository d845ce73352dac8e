// SPDX-License-Identifier: Apache-2.0
// A disk that fails on request, between a process and its C library. Loaded with LD_PRELOAD.
//
// REPUT_FAULT=<call>:<error>:<first>:<count>:<part of the path>
// From the <first> time (from 1) that <call> is made on a file whose path contains the part, <count> calls fail with
// errno <error>. Error 0 with `write` is no failure but a short write of half the bytes. Calls: sync (fsync, fdatasync),
// write (write, pwrite, pwritev), allocate (posix_fallocate, fallocate). The variable is read anew in each
// process, so a fork may have another plan than its parent. Each fault writes one line to standard error.
//
// REPUT_CLOCK=<file>: the first eight bytes of the file are nanoseconds to add to the wall clock, read at each look, so
// the clock can be stepped while the process runs. Only the wall clock: monotonic time goes on.
//
// REPUT_SYNC_DELAY=<file>: the first eight bytes of the file are nanoseconds that each sync takes longer, read at each
// sync.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static struct {
    pid_t pid;
    char call[16];
    int error;
    long first, count;
    char part[256];
    long passed;
} plan;

static void read_plan(void)
{
    const char *text = getenv("REPUT_FAULT");
    if (text == NULL) {
        plan.pid = 0;
        plan.call[0] = 0;
        return;
    }
    if (plan.pid == getpid())
        return;
    plan.passed = 0;
    plan.part[0] = 0;
    if (sscanf(text, "%15[a-z]:%d:%ld:%ld:%255s", plan.call, &plan.error, &plan.first, &plan.count, plan.part) < 4)
        plan.call[0] = 0;
    plan.pid = getpid();
}

static int path_of(int descriptor, char *path, size_t size)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, size - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return 1;
}

// Whether this call is one that the plan is about and its turn has come.
static int is_due(const char *call, int descriptor)
{
    char path[4096], line[4400];
    read_plan();
    if (strcmp(call, plan.call) != 0 || descriptor <= 2 || !path_of(descriptor, path, sizeof path))
        return 0;
    if (strstr(path, plan.part) == NULL)
        return 0;
    long number = __atomic_add_fetch(&plan.passed, 1, __ATOMIC_SEQ_CST);
    if (number < plan.first || number >= plan.first + plan.count)
        return 0;
    int length = snprintf(line, sizeof line, "shim: %s of %s gives %d\n", call, path, plan.error);
    ssize_t (*real)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
    (void)!real(2, line, (size_t)length);
    return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FAIL_IF_DUE(call, descriptor)  \
    if (is_due(call, descriptor)) {    \
        errno = plan.error;            \
        return -1;                     \
    }

static void delay_sync(void)
{
    const char *path = getenv("REPUT_SYNC_DELAY");
    int64_t delay_ns = 0;
    int descriptor = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return;
    if (read(descriptor, &delay_ns, sizeof delay_ns) == sizeof delay_ns && delay_ns > 0) {
        struct timespec delay = {delay_ns / 1000000000, delay_ns % 1000000000};
        nanosleep(&delay, NULL);
    }
    close(descriptor);
}

int fsync(int descriptor)
{
    delay_sync();
    FAIL_IF_DUE("sync", descriptor)
    return REAL(fsync)(descriptor);
}

int fdatasync(int descriptor)
{
    delay_sync();
    FAIL_IF_DUE("sync", descriptor)
    return REAL(fdatasync)(descriptor);
}

ssize_t write(int descriptor, const void *data, size_t size)
{
    if (is_due("write", descriptor)) {
        if (plan.error != 0) {
            errno = plan.error;
            return -1;
        }
        size = (size + 1) / 2;
    }
    return REAL(write)(descriptor, data, size);
}

ssize_t pwrite64(int descriptor, const void *data, size_t size, off64_t position)
{
    if (is_due("write", descriptor)) {
        if (plan.error != 0) {
            errno = plan.error;
            return -1;
        }
        size = (size + 1) / 2;
    }
    return REAL(pwrite64)(descriptor, data, size, position);
}

ssize_t pwrite(int descriptor, const void *data, size_t size, off_t position)
{
    return pwrite64(descriptor, data, size, position);
}

ssize_t pwritev64(int descriptor, const struct iovec *parts, int count, off64_t position)
{
    if (is_due("write", descriptor) && count > 0) {
        if (plan.error != 0) {
            errno = plan.error;
            return -1;
        }
        return REAL(pwrite64)(descriptor, parts[0].iov_base, (parts[0].iov_len + 1) / 2, position);
    }
    return REAL(pwritev64)(descriptor, parts, count, position);
}

ssize_t pwritev(int descriptor, const struct iovec *parts, int count, off_t position)
{
    return pwritev64(descriptor, parts, count, position);
}

int posix_fallocate64(int descriptor, off64_t position, off64_t size)
{
    if (is_due("allocate", descriptor))
        return plan.error;
    return REAL(posix_fallocate64)(descriptor, position, size);
}

int posix_fallocate(int descriptor, off_t position, off_t size)
{
    return posix_fallocate64(descriptor, position, size);
}

int fallocate64(int descriptor, int mode, off64_t position, off64_t size)
{
    FAIL_IF_DUE("allocate", descriptor)
    return REAL(fallocate64)(descriptor, mode, position, size);
}

int fallocate(int descriptor, int mode, off_t position, off_t size)
{
    return fallocate64(descriptor, mode, position, size);
}

static pid_t clock_pid;
static const volatile int64_t *clock_step_ns;

static void map_clock(void)
{
    const char *path = getenv("REPUT_CLOCK");
    int descriptor = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    void *mapped = descriptor < 0 ? MAP_FAILED : mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, descriptor, 0);
    clock_step_ns = mapped == MAP_FAILED ? NULL : mapped;
    if (descriptor >= 0)
        close(descriptor);
    clock_pid = path == NULL ? 0 : getpid();
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    static __typeof__(&clock_gettime) real;
    if (real == NULL)
        real = REAL(clock_gettime);
    int result = real(clock, time);
    if (clock != CLOCK_REALTIME || result != 0)
        return result;
    if (clock_pid != getpid())
        map_clock();
    if (clock_step_ns != NULL) {
        int64_t now_ns = (int64_t)time->tv_sec * 1000000000 + time->tv_nsec + *clock_step_ns;
        time->tv_sec = now_ns / 1000000000;
        time->tv_nsec = now_ns % 1000000000;
    }
    return 0;
}
