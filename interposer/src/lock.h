/* SPDX-License-Identifier: Apache-2.0
 *
 * A small lock between the threads of one process: one word, no libpthread (which would come into every
 * preloaded program with an older libc), reset by overwriting with zero after fork. */
#ifndef TESSERA_LOCK_H
#define TESSERA_LOCK_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOCK_LOOK_AGAIN_NS 1000000

/* 0 free, 1 taken, 2 taken and somebody may sleep. */
struct lock {
  _Atomic uint32_t word;
};

/* Relative time-out; NULL waits for ever. Spurious returns are allowed. */
static inline void futex_wait(const void *word, uint32_t expected, const struct timespec *timeout,
                              int private) {
  syscall(SYS_futex, word, FUTEX_WAIT | private, expected, timeout, NULL, 0);
}

static inline void futex_wake(const void *word, int count, int private) {
  syscall(SYS_futex, word, FUTEX_WAKE | private, count, NULL, NULL, 0);
}

/* Apart from the ways on which nobody waits: there it would only be in the way. */
__attribute__((cold, noinline, unused)) static void lock_wait(struct lock *lock) {
  static const struct timespec soon = {0, LOCK_LOOK_AGAIN_NS};
  while (atomic_exchange_explicit(&lock->word, 2, memory_order_acquire) != 0)
    futex_wait(&lock->word, 2, &soon, FUTEX_PRIVATE_FLAG);
}

__attribute__((cold, noinline, unused)) static void lock_wake(struct lock *lock) {
  if (atomic_exchange_explicit(&lock->word, 0, memory_order_release) == 2)
    futex_wake(&lock->word, 1, FUTEX_PRIVATE_FLAG);
}

static inline void lock_take(struct lock *lock) {
  uint32_t seen = 0;
  if (!atomic_compare_exchange_strong_explicit(&lock->word, &seen, 1, memory_order_acquire,
                                               memory_order_relaxed))
    lock_wait(lock);
}

/* 1: taken; 0: somebody else has it. */
static inline int lock_try(struct lock *lock) {
  uint32_t seen = 0;
  return atomic_compare_exchange_strong_explicit(&lock->word, &seen, 1, memory_order_acquire,
                                                 memory_order_relaxed);
}

/* Mostly nobody waits, and a plain store costs a third of an exchange. Who falls asleep between the look and
   the store isn't woken, and looks again by itself. */
static inline void lock_leave(struct lock *lock) {
  if (atomic_load_explicit(&lock->word, memory_order_relaxed) == 1)
    atomic_store_explicit(&lock->word, 0, memory_order_release);
  else
    lock_wake(lock);
}

#endif
