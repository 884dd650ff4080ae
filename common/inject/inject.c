/* inject - reads, selects and describes faults.
 *
 * All of it follows from the three tables below. */
#include "inject/inject.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"

/* ---- what there is: three tables, from which parsing, errors, log and help follow ---- */

static const struct what {
    const char *name, *does, *help;
} whats[] = {
    [INJECTION_KILL] = {"kill", "SIGKILL to itself", "the process kills itself (SIGKILL)"},
    [INJECTION_STOP] = {"stop", "SIGSTOP to itself", "the process stops itself (SIGSTOP)"},
    [INJECTION_DELAY] = {"delay", "a pause", "the rank pauses; its heartbeats go on"},
    [INJECTION_DROP] = {"drop", "", "the control connection breaks, or one way of it"},
    [INJECTION_FLIP] = {"flip", "a flipped bit",
                        "one bit of a gradient, the state or a sample is inverted"},
    [INJECTION_SKIP] = {"skip", "an all-reduce left out",
                        "the rank leaves out one all-reduce, and reduces the next one instead"},
};

enum number { NUMBER_NONE, NUMBER_OPTIONAL, NUMBER_NEEDED };

enum { POINT_SHOWN = 32 };

static const struct point {
    const char *name;
    enum number number;
    const char *of;   /* what the number counts */
    const char *when; /* as the end of a sentence */
} points[] = {
    [INJECTION_AT_GATHER] = {"gather", NUMBER_NONE, NULL, "when it was let in"},
    [INJECTION_AT_READY] = {"ready", NUMBER_NONE, NULL, "when model and data are open"},
    [INJECTION_AT_PREPARE] = {"prepare", NUMBER_OPTIONAL, "generation", "when a formation begins"},
    [INJECTION_AT_FORM] = {"form", NUMBER_OPTIONAL, "generation", "when the ranks connect"},
    [INJECTION_AT_STEP] = {"step", NUMBER_NEEDED, "step", "when the step begins"},
    [INJECTION_AT_BACKWARD] = {"backward", NUMBER_NEEDED, "step",
                               "when it computes the step's gradients"},
    [INJECTION_AT_REDUCE] = {"reduce", NUMBER_NEEDED, "step", "when it waits for the step's sums"},
    [INJECTION_AT_UPDATE] = {"update", NUMBER_NEEDED, "step", "when it has the step's sums"},
    [INJECTION_AT_STATISTICS] = {"statistics", NUMBER_OPTIONAL, "epoch",
                                 "when averaged weights get their statistics"},
    [INJECTION_AT_VALIDATE] = {"validate", NUMBER_OPTIONAL, "epoch", "when validation begins"},
    [INJECTION_AT_CHECKPOINT] = {"checkpoint", NUMBER_OPTIONAL, "step", "when a checkpoint begins"},
    [INJECTION_AT_STOP] = {"stop", NUMBER_NONE, NULL, "when it is told to stop"},
};

enum amount { AMOUNT_NONE, AMOUNT_NUMBER, AMOUNT_TIME };

/* The first row of each fault counts if the text gives no HOW, unless that row needs an amount. */
static const struct how {
    enum injection_what what;
    enum injection_how how;
    const char *name, *shown;
    enum amount amount;
    const char *help;
} hows[] = {
    {INJECTION_DELAY, INJECTION_PLAINLY, "", "3s", AMOUNT_TIME,
     "the time that it takes, in s or ms"},
    {INJECTION_DROP, INJECTION_CONNECTION, "conn", "conn", AMOUNT_NONE,
     "the connection breaks (the default)"},
    {INJECTION_DROP, INJECTION_IN, "in", "in", AMOUNT_NONE, "the rank hears nothing any more"},
    {INJECTION_DROP, INJECTION_OUT, "out", "out", AMOUNT_NONE,
     "nothing of the rank is heard any more"},
    {INJECTION_FLIP, INJECTION_BUCKET, "bucket", "bucketB", AMOUNT_NUMBER,
     "before bucket B is summed; train.audit finds it (the default, B = 0)"},
    {INJECTION_FLIP, INJECTION_REDUCED, "reduced", "reducedB", AMOUNT_NUMBER,
     "after it was summed: this rank alone is wrong, as comparing shows"},
    {INJECTION_FLIP, INJECTION_PARAM, "param", "paramB", AMOUNT_NUMBER,
     "of a parameter of bucket B, after the update: this rank alone is wrong"},
    {INJECTION_FLIP, INJECTION_SLOT, "slot", "slotB", AMOUNT_NUMBER,
     "of the optimizer's first number for such a parameter, likewise"},
    {INJECTION_FLIP, INJECTION_BATCH, "batch", "batch", AMOUNT_NONE,
     "of the first sample that the rank read for the step"},
    {INJECTION_SKIP, INJECTION_BUCKET, "bucket", "bucketB", AMOUNT_NUMBER,
     "the all-reduce of bucket B (default, B = 0)"},
};

