/* host - reads the kernel's names of this machine and of processes from /proc.
 * Nothing is kept: each call reads anew. */
#include "base/host.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The first cap - 1 bytes of a file, as a string; "" if it cannot be read. */
static void read_start(const char *path, char *out, size_t cap)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, out, cap - 1) : -1;

    if (fd >= 0)
        close(fd);
    out[n > 0 ? n : 0] = '\0';
}

void host_name(char out[HOST_NAME])
{
    if (gethostname(out, HOST_NAME) < 0 || !out[0])
        snprintf(out, HOST_NAME, "unknown-host");
    out[HOST_NAME - 1] = '\0';
}

void host_boot(char out[HOST_BOOT])
{
    read_start("/proc/sys/kernel/random/boot_id", out, HOST_BOOT);
    out[strcspn(out, "\n")] = '\0';
}

int64_t host_pid_space(void)
{
    struct stat st;

    return stat("/proc/self/ns/pid", &st) == 0 ? (int64_t)st.st_ino : 0;
}

/* /proc/PID/stat: the program's name, which may hold anything, is in parentheses; the start is the
 * 20th word after it. */
int64_t host_process_start(int64_t pid)
{
    enum { WORDS_BEFORE = 20 };
    char path[64], text[1024];
    const char *at;

    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    read_start(path, text, sizeof text);
    at = strrchr(text, ')');
    for (int i = 0; at && i < WORDS_BEFORE; i++)
        at = strchr(at + 1, ' ');
    return at ? strtoll(at, NULL, 10) : 0;
}
