/* Finds the folders of packages, and adds the differences of their counters.
 *
 * Since 2020 kernels let only root read energy_uj, because the counter's steps tell of secrets that
 * other processes compute with.  So "Permission denied" is what most users meet.  Engines of
 * containers hide /sys/devices/virtual/powercap, and then the links to it lead nowhere. */
#include "base/rapl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"

enum { RAPL_TEXT = 64 };

/* The file's text without its line end.  < 0: an errno. */
static int rapl_read_text(const char *folder, const char *name, char out[RAPL_TEXT])
{
    char path[RAPL_PATH + 32];
    ssize_t n;
    int fd;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    n = read(fd, out, RAPL_TEXT - 1);
    if (n < 0) {
        n = -errno;
        close(fd);
        return (int)n;
    }
    close(fd);
    out[n] = '\0';
    out[strcspn(out, "\n")] = '\0';
    return 0;
}

/* A number of microjoules.  < 0: an errno; EINVAL if the file has something else. */
static int rapl_read_number(const char *folder, const char *name, int64_t *out)
{
    char text[RAPL_TEXT], *end;
    int rc = rapl_read_text(folder, name, text);
    long long v;

    if (rc < 0)
        return rc;
    errno = 0;
    v = strtoll(text, &end, 10);
    if (end == text || *end || errno || v < 0 || v > INT64_MAX / 4)
        return -EINVAL;
    *out = v;
    return 0;
}

/* "intel-rapl:0", and not "intel-rapl:0:1", which is a part of it. */
static int is_top(const char *name)
{
    static const char prefix[] = "intel-rapl:";
    size_t n = strlen(prefix);

    return !strncmp(name, prefix, n) && name[n] &&
           strspn(name + n, "0123456789") == strlen(name + n);
}

static const char *rapl_reason(int rc)
{
    if (rc == -EINVAL)
        return "it has no number of microjoules";
    if (rc == -EACCES || rc == -EPERM)
        return "Permission denied (the kernel lets root alone read it; a udev rule or chmod a+r "
               "lets others)";
    return strerror(-rc);
}

/* Add this package.  0: it cannot be read, and r->why says why. */
static int add_package(struct rapl *r, const char *folder)
{
    struct rapl_package *p = &r->package[r->n];
    int rc;

    if (r->n == RAPL_PACKAGES) {
        snprintf(r->why, sizeof r->why, "more than %d packages", RAPL_PACKAGES);
        return 0;
    }
    *p = (struct rapl_package){.range_uj = 0};
    snprintf(p->path, sizeof p->path, "%s", folder);
    rc = rapl_read_number(folder, "energy_uj", &p->last_uj);
    if (rc < 0) {
        snprintf(r->why, sizeof r->why, "%s/energy_uj: %s", folder, rapl_reason(rc));
        return 0;
    }
    if (rapl_read_number(folder, "max_energy_range_uj", &p->range_uj) < 0)
        p->range_uj = 0;
    r->n++;
    return 1;
}

/* Take the folder, if it is a package's.  0: that cannot be told, and r->why says why. */
static int take_folder(struct rapl *r, const char *folder)
{
    char name[RAPL_TEXT];
    int rc = rapl_read_text(folder, "name", name);

    if (rc < 0) {
        snprintf(r->why, sizeof r->why,
                 "%s/name: %s (in a container, mount the machine's folder at another place, and "
                 "name that in DPTRAIN_POWERCAP)",
                 folder, strerror(-rc));
        return 0;
    }
    return strncmp(name, "package-", 8) != 0 || add_package(r, folder);
}

static void rapl_find(struct rapl *r, const char *root, DIR *dir)
{
    const struct dirent *e;
    char folder[RAPL_PATH];

    while ((e = readdir(dir))) {
        if (!is_top(e->d_name))
            continue;
        if ((size_t)snprintf(folder, sizeof folder, "%s/%s", root, e->d_name) >= sizeof folder) {
            snprintf(r->why, sizeof r->why, "%.64s...: the path is too long", root);
            return;
        }
        if (!take_folder(r, folder))
            return;
    }
    if (r->n == 0)
        snprintf(r->why, sizeof r->why, "%.128s has no counter of a processor's package", root);
}

void rapl_open(struct rapl *r, const char *root)
{
    DIR *dir = opendir(root);

    *r = (struct rapl){.n = 0};
    if (!dir) {
        snprintf(r->why, sizeof r->why, "%.128s has no counter of a processor's package (%s)", root,
                 strerror(errno));
        return;
    }
    rapl_find(r, root, dir);
    closedir(dir);
    if (r->why[0])
        r->n = 0;
}

/* The difference since the counter was last read.  It began at 0 again if it is lower. */
static int64_t rapl_difference(const struct rapl_package *p, int64_t now_uj)
{
    if (now_uj >= p->last_uj)
        return now_uj - p->last_uj;
    return now_uj + max_i64(0, p->range_uj - p->last_uj);
}

int64_t rapl_read_mj(struct rapl *r)
{
    int64_t now[RAPL_PACKAGES];

    if (r->n == 0)
        return 0;
    for (int i = 0; i < r->n; i++)
        if (rapl_read_number(r->package[i].path, "energy_uj", &now[i]) < 0)
            return 0;
    for (int i = 0; i < r->n; i++) {
        r->uj += rapl_difference(&r->package[i], now[i]);
        r->package[i].last_uj = now[i];
    }
    return 1 + r->uj / 1000;
}
