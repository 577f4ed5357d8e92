/* SPDX-License-Identifier: Apache-2.0
 *
 * When which process of the grant had kernels on the card, and what of that was its own: processes with work
 * take turns, so each of n gets an n-th of the time. Pure arithmetic over the usage file. */
#ifndef TESSERA_SPANS_H
#define TESSERA_SPANS_H

#include <stdint.h>

#include "tessera_abi.h"

#define SPANS_OVERDUE_NS 500000000u

/* The process of `slot` had a kernel on the card from `start` to `end`. */
void spans_note(struct tessera_usage *usage, uint32_t slot, uint64_t start, uint64_t end);

/* Nanoseconds of `start` to `end` that were the process's own, for all that is known at `end` or later. */
uint64_t spans_own_part(const struct tessera_usage *usage, uint32_t slot, uint64_t start, uint64_t end);

/* The same of a wait for a turn: nothing of the time in which nobody else was there, for it was no turn that was
   waited for. */
uint64_t spans_part_of_wait(const struct tessera_usage *usage, uint32_t slot, uint64_t start, uint64_t end);

/* Device time that kernels have had up to now beyond what was charged for them beforehand: those that run for the
   first time, or longer than any before. The processes' own, added up; of each no more than SPANS_OVERDUE_NS, since
   a kernel may have ended long ago in a process that does something else, or wait for the one that is held back. */
uint64_t spans_uncharged(const struct tessera_usage *usage, uint64_t now);

#endif
