/* options_ask - the checks of options that ask a running driver something, or that have a step
 * computed again.  The driver that is asked checks the rest. */
#include <ctype.h>
#include <string.h>

#include "base/util.h"
#include "driver/options_impl.h"

/* Check --drain: its word must fit into one line of the request.  The driver checks whom it names.
 */
static int check_drain(const struct options *o, struct err *err)
{
    enum { LONGEST_HOST = 255, LONGEST = sizeof "host:" - 1 + LONGEST_HOST };
    size_t n = 0;

    while (isgraph((unsigned char)o->drain[n]))
        n++;
    if (o->drain[n] == '\0' && n <= LONGEST)
        return 0;
    return err_set(err, ERR_ARG,
                   "--drain %s: want the number of a rank, spare1, or the name of a host (or "
                   "rank:1, spare:1, host:NAME)",
                   o->drain);
}

/* All other options of a replay are checked by the process that computes. */
static int check_replay(const struct options *o, struct err *err)
{
    if (o->dump && !options_ends_in(o->dump, ".safetensors"))
        return err_set(err, ERR_ARG, "--dump %s: want FILE.safetensors", o->dump);
    return o->step ? 0
                   : err_set(err, ERR_ARG,
                             "--replay needs --step: which step is computed again, such as --step "
                             "137");
}

/* Check --set-live: it must fit into one line of the request.  The driver checks key and value. */
static int check_live(const struct options *o, struct err *err)
{
    enum { LONGEST = 200 };
    size_t n = 0;

    while (isgraph((unsigned char)o->set_live[n]))
        n++;
    if (o->set_live[n] == '\0' && n <= LONGEST && strchr(o->set_live, '='))
        return 0;
    return err_set(err, ERR_ARG, "--set-live %.200s: want KEY=VALUE, such as optimizer.lr=0.01",
                   o->set_live);
}

enum { OPTIONS_QUESTIONS = 7 };

/* The options that ask something; NULL for each that was not given. */
static void options_list_asked(const struct options *o, const char *asked[OPTIONS_QUESTIONS])
{
    const char *const all[OPTIONS_QUESTIONS] = {
        o->status ? "status" : NULL,     o->drain ? "drain" : NULL,
        o->trace_s > 0 ? "trace" : NULL, o->checkpoint_now ? "checkpoint-now" : NULL,
        o->pause ? "pause" : NULL,       o->go ? "go" : NULL,
        o->set_live ? "set-live" : NULL};

    memcpy(asked, all, sizeof all);
}

int options_ask(const struct options *o)
{
    const char *asked[OPTIONS_QUESTIONS];
    int n = 0;

    options_list_asked(o, asked);
    for (size_t i = 0; i < ARRAY_LEN(asked); i++)
        n += asked[i] != NULL;
    return n > 0;
}

int options_check_questions(const struct options *o, struct err *err)
{
    const char *asked[OPTIONS_QUESTIONS], *first = NULL;

    options_list_asked(o, asked);
    for (size_t i = 0; !o->wish.is_word && i < ARRAY_LEN(asked); i++) {
        if (first && asked[i])
            return err_set(err, ERR_ARG, "--%s and --%s: one question at a time", first, asked[i]);
        first = asked[i] ? asked[i] : first;
    }
    return 0;
}

int options_check_ask(const struct options *o, struct err *err)
{
    if (o->drain)
        return check_drain(o, err);
    if (o->set_live)
        return check_live(o, err);
    return o->replay ? check_replay(o, err) : 0;
}
