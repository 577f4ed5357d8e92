/* SPDX-License-Identifier: Apache-2.0
 *
 * One budget of device time per grant, in the shared region: pure arithmetic on the clock that the caller
 * brings.
 *
 * time_ready_ns is the moment at which all device time taken so far is repaid, at time_rate percent of real
 * time. A launch may go when that moment has come, and moves it on by cost × 100 / rate. It lags behind now
 * by at most PACE_BURST_NS: an idle grant saves up no more. Debt is therefore repaid exactly, by waiting,
 * however long one kernel was; nobody holds a lock, and whoever dies leaves one whole word. */
#ifndef TESSERA_PACE_H
#define TESSERA_PACE_H

#include <stdint.h>

#include "tessera_abi.h"

#define PACE_BURST_NS 50000000u

/* 0: go, the cost (ns of device time) is taken. Else: the time at which to ask again; nothing is taken.
   `uncharged`: device time that was had already and will be charged later; it must be repaid too. */
uint64_t pace_admit(struct tessera_usage *usage, uint32_t rate, uint64_t now, uint64_t uncharged,
                    uint64_t cost);

/* The same, but nothing is taken in any case. */
uint64_t pace_look(struct tessera_usage *usage, uint32_t rate, uint64_t now, uint64_t uncharged);

/* The true cost was that much more (or less) than what was taken. */
void pace_correct(struct tessera_usage *usage, uint32_t rate, uint64_t now, int64_t difference);

/* The same of what a container may have of it: by the number of its cap, at less than 100 percent. */
uint64_t pace_admit_capped(struct tessera_usage *usage, uint32_t cap, uint32_t rate, uint64_t now,
                           uint64_t cost);
void pace_correct_capped(struct tessera_usage *usage, uint32_t cap, uint32_t rate, uint64_t now,
                         int64_t difference);

#endif
