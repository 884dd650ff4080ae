/* Completion for bash, zsh and fish: verbs, options with their values, and keys of a job behind
 * --set. */
#include "deploy/manual/manual.h"

#include <stdlib.h>
#include <string.h>

static const char made_by[] = "# Completion of dpdriver and dpfollower; made by deploy/manual from "
                              "their tables of options.\n";

/* The kinds of values that stand behind an option. */
enum shell_value { VALUE_NONE, VALUE_WORDS, VALUE_FILE, VALUE_FOLDER, VALUE_KEY, VALUE_OTHER };

static enum shell_value shell_value(const struct arg *a)
{
    if (!a->value)
        return VALUE_NONE;
    if (a->row.choices)
        return VALUE_WORDS;
    if (!strncmp(a->value, "KEY=", 4))
        return VALUE_KEY;
    if (!strcmp(a->value, "DIR") || !strncmp(a->value, "RUN", 3))
        return VALUE_FOLDER;
    if (!strcmp(a->value, "F") || !strncmp(a->value, "FILE", 4) || strchr(a->value, '.'))
        return VALUE_FILE;
    return VALUE_OTHER;
}

/* Call `put` for each option that one of `uses` takes (0: all). */
static void shell_each(const struct manual_program *p, unsigned uses,
                       void (*put)(FILE *f, const struct arg *a), FILE *f)
{
    for (size_t g = 0; g < p->n_groups; g++)
        for (size_t i = 0; i < p->group[g].n; i++)
            if (args_take(&p->group[g].args[i], uses))
                put(f, &p->group[g].args[i]);
}

static void shell_words(FILE *f, const char *const *word, const char *between)
{
    for (int i = 0; word[i]; i++)
        fprintf(f, "%s%s", i ? between : "", word[i]);
}

/* Is it the first row of its key? */
static int is_first_of_key(const struct option_list *keys, size_t i)
{
    return keys->ref[i].first == i;
}

/* The words that a key may be; entries' names, too.  Returns how many there are. */
static int shell_key_words(FILE *f, const struct option *o)
{
    const char *const *word = manual_words(o);
    int n = 0;

    for (; word && word[n]; n++)
        fprintf(f, "%s%s", n ? " " : "", word[n]);
    for (int i = 0; o->registry && o->registry->entry[i]; i++)
        fprintf(f, "%s%s", n++ ? " " : "", o->registry->entry[i]->name);
    return n;
}

static int shell_has_words(const struct option *o) { return manual_words(o) || o->registry; }

/* `text` within single quotes, with what `also` lists escaped by a backslash. */
static void shell_quoted(FILE *f, const char *text, const char *also)
{
    for (; *text; text++) {
        if (*text == '\'')
            fprintf(f, "'\\''");
        else
            fprintf(f, strchr(also, *text) ? "\\%c" : "%c", *text);
    }
}

/* ---- bash ---- */

static void bash_option(FILE *f, const struct arg *a) { fprintf(f, " --%s", a->row.key); }

static void bash_value(FILE *f, const struct arg *a)
{
    fprintf(f, "    %s) ", a->row.key);
    switch (shell_value(a)) {
    case VALUE_WORDS:
        fprintf(f, "COMPREPLY=($(compgen -W '");
        shell_words(f, a->row.choices, " ");
        fprintf(f, "' -- \"$2\"))");
        break;
    case VALUE_KEY:
        fprintf(f, "compopt -o nospace; COMPREPLY=($(compgen -S = -W \"$_dptrain_keys\" "
                   "-- \"$2\"))");
        break;
    case VALUE_FILE:
        fprintf(f, "compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$2\")");
        break;
    case VALUE_FOLDER:
        fprintf(f, "compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- \"$2\")");
        break;
    case VALUE_OTHER:
        fprintf(f, "COMPREPLY=()");
        break;
    case VALUE_NONE:
        fprintf(f, "return 1");
        break;
    }
    fprintf(f, " ;;\n");
}

