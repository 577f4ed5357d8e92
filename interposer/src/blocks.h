/* SPDX-License-Identifier: Apache-2.0
 *
 * Live blocks of this process: address → what was charged for it, and to whom. Any thread, any call that
 * frees. */
#ifndef TESSERA_BLOCKS_H
#define TESSERA_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

/* What the number of a block is; equal numbers of different kinds are different blocks. */
enum block_kind {
  BLOCK_ADDRESS,
  BLOCK_ARRAY,
  BLOCK_MIPMAP,
  BLOCK_MODULE,
  BLOCK_LIBRARY,
  BLOCK_CONTEXT,
  BLOCK_EXEC /* an executable graph with memory: bytes are its allocations', nothing is charged by it */
};

struct block {
  uint64_t address; /* never 0 */
  uint64_t bytes;   /* charged */
  void *context;    /* whose end also frees it */
  uint16_t card;    /* its number (grants.h); of a graph the device's */
  uint16_t kind;    /* enum block_kind */
  uint32_t pool;    /* 1 + the pool that it is charged by (pools.h); 0: charged by itself */
};

/* In the place of a pool: managed memory that nobody has asked for (spill.h), charged by itself. */
#define BLOCK_SPILLED UINT32_MAX

/* false: no memory for the table. `stale` gets the block that was known at this address (address 0: none): it
   went away by a road that isn't hooked, and the driver has handed its address out again. */
bool blocks_add(const struct block *block, struct block *stale);

/* Takes the block out. A free takes it before the driver frees the address, since from then on another thread
   may be given the same address; and puts it back where the driver refuses. */
bool blocks_take(enum block_kind kind, uint64_t address, struct block *taken);

/* A copy, which stays known. */
bool blocks_find(enum block_kind kind, uint64_t address, struct block *found);

/* All blocks of one context are the other's from then on. */
void blocks_hand_over(const void *context, void *into);

/* Takes all blocks of a context out and hands each to `release`, which must not call back. */
void blocks_take_context(const void *context, void (*release)(const struct block *block));

/* Forgets everything, also locks: for a forked child, which owns no block. */
void blocks_reset(void);

#endif
