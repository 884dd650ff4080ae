/* dptrain-manual PAPER: print one of the papers.
 *
 * It has no options: deploy/meson.build calls it once for each file that is installed. */
#include "deploy/manual/manual.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "job/table.h"

enum { DRIVER, FOLLOWER, N_PROGRAMS };

char *manual_sentence(const char *help)
{
    const char *end = strstr(help, ". ");
    size_t n = end ? (size_t)(end - help) : strlen(help);

    while (n > 0 && help[n - 1] == '.')
        n--;
    return xasprintf("%.*s", (int)n, help);
}

const char *const *manual_words(const struct option *o)
{
    static const char *const truths[] = {"true", "false", NULL};

    return o->type == OPT_BOOL ? truths : o->choices ? o->choices + o->first : NULL;
}

static int paper_print(const char *paper, const struct manual_program *p,
                       const struct option_list *keys, FILE *f)
{
    if (!strcmp(paper, "dpdriver.1"))
        manual_page(&p[DRIVER], f);
    else if (!strcmp(paper, "dpfollower.1"))
        manual_page(&p[FOLLOWER], f);
    else if (!strcmp(paper, "dptrain.yaml.5"))
        manual_job(keys, f);
    else if (!strcmp(paper, "bash"))
        manual_bash(p, N_PROGRAMS, keys, f);
    else if (!strcmp(paper, "zsh"))
        manual_zsh(p, N_PROGRAMS, keys, f);
    else if (!strcmp(paper, "fish"))
        manual_fish(p, N_PROGRAMS, keys, f);
    else if (!strcmp(paper, "schema"))
        manual_schema(keys, f);
    else
        return -1;
    return 0;
}

int main(int argc, char **argv)
{
    struct manual_program program[N_PROGRAMS];
    struct option_list keys;
    int rc;

    manual_driver(&program[DRIVER]);
    manual_follower(&program[FOLLOWER]);
    table_init(&keys, &job_table);
    rc = argc == 2 ? paper_print(argv[1], program, &keys, stdout) : -1;
    table_fini(&keys);
    if (rc < 0) {
        fprintf(stderr, "usage: dptrain-manual dpdriver.1|dpfollower.1|dptrain.yaml.5|bash|zsh|"
                        "fish|schema\n");
        return 2;
    }
    return fflush(stdout) == 0 && !ferror(stdout) ? EXIT_SUCCESS : EXIT_FAILURE;
}
