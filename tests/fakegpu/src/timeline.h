/* SPDX-License-Identifier: Apache-2.0
 *
 * Device time. A card runs one kernel at a time. Each process has a queue per card, in launch order; queues
 * with work take turns of `time_slice_ns` while others wait (0: of one whole kernel), as contexts do on a
 * real card.
 *
 * Nothing runs in the background: whoever looks advances the card from its clock to now under the state's
 * lock. That is exact, since a kernel's arrival also advances, so everything that waits has arrived before
 * the clock.
 */
#ifndef FAKEGPU_TIMELINE_H
#define FAKEGPU_TIMELINE_H

#include "state.h"

/* Under the lock; index is the card. */
void timeline_advance(struct state *state, uint32_t index, uint64_t now);
void timeline_drop(struct state *state, uint32_t index, uint32_t queue); /* its process is dead or done */
void timeline_rebuild(struct state *state, uint32_t index);
uint64_t timeline_busy(const struct window *windows, uint64_t now,
                       uint32_t back); /* ns busy in a past window */

/* Taking the lock themselves; for this process on a card. */
uint64_t timeline_launch(uint32_t card,
                         uint64_t duration_ns); /* sequence number; 0: no queue left; blocks if full */
/* The sequence number of what is finished once the process has its turn and `after` is done: where another
 * process has the card, a kernel of no length. */
uint64_t timeline_mark(uint32_t card, uint64_t after);
bool timeline_finished(uint32_t card, uint64_t sequence, uint64_t *end_ns); /* end_ns 0: long ago */
void timeline_wait(uint32_t card, uint64_t sequence);

#endif
