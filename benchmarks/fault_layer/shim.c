/* LD_PRELOAD: makes writes below one directory fail in chosen processes, from a chosen write on, until it is called off; and
   sets the clock of all of them. The control is a small file that all processes map: see control.py, which has the same fields. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct control {
    volatile int32_t kind;      /* 0: nothing fails; else the errno: ENOSPC, EROFS, EIO */
    volatile int32_t role;      /* whose writes: bits of ROLE_* */
    volatile int32_t after;     /* so many writes of them still succeed */
    volatile int32_t failed;    /* writes that have failed since */
    volatile int32_t writes[8]; /* by role, counted while kind is set */
    volatile int32_t shift;     /* seconds by which CLOCK_REALTIME is wrong */
};

enum { LAUNCHER = 1, AIMASTER = 2, PS = 4, OTHER = 8 };

static struct control *control;
static char directory[PATH_MAX];
static size_t length;
static int me = OTHER;

__attribute__((constructor)) static void begin(void) {
    const char *file = getenv("FAULTS_CONTROL"), *below = getenv("FAULTS_BELOW");
    if (!file || !below || strlen(below) >= sizeof directory) return;
    strcpy(directory, below);
    length = strlen(directory);
    char words[8192] = {0};
    int fd = open("/proc/self/cmdline", O_RDONLY);
    if (fd >= 0) {
        ssize_t count = read(fd, words, sizeof words - 1);
        close(fd);
        for (ssize_t i = 0; i < count; i++) if (!words[i]) words[i] = ' ';
    }
    if (strstr(words, "deeprec_ext.cli.main")) me = LAUNCHER;
    else if (strstr(words, "deeprec_ext.aimaster")) me = AIMASTER;
    else if (strstr(words, "deeprec_ext.elastic.serve")) me = PS;
    fd = open(file, O_RDWR);
    if (fd < 0) return;
    void *map = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map != MAP_FAILED) control = map;
}

static int below(const char *path) { return !strncmp(path, directory, length); }

static int concerns(int fd) {
    if (!control || !control->kind) return 0;
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t count = readlink(link, path, sizeof path - 1);
    if (count <= 0) return 0;
    path[count] = 0;
    return below(path);
}

/* Whether this write, of a file that it concerns, fails; sets errno. */
static int fails(void) {
    int kind = control->kind;
    if (!kind) return 0;
    __sync_fetch_and_add(&control->writes[me & 7], 1);
    if (!(control->role & me) || __sync_sub_and_fetch(&control->after, 1) >= 0) return 0;
    __sync_fetch_and_add(&control->failed, 1);
    errno = kind;
    return 1;
}

static int path_fails(int at, const char *path) {
    if (!control || !control->kind) return 0;
    char whole[PATH_MAX];
    if (path[0] != '/') {
        char cwd[PATH_MAX];
        if (at != AT_FDCWD || !getcwd(cwd, sizeof cwd) || strlen(cwd) + strlen(path) + 2 > sizeof whole) return 0;
        strcpy(whole, cwd); strcat(whole, "/"); strcat(whole, path);
        path = whole;
    }
    return below(path) && fails();
}

#define NEXT(name) static __typeof__(name) *next; if (!next) next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

ssize_t write(int fd, const void *data, size_t count) {
    NEXT(write);
    return concerns(fd) && fails() ? -1 : next(fd, data, count);
}
ssize_t pwrite(int fd, const void *data, size_t count, off_t at) {
    NEXT(pwrite);
    return concerns(fd) && fails() ? -1 : next(fd, data, count, at);
}
ssize_t pwrite64(int fd, const void *data, size_t count, off64_t at) {
    NEXT(pwrite64);
    return concerns(fd) && fails() ? -1 : next(fd, data, count, at);
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
    NEXT(writev);
    return concerns(fd) && fails() ? -1 : next(fd, parts, count);
}
int fsync(int fd) {
    NEXT(fsync);
    return concerns(fd) && control->kind != EROFS && fails() ? -1 : next(fd);
}
int fdatasync(int fd) {
    NEXT(fdatasync);
    return concerns(fd) && control->kind != EROFS && fails() ? -1 : next(fd);
}
int rename(const char *from, const char *to) {
    NEXT(rename);
    return path_fails(AT_FDCWD, to) ? -1 : next(from, to);
}
int mkdir(const char *path, mode_t mode) {
    NEXT(mkdir);
    return path_fails(AT_FDCWD, path) ? -1 : next(path, mode);
}
int unlink(const char *path) {
    NEXT(unlink);
    return control && control->kind == EROFS && path_fails(AT_FDCWD, path) ? -1 : next(path);
}