static void bash_keys(const struct option_list *keys, FILE *f)
{
    fprintf(f, "\n_dptrain_keys='");
    for (size_t i = 0; i < keys->n; i++)
        if (is_first_of_key(keys, i))
            fprintf(f, "%s%s", i ? "\n" : "", keys->ref[i].o->key);
    fprintf(f, "'\n\n# The words that key $1 may be.\n_dptrain_key_words()\n{\n    case $1 in\n");
    for (size_t i = 0; i < keys->n; i++)
        if (is_first_of_key(keys, i) && shell_has_words(keys->ref[i].o)) {
            fprintf(f, "    %s) echo '", keys->ref[i].o->key);
            shell_key_words(f, keys->ref[i].o);
            fprintf(f, "' ;;\n");
        }
    fprintf(f, "    esac\n}\n");
}

static void bash_program(const struct manual_program *p, FILE *f)
{
    fprintf(f,
            "\n# The value of option $1, of which $2 is there.  Status 1: it takes none.\n"
            "_%s_value()\n{\n    case $1 in\n",
            p->name);
    shell_each(p, 0, bash_value, f);
    fprintf(f, "    *) return 1 ;;\n    esac\n}\n\n_%s_options()\n{\n    case $1 in\n", p->name);
    for (int v = 0; v < p->n_verbs; v++) {
        fprintf(f, "    %s) echo '", p->verb[v].name);
        shell_each(p, p->verb[v].uses, bash_option, f);
        fprintf(f, "' ;;\n");
    }
    fprintf(f, "    *) echo '");
    shell_each(p, 0, bash_option, f);
    fprintf(f, "' ;;\n    esac\n}\n\n_%s_verbs='", p->name);
    for (int v = 0; v < p->n_verbs; v++)
        fprintf(f, "%s%s", v ? " " : "", p->verb[v].name);
    fprintf(f, "'\n");
}

/* bash gives "--name=value" and "KEY=value" as three words. */
static const char bash_end[] =
    "\n"
    "_dptrain()\n"
    "{\n"
    "    local name=${1##*/} cur=$2 prev=$3 before=${COMP_WORDS[COMP_CWORD-2]-} verbs\n"
    "\n"
    "    COMPREPLY=()\n"
    "    if [[ $cur == = ]]; then\n"
    "        before=$prev prev='=' cur=\n"
    "    fi\n"
    "    if [[ $prev == = && $before == --* ]]; then\n"
    "        _${name}_value \"${before#--}\" \"$cur\"\n"
    "        return\n"
    "    elif [[ $prev == = ]]; then\n"
    "        COMPREPLY=($(compgen -W \"$(_dptrain_key_words \"$before\")\" -- \"$cur\"))\n"
    "        return\n"
    "    elif [[ $prev == --* ]] && _${name}_value \"${prev#--}\" \"$cur\"; then\n"
    "        return\n"
    "    fi\n"
    "    verbs=_${name}_verbs\n"
    "    if [[ $cur == -* ]]; then\n"
    "        COMPREPLY=($(compgen -W \"$(_${name}_options \"${COMP_WORDS[1]}\")\" -- \"$cur\"))\n"
    "    elif [[ -n ${!verbs} && ( $COMP_CWORD == 1 || ${COMP_WORDS[1]} == help ) ]]; then\n"
    "        COMPREPLY=($(compgen -W \"${!verbs}\" -- \"$cur\"))\n"
    "    else\n"
    "        compopt -o filenames\n"
    "        mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
    "    fi\n"
    "}\n"
    "\n"
    "complete -F _dptrain";

void manual_bash(const struct manual_program *p, int n, const struct option_list *keys, FILE *f)
{
    fprintf(f, "%s", made_by);
    bash_keys(keys, f);
    for (int i = 0; i < n; i++)
        bash_program(&p[i], f);
    fprintf(f, "%s", bash_end);
    for (int i = 0; i < n; i++)
        fprintf(f, " %s", p[i].name);
    fprintf(f, "\n");
}

