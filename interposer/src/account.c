/* SPDX-License-Identifier: Apache-2.0 */
#include "account.h"

#include <stddef.h>

#include "atomics.h"
#include "usage.h"

#define TRIES 100

#ifdef TESSERA_STEPS
void (*account_step)(void);
#define STEP() (account_step != NULL ? account_step() : (void)0)
#else
#define STEP() ((void)0)
#endif

_Static_assert(offsetof(struct tessera_usage, last_operation) % 16 == 0, "the head can be swapped");
_Static_assert(offsetof(struct tessera_usage, process) % 16 == 0, "a slot's figure can be swapped");
_Static_assert(offsetof(struct tessera_process, bytes) % 16 == 0, "a slot's figure can be swapped");
_Static_assert(TESSERA_SLOTS <= 1 << (TESSERA_NUMBER_SHIFT - TESSERA_SLOT_SHIFT), "the head names any slot");

/* --- the head ----------------------------------------------------------------------------------------- */

/* Its halves may be of different moments: true is only what head_change or head_stands then finds to be
   so. */
static inline struct head head_read(const struct tessera_usage *usage) {
  struct head head;
  STEP();
  head.last = load_acquire(&usage->last_operation);
  STEP();
  head.sums = load_acquire(&usage->sums);
  return head;
}

static inline bool head_stands(const struct tessera_usage *usage, struct head head) {
  STEP();
  return load_acquire(&usage->last_operation) == head.last;
}

/* Enters the last operation into its slot. false: the head must be read again. */
static bool head_enter(struct tessera_usage *usage, struct head head) {
  struct tessera_process *slot = &usage->process[head_slot(head)];
  STEP();
  uint64_t entered = load_acquire(&slot->entered);
  if (entered == head_number(head)) return true;
  STEP();
  uint64_t bytes = load_acquire(&slot->bytes);
  if (!head_stands(usage, head)) return false;
  STEP();
  return swap_both_if(&slot->bytes, bytes, entered, head_held(head) * TESSERA_GRANULE, head_number(head));
}

static void raise_peak(struct tessera_usage *usage, uint64_t bytes) {
  uint64_t peak = load_relaxed(&usage->peak_memory_bytes);
  while (peak < bytes && !swap_if(&usage->peak_memory_bytes, &peak, bytes)) continue;
}

/* Does the next operation. The total that it replaces has been reached, whoever has got to say so. */
static inline bool head_change(struct tessera_usage *usage, struct head head, uint32_t slot, uint64_t held,
                               uint64_t total) {
  raise_peak(usage, head_total(head) * TESSERA_GRANULE);
  uint64_t low = (UINT64_C(1) << TESSERA_TOTAL_SHIFT) - 1;
  uint64_t last = ((head_number(head) + 1) << TESSERA_NUMBER_SHIFT) | ((uint64_t)slot << TESSERA_SLOT_SHIFT) |
                  held >> TESSERA_TOTAL_SHIFT;
  STEP();
  if (swap_both_if(&usage->last_operation, head.last, head.sums, last,
                   total << TESSERA_TOTAL_SHIFT | (held & low)))
    return true;
  pause_processor();
  return false;
}

static inline bool is_owned(const struct tessera_usage *usage, uint32_t slot, uint64_t start) {
  STEP();
  return load_acquire(&usage->process[slot].start_ns) == start;
}

static inline uint64_t shifted(uint64_t total, uint64_t before, uint64_t after) {
  total = total > before ? total - before : 0; /* less only where the tenant has written to the file */
  return total < ACCOUNT_MOST - after ? total + after : ACCOUNT_MOST;
}

/* --- operations --------------------------------------------------------------------------------------- */

/* What a slot holds while the head stands. */
static uint64_t held_under(const struct tessera_usage *usage, struct head head, uint32_t slot) {
  if (head_slot(head) == slot) return head_held(head);
  STEP();
  uint64_t held = load_acquire(&usage->process[slot].bytes) / TESSERA_GRANULE;
  return held < ACCOUNT_MOST ? held : ACCOUNT_MOST;
}

