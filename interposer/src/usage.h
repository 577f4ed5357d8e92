/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a usage file: what both the library and the agent's helper do. */
#ifndef TESSERA_USAGE_H
#define TESSERA_USAGE_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>

#include "tessera_abi.h"

/* Whether the struct may be used out of `bytes` bytes of file. */
bool usage_valid(const struct tessera_usage *usage, uint64_t bytes);

/* Whether it is a usage file, but of another version: its processes count in another way. */
bool usage_foreign(const struct tessera_usage *usage);

/* Slots from this one on are not used; never more than there are. */
uint32_t usage_slots_high(const struct tessera_usage *usage);

/* The last operation on the memory, and what it has made of the sums, as account.h explains. */
struct head {
  uint64_t last, sums;
};

static inline uint64_t head_number(struct head head) { return head.last >> TESSERA_NUMBER_SHIFT; }

static inline uint32_t head_slot(struct head head) {
  return (uint32_t)(head.last >> TESSERA_SLOT_SHIFT) % TESSERA_SLOTS;
}

/* Granules that the slot holds since, and all of them. */
static inline uint64_t head_held(struct head head) {
  return (head.last % (1u << TESSERA_SLOT_SHIFT)) << TESSERA_TOTAL_SHIFT |
         head.sums % (1u << TESSERA_TOTAL_SHIFT);
}

static inline uint64_t head_total(struct head head) { return head.sums >> TESSERA_TOTAL_SHIFT; }

/* Bytes that the slot's process holds on the card. */
uint64_t usage_held(const struct tessera_usage *usage, uint32_t slot);

/* Bytes that all of them hold, and the most that they ever held. */
uint64_t usage_total(const struct tessera_usage *usage);
uint64_t usage_peak(const struct tessera_usage *usage);

/* Whether the slot is somebody's, who may be dead. */
static inline bool slot_taken(const struct tessera_process *slot) {
  return __atomic_load_n(&slot->start_ns, __ATOMIC_ACQUIRE) != 0;
}

/* fcntl on the record lock of the slot's byte. */
int record_lock(int file, int command, uint32_t slot, struct flock *lock);

/* Gives the slot's byte up. */
void unlock_slot(int file, uint32_t slot);

/* Whether another process holds the slot, and its pid as seen from here (0: not visible). Where nobody can
   tell, it lives: nothing may be taken from the living. */
bool slot_alive(int file, uint32_t slot, int *pid);

#endif