/* ---- zsh ---- */

/* '*--set[Override one key of the job]:KEY=VALUE:_dptrain_set' */
static void zsh_option(FILE *f, const struct arg *a)
{
    char *sentence = manual_sentence(a->row.help);
    const enum shell_value kind = shell_value(a);

    fprintf(f, "        '%s--%s%s[", a->row.flags & OPT_MANY ? "*" : "", a->row.key,
            a->value ? "=" : "");
    shell_quoted(f, sentence, "[]:\\");
    fprintf(f, "]");
    if (a->value) {
        fprintf(f, ":");
        shell_quoted(f, a->value, ":\\");
        fprintf(f, ":");
    }
    if (kind == VALUE_WORDS) {
        fprintf(f, "(");
        shell_words(f, a->row.choices, " ");
        fprintf(f, ")");
    }
    fprintf(f, "%s' \\\n",
            kind == VALUE_KEY      ? "_dptrain_set"
            : kind == VALUE_FILE   ? "_files"
            : kind == VALUE_FOLDER ? "_files -/"
                                   : "");
    free(sentence);
}

static void zsh_keys(const struct option_list *keys, FILE *f)
{
    fprintf(f, "\n_dptrain_set()\n{\n    local -a keys\n\n    case $PREFIX in\n");
    for (size_t i = 0; i < keys->n; i++)
        if (is_first_of_key(keys, i) && shell_has_words(keys->ref[i].o)) {
            fprintf(f, "    %s=*) compset -P '*='; compadd -- ", keys->ref[i].o->key);
            shell_key_words(f, keys->ref[i].o);
            fprintf(f, "; return ;;\n");
        }
    fprintf(f, "    *=*) return ;;\n    esac\n    keys=(\n");
    for (size_t i = 0; i < keys->n; i++)
        if (is_first_of_key(keys, i))
            fprintf(f, "        %s\n", keys->ref[i].o->key);
    fprintf(f, "    )\n    compadd -q -S = -- $keys\n}\n");
}

static void zsh_program(const struct manual_program *p, FILE *f)
{
    fprintf(f, "\n_%s()\n{\n", p->name);
    if (p->n_verbs) {
        fprintf(f, "    local -a verbs\n\n    verbs=(\n");
        for (int v = 0; v < p->n_verbs; v++) {
            fprintf(f, "        '%s:", p->verb[v].name);
            shell_quoted(f, p->verb[v].line, ":\\");
            fprintf(f, "'\n");
        }
        fprintf(f, "    )\n"
                   "    if (( CURRENT == 2 )) && [[ $PREFIX != -* ]]; then\n"
                   "        _describe verb verbs\n"
                   "        return\n"
                   "    fi\n"
                   "    case $words[2] in\n");
    }
    for (int v = 0; v < p->n_verbs; v++) {
        fprintf(f, "    %s)\n        shift words; (( CURRENT-- ))\n        _arguments \\\n",
                p->verb[v].name);
        shell_each(p, p->verb[v].uses, zsh_option, f);
        if (!strcmp(p->verb[v].name, "help"))
            fprintf(f, "        '1:verb:((");
        if (!strcmp(p->verb[v].name, "help"))
            for (int k = 0; k < p->n_verbs; k++)
                fprintf(f, "%s%s", k ? " " : "", p->verb[k].name);
        fprintf(f, !strcmp(p->verb[v].name, "help") ? "))' ;;\n" : "        '*:file:_files' ;;\n");
    }
    fprintf(f, p->n_verbs ? "    *)\n        _arguments \\\n" : "    _arguments \\\n");
    shell_each(p, 0, zsh_option, f);
    fprintf(f, p->n_verbs ? "        '*:file:_files' ;;\n    esac\n}\n" : "        && return\n}\n");
}

