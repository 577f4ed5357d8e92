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

/* Slots from this one on are not used; never more than there are. */
uint32_t usage_slots_high(const struct tessera_usage *usage);

/* Everything that the slot's process holds on the card. */
uint64_t slot_bytes(const struct tessera_process *slot);

/* fcntl on the record lock of the slot's byte. */
int record_lock(int file, int command, uint32_t slot, struct flock *lock);

/* Whether another process holds the slot, and its pid as seen from here (0: not visible). Where nobody can
   tell, it lives: nothing may be taken from the living. */
bool slot_alive(int file, uint32_t slot, int *pid);

#endif
