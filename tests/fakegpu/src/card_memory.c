/* SPDX-License-Identifier: Apache-2.0
 *
 * A card's memory, counted. All functions are called under the lock of the state.
 */
#include "state.h"

uint64_t memory_rounded(uint64_t bytes) {
  uint64_t step = member_state()->driver.granularity_bytes;
  if (bytes > UINT64_MAX - step) return 0;
  return (bytes + step - 1) / step * step;
}

uint64_t memory_free(uint32_t card) {
  const struct state *state = member_state();
  uint64_t total = state->cards[card].memory_bytes;
  uint64_t taken = state->cards[card].reserved_bytes + state->dynamic[card].used_bytes +
                   state->dynamic[card].stranger_bytes;
  return taken < total ? total - taken : 0;
}

bool memory_take(uint32_t card, uint64_t bytes) {
  if (bytes > memory_free(card)) {
    reap_dead();
    if (bytes > memory_free(card)) return false;
  }
  struct card_state *dynamic = &member_state()->dynamic[card];
  if (dynamic->used_bytes + bytes > dynamic->peak_bytes)
    reap_dead_of_few(); /* the peak is of the living alone */
  member_slot()->used_bytes[card] += bytes;
  dynamic->used_bytes += bytes;
  if (dynamic->used_bytes > dynamic->peak_bytes) dynamic->peak_bytes = dynamic->used_bytes;
  return true;
}

void memory_give(uint32_t card, uint64_t bytes) {
  member_slot()->used_bytes[card] -= bytes;
  member_state()->dynamic[card].used_bytes -= bytes;
}
