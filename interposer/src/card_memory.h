/* SPDX-License-Identifier: Apache-2.0
 *
 * What this process holds of a card, by all grants that the container has for it. They add up: what none has
 * room for alone is charged to several, and only the sums matter, so what is released is taken from whichever
 * this process holds something by. */
#ifndef TESSERA_CARD_MEMORY_H
#define TESSERA_CARD_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "grants.h"

/* false: there is no room; nothing is left. */
bool card_reserve(struct card *card, enum region_part part, uint64_t bytes);

/* The driver holds it already: it is charged, room or not. false: nothing can be charged. */
bool card_hold(struct card *card, enum region_part part, uint64_t bytes);
void card_release(struct card *card, enum region_part part, uint64_t bytes);

#endif
