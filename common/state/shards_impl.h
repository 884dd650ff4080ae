/* shards_impl - functions that shards.c and reshard.c share.  shards.c has the memory of shards;
 * reshard.c divides the state anew when a formation begins.
 *
 * Threads: as shards.h. */
#ifndef STATE_SHARDS_IMPL_H
#define STATE_SHARDS_IMPL_H

#include "state/shards.h"

/* Memory for the shards that `rank` of `size` ranks holds, zeroed. */
int shard_set_new(struct state *s, int size, int rank, struct shard_set *out, struct err *err);
void shard_set_free(struct state *s, struct shard_set *set);

/* Assert what holds between two calls of this module, on every rank: at both ends of each call. */
void shards_check(const struct state *s);

/* Train with this set from now on.  Takes the set's memory, and does not free that of the set
 * before. */
void shards_use(struct state *s, const struct shard_set *set);

#endif
