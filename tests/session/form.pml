/* form.pml - forming a generation, aborting it, and forming again: session/driver, session/follower
 * and train/engine, as a model for spin.
 *
 *     tests/session/form_model.sh spin cc
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
 *   - who answered did what was asked, in this generation. */

#ifndef N
#define N 2 /* followers */
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
#define MOST_G 6 /* generations, more than there can be */
#define BIT(k) (1 << (k))

mtype = { hello, gone, prepare, form, train, abort_, prepared, formed, trained, fault };

/* ---- the network: rank, generation, step, connection ---- */

chan up = [16] of { mtype, byte, byte, byte, byte };
chan down[RANKS] = [8] of { mtype, byte, byte };  /* message, generation, connection */
byte life[RANKS];                                 /* which process, and so which connection */

/* ---- the engines ---- */

chan cmd[RANKS] = [3] of { mtype, byte };       /* command, generation */
chan rep[RANKS] = [4] of { mtype, byte, byte }; /* report, generation, step held */
byte posted[RANKS], canceled[RANKS], step[RANKS];

byte members[MOST_G]; /* of each generation */
byte left_[MOST_G];   /* have left its collectives */
byte met_form[MOST_G], met_train[MOST_G];
byte start[MOST_G];   /* the step that all take when they form */
byte newest_g, newest_step;
byte g_now; /* the driver's */

inline post(k, m, g)
{
    posted[k] = g;
    cmd[k]!m, g;
}

inline engine_abort(k) { canceled[k] = posted[k]; }

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
    :: atomic { cmd[k]?m, g -> mine = life[k]; }
        if
        :: atomic { life[k] != mine -> skip; }
        :: atomic { life[k] == mine && g <= canceled[k] -> /* canceled before it began */
            left_[g] = left_[g] | BIT(k);
            rep[k]!fault, g, step[k]; }
        :: atomic { life[k] == mine && g > canceled[k] && m == prepare ->
            rep[k]!prepared, g, step[k]; }
        :: atomic { life[k] == mine && g > canceled[k] && m == form ->
            met_form[g] = met_form[g] | BIT(k); }
            if
            :: atomic { life[k] != mine -> skip; }
            :: atomic { life[k] == mine && met_form[g] == members[g] ->
                assert(step[k] <= start[g]); /* the source is the newest */
                step[k] = start[g];
                rep[k]!formed, g, step[k]; }
            :: atomic { life[k] == mine && (g <= canceled[k] || (left_[g] & members[g])) ->
                left_[g] = left_[g] | BIT(k);
                rep[k]!fault, g, step[k]; }
            fi
        :: atomic { life[k] == mine && g > canceled[k] && m == train ->
            /* the step that is reduced, for each its own number of commands in this generation */
            met_train[g] = met_train[g] | BIT(k); }
            if
            :: atomic { life[k] != mine -> skip; }
            :: atomic { life[k] == mine && met_train[g] == members[g] ->
                applied(k, g);
                rep[k]!trained, g, step[k]; }
            :: atomic { life[k] == mine && (g <= canceled[k] || (left_[g] & members[g])) ->
                left_[g] = left_[g] | BIT(k);
                rep[k]!fault, g, step[k]; }
            fi
        fi
    od
}

/* ---- a follower ---- */

byte n_crashes = CRASHES;

inline leave_all(k)
{
    d_step {
        i = 0;
        do
        :: i <= g_now -> left_[i] = left_[i] | BIT(k); i++
        :: else -> break
        od;
    }
}

proctype Follower(byte k)
{
    mtype m, doing;
    byte g, s, c, gen, aborted, waiting, i;

    up!hello, k, 0, 0, life[k];
end:
    do
    :: down[k]?m, g, c ->
        if
        :: c != life[k] -> skip /* went to the process before */
        :: c == life[k] && m == prepare ->
            assert(doing == 0 && g > gen && g > aborted);
            atomic { gen = g; waiting = 0; doing = m; post(k, m, g); }
        :: c == life[k] && m == abort_ ->
            assert(gen > 0 && g == gen);
            atomic { aborted = g; waiting = 1; doing = 0; engine_abort(k); }
        :: c == life[k] && (m == form || m == train) ->
            assert(!waiting && doing == 0 && g == gen); /* of no formation that is gone */
            atomic { doing = m; post(k, m, g); }
        fi
    :: rep[k]?m, g, s ->
        if
        :: g <= aborted -> skip /* of the past */
        :: else ->
            doing = 0;
            up!m, k, g, s, life[k]
        fi
    :: atomic { n_crashes > 0 ->
        n_crashes--;
        leave_all(k);
        do
        :: nempty(cmd[k]) -> cmd[k]?m, g
        :: nempty(rep[k]) -> rep[k]?m, g, s
        :: empty(cmd[k]) && empty(rep[k]) -> break
        od;
        up!gone, k, 0, 0, life[k];
        life[k]++;
        step[k] = 0; posted[k] = 0; canceled[k] = 0;
        gen = 0; aborted = 0; waiting = 0; doing = 0; m = 0; g = 0; s = 0; c = 0;
        up!hello, k, 0, 0, life[k]; }
    od
}

/* ---- the driver ---- */

#define WAIT 0
#define PREPARE 1
#define FORM 2
#define TRAIN 3

byte stage = WAIT;
byte n_give_ups = GIVE_UPS;

inline tell(m, who)
{
    i = 1;
    do
    :: i < RANKS ->
        if
        :: who & BIT(i) -> down[i]!m, g, conn[i]
        :: else -> skip
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

inline give_up()
{
    if
    :: stage != WAIT ->
        tell(abort_, members[g] & here); /* (1) before the next Prepare */
        engine_abort(0);
        stage = WAIT;
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

active proctype Driver()
{
    mtype m;
    byte k, s, c, gg, g, i, answers, most, held, is_done;
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
    :: atomic { !is_done && up?[hello, _, _, _, _] -> up?hello, k, gg, s, c;
        conn[k] = c;
        here = here | BIT(k); }
    :: atomic { !is_done && up?[gone, _, _, _, _] -> up?gone, k, gg, s, c;
        if
        :: c == conn[k] && (here & BIT(k)) ->
            here = here & ~BIT(k);
            if
            :: stage != WAIT && (members[g] & BIT(k)) -> give_up()
            :: else -> skip
            fi
        :: else -> skip
        fi }
    :: atomic { !is_done && nempty(up) && !up?[hello, _, _, _, _] &&
                !up?[gone, _, _, _, _] -> up?m, k, gg, s, c;
        if
        :: c != conn[k] || !(here & BIT(k)) -> skip
        :: else ->
            assert(gg <= g);
            if
            :: gg == g && stage != WAIT -> digest() /* (3) the others are of the past */
            :: else -> skip
            fi
        fi }
    :: atomic { !is_done && nempty(rep[0]) -> rep[0]?m, gg, s;
        k = 0;
        if
        :: gg == g && stage != WAIT -> digest()
        :: else -> skip
        fi }
    :: atomic { !is_done && stage == WAIT && here == BIT(RANKS) - 1 -> begin(); }
    :: atomic { !is_done && stage == WAIT && here != BIT(RANKS) - 1 && g > 0 -> begin(); } /* fewer */
    :: atomic { !is_done && stage != WAIT && n_give_ups > 0 -> n_give_ups--; give_up(); }
    od;
    assert(held == STEPS);
}
