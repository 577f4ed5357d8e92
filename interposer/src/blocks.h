/* SPDX-License-Identifier: Apache-2.0
 *
 * Live blocks of this process: address → what was charged for it, and to whom. Any thread, any call that
 * frees. */
#ifndef TESSERA_BLOCKS_H
#define TESSERA_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

struct block {
  uint64_t address; /* never 0 */
  uint64_t bytes;   /* charged */
  void *context;    /* whose end also frees it */
  uint32_t grant;
};

/* false: no memory for the table. `stale` gets the block that was known at this address (address 0: none): it
   went away by a road that isn't hooked, and the driver has handed its address out again. */
bool blocks_add(const struct block *block, struct block *stale);

/* Takes the block out. A free takes it before the driver frees the address, since from then on another thread
   may be given the same address; and puts it back where the driver refuses. */
bool blocks_take(uint64_t address, struct block *taken);

/* Takes all blocks of a context out and hands each to `release`, which must not call back. */
void blocks_take_context(const void *context, void (*release)(const struct block *block));

/* Forgets everything, also locks: for a forked child, which owns no block. */
void blocks_reset(void);

#endif
