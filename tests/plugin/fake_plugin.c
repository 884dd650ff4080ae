/* fake_plugin - a plugin that opens no GPU, for test_plugin.c.  Macros make it a plugin of another
 * version, or a library that is no plugin. */
#include "backend/plugin.h"

#ifndef FAKE_ABI
#define FAKE_ABI PLUGIN_ABI
#endif
#ifndef FAKE_LAYOUT
#define FAKE_LAYOUT PLUGIN_LAYOUT
#endif
#ifndef FAKE_VERSION
#define FAKE_VERSION DPTRAIN_VERSION
#endif

#ifndef FAKE_NO_SYMBOL
static void probe(struct plugin_probe *out)
{
    *out = (struct plugin_probe){.driver = 13020, .n_gpus = 0, .trouble = "a fake has no GPU"};
}

static int open_none(int device, struct backend **out, struct err *err)
{
    (void)device, (void)out;
    *err = (struct err){.code = ERR_DEVICE, .file = "fake", .msg = "a fake opens nothing"};
    return ERR_DEVICE;
}

__attribute__((visibility("default"))) plugin_fn dptrain_plugin;

const struct plugin *dptrain_plugin(void)
{
    static const struct plugin table = {FAKE_ABI,  FAKE_LAYOUT, FAKE_VERSION, probe,
                                        open_none, NULL,        NULL};

    return &table;
}
#endif
