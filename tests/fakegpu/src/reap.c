/* SPDX-License-Identifier: Apache-2.0
 *
 * What the dead leave behind. Whoever looks at memory or time drops it, so a killed process never holds
 * memory or the card for longer than until somebody asks.
 */
#include "state.h"
#include "timeline.h"

#include <string.h>

#define REAP_EVERY_NS 1000000u
#define OF_MANY_EVERY_NS 10000000u
#define MANY 512u

void slot_clear(struct state *state, uint32_t index) {
  struct slot *slot = &state->slots[index];
  for (uint32_t card = 0; card < FAKEGPU_UNITS; card++) {
    if (slot->queue[card] != 0) timeline_drop(state, card, slot->queue[card] - 1u);
    struct card_state *dynamic = &state->dynamic[card];
    dynamic->used_bytes -=
        slot->used_bytes[card] < dynamic->used_bytes ? slot->used_bytes[card] : dynamic->used_bytes;
    slot->used_bytes[card] = 0;
    slot->launches[card] = 0;
    slot->contexts[card] = 0;
    slot->queue[card] = 0;
  }
  slot->kind = SLOT_FREE;
  slot->pid = 0;
}

void reap_dead(void) {
  struct state *state = member_state();
  uint32_t end = atomic_load(&state->slot_end);
  for (uint32_t index = 0; index < end; index++)
    if (state->slots[index].kind != SLOT_FREE && slot_owner(index, NULL) == 0) slot_clear(state, index);
  atomic_store(&state->reaped_ns, clock_now());
}

/* Whether one lives, the kernel finds by going through the locks of all. */
void reap_dead_of_few(void) {
  const struct state *state = member_state();
  if (atomic_load(&state->slot_end) <= MANY ||
      clock_now() - atomic_load(&state->reaped_ns) > OF_MANY_EVERY_NS)
    reap_dead();
}

void reap_dead_sometimes(void) {
  if (clock_now() - atomic_load(&member_state()->reaped_ns) > REAP_EVERY_NS) reap_dead();
}

void state_repair(struct state *state) {
  uint32_t end = atomic_load(&state->slot_end);
  for (uint32_t card = 0; card < FAKEGPU_UNITS; card++) {
    uint64_t sum = 0;
    for (uint32_t index = 0; index < end; index++) sum += state->slots[index].used_bytes[card];
    state->dynamic[card].used_bytes = sum;
    timeline_rebuild(state, card);
  }
}
