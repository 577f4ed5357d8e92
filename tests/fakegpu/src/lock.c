/* SPDX-License-Identifier: Apache-2.0
 *
 * The lock of the state file. Its word names the holder's slot and generation, so that a waiter can ask the
 * kernel whether the holder lives (record lock on the slot's byte) and take over from the dead after about a
 * millisecond. Neither robust futexes nor the C library's mutexes are used: both depend on the C library's
 * version and on thread ids, which mean nothing across PID namespaces.
 */
#define _GNU_SOURCE
#include "state.h"

#include <sched.h>
#include <time.h>

#define TAKEOVER_NS 1000000u
#define MOST_PATIENCE_NS 16000000u

static uint64_t word_of(uint32_t slot, uint64_t tag) {
  return (uint64_t)(slot + 1u) | (tag & 0xffffffffu) << 16;
}

static bool holder_is_dead(struct state *state, uint64_t word) {
  uint32_t slot = (uint32_t)(word & 0xffffu) - 1u;
  if (slot >= FAKEGPU_SLOTS) return true;
  /* Another generation: the byte has a new owner, so the one that locked is gone. */
  if (word_of(slot, atomic_load(&state->slots[slot].tag)) != word) return true;
  return slot_owner(slot, NULL) == 0;
}

/* A crowd that waits must leave the holder the processor. */
static void nap(unsigned round) {
  if (round < 100) {
    sched_yield();
    return;
  }
  struct timespec pause = {.tv_sec = 0, .tv_nsec = round < 200 ? 50000 : 1000000};
  nanosleep(&pause, NULL);
}

/* The slow road: somebody else (or another thread of ours) holds the lock. */
static void wait_and_take(struct state *state, uint64_t mine) {
  uint64_t seen = 0, since = 0, patience = TAKEOVER_NS;
  for (unsigned round = 0;; round++) {
    uint64_t word = 0;
    if (atomic_compare_exchange_strong(&state->lock, &word, mine)) return;
    uint64_t now = clock_now();
    if (word != seen) {
      seen = word;
      since = now;
    } else if (now - since > patience) {
      if (holder_is_dead(state, word) && atomic_compare_exchange_strong(&state->lock, &word, mine)) {
        atomic_fetch_add(&state->repairs, 1);
        state_repair(state);
        return;
      }
      since = now;
      if (patience < MOST_PATIENCE_NS) patience *= 2; /* where there are many, asking costs much */
    }
    nap(round);
  }
}

void lock_take_as(struct state *state, uint32_t slot, uint64_t tag) {
  uint64_t mine = word_of(slot, tag), word = 0;
  if (atomic_compare_exchange_strong(&state->lock, &word, mine)) return;
  wait_and_take(state, mine);
}

void state_lock(void) {
  struct slot *slot = member_slot();
  lock_take_as(member_state(), member_index(), atomic_load_explicit(&slot->tag, memory_order_relaxed));
}

void state_unlock(void) { atomic_store_explicit(&member_state()->lock, 0, memory_order_release); }
