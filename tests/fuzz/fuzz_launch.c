/* Fuzz target: the input is a launcher's environment, one NAME=VALUE a line.  It is read as a rank
 * in range, or refused with a message. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/util.h"
#include "daemon/launch.h"
#include "wire/msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_TEXT = 4096 };

static char text[MAX_TEXT + 1]; /* the lines, each ended by a NUL */
static size_t text_len;

static char *get(const char *name)
{
    size_t n = strlen(name);

    for (char *line = text; line < text + text_len; line += strlen(line) + 1)
        if (strncmp(line, name, n) == 0 && line[n] == '=')
            return line + n + 1;
    return NULL;
}

static void check(struct launch *l)
{
    char said[LAUNCH_TEXT];

    ASSERT(!l->rank_from || (l->rank >= 0 && l->rank < MSG_MAX_RANKS));
    ASSERT(!l->n_ranks_from || (l->n_ranks > 0 && l->n_ranks <= MSG_MAX_RANKS));
    ASSERT(!l->rank_from || !l->n_ranks_from || l->rank < l->n_ranks);
    ASSERT(!l->port_from || (l->port > 0 && l->port + l->n_ports - 1 < 65536));
    ASSERT(l->n_ports == 1 || (l->n_ports == LAUNCH_PORTS && l->job[0]));
    ASSERT(strlen(l->job) < sizeof l->job);
    ASSERT(!l->host_from || (l->host[0] && strlen(l->host) < sizeof l->host));
    ASSERT(!l->local_rank_from || (l->local_rank >= 0 && l->local_rank < MSG_MAX_RANKS));
    l->is_task = l->rank & 1;
    launch_describe(l, said);
    ASSERT(!said[0] == !(l->rank_from || l->n_ranks_from || l->port_from || l->host_from ||
                         l->local_rank_from));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct launch l;
    struct err err;

    text_len = size < MAX_TEXT ? size : MAX_TEXT;
    memcpy(text, data, text_len);
    text[text_len] = '\0';
    for (size_t i = 0; i < text_len; i++)
        if (text[i] == '\n')
            text[i] = '\0';
    if (launch_read(get, &l, &err) < 0)
        ASSERT(err.msg[0]);
    else
        check(&l);
    return 0;
}
