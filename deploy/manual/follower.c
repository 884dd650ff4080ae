/* dpfollower as the manual tells of it. */
#include "deploy/manual/manual.h"

#include "follower/options.h"

_Static_assert((int)FOLLOWER_GROUPS <= (int)MANUAL_GROUPS, "room for all");

static void follower_put_statuses(FILE *f) { fprintf(f, "%s", follower_options_statuses); }

void manual_follower(struct manual_program *p)
{
    *p = (struct manual_program){
        .name = "dpfollower",
        .line = "train as one rank of a dpdriver's job",
        .usage = "--root HOST:PORT [option]...",
        .text = follower_options_text,
        .n_groups = FOLLOWER_GROUPS,
        .put_statuses = follower_put_statuses,
    };
    follower_options_groups(p->group);
}
