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
  usage->version = TESSERA_USAGE_VERSION;
  usage->size = sizeof *usage;
  usage->slots = TESSERA_SLOTS;
  store_release(&usage->magic, (uint32_t)TESSERA_USAGE_MAGIC);
}

int tessera_usage_valid(const void *usage, uint64_t bytes) { return usage_valid(usage, bytes); }

int tessera_usage_foreign(const void *usage) { return usage_foreign(usage); }

int tessera_usage_in_use(int file) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = TESSERA_SLOTS};
  return fcntl(file, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

int tessera_limits_valid(const void *limits, uint64_t bytes) { return limits_valid(limits, bytes); }

int tessera_limits_read(const void *limits, struct tessera_limits *copy) {
  return limits_read(limits, copy) ? 0 : -1;
}

void tessera_limits_write(void *limits, const struct tessera_limits *value) { limits_write(limits, value); }

void tessera_limits_lend(void *limits, uint32_t cores, uint32_t stretch, uint32_t stretch_unlent,
                         uint64_t until_ns) {
  limits_lend(limits, cores, stretch, stretch_unlent, until_ns);
}

/* Counters of one slot, each read once; they may be of slightly different moments. */
static void copy_process(const struct tessera_process *from, struct tessera_process *to) {
  memset(to, 0, sizeof *to);
  to->pid = load_relaxed(&from->pid);
  to->waiting = load_relaxed(&from->waiting);
  to->start_ns = load_acquire(&from->start_ns);
  to->context_bytes = load_relaxed(&from->context_bytes);
  to->module_bytes = load_relaxed(&from->module_bytes);
  to->launches = load_relaxed(&from->launches);
  to->busy_ns = load_relaxed(&from->busy_ns);
  to->waited_ns = load_relaxed(&from->waited_ns);
  to->last_launch_ns = load_relaxed(&from->last_launch_ns);
  to->refused = load_relaxed(&from->refused);
  to->timed = load_relaxed(&from->timed);
  to->resident_ns = load_relaxed(&from->resident_ns);
  to->resident_until = load_relaxed(&from->resident_until);
  to->short_ns = load_relaxed(&from->short_ns);
  to->container = load_relaxed(&from->container);
}

uint32_t tessera_usage_living(const void *usage, int file, struct tessera_living *living, uint32_t capacity) {
  const struct tessera_usage *shared = usage;
  uint32_t high = usage_slots_high(shared), count = 0;
  int pid;
  for (uint32_t slot = 0; slot < high && count < capacity; slot++) {
    if (!slot_taken(&shared->process[slot]) || !slot_alive(file, slot, &pid)) continue;
    living[count].slot = slot;
    living[count].pid = (uint32_t)pid;
    copy_process(&shared->process[slot], &living[count].process);
    living[count].process.bytes = usage_held(shared, slot);
    if (living[count].process.start_ns != 0) count++;
  }
  return count;
}

uint32_t tessera_usage_spans(const void *usage, uint64_t bytes, uint64_t since_ns, struct tessera_span *spans,
                             uint32_t capacity) {
  const struct tessera_usage *shared = usage;
  uint32_t count = 0;
  if (bytes < sizeof *shared) return 0;
  for (uint32_t i = 0; i < TESSERA_SPANS && count < capacity; i++) {
    uint32_t length = load_acquire(&shared->spans[i].length_us);
    uint64_t start = load_relaxed(&shared->spans[i].start_ns);
    if (length == 0 || start + length * (uint64_t)1000 <= since_ns) continue;
    spans[count].start_ns = start;
    spans[count].length_us = length;
    spans[count++].slot = load_relaxed(&shared->spans[i].slot);
  }
  return count;
}

uint64_t tessera_usage_peak(const void *usage) { return usage_peak(usage); }

#pragma GCC visibility pop
