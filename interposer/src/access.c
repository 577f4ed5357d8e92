/* SPDX-License-Identifier: Apache-2.0
 *
 * libtessera-access: what the node agent needs of the shared structs, as plain functions. */
#include "tessera_access.h"

#include <string.h>

#include "atomics.h"
#include "limits.h"
#include "usage.h"

#pragma GCC visibility push(default)

void tessera_usage_init(struct tessera_usage *usage) {
  memset(usage, 0, sizeof *usage);
  usage->version = TESSERA_ABI_VERSION;
  usage->size = sizeof *usage;
  usage->slots = TESSERA_SLOTS;
  store_release(&usage->magic, (uint32_t)TESSERA_USAGE_MAGIC);
}

int tessera_usage_valid(const void *usage, uint64_t bytes) { return usage_valid(usage, bytes); }

int tessera_limits_valid(const void *limits, uint64_t bytes) { return limits_valid(limits, bytes); }

int tessera_limits_read(const void *limits, struct tessera_limits *copy) {
  return limits_read(limits, copy) ? 0 : -1;
}

void tessera_limits_write(void *limits, const struct tessera_limits *value) { limits_write(limits, value); }

/* Counters of one slot, each read once; they may be of slightly different moments. */
static void copy_process(const struct tessera_process *from, struct tessera_process *to) {
  memset(to, 0, sizeof *to);
  to->state = load_acquire(&from->state);
  to->pid = load_relaxed(&from->pid);
  to->start_ns = load_relaxed(&from->start_ns);
  to->memory_bytes = load_relaxed(&from->memory_bytes);
  to->context_bytes = load_relaxed(&from->context_bytes);
  to->module_bytes = load_relaxed(&from->module_bytes);
  to->launches = load_relaxed(&from->launches);
  to->busy_ns = load_relaxed(&from->busy_ns);
  to->waited_ns = load_relaxed(&from->waited_ns);
  to->last_launch_ns = load_relaxed(&from->last_launch_ns);
  to->refused = load_relaxed(&from->refused);
  to->timed = load_relaxed(&from->timed);
}

uint32_t tessera_usage_living(const void *usage, int file, struct tessera_living *living, uint32_t capacity) {
  const struct tessera_usage *shared = usage;
  uint32_t high = usage_slots_high(shared), count = 0;
  int pid;
  for (uint32_t slot = 0; slot < high && count < capacity; slot++) {
    if (load_acquire(&shared->process[slot].state) != TESSERA_SLOT_USED) continue;
    if (!slot_alive(file, slot, &pid)) continue;
    living[count].slot = slot;
    living[count].pid = (uint32_t)pid;
    copy_process(&shared->process[slot], &living[count].process);
    if (living[count].process.state == TESSERA_SLOT_USED) count++;
  }
  return count;
}

uint64_t tessera_usage_peak(const void *usage) {
  return load_relaxed(&((const struct tessera_usage *)usage)->peak_memory_bytes);
}

#pragma GCC visibility pop
