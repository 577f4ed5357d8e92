/* SPDX-License-Identifier: Apache-2.0
 *
 * Cards and their MIG instances.
 */
#include "state.h"

uint32_t unit_of_instance(uint32_t index) { return FAKEGPU_CARDS + index; }

uint32_t unit_card(const struct state *state, uint32_t unit) {
  return unit < FAKEGPU_CARDS ? unit : state->cards[unit].parent - 1u;
}

bool unit_is_lost(const struct state *state, uint32_t unit) {
  return __atomic_load_n(&state->dynamic[unit_card(state, unit)].lost, __ATOMIC_RELAXED) != LOSS_NONE;
}
