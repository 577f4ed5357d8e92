/* SPDX-License-Identifier: Apache-2.0
 *
 * Exact sums over the slots of a usage file, changed by many processes without a lock. Whoever stops or dies,
 * at whatever instruction, holds nobody up and leaves nothing half done.
 *
 * The head (`last_operation` and `sums`, 16 bytes) names the last operation: its number, its slot, what that
 * slot holds since, and the total. One compare-and-swap of it is an operation:
 *
 *   1. read the head;
 *   2. if it names another slot than one's own, enter what it says into that slot, unless somebody has;
 *   3. look whether one's own slot still is one's own, and whether there is room;
 *   4. swap the head for one with the next number, one's own slot, and the new sums. Failed: from 1.
 *
 * So what a slot holds is what the head says, if it names it, and else what stands in the slot. The latter
 * changes only while the head names the slot: entering is a compare-and-swap of the bytes together with the
 * number of the operation that they come from, which comes too late wherever somebody else was first. What is
 * read between 1 and 4 is thus of one moment if 4 succeeds, however it was read; and a refusal is one if the
 * head is still there afterwards. An operation's number never comes again (44 bits: at ten million a second,
 * in twenty days).
 *
 * Nothing here asks who lives: a slot changes hands by a compare-and-swap of its `start_ns`, and 3 comes
 * after 1, so an operation in the name of a former owner fails, or came before. */
#ifndef TESSERA_ACCOUNT_H
#define TESSERA_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "tessera_abi.h"

/* The most that a grant can hold, in granules: 32 TiB. */
#define ACCOUNT_MOST ((UINT64_C(1) << (64 - TESSERA_TOTAL_SHIFT)) - 1)

/* Everything in granules. */
struct account_room {
  uint64_t limit;     /* of the total */
  uint64_t cap;       /* of the slots of `container` together; ACCOUNT_NO_CAP: there is none */
  uint64_t container; /* as it stands in the slots */
};

#define ACCOUNT_NO_CAP UINT64_MAX

enum account_answer {
  ACCOUNT_DONE,
  ACCOUNT_REFUSED, /* there is no room */
  ACCOUNT_LOST,    /* the slot isn't `start`'s any more */
};

/* The slot that `start` owns holds `after` granules from now on, where it held `before`. */
enum account_answer account_change(struct tessera_usage *usage, uint32_t slot, uint64_t start,
                                   uint64_t before, uint64_t after, const struct account_room *room);

/* The same, whatever it held and however much room there is. `start` 0: the slot is nobody's, which must have
   been seen to before. false: it isn't `start`'s. */
bool account_set(struct tessera_usage *usage, uint32_t slot, uint64_t start, uint64_t held);

/* Granules that the slots of a container hold together, all of one moment; where others are never done, of many. */
uint64_t account_sum(const struct tessera_usage *usage, uint64_t container);

/* From now on the slot is one of those that are looked at; after its start_ns was set and before it holds
   anything. */
void account_enter_slot(struct tessera_usage *usage, uint32_t slot);

/* What is to be told of slots_high before a look at all slots, and after it, to lower it to the highest used
   one: nothing changes where somebody has entered a slot in between. */
uint64_t account_slots_seen(const struct tessera_usage *usage);
void account_lower_slots(struct tessera_usage *usage, uint64_t seen, uint32_t high);

/* Puts the total right where the tenant has written to it. */
void account_mend_total(struct tessera_usage *usage);

/* Unit tests stop here: between any two looks at what is shared. */
#ifdef TESSERA_STEPS
extern void (*account_step)(void);
#endif

#endif
