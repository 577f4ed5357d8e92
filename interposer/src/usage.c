/* SPDX-License-Identifier: Apache-2.0 */
#include "usage.h"

#include <string.h>
#include <unistd.h>

#include "atomics.h"

bool usage_valid(const struct tessera_usage *usage, uint64_t bytes) {
  return bytes >= TESSERA_USAGE_SIZE_0 && usage->magic == TESSERA_USAGE_MAGIC &&
         usage->version == TESSERA_USAGE_VERSION && usage->size >= TESSERA_USAGE_SIZE_0 &&
         usage->slots == TESSERA_SLOTS;
}

bool usage_foreign(const struct tessera_usage *usage) {
  return usage->magic == TESSERA_USAGE_MAGIC && usage->version != TESSERA_USAGE_VERSION &&
         usage->version != 0 && usage->slots == TESSERA_SLOTS;
}

uint32_t usage_slots_high(const struct tessera_usage *usage) {
  uint32_t high = load_acquire(&usage->slots_high);
  return high < TESSERA_SLOTS ? high : TESSERA_SLOTS;
}

/* While the head names another slot, the slot's own figure is one of that moment or of a later one. */
uint64_t usage_held(const struct tessera_usage *usage, uint32_t slot) {
  for (;;) {
    struct head head;
    head.last = load_acquire(&usage->last_operation);
    head.sums = load_acquire(&usage->sums);
    if (head_slot(head) != slot) return load_acquire(&usage->process[slot].bytes);
    if (load_acquire(&usage->last_operation) == head.last) return head_held(head) * TESSERA_GRANULE;
  }
}

uint64_t usage_total(const struct tessera_usage *usage) {
  struct head head = {.last = 0, .sums = load_acquire(&usage->sums)};
  return head_total(head) * TESSERA_GRANULE;
}

uint64_t usage_peak(const struct tessera_usage *usage) {
  uint64_t total = usage_total(usage), before = load_relaxed(&usage->peak_memory_bytes);
  return before > total ? before : total;
}

int record_lock(int file, int command, uint32_t slot, struct flock *lock) {
  memset(lock, 0, sizeof *lock);
  lock->l_type = F_WRLCK;
  lock->l_whence = SEEK_SET;
  lock->l_start = slot;
  lock->l_len = 1;
  return fcntl(file, command, lock);
}

void unlock_slot(int file, uint32_t slot) {
  struct flock lock = {.l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1};
  fcntl(file, F_SETLK, &lock);
}

bool slot_alive(int file, uint32_t slot, int *pid) {
  struct flock lock;
  *pid = 0;
  if (file < 0 || record_lock(file, F_GETLK, slot, &lock) != 0) return true;
  if (lock.l_type == F_UNLCK) return false;
  *pid = lock.l_pid > 0 ? lock.l_pid : 0;
  return true;
}