static int opening_fails(int at, const char *path, int flags) {
    if (!control || !control->kind) return 0;
    if (control->kind == EROFS) return (flags & (O_WRONLY | O_RDWR | O_CREAT)) && path_fails(at, path);
    return (flags & O_CREAT) && access(path, F_OK) && path_fails(at, path); /* no room for another file */
}
#define MODE(flags) va_list list; va_start(list, flags); mode_t mode = (flags) & O_CREAT ? va_arg(list, mode_t) : 0; va_end(list)
int open(const char *path, int flags, ...) {
    NEXT(open);
    MODE(flags);
    return opening_fails(AT_FDCWD, path, flags) ? -1 : next(path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    NEXT(open64);
    MODE(flags);
    return opening_fails(AT_FDCWD, path, flags) ? -1 : next(path, flags, mode);
}
int openat(int at, const char *path, int flags, ...) {
    NEXT(openat);
    MODE(flags);
    return opening_fails(at, path, flags) ? -1 : next(at, path, flags, mode);
}
int openat64(int at, const char *path, int flags, ...) {
    NEXT(openat64);
    MODE(flags);
    return opening_fails(at, path, flags) ? -1 : next(at, path, flags, mode);
}

/* The clock. CLOCK_MONOTONIC stays. A wait until a moment of the wrong clock is one until that moment of the kernel's, so what
   waits has its time; unlike under a clock that is really set, a wait that is under way does not end early or late. */
static int shift(void) { return control ? control->shift : 0; }

int clock_gettime(clockid_t clock, struct timespec *now) {
    NEXT(clock_gettime);
    int result = next(clock, now);
    if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += shift();
    return result;
}
time_t time(time_t *now) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (now) *now = found.tv_sec;
    return found.tv_sec;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec found;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &found);
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return 0;
}

/* In the kernel's time; a moment that counts from the boot is far below. */
static const struct timespec *kernels(const struct timespec *until, struct timespec *room) {
    if (!until || until->tv_sec < 1000000000) return until;
    *room = *until;
    room->tv_sec -= shift();
    return room;
}
int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until) {
    static __typeof__(pthread_cond_timedwait) *next;
    if (!next) next = (__typeof__(next))dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2"); /* not the oldest */
    if (!next) next = (__typeof__(next))dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    struct timespec room;
    return next(cond, mutex, kernels(until, &room));
}
int pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *until) {
    NEXT(pthread_cond_clockwait);
    struct timespec room;
    return next(cond, mutex, clock, clock == CLOCK_REALTIME ? kernels(until, &room) : until);
}
int sem_timedwait(sem_t *sem, const struct timespec *until) {
    NEXT(sem_timedwait);
    struct timespec room;
    return next(sem, kernels(until, &room));
}
int sem_clockwait(sem_t *sem, clockid_t clock, const struct timespec *until) {
    NEXT(sem_clockwait);
    struct timespec room;
    return next(sem, clock, clock == CLOCK_REALTIME ? kernels(until, &room) : until);
}
int pthread_mutex_timedlock(pthread_mutex_t *mutex, const struct timespec *until) {
    NEXT(pthread_mutex_timedlock);
    struct timespec room;
    return next(mutex, kernels(until, &room));
}
int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left) {
    NEXT(clock_nanosleep);
    struct timespec room;
    return next(clock, flags, clock == CLOCK_REALTIME && (flags & TIMER_ABSTIME) ? kernels(until, &room) : until, left);
}
long syscall(long number, ...) { /* futexes of TensorFlow and gRPC */
    NEXT(syscall);
    va_list list;
    va_start(list, number);
    long a = va_arg(list, long), b = va_arg(list, long), c = va_arg(list, long), d = va_arg(list, long);
    long e = va_arg(list, long), f = va_arg(list, long);
    va_end(list);
    struct timespec room;
    if (number == SYS_futex && ((int)b & FUTEX_CLOCK_REALTIME)) d = (long)kernels((const struct timespec *)d, &room);
    return next(number, a, b, c, d, e, f);
}
