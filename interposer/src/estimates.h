/* SPDX-License-Identifier: Apache-2.0
 *
 * How long a kernel takes on the device, learnt per function and size of grid; a graph is a function of its
 * own.
 *
 * Timing a launch costs the driver two event records, a few microseconds. So long kernels are all timed, of short
 * ones some, each for many. All are charged what they took, however much that varies; the estimate is only what is
 * taken beforehand. A time that is not short any more stands for no other launch: the next ones are all timed until
 * it is known what it was. Fields are single atomic words; a lost update is one sample less. */
#ifndef TESSERA_ESTIMATES_H
#define TESSERA_ESTIMATES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define ESTIMATE_LONG_NS 200000u

struct estimate {
  _Atomic uint64_t key;      /* 0: free */
  _Atomic uint64_t ns;       /* 0: not known yet */
  _Atomic uint64_t apart_ns; /* from start to end, last time, with what others did in between */
  _Atomic uint64_t timed_ns; /* when the last timed launch was, and for how many it was paid */
  _Atomic uint32_t group;
  _Atomic uint32_t paid;    /* launches still to come that are paid for */
  _Atomic uint32_t random;  /* the last number of its sequence */
  _Atomic uint32_t pending; /* timed launches that have not finished */
  _Atomic bool was_long;    /* the last one that was timed, and was expected to be short */
};

/* Never NULL: what finds no place in the table shares one entry. */
struct estimate *estimate_of(const void *function, uint64_t blocks);

/* Whether the launch is paid for already; then it is one less. */
static inline bool estimate_is_paid(struct estimate *estimate) {
  uint32_t paid = atomic_load_explicit(&estimate->paid, memory_order_relaxed);
  if (paid == 0) return false;
  atomic_store_explicit(&estimate->paid, paid - 1, memory_order_relaxed);
  return true;
}

/* For how many launches this one, which is timed, is to be paid: it, and those that come next. `now`: of the coarse
   clock. */
uint32_t estimate_launch(struct estimate *estimate, uint64_t now);

/* Whether a timed launch that was expected to be short, and was not, may have been cut by another process's turn,
   which happens to few. The second in a row was not: the function isn't short any more. */
bool estimate_seems_cut(struct estimate *estimate, uint64_t elapsed_ns, uint64_t debited);

/* A timed launch has ended and took `elapsed_ns` of the card's time; it stands for `launches`, each of which
   was charged `debited` ns. `contended`: other processes are known to have had kernels on the card meanwhile.
   Learns, and returns what is to be charged in addition, in ns; less than 0: given back. */
int64_t estimate_settle(struct estimate *estimate, uint64_t elapsed_ns, bool contended, uint64_t debited,
                        uint32_t launches);

void estimates_reset(void);

#endif
