/* form.pml - forming a generation, aborting it, and forming again: session/driver, session/follower
 * and train/engine, as a model for spin.
 *
 *     tests/session/form_model.sh spin cc             half a minute
 *     tests/session/form_model.sh spin cc --long      more crashes, more steps
 *
 * The driver is rank 0; N followers are the others.  Each rank is a session and an engine, two
 * threads that talk through queues; connections keep their order and may break at any point, with
 * what was on the way.  Engines meet in collectives, which some may complete and others see broken.
 * Followers crash and come back, and the driver gives a formation up for no reason, as often as
 * said below; who is missing may be waited for, or not.
 *
 * What spin shows for every interleaving (and what breaks when one of the rules marked (1) to (3) is
 * left out; form_model.sh --mutants tries it):
 *   - no state in which nobody can go on: the driver always comes to the end of the training;
 *   - generations train in order, each alone;
 *   - no session gets a command or an Abort that it would have to call a breach of the protocol;
 *   - all ranks of a formation hold the same step when they have formed, the newest that any of them
 *     had, and at most one less than anybody ever held;
 *   - who answered did what was asked, in this generation.
 *
 * What keeps the search small, and leaves nothing out:
 *   - what a session or an engine does with one message is one step: nobody else sees its middle, and
 *     what happens to it there might as well have happened before;
 *   - each connection is a queue of its own: no order between those of two followers is remembered;
 *   - followers are alike: the first to crash is rank 1;
 *   - what its receiver would ignore, whenever it comes, is not sent, or dropped once it is so; with
 *     -DLAZY=1 it is sent, which shows that the rules that ignore it are needed;
 *   - what nobody will read any more is 0: a generation that every engine is past (forget), and the
 *     variables that the next message fills. */

#ifndef N
#define N 2 /* followers; at most 2 */
#endif
#ifndef CRASHES
#define CRASHES 2
#endif
#ifndef GIVE_UPS
#define GIVE_UPS 1
#endif
#define RANKS (N + 1)
#ifndef STEPS
#define STEPS 2 /* to train */
#endif
#ifndef LAZY
#define LAZY 0
#endif
#define MOST_G (2 + 2 * CRASHES + GIVE_UPS) /* generations, and none: a crash may cost two */
#define BIT(k) (1 << (k))

mtype = { hello, gone, prepare, form, train, abort_, prepared, formed, trained, fault };

/* ---- the network: a connection for each follower, in its place another after a crash ---- */

chan up[RANKS] = [8] of { mtype, byte, byte };   /* message, generation, step */
chan down[RANKS] = [8] of { mtype, byte };       /* message, generation */
byte life[RANKS];                                /* which process, and so which connection */

inline clear(queue)
{
    do
    :: nempty(queue) -> queue?_, _, _
    :: empty(queue) -> break
    od
}

/* ---- the driver's stage and generation ---- */

#define WAIT 0
#define PREPARE 1
#define FORM 2
#define TRAIN 3

byte stage = WAIT, g_now;

#define is_past(g) (g < g_now || stage == WAIT) /* for the driver */

/* ---- the engines ---- */

chan cmd[RANKS] = [3] of { mtype, byte };       /* command, generation */
chan rep[RANKS] = [4] of { mtype, byte, byte }; /* report, generation, step held */
byte posted[RANKS], canceled[RANKS], step[RANKS];
byte at[RANKS];                                 /* the generation that it last prepared */

byte members[MOST_G]; /* of each generation */
byte left_[MOST_G];   /* have left its collectives */
byte met_form[MOST_G], met_train[MOST_G];
byte start[MOST_G];   /* the step that all take when they form */
byte oldest;          /* that any engine may still be in */
byte newest_g, newest_step; /* trained */

inline post(k, m, g)
{
    posted[k] = g;
    cmd[k]!m, g;
}

/* To a session that has not been told to leave this generation: others drop it. */
inline tell_session(k, m, g)
{
    if
    :: LAZY || g > canceled[k] -> rep[k]!m, g, step[k]
    :: else
    fi
}

inline engine_abort(k) { canceled[k] = posted[k]; }

/* Generations that no engine is in, or has a command of. */
inline forget()
{
    d_step {
        do
        :: at[0] > oldest && at[1] > oldest && at[N] > oldest ->
            members[oldest] = 0; left_[oldest] = 0; start[oldest] = 0;
            met_form[oldest] = 0; met_train[oldest] = 0;
            oldest++
        :: else -> break
        od
    }
}