void manual_zsh(const struct manual_program *p, int n, const struct option_list *keys, FILE *f)
{
    fprintf(f, "#compdef");
    for (int i = 0; i < n; i++)
        fprintf(f, " %s", p[i].name);
    fprintf(f, "\n%s", made_by);
    zsh_keys(keys, f);
    for (int i = 0; i < n; i++)
        zsh_program(&p[i], f);
    fprintf(f, "\n_$service \"$@\"\n");
}

/* ---- fish ---- */

/* The verbs that take the option, as fish's condition; nothing for all of them. */
static void fish_condition(const struct manual_program *p, const struct arg *a, FILE *f)
{
    if (p->n_verbs == 0 || !a->of)
        return;
    fprintf(f, " -n 'not __fish_seen_subcommand_from $__dpdriver_verbs; or "
               "__fish_seen_subcommand_from");
    for (int v = 0; v < p->n_verbs; v++)
        if (args_take(a, p->verb[v].uses))
            fprintf(f, " %s", p->verb[v].name);
    fprintf(f, "'");
}

static void fish_option(const struct manual_program *p, const struct arg *a, FILE *f)
{
    char *sentence = manual_sentence(a->row.help);

    fprintf(f, "complete -c %s", p->name);
    fish_condition(p, a, f);
    fprintf(f, " -l %s", a->row.key);
    switch (shell_value(a)) {
    case VALUE_NONE:
        break;
    case VALUE_WORDS:
        fprintf(f, " -x -a '");
        shell_words(f, a->row.choices, " ");
        fprintf(f, "'");
        break;
    case VALUE_KEY:
        fprintf(f, " -x -a '(__dptrain_set)'");
        break;
    case VALUE_FILE:
        fprintf(f, " -r -F");
        break;
    case VALUE_FOLDER:
        fprintf(f, " -x -a '(__fish_complete_directories)'");
        break;
    case VALUE_OTHER:
        fprintf(f, " -x");
        break;
    }
    fprintf(f, " -d '");
    for (const char *c = sentence; *c; c++)
        fprintf(f, strchr("'\\", *c) ? "\\%c" : "%c", *c);
    fprintf(f, "'\n");
    free(sentence);
}

static void fish_keys(const struct option_list *keys, FILE *f)
{
    fprintf(f, "\nfunction __dptrain_set\n");
    for (size_t i = 0; i < keys->n; i++) {
        const struct option *o = keys->ref[i].o;

        if (!is_first_of_key(keys, i))
            continue;
        if (!shell_has_words(o)) {
            fprintf(f, "    echo %s=\n", o->key);
            continue;
        }
        fprintf(f, "    printf '%%s\\n' %s=(string split ' ' '", o->key);
        shell_key_words(f, o);
        fprintf(f, "')\n");
    }
    fprintf(f, "end\n");
}

void manual_fish(const struct manual_program *p, int n, const struct option_list *keys, FILE *f)
{
    fprintf(f, "%s", made_by);
    fish_keys(keys, f);
    for (int i = 0; i < n; i++) {
        fprintf(f, "\n");
        if (p[i].n_verbs)
            fprintf(f, "set -g __%s_verbs", p[i].name);
        for (int v = 0; v < p[i].n_verbs; v++)
            fprintf(f, " %s", p[i].verb[v].name);
        fprintf(f, "\n");
        for (int v = 0; v < p[i].n_verbs; v++)
            fprintf(f, "complete -c %s -n __fish_use_subcommand -f -a %s -d '%s'\n", p[i].name,
                    p[i].verb[v].name, p[i].verb[v].line);
        for (size_t g = 0; g < p[i].n_groups; g++)
            for (size_t k = 0; k < p[i].group[g].n; k++)
                fish_option(&p[i], &p[i].group[g].args[k], f);
    }
}
