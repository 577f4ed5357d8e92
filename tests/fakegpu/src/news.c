/* SPDX-License-Identifier: Apache-2.0
 *
 * Events of cards, and sleeping until there is one. The word that grows lies in the mapped file, so one wake
 * reaches the sleepers of every process, whatever container they are in.
 */
#define _GNU_SOURCE
#include "state.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void news_tell(struct state *state) {
  atomic_fetch_add(&state->news, 1);
  syscall(SYS_futex, &state->news, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void news_wait(struct state *state, uint32_t seen, uint64_t until_ns) {
  uint64_t now = clock_now();
  if (until_ns <= now) return;
  uint64_t left = until_ns - now;
  struct timespec span = {.tv_sec = (time_t)(left / 1000000000u), .tv_nsec = (long)(left % 1000000000u)};
  syscall(SYS_futex, &state->news, FUTEX_WAIT, seen, until_ns == UINT64_MAX ? NULL : &span, NULL, 0);
}

void event_add(struct state *state, uint32_t unit, uint64_t type, uint64_t data) {
  const struct card_config *config = &state->cards[unit];
  bool whole = unit < FAKEGPU_CARDS;
  uint64_t number = ++state->events.newest;
  state->events.ring[number % FAKEGPU_EVENTS] =
      (struct card_event){.type = type,
                          .data = data,
                          .card = unit_card(state, unit),
                          .gpu_instance = whole ? UINT32_MAX : config->gpu_instance,
                          .compute_instance = whole ? UINT32_MAX : config->compute_instance};
  news_tell(state);
}
