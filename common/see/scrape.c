/* One row for each metric of the run and of a rank: its name, its help, and where its value is.
 * tests/see/test_scrape.c has promtool check the names; deploy/grafana/ draws them. */
#include "see/scrape.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "report/json_text.h"

/* ---- labels and numbers ---- */

static void scrape_label(struct buf *out, const char *text)
{
    json_t *clean = json_text(text ? text : "");

    for (const char *s = json_string_value(clean); *s; s++) {
        if (*s == '\\' || *s == '"')
            buf_append(out, "\\", 1);
        buf_append(out, *s == '\n' ? "\\n" : s, *s == '\n' ? 2 : 1);
    }
    json_decref(clean);
}

/* printf's own "-nan" of one architecture would lose the whole scrape. */
static void scrape_number(struct buf *out, double v)
{
    if (isnan(v))
        buf_printf(out, " NaN\n");
    else if (isinf(v))
        buf_printf(out, v > 0 ? " +Inf\n" : " -Inf\n");
    else
        buf_printf(out, " %.12g\n", v);
}

static void scrape_head(struct buf *out, const char *name, const char *type, const char *help)
{
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* ---- the run ---- */

#define UNKNOWN (-HUGE_VAL) /* no line */

struct scraped {
    const struct status *s;
    double wall_s;
};

static double scrape_if(int is_known, double v) { return is_known ? v : UNKNOWN; }

/* A number that was told, and then became undefined, is NaN; one never told is NaN in the struct,
 * too, so the steps decide. */
static double scrape_told(const struct scraped *x, double v)
{
    return scrape_if(x->s->latest.n_steps > 0, v);
}

#define ROW(name) static double scraped_##name(const struct scraped *x)

ROW(steps) { return (double)x->s->latest.n_steps; }
ROW(samples) { return (double)x->s->latest.n_samples; }
ROW(step) { return (double)max_i64(x->s->step, 0); }
ROW(step_goal)
{
    const int64_t total = latest_total_steps(&x->s->latest);

    return scrape_if(total > 0, (double)total);
}
ROW(epoch) { return (double)max_i64(x->s->epoch, 0); }
ROW(loss) { return scrape_told(x, x->s->latest.loss); }
ROW(validation_loss)
{
    return scrape_if(!isnan(x->s->latest.validation_loss), x->s->latest.validation_loss);
}
ROW(validation_accuracy)
{
    const double v = x->s->latest.validation_accuracy;

    return scrape_if(isfinite(v), v);
}
ROW(learning_rate)
{
    return scrape_if(!isnan(x->s->latest.learning_rate), x->s->latest.learning_rate);
}
ROW(grad_norm) { return scrape_if(!isnan(x->s->latest.grad_norm), x->s->latest.grad_norm); }
ROW(speed)
{
    return scrape_if(isfinite(x->s->latest.samples_per_second), x->s->latest.samples_per_second);
}
ROW(last_step) { return scrape_if(x->s->step_age_s >= 0, x->wall_s - x->s->step_age_s); }
ROW(eta) { return scrape_if(isfinite(x->s->eta_s), x->s->eta_s); }
ROW(ranks) { return x->s->n_here; }
ROW(ranks_wanted) { return x->s->n_ranks; }
ROW(lost) { return (double)x->s->latest.n_lost; }
ROW(recoveries) { return (double)x->s->latest.n_recovered; }
ROW(generation) { return (double)x->s->generation; }
ROW(goodput)
{
    return scrape_if(account_wall_ns(&x->s->account) > 0, account_goodput(&x->s->account));
}
ROW(data_wait) { return x->s->data_wait_share; }

static const struct {
    const char *name, *type, *help;
    double (*value)(const struct scraped *x);
} of_run[] = {
    {"dptrain_steps_total", "counter", "Steps that this driver has led, each counted once.",
     scraped_steps},
    {"dptrain_samples_total", "counter", "Samples of these steps, over all ranks.",
     scraped_samples},
    {"dptrain_step", "gauge", "Steps of the run that are done; a lost rank may set it back by one.",
     scraped_step},
    {"dptrain_step_goal", "gauge", "Steps of the whole run.", scraped_step_goal},
    {"dptrain_epoch", "gauge", "The present epoch, from 1.", scraped_epoch},
    {"dptrain_loss", "gauge", "Training loss of the epoch so far.", scraped_loss},
    {"dptrain_validation_loss", "gauge", "Loss of the last validation.", scraped_validation_loss},
    {"dptrain_validation_accuracy_ratio", "gauge",
     "Part of the last validation's targets that were predicted right.",
     scraped_validation_accuracy},
    {"dptrain_learning_rate", "gauge", "Learning rate of the last reported step.",
     scraped_learning_rate},
    {"dptrain_grad_norm", "gauge", "Norm of the last reported step's summed gradient.",
     scraped_grad_norm},
    {"dptrain_samples_per_second", "gauge", "Samples a second, over all ranks.", scraped_speed},
    {"dptrain_last_step_timestamp_seconds", "gauge",
     "When the last step ended, or the ranks formed, in Unix time.", scraped_last_step},
    {"dptrain_eta_seconds", "gauge", "Time until the last step, at the pace so far.", scraped_eta},
    {"dptrain_ranks", "gauge", "Ranks that are connected.", scraped_ranks},
    {"dptrain_ranks_wanted", "gauge", "Ranks of the formation.", scraped_ranks_wanted},
    {"dptrain_ranks_lost_total", "counter", "Ranks that were lost.", scraped_lost},
    {"dptrain_recoveries_total", "counter", "Formations after a loss that went on to train.",
     scraped_recoveries},
    {"dptrain_generation", "gauge", "Number of the formation.", scraped_generation},
    {"dptrain_goodput_ratio", "gauge",
     "Part of the wall time that went into steps which were kept.", scraped_goodput},
    {"dptrain_data_wait_ratio", "gauge", "Part of the epoch in which rank 0 waited for its data.",
     scraped_data_wait},
};

static void scrape_run(const struct scraped *x, struct buf *out)
{
    for (size_t i = 0; i < ARRAY_LEN(of_run); i++) {
        const double v = of_run[i].value(x);

        if (v == UNKNOWN)
            continue;
        scrape_head(out, of_run[i].name, of_run[i].type, of_run[i].help);
        buf_printf(out, "%s{run=\"", of_run[i].name);
        scrape_label(out, x->s->name);
        buf_printf(out, "\"}");
        scrape_number(out, v);
    }
}

/* ---- energy ---- */

/* One metric with the counter as a label: their sum is the run's energy. */
static void scrape_energy(const struct status *s, struct buf *out)
{
    static const char name[] = "dptrain_energy_joules_total";

    if (!energy_is_known(&s->energy))
        return;
    scrape_head(out, name, "counter",
                "Energy of the run, by counter: processors' packages, GPUs; resumes go on.");
    for (int i = 0; i < ENERGY_KINDS; i++) {
        if (s->energy.mj[i] == 0)
            continue;
        buf_printf(out, "%s{run=\"", name);
        scrape_label(out, s->name);
        buf_printf(out, "\",source=\"%s\"}", energy_key(i));
        scrape_number(out, energy_joules(&s->energy, i));
    }
}

/* ---- the ranks ---- */

static double rank_step(const struct status_rank *r) { return (double)r->step; }

static double rank_step_time(const struct status_rank *r)
{
    return scrape_if(r->step_ms > 0, 1e-3 * r->step_ms);
}

static double rank_heard(const struct status_rank *r) { return r->heard_s; }

static double rank_slowness(const struct status_rank *r)
{
    return scrape_if(r->factor > 0, r->factor);
}

static double rank_straggler(const struct status_rank *r) { return r->is_straggler; }

/* A number of struct usage, which is 0 if it is not known, in another unit. */
static double scrape_used(int64_t v, double unit) { return scrape_if(v > 0, unit * (double)v); }

#define USED(name, member, unit)                           \
    static double rank_##name(const struct status_rank *r) \
    {                                                      \
        return scrape_used(r->usage.member, unit);         \
    }

USED(memory, resident_kib, 1024)
USED(cpu, cpu_permille, 1e-3)
USED(gpu, gpu_permille, 1e-3)
USED(gpu_memory, gpu_memory_kib, 1024)
USED(gpu_heat, gpu_celsius, 1)
USED(gpu_power, gpu_mw, 1e-3)
USED(gpu_clock, gpu_clock_mhz, 1e6)

static const struct {
    const char *name, *help;
    double (*value)(const struct status_rank *r);
} of_rank[] = {
    {"dptrain_rank_step", "Steps that the rank has done, as last heard.", rank_step},
    {"dptrain_rank_step_seconds", "Wall time of a step of the rank, mean of the latest.",
     rank_step_time},
    {"dptrain_rank_heard_age_seconds", "Time since the driver last heard of the rank.", rank_heard},
    {"dptrain_rank_slowness_ratio", "Time of the rank's own work divided by the median rank's.",
     rank_slowness},
    {"dptrain_rank_straggler", "1: the rank is reported as a straggler.", rank_straggler},
    {"dptrain_rank_resident_memory_bytes", "Resident memory of the rank's process.", rank_memory},
    {"dptrain_rank_cpu_ratio", "CPUs that the rank's process keeps busy; 2 are two whole ones.",
     rank_cpu},
    {"dptrain_rank_gpu_ratio", "Part of the time in which the rank's GPU computes.", rank_gpu},
    {"dptrain_rank_gpu_memory_bytes", "Memory in use on the rank's GPU, by all processes.",
     rank_gpu_memory},
    {"dptrain_rank_gpu_temperature_celsius", "Temperature of the rank's GPU.", rank_gpu_heat},
    {"dptrain_rank_gpu_power_watts", "Power that the rank's GPU draws.", rank_gpu_power},
    {"dptrain_rank_gpu_clock_hertz", "Clock of the GPU's multiprocessors.", rank_gpu_clock},
};

static void scrape_rank(const struct status *s, size_t i, const struct status_rank *r,
                        struct buf *out)
{
    const double v = of_rank[i].value(r);

    if (v == UNKNOWN)
        return;
    buf_printf(out, "%s{run=\"", of_rank[i].name);
    scrape_label(out, s->name);
    buf_printf(out, "\",rank=\"%d\",host=\"", r->rank);
    scrape_label(out, r->host);
    buf_printf(out, "\"}");
    scrape_number(out, v);
}

static void scrape_ranks(const struct status *s, struct buf *out)
{
    for (size_t i = 0; i < ARRAY_LEN(of_rank); i++) {
        scrape_head(out, of_rank[i].name, "gauge", of_rank[i].help);
        for (int k = 0; k < s->n; k++)
            if (s->rank[k].role != STATUS_MISSING && s->rank[k].rank >= 0)
                scrape_rank(s, i, &s->rank[k], out);
    }
}

/* Which stage the driver is in, and its version: constant 1, the text in a label. */
static void scrape_build(const struct status *s, struct buf *out)
{
    scrape_head(out, "dptrain_build_info", "gauge", "Version of the driver; the value is 1.");
    buf_printf(out, "dptrain_build_info{run=\"");
    scrape_label(out, s->name);
    buf_printf(out, "\",version=\"" DPTRAIN_VERSION "\"} 1\n");
}

void scrape_put(const struct status *s, double wall_s, struct buf *out)
{
    const struct scraped x = {s, wall_s};

    scrape_build(s, out);
    scrape_run(&x, out);
    scrape_energy(s, out);
    scrape_ranks(s, out);
}

/* ---- health ---- */

int scrape_health(const struct status *s, double patience_s, struct buf *out)
{
    const int is_stuck = !strcmp(s->stage, "train") && s->step_age_s > patience_s;
    const int is_well = !is_stuck && !s->latest.has_failed;
    char reason[128] = "";
    json_t *o;
    char *text;

    if (s->latest.has_failed)
        snprintf(reason, sizeof reason, "the job has failed; its events have the reason");
    else if (is_stuck)
        snprintf(reason, sizeof reason, "no step has ended for %.0f s; it may take %.0f s",
                 s->step_age_s, patience_s);
    o = json_pack("{s:s, s:o, s:s, s:I, s:o}", "status",
                  s->latest.has_failed ? "failed"
                  : is_stuck           ? "stuck"
                                       : "ok",
                  "reason", is_well ? json_null() : json_string(reason), "stage", s->stage, "step",
                  (json_int_t)s->step, "step_age_seconds",
                  s->step_age_s < 0 ? json_null() : json_real(s->step_age_s));
    text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(9));
    ASSERT(text);
    buf_printf(out, "%s\n", text);
    free(text);
    json_decref(o);
    return is_well;
}
