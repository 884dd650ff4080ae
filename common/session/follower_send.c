/* Messages to the driver: Hello, heartbeats, Goodbye.
 *
 * follower_report.c sends the engine's answers. */
#include "base/util.h"
#include "session/follower_impl.h"

static void follower_send(struct follower *f, const Wire__Control *m)
{
    struct err err;
    struct frame *frame = msg_frame(m, &err);
    ASSERT(frame); /* all of these are small */
    queue_send(&f->out, CONN, frame);
}

/* Add to Hello the state that is kept for a driver that goes on with the run.  The follower asks
 * for its former rank. */
static void put_kept(const struct follower *f, Wire__Hello *h, struct arena *a)
{
    const struct kept *k = &f->kept;
    ASSERT(f->has_engine && k->leader);
    if (!f->is_spare)
        h->rank = f->rank;
    h->run = msg_text(a, k->run, 64);
    h->run_job = msg_text(a, k->job, HASH_TEXT_LEN);
    h->term = k->term;
    h->leader = msg_text(a, k->leader, MSG_MAX_NAME);
    h->formed = f->generation;
    h->step =
        f->generation > 0 ? max_i64(k->step, f->at.step) : 0; /* a step may have ended since */
    h->in_step = k->is_in_step;
    h->form_term = k->form.term;
    h->form_generation = k->form.generation;
    h->form_ranks = k->form.n_ranks;
    h->form_rank = k->form_rank;
    h->entered = k->entered;
    h->wrong = k->is_wrong;
    h->form_standby = msg_text(a, k->form.standby, VOTERS_ID);
}

void follower_send_hello(struct follower *f, const struct follower_options *o)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Hello h = WIRE__HELLO__INIT;
    struct arena a;

    arena_init(&a);
    h.protocol = MSG_PROTOCOL;
    h.version = msg_text(&a, DPTRAIN_VERSION, 64);
    h.rank = o->rank < 0 ? -1 : o->rank;
    if (f->has_engine)
        put_kept(f, &h, &a);
    h.host = msg_text(&a, o->host && *o->host ? o->host : "?", MSG_MAX_NAME);
    h.host_id = msg_text(&a, o->host_id && *o->host_id ? o->host_id : h.host, 64);
    h.pid = o->pid;
    h.pid_space = o->pid_space;
    h.device = msg_text(&a, f->has_engine ? f->device : o->device ? o->device : "auto", 64);
    h.advertise = msg_text(&a, o->advertise, 64);
    h.launch = msg_text(&a, o->launch, MSG_MAX_LAUNCH);
    h.no_gpu = msg_text(&a, o->no_gpu, MSG_MAX_TEXT);
    h.n_gpus = (size_t)o->n_gpus;
    h.gpus = arena_alloc(&a, (h.n_gpus + 1) * sizeof *h.gpus);
    for (size_t i = 0; i < h.n_gpus; i++) {
        h.gpus[i] = arena_alloc(&a, sizeof **h.gpus);
        wire__gpu__init(h.gpus[i]);
        h.gpus[i]->uuid = msg_text(&a, o->gpus[i].uuid, 64);
        h.gpus[i]->name = msg_text(&a, o->gpus[i].name, 128);
        h.gpus[i]->index = o->gpus[i].index;
        h.gpus[i]->bus = msg_text(&a, o->gpus[i].bus, 32);
    }
    h.n_backends = (size_t)o->n_backends;
    h.backends = arena_alloc(&a, (h.n_backends + 1) * sizeof *h.backends);
    for (size_t i = 0; i < h.n_backends; i++)
        h.backends[i] = msg_text(&a, o->backends[i], 64);
    m.body_case = WIRE__CONTROL__BODY_HELLO;
    m.hello = &h;
    follower_send(f, &m);
    arena_fini(&a);
}

/* The time in this phase: by the engine's own clock if it is known, else since this thread noticed
 * the phase. */
static int64_t phase_ms(const struct follower *f)
{
    if (f->at.since_ns > 0)
        return max_i64(0, (f->now_ns - f->at.since_ns) / 1000000);
    return max_i64(0, f->now_ms - f->moved_ms);
}

void follower_send_beat(struct follower *f)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    struct arena a;
    ASSERT(f->stage == STAGE_JOINED && f->beat_ms > 0);

    arena_init(&a);
    Wire__Heartbeat *h = convert_beat(&f->at, f->generation, &a);
    h->phase_ms = phase_ms(f);
    h->first_step = f->has_stepped;
    h->rss_mib = f->rss_mib > 0 ? f->rss_mib : 0;
    h->clock_ns = max_i64(f->now_ns, 0);
    h->echo_ns = max_i64(f->echo_ns, 0);
    h->held_ns = f->echo_ns > 0 ? f->now_ns - f->echo_at_ns : 0;
    m.generation = f->generation;
    m.body_case = WIRE__CONTROL__BODY_HEARTBEAT;
    m.heartbeat = h;
    f->next_beat_ms = f->now_ms + f->beat_ms;
    follower_send(f, &m);
    arena_fini(&a);
}

void follower_send_goodbye(struct follower *f, const char *text, int is_polite)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Goodbye g = WIRE__GOODBYE__INIT;
    const int tells = *f->source && !f->is_notice_sent;
    struct arena a;

    arena_init(&a);
    g.text = msg_text(&a, text, MSG_MAX_TEXT);
    g.polite = is_polite != 0;
    g.source = msg_text(&a, tells ? f->source : "", MSG_MAX_SOURCE);
    g.seconds = tells ? f->goes_in_s : 0;
    f->is_notice_sent |= tells;
    m.generation = f->generation;
    m.body_case = WIRE__CONTROL__BODY_GOODBYE;
    m.goodbye = &g;
    follower_send(f, &m);
    arena_fini(&a);
}
