/* device - reads the words "auto", "cpu", "cuda" and "cuda:I", and finds and probes the plugin
 * dptrain-cuda.so. */
#include "backend/device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

static const char plugin_name[] = "dptrain-cuda.so";

int device_is_cuda(const char *device) { return !strncmp(device, "cuda", 4); }

int device_index(const char *device)
{
    return !strncmp(device, "cuda:", 5) ? (int)strtol(device + 5, NULL, 10) : -1;
}

int device_check(const char *device, struct err *err)
{
    const char *index = device + strlen("cuda:");

    if (!strcmp(device, "auto") || !strcmp(device, "cpu") || !strcmp(device, "cuda"))
        return 0;
    if (!strncmp(device, "cuda:", 5) && *index && !index[strspn(index, "0123456789")] &&
        strlen(index) < 4)
        return 0;
    return err_set(err, ERR_ARG, "--device is \"%s\", want auto, cpu, cuda or cuda:I", device);
}

/* libcuda.so.1 comes with the driver, so it is there exactly if the driver is. */
static int has_driver(void) { return dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != NULL; }

static void set_trouble(struct devices *d, const char *text)
{
    snprintf(d->trouble, sizeof d->trouble, "%.*s", DEVICE_TROUBLE - 1, text);
}

static int device_load(struct devices *d, struct err *err)
{
    struct plugin_search *s = plugin_search_new();
    int rc = plugin_search_load(s, plugin_name, &d->plugin, err);

    plugin_search_free(s);
    if (rc < 0) {
        set_trouble(d, err->msg);
        return rc;
    }
    d->plugin->probe(&d->probe);
    if (d->probe.trouble[0]) {
        d->plugin = NULL;
        set_trouble(d, d->probe.trouble);
        return err_set(err, ERR_UNSUPPORTED, "no GPU can be used: %s", d->probe.trouble);
    }
    return 0;
}

static int n_known(const struct devices *d)
{
    return (int)min_i64(d->probe.n_gpus, PLUGIN_MAX_GPUS);
}

static int device_check_gpu(const struct devices *d, int i, struct err *err)
{
    if (i >= n_known(d))
        return err_set(err, ERR_UNSUPPORTED, "there is no cuda:%d: this machine has %d GPU%s", i,
                       d->probe.n_gpus, d->probe.n_gpus == 1 ? "" : "s");
    if (d->probe.gpu[i].trouble[0])
        return err_set(err, ERR_UNSUPPORTED, "cuda:%d (%s) cannot be used: %s", i,
                       d->probe.gpu[i].name, d->probe.gpu[i].trouble);
    return 0;
}

int devices_find(const char *wanted, struct devices *out, struct err *err)
{
    const int index = device_index(wanted), is_auto = !strcmp(wanted, "auto");
    int rc;

    *out = (struct devices){0};
    if (!strcmp(wanted, "cpu"))
        return 0;
    if (is_auto && !(out->has_driver = has_driver())) {
        set_trouble(out, "there is no NVIDIA driver (libcuda.so.1)");
        return 0;
    }
    rc = device_load(out, err);
    if (rc < 0 && is_auto)
        return 0;
    if (rc == 0 && index >= 0)
        rc = device_check_gpu(out, index, err);
    return rc < 0 ? err_wrap(err, "--device %s", wanted) : 0;
}

void devices_pick(const struct devices *d, const char *wanted, char out[DEVICE_TEXT])
{
    int i = device_index(wanted);

    if (!d->plugin) {
        snprintf(out, DEVICE_TEXT, "cpu");
        return;
    }
    for (int k = 0; i < 0 && k < n_known(d); k++)
        if (!d->probe.gpu[k].trouble[0])
            i = k;
    snprintf(out, DEVICE_TEXT, "cuda:%d", i);
}

void devices_of_local_rank(const struct devices *d, const char *wanted, int64_t local_rank,
                           char out[DEVICE_TEXT])
{
    const int is_open = !strcmp(wanted, "auto") || !strcmp(wanted, "cuda");
    const int n = d->probe.n_gpus < PLUGIN_MAX_GPUS ? d->probe.n_gpus : PLUGIN_MAX_GPUS;

    if (is_open && d->plugin && local_rank >= 0 && local_rank < n &&
        !d->probe.gpu[local_rank].trouble[0])
        snprintf(out, DEVICE_TEXT, "cuda:%d", (int)local_rank);
    else
        snprintf(out, DEVICE_TEXT, "%s", wanted);
}

int devices_n_usable(const struct devices *d)
{
    int n = 0;

    for (int i = 0; d->plugin && i < n_known(d); i++)
        n += !d->probe.gpu[i].trouble[0];
    return n;
}

void devices_describe(const struct devices *d, const char *device, struct buf *out)
{
    const int i = device_index(device);

    buf_printf(out, "%s", device);
    if (d->plugin && i >= 0 && i < n_known(d))
        buf_printf(out, " (%s, %s)", d->probe.gpu[i].name, d->probe.gpu[i].uuid);
}

/* The version is the first word of nothing but digits and points, with one point at least. */
void device_driver_version(const char *text, char out[DEVICE_TEXT])
{
    static const char blanks[] = " \t\n", numeric[] = "0123456789.";

    out[0] = 0;
    for (text += strspn(text, blanks); *text; text += strspn(text, blanks)) {
        const size_t len = strcspn(text, blanks);

        if (strspn(text, numeric) == len && len < DEVICE_TEXT && memchr(text, '.', len)) {
            snprintf(out, DEVICE_TEXT, "%.*s", (int)len, text);
            return;
        }
        text += len;
    }
}

static void print_driver(struct buf *out)
{
    char line[256] = "", version[DEVICE_TEXT];
    FILE *f = fopen("/proc/driver/nvidia/version", "re");

    if (f && !fgets(line, sizeof line, f))
        line[0] = 0;
    if (f)
        fclose(f);
    device_driver_version(line, version);
    if (version[0])
        buf_printf(out, "NVIDIA driver: %s\n", version);
}

void devices_print(const char *wanted, struct buf *out)
{
    struct plugin_search *s = plugin_search_new();
    struct devices d = {0};
    struct err err;
    int rc = device_load(&d, &err);

    plugin_search_print(s, plugin_name, out);
    print_driver(out);
    if (d.probe.built_for[0])
        plugin_probe_print(&d.probe, out);
    if (rc == 0 && device_index(wanted) >= 0)
        rc = device_check_gpu(&d, device_index(wanted), &err);
    if (rc == 0)
        buf_printf(out, "they fit: %d GPU%s can be used\n", devices_n_usable(&d),
                   devices_n_usable(&d) == 1 ? "" : "s");
    else
        buf_printf(out, "they do not fit: %s\n", err.msg);
    plugin_search_free(s);
}
