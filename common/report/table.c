/* The closing table and the line per epoch.
 * A number that was not measured is shown as '-'. */
#include "report/table.h"

#include <math.h>

#include "base/util.h"
#include "report/meter.h"

void table_add(struct table *t, const struct session_epoch *f)
{
    t->row[t->n_rows % TABLE_MAX_ROWS] = *f;
    t->n_rows++;
}

const struct session_epoch *table_last(const struct table *t)
{
    return t->n_rows ? &t->row[(t->n_rows - 1) % TABLE_MAX_ROWS] : NULL;
}

/* Write a number by `fmt`, or "-" if it was not measured. */
static const char *table_number(char *out, size_t cap, const char *fmt, double v)
{
    if (v == NOT_MEASURED)
        snprintf(out, cap, "-");
    else
        snprintf(out, cap, fmt, v);
    return out;
}

static const char *table_percent(char *out, size_t cap, double v)
{
    return table_number(out, cap, "%.2f %%", v == NOT_MEASURED ? v : 100 * v);
}

static const char *loss_text(char *out, size_t cap, double v)
{
    if (v == NOT_MEASURED)
        return table_number(out, cap, "", v);
    format_loss(out, cap, v);
    return out;
}

static double table_validated(const struct session_epoch *r, double v)
{
    return r->is_validated ? v : NOT_MEASURED;
}

static void table_print_row(const struct session_epoch *r, FILE *f)
{
    char loss[32], val_loss[32], accuracy[32], seconds[32], rate[32];

    format_count(rate, sizeof rate, r->samples_per_second);
    fprintf(f, "%7lld %14s %16s %11s %9s %10s\n", (long long)r->epoch,
            loss_text(loss, sizeof loss, r->train_loss),
            loss_text(val_loss, sizeof val_loss, table_validated(r, r->validation_loss)),
            table_percent(accuracy, sizeof accuracy, table_validated(r, r->validation_accuracy)),
            table_number(seconds, sizeof seconds, "%.2f", r->train_seconds), rate);
}

static void table_print_rows(const struct table *t, FILE *f)
{
    int64_t first = max_i64(0, t->n_rows - TABLE_MAX_ROWS);

    if (!t->n_rows)
        return;
    fprintf(f, "%7s %14s %16s %11s %9s %10s\n", "epoch", "training loss", "validation loss",
            "accuracy", "seconds", "samples/s");
    if (first > 0)
        fprintf(f, "%7s (%lld epochs before these are in events.jsonl)\n", "...", (long long)first);
    for (int64_t i = first; i < t->n_rows; i++)
        table_print_row(&t->row[i % TABLE_MAX_ROWS], f);
    fprintf(f, "\n");
}

void table_print(const struct table *t, const struct table_end *end, FILE *f)
{
    const struct session_epoch *last = table_last(t);
    char total[32], loss[32], top5[32] = "", goodput[256], energy[512];

    table_print_rows(t, f);
    fprintf(f, "%s", end->plot ? end->plot : "");
    format_duration(total, sizeof total, end->seconds);
    if (last && last->is_validated && last->has_top5)
        snprintf(top5, sizeof top5, ", top-5 %.2f %%", 100 * last->validation_top5);
    if (last && last->is_validated && last->validation_accuracy != NOT_MEASURED)
        fprintf(f, "accuracy  %.2f %%%s on the validation set, after %s\n",
                100 * last->validation_accuracy, top5, total);
    else if (last && last->is_validated)
        fprintf(f, "loss      %s on the validation set, after %s\n",
                loss_text(loss, sizeof loss, last->validation_loss), total);
    else
        fprintf(f, "took      %s\n", total);
    table_goodput_text(&end->account, goodput, sizeof goodput);
    if (goodput[0])
        fprintf(f, "goodput   %s\n", goodput);
    if (end->cost > 0 && last)
        fprintf(f, "cost      %.2f, %.2f an epoch\n", end->cost, end->cost / (double)last->epoch);
    else if (end->cost > 0)
        fprintf(f, "cost      %.2f\n", end->cost);
    table_energy_text(&end->energy, end->no_energy, energy, sizeof energy);
    if (energy[0])
        fprintf(f, "energy    %s\n", energy);
    if (end->model_path)
        fprintf(f, "model     %s\n", end->model_path);
    if (end->next)
        fprintf(f, "next      %s\n", end->next);
    fflush(f);
}

/* ", 3 steps skipped, 2 samples left out, loss scale 32768" */
static void skipped_text(const struct session_epoch *f, char *out, size_t cap)
{
    int n = 0;

    out[0] = 0;
    if (f->n_skipped)
        n = snprintf(out, cap, ", %lld step%s skipped", (long long)f->n_skipped,
                     f->n_skipped == 1 ? "" : "s");
    if (f->n_left_out)
        n += snprintf(out + n, cap - (size_t)n, ", %lld sample%s left out",
                      (long long)f->n_left_out, f->n_left_out == 1 ? "" : "s");
    if (f->loss_scale > 0)
        snprintf(out + n, cap - (size_t)n, ", loss scale %g", f->loss_scale);
}

