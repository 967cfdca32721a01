/* LD_PRELOAD: makes writes below one directory fail in chosen processes, from a chosen write on, until it is called off.
   The control is a small file that all processes map: see control.py, which has the same fields. */
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
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

struct control {
    volatile int32_t kind;      /* 0: nothing fails; else the errno: ENOSPC, EROFS, EIO */
    volatile int32_t role;      /* whose writes: bits of ROLE_* */
    volatile int32_t after;     /* so many writes of them still succeed */
    volatile int32_t failed;    /* writes that have failed since */
    volatile int32_t writes[8]; /* by role, counted while kind is set */
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
