/* SPDX-License-Identifier: Apache-2.0
 *
 * When on the host's clock an event has come, which the driver does not tell: it tells the time between two events.
 * Each event bounds it, since it comes after it was recorded and before it is seen; by the time between them the
 * bounds of one hold for the next, so that they come close together.
 *
 * Callers exclude each other. */
#ifndef TESSERA_CARD_CLOCK_H
#define TESSERA_CARD_CLOCK_H

#include <stdint.h>

#include "cuda_types.h"

/* The moment of `*event`, which has come between `earliest` and `latest`. The event is kept for the next one's
   sake, and exchanged for another of the context; NULL: there is none yet, make one in that context. */
uint64_t card_clock_place(CUcontext context, CUevent *event, uint64_t earliest, uint64_t latest);

void card_clock_context_ends(CUcontext context);

/* For a forked child: the events are the parent's. */
void card_clock_reset(void);

#endif
