/* SPDX-License-Identifier: Apache-2.0 */
#include "card_memory.h"

/* Processes that spread at the same time may each have a part of what both need; then both look again. */
#define TRIES 16

static uint64_t least(uint64_t left, uint64_t right) { return left < right ? left : right; }

static bool reserve_by(struct grant *grant, enum region_part part, uint64_t bytes) {
  return region_reserve(&grant->region, part, bytes, grant_limit(grant), grant_cap(grant));
}

/* Fills one grant after the other. false: there was no room; nothing is left. */
static bool spread(struct card *card, enum region_part part, uint64_t bytes) {
  uint64_t taken[GRANTS] = {0}, rest = bytes;
  for (uint32_t i = 0; i < card->count && rest != 0; i++) {
    uint64_t some = least(rest, grant_room(card->grants[i]) / TESSERA_GRANULE * TESSERA_GRANULE);
    if (some == 0 || !reserve_by(card->grants[i], part, some)) continue;
    taken[i] = some;
    rest -= some;
  }
  for (uint32_t i = 0; i < card->count && rest != 0; i++)
    if (taken[i] != 0) region_release(&card->grants[i]->region, part, taken[i]);
  return rest == 0;
}

static bool spread_while_there_is_room(struct card *card, enum region_part part, uint64_t bytes) {
  for (int try = 0; try < TRIES; try++) {
    uint64_t room = 0;
    for (uint32_t i = 0; i < card->count; i++) room += grant_room(card->grants[i]);
    if (room < bytes) return false;
    if (spread(card, part, bytes)) return true;
  }
  return false;
}

/* A grant that refuses has looked for the dead before. */
static bool reserve(struct card *card, enum region_part part, uint64_t bytes) {
  if (spread_while_there_is_room(card, part, bytes)) return true;
  for (uint32_t i = 0; i < card->count; i++)
    if (reserve_by(card->grants[i], part, bytes)) return true;
  return spread_while_there_is_room(card, part, bytes);
}

bool card_reserve(struct card *card, enum region_part part, uint64_t bytes) {
  if (card->count == 1) return reserve_by(card->grants[0], part, bytes);
  lock_take(&card->spreading);
  bool fits = reserve(card, part, bytes);
  lock_leave(&card->spreading);
  return fits;
}

bool card_hold(struct card *card, enum region_part part, uint64_t bytes) {
  return region_reserve(&card->grants[0]->region, part, bytes, UINT64_MAX, REGION_NO_CAP);
}

void card_release(struct card *card, enum region_part part, uint64_t bytes) {
  if (card->count == 1) {
    region_release(&card->grants[0]->region, part, bytes);
    return;
  }
  lock_take(&card->spreading);
  for (uint32_t i = card->count; i-- > 0 && bytes != 0;) {
    struct region *region = &card->grants[i]->region;
    uint64_t some = least(bytes, atomic_load_explicit(&region->held[part], memory_order_relaxed));
    if (some != 0) region_release(region, part, some);
    bytes -= some;
  }
  lock_leave(&card->spreading);
}