inline applied(k, g)
{
    assert(g >= newest_g);
    newest_g = g;
    step[k]++;
    newest_step = (step[k] > newest_step -> step[k] : newest_step);
}

proctype Engine(byte k)
{
    mtype m;
    byte g, mine;
end:
    do
    :: atomic { cmd[k]?m, g ->
        if
        :: g <= canceled[k] -> /* before it began */
            left_[g] = left_[g] | (members[g] & BIT(k));
            tell_session(k, fault, g);
            m = 0
        :: else ->
            if
            :: m == prepare -> at[k] = g; forget(); tell_session(k, prepared, g); m = 0
            :: m == form -> met_form[g] = met_form[g] | BIT(k)
            :: m == train -> met_train[g] = met_train[g] | BIT(k)
            fi
        fi;
        mine = (m -> life[k] : 0);
        g = (m -> g : 0); }
        if
        :: m == 0
        :: atomic { m != 0 && life[k] != mine -> m = 0; g = 0; mine = 0; }
        :: atomic { m == form && life[k] == mine && met_form[g] == members[g] ->
            assert(step[k] <= start[g]); /* the source is the newest */
            step[k] = start[g];
            tell_session(k, formed, g);
            m = 0; g = 0; mine = 0; }
        :: atomic { m == train && life[k] == mine && met_train[g] == members[g] ->
            applied(k, g);
            tell_session(k, trained, g);
            m = 0; g = 0; mine = 0; }
        :: atomic { m != 0 && life[k] == mine && (g <= canceled[k] || (left_[g] & members[g])) ->
            left_[g] = left_[g] | (members[g] & BIT(k));
            tell_session(k, fault, g);
            m = 0; g = 0; mine = 0; }
        fi
    od
}

/* ---- a follower ---- */

byte n_crashes = CRASHES;

inline leave_all(k)
{
    d_step {
        i = oldest;
        do
        :: i <= g_now -> left_[i] = left_[i] | (members[i] & BIT(k)); i++
        :: else -> break
        od;
    }
}

proctype Follower(byte k)
{
    mtype m, doing;
    byte g, s, gen, aborted, waiting, i;

    atomic { life[k] = 1; up[k]!hello, 0, 0; }
end:
    do
    :: atomic { down[k]?m, g ->
        if
        :: m == prepare ->
            assert(doing == 0 && g > gen && g > aborted);
            gen = g; waiting = 0; doing = m; post(k, m, g)
        :: m == abort_ ->
            assert(gen > 0 && g == gen);
            aborted = g; waiting = 1; doing = 0; engine_abort(k);
            if
            :: !LAZY -> clear(rep[k])
            :: else
            fi
        :: m == form || m == train ->
            assert(!waiting && doing == 0 && g == gen); /* of no formation that is gone */
            doing = m; post(k, m, g)
        fi;
        m = 0; g = 0; }
    :: atomic { rep[k]?m, g, s ->
        if
        :: g <= aborted -> skip /* of the past */
        :: g > aborted && !LAZY && is_past(g) -> doing = 0
        :: else ->
            doing = 0;
            up[k]!m, g, s
        fi;
        m = 0; g = 0; s = 0; }
    :: atomic { n_crashes > 0 && (k == 1 || n_crashes < CRASHES) -> /* followers are alike */
        n_crashes--;
        leave_all(k);
        do
        :: nempty(cmd[k]) -> cmd[k]?m, g
        :: nempty(rep[k]) -> rep[k]?m, g, s
        :: nempty(down[k]) -> down[k]?m, g
        :: empty(cmd[k]) && empty(rep[k]) && empty(down[k]) -> break
        od;
        up[k]!gone, 0, 0;
        life[k]++;
        at[k] = g_now + 1; forget();
        step[k] = 0; posted[k] = 0; canceled[k] = 0;
        gen = 0; aborted = 0; waiting = 0; doing = 0; m = 0; g = 0; s = 0; i = 0;
        up[k]!hello, 0, 0; }
    od
}

/* ---- the driver ---- */


byte n_give_ups = GIVE_UPS;

inline tell(m, who)
{
    i = 1;
    do
    :: i < RANKS ->
        if
        :: (who & BIT(i)) && conn[i] == life[i] -> down[i]!m, g
        :: else -> skip /* or gone, which the driver has not heard yet */
        fi;
        i++
    :: else -> break
    od;
    i = 0;
}

