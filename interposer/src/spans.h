/* SPDX-License-Identifier: Apache-2.0
 *
 * When which process of the grant had kernels on the card, and what of that was its own: processes with work
 * take turns, so each of n gets an n-th of the time. Pure arithmetic over the usage file. */
#ifndef TESSERA_SPANS_H
#define TESSERA_SPANS_H

#include <stdint.h>

#include "tessera_abi.h"

/* The process of `slot` had a kernel on the card from `start` to `end`. */
void spans_note(struct tessera_usage *usage, uint32_t slot, uint64_t start, uint64_t end);

/* Nanoseconds of `start` to `end` that were the process's own, for all that is known at `end` or later. */
uint64_t spans_own_part(const struct tessera_usage *usage, uint32_t slot, uint64_t start, uint64_t end);

#endif
