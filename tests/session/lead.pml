/* lead.pml - a driver and its standby: session/voters, driver_succession and standby, as a model for
 * spin.
 *
 *     tests/session/lead_model.sh spin cc
 *
 * N followers train with the driver, in formations that it gives up and begins again as often as
 * G lets it.  Connections break at any moment and are made again; a process that is frozen or cut
 * off is one that takes no step while others do.  A follower without the driver may come to the
 * standby, and may leave it again until the standby leads: from then on it is bound.  A formation
 * does a step only if all its ranks have its Form and have not left it since.
 *
 * What spin shows for every interleaving: once the standby's formation has done a step, none of the
 * driver's does one.  form_model.sh shows what belongs to a formation itself: there, what its
 * messages do is one step of the model. */

#ifndef N
#define N 4 /* followers */
#endif
#ifndef G
#define G 4 /* formations, the first one included */
#endif
#define BIT(k) (1 << (k))
#define ALL (BIT(N) - 1)

/* Followers as bits.  Formation 0 is none; the standby is a voter of all others. */
byte members[G + 1];
byte n_members[G + 1];   /* followers of it */
byte form[N];            /* the newest formation whose Form the follower has */
byte prepared[N];        /* and that it was told to prepare */
byte with_driver = ALL, at_standby, bound;
byte entered;            /* followers of formation g_now that have its Form, and have not left it */

byte g_now;
bool is_out, was_formed; /* the Form of g_now has gone out; all had it */
byte counts;             /* formations that ranks may tell of: bits */
byte known;              /* the newest one that the standby has acknowledged */
bool has_standby = 1;    /* the driver is connected with it */
bool leads, has_stepped; /* the standby */

/* voters_let_standby_lead: n of the followers of formation g. */
#define lets_lead(g, n) ((n) > 0 && 2 * ((n) + 1) >= n_members[g] + 2)

inline size_of(set, n)
{
    n = 0; i = 0;
    do
    :: i < N -> n = n + (((set) >> i) & 1); i++
    :: else -> break
    od
}

/* ---- connections ---- */

active proctype Network()
{
    byte k;
end:
    do
    :: d_step { has_standby && !leads -> has_standby = 0 }
    :: d_step { !has_standby && !leads -> has_standby = 1; at_standby = 0 } /* they are sent back */
    :: atomic {
        if
        :: k = 0 :: k = 1
#if N > 2
        :: k = 2
#endif
#if N > 3
        :: k = 3
#endif
        fi;
        if
        :: with_driver & BIT(k) ->
            with_driver = with_driver & ~BIT(k); entered = entered & ~BIT(k)
        :: !(with_driver & BIT(k)) && !(at_standby & BIT(k)) && !(bound & BIT(k)) ->
            with_driver = with_driver | BIT(k)
        :: !(with_driver & BIT(k)) && !has_standby && !leads -> at_standby = at_standby | BIT(k)
        :: (at_standby & BIT(k)) && !(bound & BIT(k)) -> at_standby = at_standby & ~BIT(k)
        :: else
        fi;
        k = 0 }
    od
}

/* ---- the driver ---- */

/* 1: the followers in `set` are enough to go on without the standby's word (1). */
inline are_enough(set, yes)
{
    yes = 1; g = 1;
    do
    :: g <= G ->
        if
        :: counts & BIT(g) ->
            size_of(members[g] & ~set, n);
            yes = yes && !lets_lead(g, n)
        :: else
        fi;
        g++
    :: else -> break
    od;
    g = 0; n = 0; i = 0
}

active proctype Driver()
{
    byte set, g, n, i, k;
    bool yes;
end:
    do
    :: g_now < G && !leads -> /* Prepare: to all who are here; its answers */
        atomic {
            g_now < G -> g_now++;
            members[g_now] = with_driver;
            entered = 0; is_out = 0; was_formed = 0;
            size_of(with_driver, n);
            n_members[g_now] = n;
            k = 0;
            do
            :: k < N ->
                if
                :: with_driver & BIT(k) -> prepared[k] = g_now
                :: else
                fi;
                k++
            :: else -> break
            od;
            k = 0; n = 0; i = 0 }
    :: atomic { g_now > 0 && !is_out && (members[g_now] & ~with_driver) == 0 ->
        are_enough(members[g_now], yes);
        if
        :: yes -> is_out = 1; counts = counts | BIT(g_now)
        :: !yes && has_standby && !leads -> /* asked, and acknowledged (3) */
            known = g_now; is_out = 1; counts = BIT(g_now)
        :: else
        fi;
        yes = 0 }
    :: atomic { is_out && entered != members[g_now] -> /* Form reaches one */
        if
        :: k = 0 :: k = 1
#if N > 2
        :: k = 2
#endif
#if N > 3
        :: k = 3
#endif
        fi;
        if
        :: (members[g_now] & with_driver & BIT(k)) && prepared[k] == g_now && form[k] < g_now ->
            form[k] = g_now; entered = entered | BIT(k)
        :: else
        fi;
        k = 0 }
    :: d_step { is_out && !was_formed && entered == members[g_now] ->
        was_formed = 1;
        counts = BIT(g_now); /* (2) */
        if
        :: has_standby && !leads -> known = g_now
        :: else
        fi }
    :: d_step { was_formed && entered == members[g_now] -> assert(!has_stepped) } /* a step */
    od
}

/* ---- the standby ---- */

active proctype Standby()
{
    byte newest, votes, k;
end:
    do
    :: atomic { !has_standby && !leads && at_standby ->
        newest = known; k = 0;
        do
        :: k < N ->
            if
            :: (at_standby & BIT(k)) && form[k] > newest -> newest = form[k]
            :: else
            fi;
            k++
        :: else -> break
        od;
        k = 0;
        do
        :: k < N ->
            if
            :: (at_standby & BIT(k)) && newest > 0 &&
               (form[k] == newest || prepared[k] == newest) ->
                votes++
            :: else
            fi;
            k++
        :: else -> break
        od;
        if
        :: newest > 0 && lets_lead(newest, votes) -> leads = 1; bound = at_standby
        :: else
        fi;
        newest = 0; votes = 0; k = 0 }
    :: d_step { leads -> has_stepped = 1 }
    od
}
