/* SPDX-License-Identifier: Apache-2.0 */
#include "memory.h"

#include "atomics.h"

static uint64_t rounded(uint64_t bytes) {
  return bytes > UINT64_MAX - GRANULE ? bytes : (bytes + GRANULE - 1) / GRANULE * GRANULE;
}

static uint64_t limit_of(const struct grant *grant) { return load_relaxed(&grant->limits->memory_bytes); }

bool memory_reserve(struct charge *charge, uint64_t bytes) {
  charge->grant = NULL;
  charge->bytes = rounded(bytes);
  struct card *card = card_current(&charge->context);
  if (card == NULL) return true;
  /* One block is charged to one grant: the first that has room. */
  for (uint32_t i = 0; i < card->count; i++) {
    if (!region_reserve(&card->grants[i]->region, charge->bytes, limit_of(card->grants[i]))) continue;
    charge->grant = card->grants[i];
    return true;
  }
  return false;
}

bool memory_adjust(struct charge *charge, uint64_t bytes) {
  uint64_t wanted = rounded(bytes);
  if (charge->grant == NULL || wanted == charge->bytes) return true;
  struct region *region = &charge->grant->region;
  if (wanted > charge->bytes && !region_reserve(region, wanted - charge->bytes, limit_of(charge->grant)))
    return false;
  if (wanted < charge->bytes) region_release(region, charge->bytes - wanted);
  charge->bytes = wanted;
  return true;
}

void memory_cancel(struct charge *charge) {
  if (charge->grant != NULL) region_release(&charge->grant->region, charge->bytes);
  charge->grant = NULL;
}

void memory_freed(const struct block *block) {
  region_release(&grant_at(block->grant)->region, block->bytes);
}

bool memory_commit(struct charge *charge, uint64_t address) {
  struct block stale;
  if (charge->grant == NULL) return true;
  struct block block = {.address = address,
                        .bytes = charge->bytes,
                        .context = charge->context,
                        .grant = grant_number(charge->grant)};
  if (!blocks_add(&block, &stale)) {
    memory_cancel(charge);
    return false;
  }
  if (stale.address != 0) memory_freed(&stale);
  return true;
}

bool memory_take(uint64_t address, struct block *block) {
  return grants_load() == GRANTS_READY && blocks_take(address, block);
}

void memory_put_back(const struct block *block) {
  struct block stale;
  if (!blocks_add(block, &stale)) return; /* stays charged: too much, never too little */
  if (stale.address != 0) memory_freed(&stale);
}

void memory_context_ended(CUcontext context) {
  grants_forget_contexts();
  if (grants_load() == GRANTS_READY) blocks_take_context(context, memory_freed);
}
