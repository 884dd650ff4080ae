/* processor - reads the lines of the first processor, which an empty line ends.
 *
 * Failure mode: no line says of what kind the processor is, as on an architecture that Linux shows
 * in other words. */
#include "base/processor.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"

/* Beginnings of the words of x86-64's flags that are sets of instructions for vectors. */
static const char *const processor_sets[] = {"sse", "ssse", "avx", "amx", "fma", "f16c"};

static int processor_computes_by(const char *word)
{
    for (size_t i = 0; i < ARRAY_LEN(processor_sets); i++)
        if (!strncmp(word, processor_sets[i], strlen(processor_sets[i])))
            return 1;
    return 0;
}

static void processor_add_flags(struct hasher *h, char *words)
{
    char *rest = words, *word;

    while ((word = strtok_r(rest, " \t", &rest)))
        if (processor_computes_by(word))
            hasher_add_text(h, word);
}

/* The key of a line "key : value", which ends there, and *value; NULL: it is no such line. */
static const char *processor_split(char *line, char **value)
{
    char *colon = strchr(line, ':'), *end = colon;

    line[strcspn(line, "\n")] = '\0';
    if (!colon)
        return NULL;
    while (end > line && strchr(" \t", end[-1]))
        end--;
    *end = '\0';
    *value = colon + 1 + strspn(colon + 1, " \t");
    return line;
}

/* 1: the line is about the kind of the processor. */
static int processor_add_line(const char *key, char *value, struct hasher *h)
{
    static const char *const keys[] = {"vendor_id",       "cpu family", "model",
                                       "CPU implementer", "CPU part",   "Features"};
    int is_of_kind = !strcmp(key, "flags");

    if (is_of_kind)
        processor_add_flags(h, value);
    for (size_t i = 0; i < ARRAY_LEN(keys) && !is_of_kind; i++)
        if (!strcmp(key, keys[i])) {
            hasher_add_text(h, key);
            hasher_add_text(h, value);
            is_of_kind = 1;
        }
    return is_of_kind;
}

int processor_add(FILE *f, struct hasher *h, char *name, size_t n_name)
{
    char *line = NULL, *value;
    const char *key;
    size_t cap = 0;
    int n = 0;

    while (getline(&line, &cap, f) > 1) {
        key = processor_split(line, &value);
        if (key && !strcmp(key, "model name"))
            snprintf(name, n_name, "%s", value);
        else if (key && !strcmp(key, "CPU part"))
            snprintf(name, n_name, "part %s", value);
        n += key && processor_add_line(key, value, h);
    }
    free(line);
    return n > 0;
}