/* Of one container, or of all; the dead among them count until the next sweep. */
static uint64_t sum_under(const struct tessera_usage *usage, struct head head, const uint64_t *container) {
  uint32_t high = usage_slots_high(usage);
  uint64_t sum = 0;
  for (uint32_t i = 0; i < high; i++)
    if (container == NULL || load_relaxed(&usage->process[i].container) == *container)
      sum += held_under(usage, head, i);
  return sum;
}

static bool fits(const struct tessera_usage *usage, struct head head, uint64_t more,
                 const struct account_room *room) {
  uint64_t limit = room->limit < ACCOUNT_MOST ? room->limit : ACCOUNT_MOST, used = head_total(head);
  if (more > limit || used > limit - more) return false;
  /* The container holds no more than all of them do. */
  if (room->cap == ACCOUNT_NO_CAP || (more <= room->cap && used <= room->cap - more)) return true;
  return more <= room->cap && sum_under(usage, head, &room->container) <= room->cap - more;
}

enum account_answer account_change(struct tessera_usage *usage, uint32_t slot, uint64_t start,
                                   uint64_t before, uint64_t after, const struct account_room *room) {
  for (;;) {
    struct head head = head_read(usage);
    if (head_slot(head) != slot && !head_enter(usage, head)) continue;
    if (!is_owned(usage, slot, start)) return ACCOUNT_LOST;
    if (after > before && !fits(usage, head, after - before, room)) {
      if (head_stands(usage, head)) return ACCOUNT_REFUSED;
      continue;
    }
    uint64_t total = shifted(head_total(head), before, after);
    if (head_change(usage, head, slot, after, total)) return ACCOUNT_DONE;
  }
}

bool account_set(struct tessera_usage *usage, uint32_t slot, uint64_t start, uint64_t held) {
  if (held > ACCOUNT_MOST) held = ACCOUNT_MOST;
  for (;;) {
    struct head head = head_read(usage);
    if (head_slot(head) != slot && !head_enter(usage, head)) continue;
    if (!is_owned(usage, slot, start)) return false;
    uint64_t before = held_under(usage, head, slot);
    if (before == held) {
      if (head_stands(usage, head)) return true;
      continue;
    }
    if (head_change(usage, head, slot, held, shifted(head_total(head), before, held))) return true;
  }
}

uint64_t account_sum(const struct tessera_usage *usage, uint64_t container) {
  uint64_t sum = 0;
  for (int try = 0; try < TRIES; try++) {
    struct head head = head_read(usage);
    sum = sum_under(usage, head, &container);
    if (head_stands(usage, head)) break;
  }
  return sum;
}

void account_mend_total(struct tessera_usage *usage) {
  struct head head = head_read(usage);
  uint64_t sum = sum_under(usage, head, NULL);
  if (sum == head_total(head) || sum > ACCOUNT_MOST) return;
  head_change(usage, head, head_slot(head), head_held(head), sum); /* or somebody was busy: another time */
}

/* --- which slots are looked at ------------------------------------------------------------------------ */

/* slots_high in the lower half, claims in the upper one. */
typedef uint64_t __attribute__((may_alias)) both_counts;

static both_counts *counts_of(const struct tessera_usage *usage) {
  return (both_counts *)(uintptr_t)&usage->slots_high;
}

uint64_t account_slots_seen(const struct tessera_usage *usage) {
  STEP();
  return load_acquire(counts_of(usage));
}

void account_enter_slot(struct tessera_usage *usage, uint32_t slot) {
  uint64_t seen = account_slots_seen(usage), next;
  do {
    uint32_t high = (uint32_t)seen;
    next = ((seen >> 32) + 1) << 32 | (high > slot ? high : slot + 1);
    STEP();
  } while (!swap_if(counts_of(usage), &seen, next));
}

void account_lower_slots(struct tessera_usage *usage, uint64_t seen, uint32_t high) {
  if (high >= (uint32_t)seen) return;
  STEP();
  swap_if(counts_of(usage), &seen, (seen >> 32) << 32 | high);
}
