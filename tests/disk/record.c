/* Writes down what a process does to the files below CANAL_DISK_ROOT, in its order, to the file CANAL_DISK_LOG.
 *
 * Preloaded (LD_PRELOAD). A record is a line of text; W is followed by the bytes. Files are told by inode numbers.
 *
 *   C dir-path name inode            a name for an inode: made, or linked
 *   R inode old-path new-path        renamed
 *   U path                           removed
 *   D path                           a directory was made
 *   W inode offset size              written
 *   T inode size                     cut, or made longer
 *   S inode                          a file was synced; F path: a directory was
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static const char *root;
static size_t root_size;
static int log_file = -1;

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static void __attribute__((constructor)) begin(void) {
    root = getenv("CANAL_DISK_ROOT");
    const char *path = getenv("CANAL_DISK_LOG");
    if (!root || !path) return;
    REAL(open);
    root_size = strlen(root);
    log_file = real(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

static int is_ours(const char *path) {
    return log_file >= 0 && !strncmp(path, root, root_size) && (path[root_size] == '/' || !path[root_size]);
}

static const char *whole(int folder, const char *path, char *out) {
    char base[PATH_MAX] = "", link[64];
    if (path[0] == '/') return strcpy(out, path);
    snprintf(link, sizeof link, folder == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", folder);
    ssize_t size = readlink(link, base, sizeof base - 1);
    snprintf(out, PATH_MAX, "%.*s/%s", (int)(size < 0 ? 0 : size), base, path);
    return out;
}

/* The path of an open file, or NULL where it is none of ours. */
static const char *path_of(int file, char *out) {
    char link[64];
    if (log_file < 0) return NULL;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, out, PATH_MAX - 1);
    if (size < 0) return NULL;
    out[size] = 0;
    return is_ours(out) ? out : NULL;
}

static void tell(const void *data, size_t size, const char *format, ...) {
    char line[3 * PATH_MAX];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    struct iovec parts[2] = {{line, length}, {(void *)data, size}};
    REAL(writev);
    if (real(log_file, parts, 2) != (ssize_t)(length + size)) abort();
}

static void tell_name(const char *path) {
    struct stat status;
    if (!lstat(path, &status)) tell("", 0, "C %s %lu\n", path, (unsigned long)status.st_ino);
}

static unsigned long number_of(int file, struct stat *status) {
    return fstat(file, status) ? 0 : (unsigned long)status->st_ino;
}

/* -- open ---------------------------------------------------------------------------------------------------------- */

static int opened(int file, const char *path, int flags, int was_there) {
    struct stat status;
    if (file < 0) return file;
    int before = errno;
    if (!was_there) tell_name(path);
    else if (flags & O_TRUNC) tell("", 0, "T %lu 0\n", number_of(file, &status));
    errno = before;
    return file;
}

#define OPEN(name, parameters, folder, call)                                                                               \
    int name parameters {                                                                                                  \
        REAL(name);                                                                                                        \
        char full[PATH_MAX];                                                                                               \
        struct stat status;                                                                                                \
        mode_t mode = 0;                                                                                                   \
        if (flags & (O_CREAT | __O_TMPFILE)) {                                                                             \
            va_list arguments;                                                                                             \
            va_start(arguments, flags);                                                                                    \
            mode = va_arg(arguments, mode_t);                                                                              \
            va_end(arguments);                                                                                             \
        }                                                                                                                  \
        if (!(flags & (O_CREAT | O_TRUNC)) || !is_ours(whole(folder, path, full))) return call;                            \
        pthread_mutex_lock(&mutex);                                                                                        \
        int was_there = !lstat(full, &status);                                                                             \
        int file = opened(call, full, flags, was_there);                                                                   \
        pthread_mutex_unlock(&mutex);                                                                                      \
        return file;                                                                                                       \
    }
OPEN(open, (const char *path, int flags, ...), AT_FDCWD, real(path, flags, mode))
OPEN(open64, (const char *path, int flags, ...), AT_FDCWD, real(path, flags, mode))
OPEN(openat, (int folder, const char *path, int flags, ...), folder, real(folder, path, flags, mode))
OPEN(openat64, (int folder, const char *path, int flags, ...), folder, real(folder, path, flags, mode))

/* -- data ---------------------------------------------------------------------------------------------------------- */