/* ---- parsing ---- */

#define BAD(f, err, fmt, ...) err_set(err, ERR_ARG, "\"%s\": " fmt, (f)->text, __VA_ARGS__)

/* "a, b or c" of a table's names. */
struct names {
    char text[256];
    size_t len;
};

static void add_name(struct names *l, const char *name, int is_first, int is_last)
{
    int n = snprintf(l->text + l->len, sizeof l->text - l->len, "%s%s",
                     is_first  ? ""
                     : is_last ? " or "
                               : ", ",
                     name);

    l->len = (size_t)min_i64((int64_t)(sizeof l->text - 1), (int64_t)l->len + n);
}

static const char *what_names(struct names *l)
{
    for (size_t i = 0; i < ARRAY_LEN(whats); i++)
        add_name(l, whats[i].name, i == 0, i == ARRAY_LEN(whats) - 1);
    return l->text;
}

/* "stepN", "validate[N]" */
static void show_point(const struct point *p, char out[POINT_SHOWN])
{
    snprintf(out, POINT_SHOWN, "%s%s", p->name,
             p->number == NUMBER_NONE       ? ""
             : p->number == NUMBER_OPTIONAL ? "[N]"
                                            : "N");
}

static const char *point_names(struct names *l)
{
    for (size_t i = 0; i < ARRAY_LEN(points); i++) {
        char shown[POINT_SHOWN];

        show_point(&points[i], shown);
        add_name(l, shown, i == 0, i == ARRAY_LEN(points) - 1);
    }
    return l->text;
}

static const char *how_names(struct names *l, enum injection_what what)
{
    size_t n = 0, k = 0;

    for (size_t i = 0; i < ARRAY_LEN(hows); i++)
        n += hows[i].what == what;
    for (size_t i = 0; i < ARRAY_LEN(hows); i++)
        if (hows[i].what == what) {
            add_name(l, hows[i].shown, k == 0, k == n - 1);
            k++;
        }
    return n ? l->text : "nothing there";
}

/* Read digits at *s, up to max, and move *s past them.  -1: there are none, or the number is too
 * large. */
static int64_t inject_digits(const char **s, int64_t max)
{
    const char *begin = *s;
    int64_t v = 0;

    for (; **s >= '0' && **s <= '9'; (*s)++) {
        int digit = **s - '0';

        if (v > (max - digit) / 10)
            return -1;
        v = 10 * v + digit;
    }
    return *s == begin ? -1 : v;
}

static int parse_what(struct injection *f, const char **s, struct err *err)
{
    size_t n = strcspn(*s, ":");
    struct names l = {.len = 0};

    for (size_t i = 0; i < ARRAY_LEN(whats); i++)
        if (strlen(whats[i].name) == n && !strncmp(*s, whats[i].name, n)) {
            f->what = (enum injection_what)i;
            *s += n;
            return 0;
        }
    return BAD(f, err, "unknown fault \"%.*s\", want %s", (int)n, *s, what_names(&l));
}

static int inject_parse_rank(struct injection *f, const char **s, struct err *err)
{
    const char *at = *s;
    int64_t rank = -1;

    if (!strncmp(at, ":rank", 5)) {
        at += 5;
        rank = inject_digits(&at, INJECTION_MAX_RANK);
    }
    if (rank < 0 || *at != '@')
        return BAD(f, err, "want :rankK@ after \"%s\", such as %s:rank1@step50",
                   whats[f->what].name, whats[f->what].name);
    f->rank = (int)rank;
    *s = at + 1;
    return 0;
}

static const struct point *find_point(const char *s, size_t n)
{
    for (size_t i = 0; i < ARRAY_LEN(points); i++)
        if (strlen(points[i].name) == n && !strncmp(s, points[i].name, n))
            return &points[i];
    return NULL;
}

