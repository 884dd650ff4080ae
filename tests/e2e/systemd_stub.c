/* systemd_stub - a stand-in for systemd's manager on the system's D-Bus, so that the real
 * systemd-logind shuts "the machine" down in a test: each unit is loaded, and starting one, such as
 * reboot.target, does nothing but write its name to standard error.
 *
 *   systemd_stub     DBUS_SYSTEM_BUS_ADDRESS names the bus; it serves until it is killed */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-bus.h>

#define SYSTEMD      "org.freedesktop.systemd1"
#define SYSTEMD_PATH "/org/freedesktop/systemd1"

static void check(int rc, const char *what)
{
    if (rc >= 0)
        return;
    fprintf(stderr, "systemd_stub: %s: %s\n", what, strerror(-rc));
    exit(1);
}

static int subscribe(sd_bus_message *m, void *arg, sd_bus_error *error)
{
    (void)arg;
    (void)error;
    return sd_bus_reply_method_return(m, "");
}

static int start_unit(sd_bus_message *m, void *arg, sd_bus_error *error)
{
    const char *name, *mode;
    int rc = sd_bus_message_read(m, "ss", &name, &mode);

    (void)arg;
    (void)error;
    if (rc < 0)
        return rc;
    fprintf(stderr, "started %s\n", name);
    return sd_bus_reply_method_return(m, "o", SYSTEMD_PATH "/job/1");
}

static int get_load_state(sd_bus *bus, const char *path, const char *interface, const char *name,
                          sd_bus_message *reply, void *arg, sd_bus_error *error)
{
    (void)bus;
    (void)path;
    (void)interface;
    (void)name;
    (void)arg;
    (void)error;
    return sd_bus_message_append(reply, "s", "loaded");
}

static int find_unit(sd_bus *bus, const char *path, const char *interface, void *arg, void **found,
                     sd_bus_error *error)
{
    (void)bus;
    (void)path;
    (void)interface;
    (void)error;
    *found = arg;
    return 1;
}

static const sd_bus_vtable manager[] = {
    SD_BUS_VTABLE_START(0),
    SD_BUS_METHOD("Subscribe", "", "", subscribe, SD_BUS_VTABLE_UNPRIVILEGED),
    SD_BUS_METHOD("StartUnit", "ss", "o", start_unit, SD_BUS_VTABLE_UNPRIVILEGED),
    SD_BUS_VTABLE_END,
};

static const sd_bus_vtable unit[] = {
    SD_BUS_VTABLE_START(0),
    SD_BUS_PROPERTY("LoadState", "s", get_load_state, 0, 0),
    SD_BUS_VTABLE_END,
};

int main(void)
{
    sd_bus *bus = NULL;

    check(sd_bus_open_system(&bus), "opening the bus");
    check(sd_bus_add_object_vtable(bus, NULL, SYSTEMD_PATH, SYSTEMD ".Manager", manager, NULL),
          "the manager");
    check(sd_bus_add_fallback_vtable(bus, NULL, SYSTEMD_PATH "/unit", SYSTEMD ".Unit", unit,
                                     find_unit, bus),
          "the units");
    check(sd_bus_request_name(bus, SYSTEMD, 0), "its name");
    fputs("ready\n", stderr);
    for (;;) {
        const int rc = sd_bus_process(bus, NULL);

        check(rc, "serving");
        if (rc == 0)
            check(sd_bus_wait(bus, UINT64_MAX), "waiting");
    }
}
