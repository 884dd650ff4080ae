/* Between a daemon and its notices: a command of the job's is run only where the driver is known,
 * and a notice goes to the machine that is attached at that moment. */
#include "daemon/heed.h"

#include <string.h>

#include "base/log.h"

static void heed_on_notice(void *arg, const struct notice *n) { daemon_notice(arg, n); }

/* A command is for this process to run, so anybody who can play the driver could have it run
 * anything. */
static int heed_may_run(const char *from, int is_own)
{
    if (is_own || !strcmp(from, "auto") || !strcmp(from, "none"))
        return 1;
    log_warn("cluster.notice: the command of the driver's job is not run here, as no secret proves "
             "the driver (--secret-file): this rank hears no notice");
    return 0;
}

void heed_begin(struct heed *h, struct daemon *d, const char *from, int is_own)
{
    const struct notices_options o = {.from = from, .heard = heed_on_notice, .arg = d};
    struct err err;

    if (h->has_begun)
        return;
    h->has_begun = 1;
    h->daemon = d;
    d->ignores_notices = !strcmp(from, "none");
    if (heed_may_run(from, is_own) && notices_new(&d->loop, &o, &h->notices, &err) < 0)
        log_warn("%s: no notice will be heard", err.msg);
}

void heed_end(struct heed *h)
{
    notices_free(h->notices);
    if (h->daemon)
        h->daemon->ignores_notices = 0;
    *h = (struct heed){0};
}
