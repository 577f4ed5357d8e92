/* SPDX-License-Identifier: Apache-2.0 */
#include "memory.h"

#include "atomics.h"
#include "pools.h"

uint64_t memory_rounded(uint64_t bytes) {
  return bytes > UINT64_MAX - GRANULE ? bytes : (bytes + GRANULE - 1) / GRANULE * GRANULE;
}

static bool reserve_in(struct grant *grant, const struct charge *charge, uint64_t bytes) {
  return region_reserve_part(&grant->region, charge->part, bytes, grant_limit(grant), grant_cap(grant));
}

/* One block is charged to one grant: the first that has room. */
static bool try_card(struct charge *charge, const struct card *card) {
  if (charge->bytes == 0) charge->grant = card->grants[0]; /* nothing fits always, also over the limit */
  if (charge->bytes == 0) return true;
  for (uint32_t i = 0; i < card->count; i++) {
    if (!reserve_in(card->grants[i], charge, charge->bytes)) continue;
    charge->grant = card->grants[i];
    return true;
  }
  return false;
}

bool memory_reserve_for(struct charge *charge, struct card *card, enum region_part part, uint64_t bytes) {
  charge->grant = NULL;
  charge->bytes = memory_rounded(bytes);
  charge->part = part;
  if (card == NULL || try_card(charge, card)) return true;
  return pools_give_way(card) && try_card(charge, card);
}

bool memory_reserve(struct charge *charge, uint64_t bytes) {
  charge->context = NULL;
  struct card *card = card_current(&charge->context);
  return memory_reserve_for(charge, card, REGION_MEMORY, bytes);
}

bool memory_adjust(struct charge *charge, uint64_t bytes) {
  uint64_t wanted = memory_rounded(bytes);
  if (charge->grant == NULL || wanted == charge->bytes) return true;
  if (wanted > charge->bytes && !reserve_in(charge->grant, charge, wanted - charge->bytes)) return false;
  if (wanted < charge->bytes)
    region_release_part(&charge->grant->region, charge->part, charge->bytes - wanted);
  charge->bytes = wanted;
  return true;
}

void memory_cancel(struct charge *charge) {
  if (charge->grant != NULL && charge->bytes != 0)
    region_release_part(&charge->grant->region, charge->part, charge->bytes);
  charge->grant = NULL;
}

static enum region_part part_of_kind(uint16_t kind) {
  if (kind == BLOCK_CONTEXT) return REGION_CONTEXTS;
  return kind == BLOCK_MODULE || kind == BLOCK_LIBRARY ? REGION_MODULES : REGION_MEMORY;
}

void memory_freed(const struct block *block) {
  if (block->kind == BLOCK_EXEC) return;
  if (block->pool != 0)
    pools_freed(block);
  else
    region_release_part(&grant_at(block->grant)->region, part_of_kind(block->kind), block->bytes);
}

bool memory_commit(struct charge *charge, enum block_kind kind, uint64_t number) {
  struct block stale;
  if (charge->grant == NULL) return true;
  struct block block = {.address = number,
                        .bytes = charge->bytes,
                        .context = charge->context,
                        .grant = (uint16_t)grant_number(charge->grant),
                        .kind = (uint16_t)kind};
  if (!blocks_add(&block, &stale)) {
    memory_cancel(charge);
    return false;
  }
  if (stale.address != 0) memory_freed(&stale);
  return true;
}

bool memory_take(enum block_kind kind, uint64_t number, struct block *block) {
  return grants_load() == GRANTS_READY && blocks_take(kind, number, block);
}

void memory_put_back(const struct block *block) {
  struct block stale;
  if (!blocks_add(block, &stale)) return; /* stays charged: too much, never too little */
  if (stale.address != 0) memory_freed(&stale);
}

void memory_context_ended(CUcontext context) {
  grants_forget_contexts();
  if (grants_load() != GRANTS_READY) return;
  blocks_take_context(context, memory_freed);
  pools_settle(NULL);
}