#define WRITTEN(file, data, call, where)                                                                                   \
    char path[PATH_MAX];                                                                                                   \
    struct stat status;                                                                                                    \
    if (file == log_file || !path_of(file, path)) return call;                                                             \
    pthread_mutex_lock(&mutex);                                                                                            \
    ssize_t done = call;                                                                                                   \
    int before = errno;                                                                                                    \
    if (done > 0) tell(data, done, "W %lu %lld %zd\n", number_of(file, &status), (long long)(where), done);                \
    errno = before;                                                                                                        \
    pthread_mutex_unlock(&mutex);                                                                                          \
    return done;

ssize_t write(int file, const void *data, size_t size) {
    REAL(write);
    WRITTEN(file, data, real(file, data, size), lseek(file, 0, SEEK_CUR) - done)
}
ssize_t pwrite(int file, const void *data, size_t size, off_t at) {
    REAL(pwrite);
    WRITTEN(file, data, real(file, data, size, at), at)
}
ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) {
    REAL(pwrite64);
    WRITTEN(file, data, real(file, data, size, at), at)
}

#define TOLD(file, call, ...)                                                                                              \
    char path[PATH_MAX];                                                                                                   \
    struct stat status;                                                                                                    \
    if (!path_of(file, path)) return call;                                                                                 \
    pthread_mutex_lock(&mutex);                                                                                            \
    int done = call;                                                                                                       \
    int before = errno;                                                                                                    \
    unsigned long number = number_of(file, &status);                                                                       \
    if (!done) { __VA_ARGS__; }                                                                                            \
    errno = before;                                                                                                        \
    pthread_mutex_unlock(&mutex);                                                                                          \
    return done;

int ftruncate(int file, off_t size) {
    REAL(ftruncate);
    TOLD(file, real(file, size), tell("", 0, "T %lu %lld\n", number, (long long)size))
}
int ftruncate64(int file, off64_t size) {
    REAL(ftruncate64);
    TOLD(file, real(file, size), tell("", 0, "T %lu %lld\n", number, (long long)size))
}

#define SYNCED                                                                                                             \
    if (S_ISDIR(status.st_mode)) tell("", 0, "F %s\n", path);                                                              \
    else tell("", 0, "S %lu\n", number)
int fsync(int file) {
    REAL(fsync);
    TOLD(file, real(file), SYNCED)
}
int fdatasync(int file) {
    REAL(fdatasync);
    TOLD(file, real(file), SYNCED)
}

/* -- names --------------------------------------------------------------------------------------------------------- */

#define NAMED(condition, call, ...)                                                                                        \
    char one[PATH_MAX], two[PATH_MAX];                                                                                     \
    (void)two;                                                                                                             \
    if (!(condition)) return call;                                                                                         \
    pthread_mutex_lock(&mutex);                                                                                            \
    int done = call;                                                                                                       \
    int before = errno;                                                                                                    \
    if (!done) { __VA_ARGS__; }                                                                                            \
    errno = before;                                                                                                        \
    pthread_mutex_unlock(&mutex);                                                                                          \
    return done;

static void tell_rename(const char *from, const char *to) {
    struct stat status;
    lstat(to, &status);
    tell("", 0, "R %lu %s %s\n", (unsigned long)status.st_ino, from, to);
}

int rename(const char *from, const char *to) {
    REAL(rename);
    NAMED(is_ours(whole(AT_FDCWD, to, two)), real(from, to), tell_rename(whole(AT_FDCWD, from, one), two))
}
int renameat(int here, const char *from, int there, const char *to) {
    REAL(renameat);
    NAMED(is_ours(whole(there, to, two)), real(here, from, there, to), tell_rename(whole(here, from, one), two))
}
int link(const char *from, const char *to) {
    REAL(link);
    NAMED(is_ours(whole(AT_FDCWD, to, one)), real(from, to), tell_name(one))
}
int linkat(int here, const char *from, int there, const char *to, int flags) {
    REAL(linkat);
    NAMED(is_ours(whole(there, to, one)), real(here, from, there, to, flags), tell_name(one))
}
int unlink(const char *path) {
    REAL(unlink);
    NAMED(is_ours(whole(AT_FDCWD, path, one)), real(path), tell("", 0, "U %s\n", one))
}
int unlinkat(int folder, const char *path, int flags) {
    REAL(unlinkat);
    NAMED(is_ours(whole(folder, path, one)), real(folder, path, flags), tell("", 0, "U %s\n", one))
}
int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    NAMED(is_ours(whole(AT_FDCWD, path, one)), real(path, mode), tell("", 0, "D %s\n", one))
}
int mkdirat(int folder, const char *path, mode_t mode) {
    REAL(mkdirat);
    NAMED(is_ours(whole(folder, path, one)), real(folder, path, mode), tell("", 0, "D %s\n", one))
}
