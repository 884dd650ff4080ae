/* allreduce - the plain strategy: every bucket is summed over all ranks as soon as it is ready.
 *
 * The sums run during the rest of the backward pass.  Then every rank makes the same update of the
 * same parameters.  This file also has the keys of the strategy, and chooses another method where
 * these ask for compression, fixed shares or divided state. */
#include "strategy/allreduce.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "strategy/exchange.h"
#include "strategy/shares.h"
#include "strategy/tree.h"
#include "strategy/zero.h"

#define AT(field) offsetof(struct allreduce_options, field)

static const char *const offloads[] = {OFFLOAD_LIST(WORD_NAME) NULL};

static const char *const compressions[] = {COMPRESS_LIST(WORD_NAME) NULL};

const struct option allreduce_rows[ALLREDUCE_N_ROWS] = {
    {"strategy.compress", OPT_CHOICE, AT(compress.kind), "none", .choices = compressions,
     .help =
         "The form in which gradients travel, for slow links. float16 and bfloat16 halve the "
         "bytes: gradients are rounded, summed in that type, and widened. uint8: 8 bits a "
         "number, as strategy bytegrad. powersgd: matrices as products of narrow ones, for large "
         "layers. onebit: the sign alone, for very slow links. The errors of the last two are "
         "added to the next step's gradients."},
    {"strategy.rank", OPT_INT, AT(compress.rank), "1", 1, COMPRESS_MAX_RANK, .unit = "columns",
     .only = "strategy.compress", .only_values = 1u << COMPRESS_POWERSGD,
     .help = "Columns of the matrices that powersgd sends: more are more exact."},
    {"strategy.gradient_predivide_factor", OPT_REAL, AT(compress.predivide), "1", 0, 1e30,
     .flags = OPT_ABOVE, .only = "strategy.compress",
     .only_values = 1u << COMPRESS_FLOAT16 | 1u << COMPRESS_BFLOAT16,
     .help = "Gradients are divided by this before they are rounded, and multiplied by it after "
             "they were summed: less than 1 keeps small ones from vanishing in float16."},
    {"strategy.zero", OPT_INT, AT(zero), "0", 0, ZERO_MOST_STAGE,
     .help =
         "1: the optimizer's state is divided among the ranks, each of which updates its part of "
         "the parameters. 2: the sums of gradients, too. 3: the parameters, too, frozen ones "
         "included. Take them where memory is short.",
     .also = "DeepSpeed's zero_optimization.stage"},
    {"strategy.offload", OPT_CHOICE, AT(offload), "none", .choices = offloads,
     .help = "The part of the state that a GPU keeps in the host's memory, where the update reads "
             "and writes it over the bus. optimizer: the optimizer's slots. all: the parameters, "
             "too, with strategy.zero 3. Take them where the GPU's memory is short. On CPUs "
             "everything is in that memory, whatever the word.",
     .also = "DeepSpeed's offload_optimizer, offload_param"},
    {"strategy.buddy", OPT_BOOL, AT(buddy), "true",
     .help =
         "With strategy.zero the next rank keeps a copy of each rank's part, so that a lost rank "
         "costs one step. false: a lost rank costs all steps since the last checkpoint."},
    {"strategy.shards", OPT_INT, AT(shards), "0", 0, TREE_MOST_LEAVES, .unit = "shares",
     .help = "Cut the global batch into so many fixed shares and add their gradients in one fixed "
             "order: any number of ranks up to this, also one that changes as the job runs, ends "
             "with the same bits. Take as many as there will ever be ranks. On CPUs of one kind, "
             "or GPUs of one kind; 0: a share for each rank."},
    {"strategy.share_threads", OPT_INT, AT(share_threads), "1", 1, 1024, .unit = "threads",
     .help = "With strategy.shards: the threads of every rank, in place of --threads and of the "
             "number of cores, because the bits depend on them; no effect on GPUs."},
};

int allreduce_check(const void *options, struct err *err)
{
    const struct allreduce_options *o = options;

    if (o->shards > 0 && (o->zero > 0 || o->compress.kind != COMPRESS_NONE))
        return err_set(err, ERR_CONFIG,
                       "strategy.shards is %d with strategy.zero %d and strategy.compress %s, want "
                       "0 and none: the sums of fixed shares are exact and whole",
                       (int)o->shards, (int)o->zero, compressions[o->compress.kind]);
    if (o->shards == 0 && o->share_threads > 1)
        return err_set(
            err, ERR_CONFIG,
            "strategy.share_threads is %d without strategy.shards; want strategy.shards, "
            "or --threads",
            (int)o->share_threads);
    if (o->zero > 0 && o->compress.kind != COMPRESS_NONE)
        return err_set(
            err, ERR_CONFIG,
            "strategy.compress is %s with strategy.zero %d, want none: divided state takes "
            "exact gradients",
            compressions[o->compress.kind], (int)o->zero);
    return 0;
}

static const struct strategy_ops *allreduce_method(const struct allreduce_options *o)
{
    if (o->compress.kind != COMPRESS_NONE)
        return compress_choose(&o->compress);
    if (o->shards > 0)
        return &shares_allreduce;
    return o->zero > 0 ? zero_choose((int)o->zero, o->buddy) : &strategy_allreduce;
}

struct strategy_choice allreduce_choose(const void *options)
{
    const struct allreduce_options *o = options;

    return (struct strategy_choice){allreduce_method(o), {(int)o->shards, (int)o->share_threads}};
}

static int allreduce_new(const struct strategy_site *site, struct strategy **out, struct err *err)
{
    (void)err;
    *out = xcalloc(1, sizeof **out);
    (*out)->at = *site;
    return 0;
}

static int allreduce_sum(struct strategy *s, int bucket, struct err *err)
{
    const struct bucket *b = &s->at.layout->bucket[bucket];

    return exchange_allreduce(s->at.exchange, bucket, (char *)s->at.grad + b->at, b->length,
                              b->dtype, err);
}

static int wait_for_sums(struct strategy *s, struct err *err)
{
    return exchange_wait_buckets(s->at.exchange, err);
}

static void allreduce_free(struct strategy *s) { free(s); }

const struct strategy_ops strategy_allreduce = {
    .group =
        {.name = "allreduce",
         .help =
             "gradients are summed over all ranks, and every rank makes the same update: the first "
             "choice, and for fast links the best",
         .option = allreduce_rows,
         .n_options = ALLREDUCE_N_ROWS,
         .size = sizeof(struct allreduce_options),
         .check = allreduce_check},
    .choose = allreduce_choose,
    .promises = {.replicas_are_equal = 1,
                 .collectives_are_equal = 1,
                 .sum_is_linear = 1,
                 .state_rests = 1,
                 .buckets_may_change = 1,
                 .recovery = STRATEGY_NEEDS_ONE_RANK},
    .new = allreduce_new,
    .bucket_ready = allreduce_sum,
    .before_update = wait_for_sums,
    .free = allreduce_free,
};
