/* dpdriver as the manual tells of it.  Both daemons call their struct `options`, so each has a file
 * of its own here. */
#include "deploy/manual/manual.h"

#include "base/util.h"
#include "driver/options.h"

_Static_assert((int)VERB_COUNT <= (int)MANUAL_VERBS, "room for all verbs");
_Static_assert((int)OPTIONS_GROUPS <= (int)MANUAL_GROUPS, "room for all groups");

void manual_driver(struct manual_program *p)
{
    *p = (struct manual_program){
        .name = "dpdriver",
        .line = "train neural networks data-parallel, as rank 0",
        .usage = "[VERB] [option]...",
        .text =
            "Trains a neural network together with the other ranks of a job, each of which is a\n"
            "dpfollower(1), and is their rank 0. The job is a file, dptrain.yaml(5). The first\n"
            "word of the command line says what to do; without one, dpdriver trains.\n",
        .n_verbs = VERB_COUNT,
        .n_groups = OPTIONS_GROUPS,
        .put_statuses = verbs_statuses,
    };
    for (enum verb v = 0; v < VERB_COUNT; v++) {
        const struct verb_page page = verb_page(v);

        p->verb[v] = (struct manual_verb){page.name, page.usage, page.line, page.text, page.uses};
    }
    options_groups(p->group);
}