static int parse_point(struct injection *f, const char **s, struct err *err)
{
    size_t n = strcspn(*s, "0123456789:");
    const struct point *p = find_point(*s, n);
    const char *at = *s + n;
    struct names l = {.len = 0};

    if (!p)
        return BAD(f, err, "unknown point \"%.*s\", want %s", (int)strcspn(*s, ":"), *s,
                   point_names(&l));
    f->point = (enum injection_point)(p - points);
    f->number = -1;
    if (*at && *at != ':') {
        if (p->number == NUMBER_NONE)
            return BAD(f, err, "%s takes no number", p->name);
        f->number = inject_digits(&at, INT64_C(1) << 60);
        if (f->number < 0 || (*at && *at != ':'))
            return BAD(f, err, "the number of the %s is \"%.*s\", want digits", p->of,
                       (int)strcspn(*s + n, ":"), *s + n);
    } else if (p->number == NUMBER_NEEDED) {
        return BAD(f, err, "%s wants the number of the %s, such as %s50", p->name, p->of, p->name);
    }
    *s = at;
    return 0;
}

/* "3s", "250ms", "0.5s". */
static int parse_time(struct injection *f, const char *s, struct err *err)
{
    char *end;
    double v = *s >= '0' && *s <= '9' ? strtod(s, &end) : -1;
    double ms = v < 0 ? -1 : !strcmp(end, "s") ? 1000 * v : !strcmp(end, "ms") ? v : -1;

    if (!(ms >= 0 && ms <= 1000.0 * INJECTION_MAX_DELAY_S))
        return BAD(f, err, "how long is \"%s\", want a time up to %d s, such as 3s or 250ms", s,
                   INJECTION_MAX_DELAY_S);
    f->amount = (int64_t)ms;
    return 0;
}

static int parse_amount(struct injection *f, const struct how *h, const char *s, struct err *err)
{
    if (h->amount == AMOUNT_TIME)
        return parse_time(f, s, err);
    if (h->amount == AMOUNT_NUMBER) {
        const char *at = s;

        f->amount = inject_digits(&at, 1000000);
        if (f->amount < 0 || *at)
            return BAD(f, err, "%s wants the bucket's number, such as %s0", h->name, h->name);
    }
    return 0;
}

static const struct how *find_how(enum injection_what what, const char *s)
{
    for (size_t i = 0; i < ARRAY_LEN(hows); i++) {
        size_t n = strlen(hows[i].name);

        if (hows[i].what == what && !strncmp(s, hows[i].name, n) &&
            (hows[i].amount != AMOUNT_NONE || !s[n]))
            return &hows[i];
    }
    return NULL;
}

static const struct how *default_how(enum injection_what what)
{
    for (size_t i = 0; i < ARRAY_LEN(hows); i++)
        if (hows[i].what == what)
            return &hows[i];
    return NULL;
}

static int parse_how(struct injection *f, const char *s, struct err *err)
{
    struct names l = {.len = 0};
    const struct how *h = default_how(f->what);

    if (!*s && h && h->amount == AMOUNT_TIME)
        return BAD(f, err, "how long is missing: want :%s at the end", h->shown);
    if (!*s) {
        f->how = h ? h->how : INJECTION_PLAINLY;
        return 0;
    }
    s++; /* the colon */
    h = find_how(f->what, s);
    if (!h)
        return BAD(f, err, "\"%s\" at the end, want %s", s, how_names(&l, f->what));
    f->how = h->how;
    return parse_amount(f, h, s + strlen(h->name), err);
}

/* f->text is there. */
static int parse_one(struct injection *f, struct err *err)
{
    const char *s = f->text;
    int rc = parse_what(f, &s, err);

    if (rc == 0)
        rc = inject_parse_rank(f, &s, err);
    if (rc == 0)
        rc = parse_point(f, &s, err);
    if (rc == 0)
        rc = parse_how(f, s, err);
    if (rc == 0 && inject_is_of_bucket(f) && f->point != INJECTION_AT_STEP)
        rc = BAD(f, err, "a %s happens within a step: want @stepN, such as @step7",
                 whats[f->what].name);
    return rc;
}

int inject_parse(const char *text, struct injection_list *l, struct err *err)
{
    for (;;) {
        size_t n = strcspn(text, ",");
        struct injection *f = &l->item[l->n];
        int rc;

        if (l->n == INJECTION_MAX)
            return err_set(err, ERR_ARG, "more than %d faults", INJECTION_MAX);
        if (n == 0)
            return err_set(err, ERR_ARG, "an empty fault, want such as kill:rank1@step50");
        if (n >= INJECTION_TEXT)
            return err_set(err, ERR_ARG, "\"%.20s...\" has %zu bytes, want at most %d", text, n,
                           INJECTION_TEXT - 1);
        *f = (struct injection){.number = -1};
        memcpy(f->text, text, n);
        rc = parse_one(f, err);
        if (rc < 0)
            return rc;
        l->n++;
        if (!text[n])
            return 0;
        text += n + 1;
    }
}

