/* shards_impl - what the two files of shards share: shards.c keeps them, reshard.c divides them
 * anew. */
#ifndef TRAIN_SHARDS_IMPL_H
#define TRAIN_SHARDS_IMPL_H

#include "train/shards.h"

/* Memory for the shards that `rank` of `size` ranks holds, zeroed. */
int shard_set_new(struct state *s, int size, int rank, struct shard_set *out, struct err *err);
void shard_set_free(struct state *s, struct shard_set *set);

/* Train with this set from now on.  Takes its memory; that of the set before is not freed. */
void shards_use(struct state *s, const struct shard_set *set);

#endif
