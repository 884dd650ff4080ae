/* notice - the news that a machine is about to go away, as a session hears it (daemon/notices.h).
 *
 * Threads: any; constant. */
#ifndef SESSION_NOTICE_H
#define SESSION_NOTICE_H

#include <stdint.h>

struct notice {
    const char *source; /* a word: "command", "slurm", ... */
    int64_t seconds;    /* until the machine goes away; -1: not known */
};

#endif