/* ---- asking ---- */

int inject_is_of_bucket(const struct injection *f)
{
    return f->what == INJECTION_FLIP || f->what == INJECTION_SKIP;
}

int inject_check_ranks(const struct injection_list *l, int n_ranks, struct err *err)
{
    for (int i = 0; i < l->n; i++)
        if (l->item[i].rank >= n_ranks)
            return BAD(&l->item[i], err, "there is no rank %d: the job has %d, the driver is 0",
                       l->item[i].rank, n_ranks);
    return 0;
}

int inject_is_due(const struct injection *f, enum injection_point point, int64_t number)
{
    return inject_is_due_since(f, point, number, number);
}

int inject_is_due_since(const struct injection *f, enum injection_point point, int64_t first,
                        int64_t last)
{
    return !f->is_spent && f->point == point &&
           (f->number < 0 || (f->number >= first && f->number <= last));
}

void inject_select(const struct injection_list *l, int rank, enum injection_point first,
                   enum injection_point last, char out[INJECTION_MAX_TEXT])
{
    size_t len = 0;

    out[0] = '\0';
    for (int i = 0; i < l->n; i++) {
        const struct injection *f = &l->item[i];

        if (!f->is_spent && (rank < 0 || f->rank == rank) && f->point >= first && f->point <= last)
            len += (size_t)snprintf(out + len, INJECTION_MAX_TEXT - len, "%s%s", len ? "," : "",
                                    f->text);
    }
}

int inject_spend(struct injection_list *l, const char *text)
{
    for (int i = 0; i < l->n; i++)
        if (!l->item[i].is_spent && !strcmp(l->item[i].text, text)) {
            l->item[i].is_spent = 1;
            return 1;
        }
    return 0;
}

/* ---- telling ---- */

/* Describe a fault of a bucket, in a step that has a number. */
static const char *say_of_bucket(const struct injection *f, char out[INJECTION_SAY])
{
    static const char *const when[] = {
        [INJECTION_BUCKET] = ", before it is summed",
        [INJECTION_REDUCED] = ", after it was summed",
        [INJECTION_PARAM] = ", of a parameter, after the update",
        [INJECTION_SLOT] = ", of the optimizer's state, after the update",
    };

    if (f->how == INJECTION_BATCH) {
        snprintf(out, INJECTION_SAY, "%s: of a sample of step %lld", whats[f->what].does,
                 (long long)f->number);
        return out;
    }

    snprintf(out, INJECTION_SAY, "%s: bucket %lld of step %lld%s", whats[f->what].does,
             (long long)f->amount, (long long)f->number,
             f->what == INJECTION_SKIP ? "" : when[f->how]);
    return out;
}

const char *inject_say(const struct injection *f, char out[INJECTION_SAY])
{
    const struct point *p = &points[f->point];
    char how[64] = "", number[48] = "";

    if (inject_is_of_bucket(f))
        return say_of_bucket(f, out);
    if (f->what == INJECTION_DELAY)
        snprintf(how, sizeof how, " of %g s", 1e-3 * (double)f->amount);
    else if (f->what == INJECTION_DROP)
        snprintf(how, sizeof how, "%s",
                 f->how == INJECTION_IN    ? "what it is sent is dropped from now on,"
                 : f->how == INJECTION_OUT ? "what it sends is dropped from now on,"
                                           : "its control connection is cut");
    if (f->number >= 0)
        snprintf(number, sizeof number, " (%s %lld)", p->of, (long long)f->number);
    snprintf(out, INJECTION_SAY, "%s%s %s%s", whats[f->what].does, how, p->when, number);
    return out;
}

void inject_help(FILE *out)
{
    fprintf(out,
            "Faults on purpose (--inject WHAT:rankK@POINT[N][:HOW]). WHAT, and HOW below it:\n");
    for (size_t i = 0; i < ARRAY_LEN(whats); i++) {
        fprintf(out, "  %-13s %s\n", whats[i].name, whats[i].help);
        for (size_t k = 0; k < ARRAY_LEN(hows); k++)
            if (hows[k].what == (enum injection_what)i)
                fprintf(out, "    :%-10s %s\n", hows[k].shown, hows[k].help);
    }
    fprintf(out, "POINT, when it is, and what its number N chooses:\n");
    for (size_t i = 0; i < ARRAY_LEN(points); i++) {
        char shown[POINT_SHOWN];

        show_point(&points[i], shown);
        fprintf(out, "  %-13s %s%s%s\n", shown, points[i].when, points[i].of ? "; N: " : "",
                points[i].of ? points[i].of : "");
    }
}
