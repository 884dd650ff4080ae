/* One system call marks all descriptors.  Before Linux 5.11, and where a filter of system calls
 * refuses it, /proc tells which ones there are; a loop over all numbers up to the limit would take
 * seconds, since daemons raise their limit.
 *
 * opendir and strtol are not safe between fork and exec, so the folder is read by getdents64. */
#include "daemon/descriptors.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/util.h"

enum { DESCRIPTORS_FROM = 3, DESCRIPTORS_MOST = 1 << 30 };

/* The number that `text` is, or -1. */
static int descriptor_number(const char *text)
{
    int number = 0;

    if (!*text)
        return -1;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || number >= DESCRIPTORS_MOST / 10)
            return -1;
        number = 10 * number + (*text - '0');
    }
    return number;
}

/* To mark a descriptor does not change the folder, so no entry is passed over. */
static void mark_listed(void)
{
    _Alignas(struct dirent64) char entries[4096];
    const int folder = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    long n;

    while (folder >= 0 && (n = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0)
        for (long at = 0; at < n;) {
            const struct dirent64 *entry = (const void *)(entries + at);
            const int fd = descriptor_number(entry->d_name);

            if (fd >= DESCRIPTORS_FROM)
                fcntl(fd, F_SETFD, FD_CLOEXEC);
            at += entry->d_reclen;
        }
    if (folder >= 0)
        close(folder);
}

void descriptors_close_at_exec(void)
{
    if (syscall(SYS_close_range, DESCRIPTORS_FROM, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
        mark_listed();
}

void descriptors_keep_named(const char *word)
{
    static const char *const folders[] = {"/proc/self/fd/", "/dev/fd/"};

    for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
        const size_t n = strlen(folders[i]);
        const int fd = strncmp(word, folders[i], n) ? -1 : descriptor_number(word + n);

        if (fd >= DESCRIPTORS_FROM)
            fcntl(fd, F_SETFD, 0);
    }
}
