/* SPDX-License-Identifier: Apache-2.0 */
#include "memory.h"

#include <inttypes.h>

#include "card_memory.h"
#include "log.h"
#include "pools.h"

uint64_t memory_rounded(uint64_t bytes) {
  return bytes > UINT64_MAX - GRANULE ? bytes : (bytes + GRANULE - 1) / GRANULE * GRANULE;
}

/* Nothing fits always, also over the limit. */
static bool try_card(struct charge *charge, struct card *card) {
  if (charge->bytes != 0 && !card_reserve(card, charge->part, charge->bytes)) return false;
  charge->card = card;
  return true;
}

static void tell_refused(struct card *card, uint64_t bytes) {
  if (!log_shows(LOG_INFO)) return;
  struct card_view view = card_view(card, UINT64_MAX);
  log_info("%" PRIu64 " bytes refused: %" PRIu64 " of %" PRIu64 " are in use", bytes, view.used, view.total);
}

bool memory_reserve_for(struct charge *charge, struct card *card, enum region_part part, uint64_t bytes) {
  charge->card = NULL;
  charge->bytes = memory_rounded(bytes);
  charge->part = part;
  if (card == NULL || try_card(charge, card)) return true;
  if (pools_give_way(card) && try_card(charge, card)) return true;
  tell_refused(card, charge->bytes);
  return false;
}

bool memory_reserve(struct charge *charge, uint64_t bytes) {
  charge->context = NULL;
  struct card *card = card_current(&charge->context);
  return memory_reserve_for(charge, card, REGION_MEMORY, bytes);
}

static bool grow(const struct charge *charge, uint64_t more) {
  return card_reserve(charge->card, charge->part, more) ||
         (pools_give_way(charge->card) && card_reserve(charge->card, charge->part, more));
}

bool memory_adjust(struct charge *charge, uint64_t bytes) {
  uint64_t wanted = memory_rounded(bytes);
  if (charge->card == NULL || wanted == charge->bytes) return true;
  if (wanted > charge->bytes && !grow(charge, wanted - charge->bytes)) return false;
  if (wanted < charge->bytes) card_release(charge->card, charge->part, charge->bytes - wanted);
  charge->bytes = wanted;
  return true;
}

void memory_hold(struct charge *charge, uint64_t bytes) {
  uint64_t more = memory_rounded(bytes) - charge->bytes;
  if (card_hold(charge->card, charge->part, more)) charge->bytes += more;
}

void memory_cancel(struct charge *charge) {
  if (charge->card != NULL && charge->bytes != 0) card_release(charge->card, charge->part, charge->bytes);
  charge->card = NULL;
}

static enum region_part part_of_kind(uint16_t kind) {
  if (kind == BLOCK_CONTEXT) return REGION_CONTEXTS;
  return kind == BLOCK_MODULE || kind == BLOCK_LIBRARY ? REGION_MODULES : REGION_MEMORY;
}

void memory_freed(const struct block *block) {
  if (block->kind == BLOCK_EXEC) return;
  if (block->pool != 0 && block->pool != BLOCK_SPILLED)
    pools_freed(block);
  else
    card_release(card_at(block->card), part_of_kind(block->kind), block->bytes);
}

static bool commit(struct charge *charge, enum block_kind kind, uint64_t number, uint32_t pool) {
  struct block stale;
  if (charge->card == NULL) return true;
  struct block block = {.address = number,
                        .bytes = charge->bytes,
                        .context = charge->context,
                        .card = (uint16_t)card_number(charge->card),
                        .kind = (uint16_t)kind,
                        .pool = pool};
  if (!blocks_add(&block, &stale)) {
    memory_cancel(charge);
    return false;
  }
  if (stale.address != 0) memory_freed(&stale);
  return true;
}

bool memory_commit(struct charge *charge, enum block_kind kind, uint64_t number) {
  return commit(charge, kind, number, 0);
}

bool memory_commit_spilled(struct charge *charge, uint64_t address) {
  return commit(charge, BLOCK_ADDRESS, address, BLOCK_SPILLED);
}

bool memory_take(enum block_kind kind, uint64_t number, struct block *block) {
  return grants_hold() && blocks_take(kind, number, block);
}

void memory_put_back(const struct block *block) {
  struct block stale;
  if (!blocks_add(block, &stale)) return; /* stays charged: too much, never too little */
  if (stale.address != 0) memory_freed(&stale);
}

void memory_released(const struct block *taken, CUresult result) {
  if (result == CUDA_SUCCESS)
    memory_freed(taken);
  else
    memory_put_back(taken);
}

void memory_context_joins(CUcontext context, CUcontext into) {
  grants_forget_contexts();
  if (grants_load() == GRANTS_READY) blocks_hand_over(context, into);
}

void memory_context_ended(CUcontext context) {
  grants_forget_contexts();
  if (grants_load() != GRANTS_READY) return;
  blocks_take_context(context, memory_freed);
  pools_settle(NULL);
}