/* With those that are here. */
inline begin()
{
    g++;
    g_now = g;
    assert(g < MOST_G);
    members[g] = here;
    stage = PREPARE;
    answers = 0;
    most = 0;
    tell(prepare, here);
    post(0, prepare, g);
}

inline command(m, next)
{
    stage = next;
    answers = 0;
    tell(m, members[g] & here);
    post(0, m, g);
}

/* Of the generation that is given up: they are of the past. */
inline drop_reports()
{
    if
    :: !LAZY ->
        d_step {
            clear(rep[0]);
            i = 1;
            do
            :: i < RANKS ->
                n = len(up[i]);
                do
                :: n > 0 ->
                    up[i]?m, gg, s;
                    if
                    :: m == hello || m == gone -> up[i]!m, gg, s
                    :: else
                    fi;
                    n--
                :: else -> break
                od;
                i++
            :: else -> break
            od;
            i = 0; m = 0; gg = 0; s = 0;
        }
    :: else
    fi
}

inline give_up()
{
    if
    :: stage != WAIT ->
        tell(abort_, members[g] & here); /* (1) before the next Prepare */
        engine_abort(0);
        stage = WAIT; answers = 0; most = 0; held = 0;
        drop_reports()
    :: else -> skip
    fi
}

inline answered(wanted_m, wanted_stage)
{
    assert(stage == wanted_stage && !(answers & BIT(k)));
    answers = answers | BIT(k);
}

/* A report of rank k in this generation. */
inline digest()
{
    if
    :: m == fault -> give_up()
    :: m == prepared ->
        answered(prepared, PREPARE);
        most = (s > most -> s : most);
        if
        :: answers == members[g] ->
            start[g] = most; /* (2) the newest, and no other */
            assert(most + 1 >= newest_step);
            newest_step = most;
            most = 0;
            command(form, FORM)
        :: else -> skip
        fi
    :: m == formed ->
        answered(formed, FORM);
        assert(s == start[g]);
        if
        :: answers == members[g] -> held = s; goto_next()
        :: else -> skip
        fi
    :: m == trained ->
        answered(trained, TRAIN);
        assert(s == held + 1);
        if
        :: answers == members[g] -> held = s; met_train[g] = 0; goto_next()
        :: else -> skip
        fi
    fi
}

inline goto_next()
{
    if
    :: held >= STEPS -> is_done = 1
    :: else -> command(train, TRAIN)
    fi
}

/* The next message of follower k. */
inline hear()
{
    up[k]?m, gg, s;
    if
    :: m == hello ->
        conn[k]++;
        here = here | BIT(k)
    :: m == gone ->
        here = here & ~BIT(k);
        if
        :: stage != WAIT && (members[g] & BIT(k)) -> give_up()
        :: else -> skip
        fi
    :: else ->
        assert((here & BIT(k)) && gg <= g);
        if
        :: gg == g && stage != WAIT -> digest() /* (3) the others are of the past */
        :: else -> skip
        fi
    fi;
    m = 0; gg = 0; s = 0; k = 0
}

active proctype Driver() /* rank 0 */
{
    mtype m;
    byte k, s, n, gg, g, i, answers, most, held, is_done;
    byte here = 1;
    byte conn[RANKS];

    atomic {
        k = 1;
        do
        :: k < RANKS -> run Follower(k); run Engine(k); k++
        :: else -> break
        od;
        k = 0;
        run Engine(0);
    }
    do
    :: is_done -> break
    :: atomic { !is_done && nempty(up[1]) -> k = 1; hear() }
#if N > 1
    :: atomic { !is_done && nempty(up[2]) -> k = 2; hear() }
#endif
    :: atomic { !is_done && nempty(rep[0]) -> rep[0]?m, gg, s;
        k = 0;
        if
        :: gg == g && stage != WAIT -> digest()
        :: else -> skip
        fi;
        m = 0; gg = 0; s = 0; }
    :: atomic { !is_done && stage == WAIT && here == BIT(RANKS) - 1 -> begin(); }
    :: atomic { !is_done && stage == WAIT && here != BIT(RANKS) - 1 && g > 0 -> begin(); } /* fewer */
    :: atomic { !is_done && stage != WAIT && n_give_ups > 0 -> n_give_ups--; give_up(); }
    od;
    assert(held == STEPS);
}
