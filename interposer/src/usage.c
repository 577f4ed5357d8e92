/* SPDX-License-Identifier: Apache-2.0 */
#include "usage.h"

#include <string.h>
#include <unistd.h>

#include "atomics.h"

bool usage_valid(const struct tessera_usage *usage, uint64_t bytes) {
  return bytes >= TESSERA_USAGE_SIZE_0 && usage->magic == TESSERA_USAGE_MAGIC && usage->version != 0 &&
         usage->version <= TESSERA_ABI_VERSION && usage->size >= TESSERA_USAGE_SIZE_0 &&
         usage->slots == TESSERA_SLOTS;
}

uint32_t usage_slots_high(const struct tessera_usage *usage) {
  uint32_t high = load_acquire(&usage->slots_high);
  return high < TESSERA_SLOTS ? high : TESSERA_SLOTS;
}

uint64_t slot_bytes(const struct tessera_process *slot) {
  return load_relaxed(&slot->memory_bytes) + load_relaxed(&slot->context_bytes) +
         load_relaxed(&slot->module_bytes);
}

int record_lock(int file, int command, uint32_t slot, struct flock *lock) {
  memset(lock, 0, sizeof *lock);
  lock->l_type = F_WRLCK;
  lock->l_whence = SEEK_SET;
  lock->l_start = slot;
  lock->l_len = 1;
  return fcntl(file, command, lock);
}

bool slot_alive(int file, uint32_t slot, int *pid) {
  struct flock lock;
  *pid = 0;
  if (file < 0 || record_lock(file, F_GETLK, slot, &lock) != 0) return true;
  if (lock.l_type == F_UNLCK) return false;
  *pid = lock.l_pid > 0 ? lock.l_pid : 0;
  return true;
}
