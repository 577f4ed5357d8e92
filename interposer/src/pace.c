/* SPDX-License-Identifier: Apache-2.0 */
#include "pace.h"

#include "atomics.h"

/* The longest debt that is believed: an hour of waiting. More can only be a broken figure. */
#define MOST_NS (3600ull * 1000000000ull)

static uint64_t scaled(uint64_t nanoseconds, uint64_t numerator, uint64_t denominator) {
  if (nanoseconds > MOST_NS) nanoseconds = MOST_NS;
  return nanoseconds * numerator / denominator;
}

static uint64_t floor_of(uint64_t ready, uint64_t now) {
  uint64_t oldest = now > PACE_BURST_NS ? now - PACE_BURST_NS : 0;
  return ready > oldest ? ready : oldest;
}

/* What is still owed takes another time to repay. */
static void change_rate(uint64_t *word, uint32_t before, uint32_t rate, uint64_t now) {
  uint64_t ready = load_acquire(word), next;
  do {
    if (ready <= now || before == 0) return;
    next = now + scaled(ready - now, before, rate);
  } while (!swap_if(word, &ready, next));
}

/* The rate may have changed. Whoever swaps it in changes the debt; should he die between the two steps, one
   debt is repaid at the old rate. */
static void follow_rate(struct tessera_usage *usage, uint32_t rate, uint64_t now) {
  uint32_t before = load_acquire(&usage->time_rate);
  if (before != rate && swap_if(&usage->time_rate, &before, rate))
    change_rate(&usage->time_ready_ns, before, rate, now);
}

/* From when on device time is repaid that is taken now. What is later than that is scribbled over, or from
   another boot. */
static uint64_t repaid_from(uint64_t ready, uint64_t now) {
  return floor_of(ready > now + MOST_NS ? now : ready, now);
}

static uint64_t admit_at(uint64_t *word, uint32_t rate, uint64_t now, uint64_t uncharged, uint64_t cost) {
  uint64_t ready = load_acquire(word), later = scaled(uncharged, 100, rate), next;
  do {
    uint64_t from = repaid_from(ready, now);
    if (from + later > now) return from + later;
    next = from + scaled(cost, 100, rate);
  } while (!swap_if(word, &ready, next));
  return 0;
}

static void correct_at(uint64_t *word, uint32_t rate, uint64_t now, int64_t difference) {
  uint64_t size = scaled(difference < 0 ? (uint64_t)-difference : (uint64_t)difference, 100, rate);
  uint64_t ready = load_acquire(word), next;
  do {
    uint64_t from = floor_of(ready, now);
    next = difference >= 0 ? from + size : (from > size ? from - size : 0);
  } while (!swap_if(word, &ready, next));
}

uint64_t pace_admit(struct tessera_usage *usage, uint32_t rate, uint64_t now, uint64_t uncharged,
                    uint64_t cost) {
  follow_rate(usage, rate, now);
  return admit_at(&usage->time_ready_ns, rate, now, uncharged, cost);
}

uint64_t pace_look(struct tessera_usage *usage, uint32_t rate, uint64_t now, uint64_t uncharged) {
  follow_rate(usage, rate, now);
  uint64_t ready = repaid_from(load_acquire(&usage->time_ready_ns), now) + scaled(uncharged, 100, rate);
  return ready > now ? ready : 0;
}

void pace_correct(struct tessera_usage *usage, uint32_t rate, uint64_t now, int64_t difference) {
  correct_at(&usage->time_ready_ns, rate, now, difference);
}

uint64_t pace_admit_capped(struct tessera_usage *usage, uint32_t cap, uint32_t rate, uint64_t now,
                           uint64_t cost) {
  uint8_t before = load_acquire(&usage->cap_rate[cap]);
  if (before != rate && swap_if(&usage->cap_rate[cap], &before, (uint8_t)rate))
    change_rate(&usage->cap_ready_ns[cap], before, rate, now);
  return admit_at(&usage->cap_ready_ns[cap], rate, now, 0, cost);
}

void pace_correct_capped(struct tessera_usage *usage, uint32_t cap, uint32_t rate, uint64_t now,
                         int64_t difference) {
  correct_at(&usage->cap_ready_ns[cap], rate, now, difference);
}
