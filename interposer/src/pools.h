/* SPDX-License-Identifier: Apache-2.0
 *
 * Stream-ordered memory and memory of graphs. A pool holds what is in use and what it keeps for later; both
 * are the card's, so a pool is charged by what the driver says that it has reserved, and not block by block.
 *
 *   struct pool_charge charge;
 *   if (!pools_begin(&charge, pool, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
 *   result = REAL(…)(…);
 *   if (!pools_end(&charge, result, address)) …give the block back, pools_settle(), refuse… */
#ifndef TESSERA_POOLS_H
#define TESSERA_POOLS_H

#include "blocks.h"
#include "cuda_types.h"
#include "grants.h"

struct pool;

struct pool_charge {
  struct pool *pool;       /* NULL: not limited; else its lock is held until pools_end */
  uint64_t bytes;          /* of the block */
  const struct card *card; /* the pool's; NULL: not limited */
  uint64_t expected;       /* the most that it has then, if its pieces are what they seem to be */
};

/* A pool by its handle. NULL: not limited, or none. */
struct pool *pools_by_handle(CUmemoryPool handle);

/* The pool of a device's graphs. NULL: not limited. */
struct pool *pools_of_graphs(CUdevice device);

/* A pool was made, or found, for a location: what is not on a card is not charged. false: there are too many. */
bool pools_learn(CUmemoryPool handle, const struct cuda_location *location, bool made);

/* Reserves so that the allocation can't bring the driver over the limit. false: refused, nothing is held. */
bool pools_begin(struct pool_charge *charge, struct pool *pool, uint64_t bytes);

/* The same for the pool that the stream's device takes from, which stays the one until pools_end. */
bool pools_begin_current(struct pool_charge *charge, CUstream stream, uint64_t bytes);

/* Charges what the driver has reserved by now. false: more than the limit has room for (a pool of a driver
   that reserves in pieces of a size not yet known), or no memory for the book-keeping. */
bool pools_end(struct pool_charge *charge, CUresult result, uint64_t address);

/* A pool's block is gone. The pool keeps its memory until somebody waits for the card, and the charge with it
   until pools_settle. */
void pools_freed(const struct block *block);

/* Charges what the pools of the card have reserved now; NULL: all pools. Asks the driver only about those
   that may have less than they are charged for. */
void pools_settle(const struct card *card);

/* The same for all pools that give back what they keep when the program waits for the card. */
void pools_settle_after_wait(void);

/* Around the driver's change of the pool that a device takes from: nothing is allocated from the former one
   meanwhile. NULL: not limited. */
struct pool *pools_hold_current(CUdevice device);
void pools_changed_current(struct pool *held);

/* Around the driver's destruction of a pool, whose handle is another pool's the next moment; its live blocks
   stay. NULL: not known here. */
struct pool *pools_hold_dying(CUmemoryPool handle);
void pools_destroyed(struct pool *held, bool is_gone);

/* Makes the card's pools give back what they keep. true: something came back. Needs no pool's lock held. */
bool pools_give_way(const struct card *card);

/* In a forked child. */
void pools_reset(void);

#endif