void table_data_wait_text(double part, int cause, int rank, char *out, size_t cap)
{
    static const char *const advice[] = {
        [WAIT_UNKNOWN] = "",
        [WAIT_READING] = ": set data.workers higher",
        [WAIT_DISK] = ": the disk with the data is slow",
        [WAIT_CORES] = ": the reading threads get too little of the processors",
    };
    const double told = 0.1;
    const int is_known = cause >= 0 && cause < (int)ARRAY_LEN(advice);

    out[0] = 0;
    if (part >= told && cause != WAIT_FEW) /* nothing helps against that */
        snprintf(out, cap, "waiting for data %.0f %% of the time on rank %d%s", 100 * part, rank,
                 advice[is_known ? cause : WAIT_UNKNOWN]);
}

void table_goodput_text(const struct account_times *t, char *out, size_t cap)
{
    const double least = 0.01, wall = (double)account_wall_ns(t);
    const char *before = "; ";
    size_t n = 0;

    out[0] = 0;
    if (wall <= 0)
        return;
    n = (size_t)snprintf(out, cap, "%.1f %% of the time", 100 * account_goodput(t));
    for (int i = ACCOUNT_PRODUCTIVE + 1; i < ACCOUNT_KINDS && n < cap; i++) {
        double part = (double)t->ns[i] / wall;

        if (part < least)
            continue;
        n += (size_t)snprintf(out + n, cap - n, "%s%s %.1f %%", before, account_key(i), 100 * part);
        before = ", ";
    }
}

static const char *energy_text(char *out, size_t cap, double joules)
{
    static const struct {
        double from;
        const char *unit;
    } units[] = {{1e9, "GJ"}, {1e6, "MJ"}, {1e3, "kJ"}, {0, "J"}};
    size_t i = 0;

    while (joules < units[i].from)
        i++;
    snprintf(out, cap, "%.3g %s", joules / fmax(1, units[i].from), units[i].unit);
    return out;
}

void table_energy_text(const struct energy_sums *s, const char *missing, char *out, size_t cap)
{
    char packages[32], gpus[32], sum[32];
    const int64_t package = s->mj[ENERGY_PACKAGE], gpu = s->mj[ENERGY_GPU];
    size_t n = 0;

    out[0] = 0;
    energy_text(packages, sizeof packages, energy_joules(s, ENERGY_PACKAGE));
    energy_text(gpus, sizeof gpus, energy_joules(s, ENERGY_GPU));
    energy_text(sum, sizeof sum, 1e-3 * (double)(package + gpu));
    if (package > 0 && gpu > 0)
        n = (size_t)snprintf(out, cap, "%s: %s of packages, %s of GPUs", sum, packages, gpus);
    else if (package > 0)
        n = (size_t)snprintf(out, cap, "%s of processors' packages", packages);
    else if (gpu > 0)
        n = (size_t)snprintf(out, cap, "%s of GPUs", gpus);
    if (missing && n < cap)
        snprintf(out + n, cap - n, "%snot known: %s", n ? "; " : "", missing);
}

/* ", validation loss 1.4697, perplexity 4.348, accuracy 56.32 %" */
static void validation_text(const struct session_epoch *f, char *out, size_t cap)
{
    char loss[32], perplexity[48] = "", accuracy[48] = "", top5[32] = "";

    out[0] = 0;
    if (!f->is_validated)
        return;
    if (f->tokens_per_second > 0) /* a model of tokens */
        snprintf(perplexity, sizeof perplexity, ", perplexity %.4g", exp(f->validation_loss));
    if (f->validation_accuracy != NOT_MEASURED)
        snprintf(accuracy, sizeof accuracy, ", accuracy %.2f %%", 100 * f->validation_accuracy);
    if (f->has_top5)
        snprintf(top5, sizeof top5, ", top-5 %.2f %%", 100 * f->validation_top5);
    snprintf(out, cap, ", validation loss %s%s%s%s",
             loss_text(loss, sizeof loss, f->validation_loss), perplexity, accuracy, top5);
}

/* ", averaged weights loss 1.4650, accuracy 56.40 %" */
static void average_text(const struct session_epoch *f, char *out, size_t cap)
{
    char loss[32], accuracy[48] = "";

    out[0] = 0;
    if (!f->is_validated || !f->has_average)
        return;
    if (f->average_validation_accuracy != NOT_MEASURED)
        snprintf(accuracy, sizeof accuracy, ", accuracy %.2f %%",
                 100 * f->average_validation_accuracy);
    snprintf(out, cap, ", averaged weights loss %s%s",
             loss_text(loss, sizeof loss, f->average_validation_loss), accuracy);
}

void table_epoch_text(const struct session_epoch *f, int64_t n_epochs, char *out, size_t cap)
{
    char rate[32], loss[32], validation[128], average[128], skipped[160], wait[128];

    format_count(rate, sizeof rate, f->samples_per_second);
    validation_text(f, validation, sizeof validation);
    average_text(f, average, sizeof average);
    skipped_text(f, skipped, sizeof skipped);
    table_data_wait_text(f->data_wait_share, f->data_wait_cause, f->data_wait_rank, wait,
                         sizeof wait);
    snprintf(out, cap,
             "epoch %lld/%lld: step %lld, training loss %s%s%s, %.2f s, %s samples/s%s%s%s",
             (long long)f->epoch, (long long)n_epochs, (long long)f->step,
             loss_text(loss, sizeof loss, f->train_loss), validation, average, f->train_seconds,
             rate, skipped, wait[0] ? ", " : "", wait);
}
