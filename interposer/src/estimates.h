/* SPDX-License-Identifier: Apache-2.0
 *
 * How long a kernel takes on the device, learnt per function and size of grid; a graph is a function of its
 * own.
 *
 * Whatever else uses the card can only make a measured time longer, so the estimate goes down at once and up
 * slowly: it is the time that the kernel takes when it is alone. While other processes of the same grant are
 * known to share the card with a kernel that was never seen alone, its even part of the time is a guess; the
 * first time alone puts right what was charged by guesses. Fields are single atomic words; a lost update is
 * one sample less. */
#ifndef TESSERA_ESTIMATES_H
#define TESSERA_ESTIMATES_H

#include <stdatomic.h>
#include <stdint.h>

struct estimate {
  _Atomic uint64_t key;        /* 0: free */
  _Atomic uint64_t ns;         /* 0: not known yet */
  _Atomic uint64_t guessed_ns; /* charged in all by guesses */
  _Atomic uint32_t guessed;    /* launches that it was for */
  _Atomic uint32_t alone;      /* 1: seen alone, so ns is no guess */
  _Atomic uint32_t unsampled;  /* launches since the last one that was timed */
  _Atomic uint32_t pending;    /* timed launches that have not finished */
};

/* Never NULL: what finds no place in the table shares one entry. */
struct estimate *estimate_of(const void *function, uint64_t blocks);

/* Counts a launch. Not 0: it is to be timed, and stands for that many launches. */
uint32_t estimate_launch(struct estimate *estimate);

/* A timed launch has ended; it stands for `launches`, each of which was charged `debited` ns. `sharers`:
   processes of the grant that had kernels on the card meanwhile, at least 1 (itself). Learns, and returns
   what is to be charged in addition, in ns; less than 0: given back. */
int64_t estimate_settle(struct estimate *estimate, uint64_t elapsed_ns, uint32_t sharers, uint64_t debited,
                        uint32_t launches);

void estimates_reset(void);

#endif
