/* SPDX-License-Identifier: Apache-2.0
 *
 * Charging an allocation: reserve before the driver is asked, commit when it has an address, release when it
 * had none. So what the driver holds is never more than what is reserved, and that never more than the limit.
 *
 *   struct charge charge;
 *   if (!memory_reserve(&charge, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
 *   result = REAL(…)(…);
 *   if (result != CUDA_SUCCESS) memory_cancel(&charge);
 *   else if (!memory_commit(&charge, BLOCK_ADDRESS, address)) …give the block back, refuse… */
#ifndef TESSERA_MEMORY_H
#define TESSERA_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "blocks.h"
#include "cuda_types.h"
#include "grants.h"

/* What the driver takes for a request is a multiple of this. Measured per family and driver in time; until
   then the least that any allocation is aligned to. */
#define GRANULE 512u

struct charge {
  struct card *card; /* NULL: not limited */
  CUcontext context;
  uint64_t bytes;
  enum region_part part;
};

/* In multiples of GRANULE; what can't be rounded up stays as it is, and fits nowhere. */
uint64_t memory_rounded(uint64_t bytes);

/* For the calling thread's context. false: refused; nothing is left. Where it does not fit, what this
   process's pools keep for later is given back first. */
bool memory_reserve(struct charge *charge, uint64_t bytes);

/* For a card, whatever context is current; `card` NULL: not limited. */
bool memory_reserve_for(struct charge *charge, struct card *card, enum region_part part, uint64_t bytes);

/* The driver took another size than was reserved. Where that does not fit, pools give way first. false: over the
   limit; the charge is as before. */
bool memory_adjust(struct charge *charge, uint64_t bytes);

/* The same for what can't be given back to the driver: charged, room or not. */
void memory_hold(struct charge *charge, uint64_t bytes);

void memory_cancel(struct charge *charge);

/* false: no memory for the book-keeping; cancelled, the caller gives the block back to the driver. */
bool memory_commit(struct charge *charge, enum block_kind kind, uint64_t number);

/* The same for managed memory in the place of what was asked for (spill.h). */
bool memory_commit_spilled(struct charge *charge, uint64_t address);

/* Around the driver's free: taken before, then freed or put back by what the driver said. false: an unknown
   block. */
bool memory_take(enum block_kind kind, uint64_t number, struct block *block);
void memory_released(const struct block *taken, CUresult result);
void memory_freed(const struct block *block);
void memory_put_back(const struct block *block);

/* A context has ended and taken its blocks along. */
void memory_context_ended(CUcontext context);
void memory_context_joins(CUcontext context, CUcontext into); /* what it holds goes when the other one ends */

#endif
