/* The questions of dpdriver --init.  Each is about one key, and its answer is what the job file
 * may have there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/util.h"
#include "driver/init_write.h"
#include "job/table.h"

enum { MOST_TRIES = 3 };

/* The key whose value is most likely not the default, and the network and the loss that suit; by
 * format. */
static const struct ask_row {
    const char *format, *key, *arch;
    int has_numbers; /* 1: its targets may be numbers */
} ask_rows[] = {
    {"mnist", "data.train", "lenet", 0},      {"digits", "data.samples", "lenet", 0},
    {"cifar10", "data.train", "resnet18", 0}, {"cifar100", "data.train", "resnet18", 0},
    {"images", "data.train", "resnet18", 0},  {"tokens", "data.train", "gpt", 0},
    {"text", "data.tokenizer", "gpt", 0},     {"npy", "data.train", "mlp", 1},
    {"csv", "data.train", "mlp", 1},
};

static const struct ask_row ask_other = {"", "data.train", "mlp", 1};

static const struct ask_row *ask_row_of(const char *format)
{
    for (size_t i = 0; i < ARRAY_LEN(ask_rows); i++)
        if (!strcmp(ask_rows[i].format, format))
            return &ask_rows[i];
    return &ask_other;
}

/* The key's row with this format, or the first one. */
static const struct option_ref *ask_find(const struct option_list *list, const char *key,
                                         const char *format)
{
    const struct option_ref *first = table_find(list, key);

    for (size_t i = 0; format && i < list->n; i++)
        if (list->ref[i].group && !strcmp(list->ref[i].group->name, format) &&
            !strcmp(list->ref[i].o->key, key))
            return &list->ref[i];
    return first;
}

static void ask_explain(const struct option *o)
{
    printf("\n%s\n", o->help);
    if (o->type != OPT_ENTRY)
        return;
    for (int i = 0; o->registry->entry[i]; i++)
        printf("  %-14s %s\n", o->registry->entry[i]->name, o->registry->entry[i]->help);
}

/* Ask for the key's value; an empty answer is `usual`. */
static int ask_key(struct init_job *j, const struct option_list *list, const char *key,
                   const char *format, const char *usual, struct err *err)
{
    const struct option *o = ask_find(list, key, format)->o;
    char *line = NULL;
    size_t room = 0;
    int rc = ERR_ARG;

    err_set(err, ERR_ARG,
            "the questions ended at %s without an answer; write a job file by hand, "
            "\"dpdriver keys\" lists its keys",
            key);
    ask_explain(o);
    for (int i = 0; i < MOST_TRIES && rc < 0; i++) {
        printf("%s [%s]: ", key, usual);
        fflush(stdout);
        if (getline(&line, &room, stdin) < 0)
            break;
        line[strcspn(line, "\r\n")] = '\0';
        if (!*line) {
            rc = 0;
            init_set(j, key, "%s", usual);
        } else if (option_try(o, line, strlen(line), 0, err) == 0) {
            rc = 0;
            init_set(j, key, "%s", line);
        } else {
            printf("%s\n", err->msg);
            rc = err->code;
        }
    }
    free(line);
    return rc;
}

static const char *ask_usual(const struct option_list *list, const char *key, const char *format)
{
    const struct option *o = ask_find(list, key, format)->o;

    return o->def ? o->def : "none";
}

int init_ask(const char *path, struct init_job *j, struct err *err)
{
    const struct ask_row *row = NULL;
    struct option_list list;
    int rc;

    table_init(&list, &job_table);
    rc = ask_key(j, &list, "data.format", NULL, "npy", err);
    if (rc == 0)
        row = ask_row_of(init_value(j, "data.format"));
    if (rc == 0)
        rc = ask_key(j, &list, row->key, init_value(j, "data.format"),
                     ask_usual(&list, row->key, init_value(j, "data.format")), err);
    if (rc == 0)
        rc = ask_key(j, &list, "model.arch", NULL, row->arch, err);
    if (rc == 0 && row->has_numbers)
        rc = ask_key(j, &list, "model.loss", NULL, "cross_entropy", err);
    if (rc == 0)
        rc = ask_key(j, &list, "train.epochs", NULL, "5", err);
    if (rc == 0 && strcmp(init_value(j, "data.format"), "digits") != 0)
        init_set_text(j, "data.path", path);
    table_fini(&list);
    return rc;
}
