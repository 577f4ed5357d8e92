/* SPDX-License-Identifier: Apache-2.0 */
#include "region.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "account.h"
#include "atomics.h"
#include "clock.h"
#include "log.h"
#include "region_file.h"
#include "usage.h"

#define SWEEP_NS 5000000u  /* views and newcomers look for the dead at most this often */
#define SWEEP_SLOT_NS 500u /* and the later, the more slots there are: times their square */
#define FEW_SLOTS 64u

/* Threads of one process take turns under region->lock, which is the process's own: who stops or ends it does
   so to all of them. Between processes there is no lock, see account.h. */

static uint64_t granules(uint64_t bytes) { return bytes / TESSERA_GRANULE + (bytes % TESSERA_GRANULE != 0); }

static uint64_t held_for(const struct region *region, enum region_part part) {
  return atomic_load_explicit(&region->held[part], memory_order_relaxed);
}

/* What this process has reserved, for everything. */
static uint64_t held_bytes(const struct region *region) {
  return held_for(region, REGION_MEMORY) + held_for(region, REGION_CONTEXTS) +
         held_for(region, REGION_MODULES);
}

/* After the sums: who loses his slot in between finds in `held` what he holds. */
static void note_held(struct region *region, enum region_part part, uint64_t bytes) {
  struct tessera_process *slot =
      &region->usage->process[atomic_load_explicit(&region->owner, memory_order_relaxed) - 1];
  atomic_store_explicit(&region->held[part], bytes, memory_order_relaxed);
  if (part == REGION_CONTEXTS) store_relaxed(&slot->context_bytes, bytes);
  if (part == REGION_MODULES) store_relaxed(&slot->module_bytes, bytes);
}

/* --- the dead ----------------------------------------------------------------------------------------- */

/* Whether the slot, which isn't ours, is left to itself: then nothing of what it held counts any more. Who is
   seen dead is put out of his slot first. If somebody takes it at this moment, it is his, and he settles what
   he finds; if another clears it at the same time, each finishes what the other leaves. */
static bool clear_if_dead(struct region *region, int file, uint32_t i) {
  struct tessera_usage *usage = region->usage;
  struct tessera_process *slot = &usage->process[i];
  uint64_t start = load_acquire(&slot->start_ns);
  int pid;
  if (start == 0 && usage_held(usage, i) == 0) return true;
  if (start != 0 && (slot_alive(file, i, &pid) || !swap_if(&slot->start_ns, &start, 0))) return false;
  return account_set(usage, i, 0, 0);
}

/* Takes from the dead what they held. By the owner of slot `mine`. */
static void sweep(struct region *region, uint32_t mine) {
  struct tessera_usage *usage = region->usage;
  uint64_t seen = account_slots_seen(usage);
  uint32_t high = usage_slots_high(usage), top = 0;
  int file = region_file(region);
  for (uint32_t i = 0; i < high; i++)
    if (i == mine || !clear_if_dead(region, file, i)) top = i + 1;
  account_lower_slots(usage, seen, top);
  account_mend_total(usage);
  store_relaxed(&usage->swept_ns, clock_coarse());
}

/* --- the slot ----------------------------------------------------------------------------------------- */

/* Locks the byte of a slot that nobody else has; -1: there is none. Where somebody has it,
   the kernel has gone through the locks of all to find that out: slots that look used are tried last. */
static int lock_slot(const struct tessera_usage *usage, int file) {
  uint32_t high = usage_slots_high(usage);
  struct flock lock;
  for (int used = 0; used <= 1; used++)
    for (uint32_t slot = 0; slot < (used ? high : TESSERA_SLOTS); slot++) {
      if (slot < high && slot_taken(&usage->process[slot]) != used) continue;
      if (record_lock(file, F_SETLK, slot, &lock) == 0) return (int)slot;
      if (errno != EAGAIN && errno != EACCES && errno != EINTR) return -1;
    }
  return -1;
}

/* A slot with our record lock and our `start` in it; -1: none to be had. The lock may have been lost on the
   way, if the program closes all files: who takes the slot then has it, and we look for another. */
static int claim_slot(struct region *region, int file, uint64_t *start) {
  struct tessera_usage *usage = region->usage;
  for (;;) {
    int slot = file < 0 ? -1 : lock_slot(usage, file);
    if (slot < 0 || region_slot_room(file, (uint32_t)slot) != 0) {
      log_error("no slot in %s: %s", region->path,
                slot < 0 ? "too many processes, or no record locks here" : "its file system is full");
      if (slot >= 0) unlock_slot(file, (uint32_t)slot);
      return -1;
    }
    uint64_t former = load_acquire(&usage->process[slot].start_ns);
    *start = clock_now();
    if (*start == former) ++*start;
    if (swap_if(&usage->process[slot].start_ns, &former, *start)) return slot;
    unlock_slot(file, (uint32_t)slot);
  }
}

/* Of a slot that was just taken, before the program's threads know it: what its former owner held goes, its
   counters begin anew, and then it holds what this process does. */
static void fill_slot(struct region *region, uint32_t slot, uint64_t start) {
  struct tessera_usage *usage = region->usage;
  struct tessera_process *process = &usage->process[slot];
  account_enter_slot(usage, slot);
  account_set(usage, slot, start, 0);
  store_relaxed(&process->pid, (uint32_t)getpid());
  store_relaxed(&process->waiting, 0u);
  store_relaxed(&process->container, region->container);
  store_relaxed(&process->context_bytes, held_for(region, REGION_CONTEXTS));
  store_relaxed(&process->module_bytes, held_for(region, REGION_MODULES));
  memset(&process->last_launch_ns, 0, sizeof *process - offsetof(struct tessera_process, last_launch_ns));
  account_set(usage, slot, start, granules(held_bytes(region)));
}

static bool take_slot(struct region *region) {
  struct tessera_usage *usage = region->usage;
  uint64_t start, swept = load_relaxed(&usage->swept_ns);
  int file = region_file(region);
  uint32_t lost = atomic_exchange_explicit(&region->owner, 0, memory_order_relaxed);
  if (file >= 0 && lost != 0) unlock_slot(file, lost - 1);
  int claimed = claim_slot(region, file, &start);
  if (claimed < 0) return false;
  uint32_t slot = (uint32_t)claimed;
  fill_slot(region, slot, start);
  /* Where many start at once, one of them looks for the dead. */
  if (start > swept + SWEEP_NS && swap_if(&usage->swept_ns, &swept, start)) sweep(region, slot);
  /* Only now may other threads of this process use the slot. */
  atomic_store_explicit(&region->start_ns, start, memory_order_relaxed);
  atomic_store_explicit(&region->owner, slot + 1, memory_order_release);
  return true;
}

static bool owns_slot(const struct region *region) {
  uint32_t owner = atomic_load_explicit(&region->owner, memory_order_acquire);
  if (owner == 0) return false;
  const struct tessera_process *slot = &region->usage->process[owner - 1];
  return load_relaxed(&slot->start_ns) == atomic_load_explicit(&region->start_ns, memory_order_relaxed);
}

/* With the lock: this process's slot; NULL: there is none. */
static struct tessera_process *own_slot(struct region *region) {
  if (!owns_slot(region) && !take_slot(region)) return NULL;
  return &region->usage->process[atomic_load_explicit(&region->owner, memory_order_relaxed) - 1];
}

struct tessera_process *region_slot(struct region *region) {
  struct tessera_process *slot = region_known_slot(region);
  if (slot != NULL) return slot;
  lock_take(&region->lock);
  slot = own_slot(region);
  lock_leave(&region->lock);
  return slot;
}

/* --- accounting --------------------------------------------------------------------------------------- */

/* With the lock: from now on this process holds so many bytes. ACCOUNT_LOST: it has no slot, and gets
   none. */
static enum account_answer change(struct region *region, uint64_t bytes, const struct account_room *room) {
  struct tessera_usage *usage = region->usage;
  for (;;) {
    struct tessera_process *slot = own_slot(region);
    if (slot == NULL) return ACCOUNT_LOST;
    enum account_answer answer = account_change(usage, (uint32_t)(slot - usage->process),
                                                atomic_load_explicit(&region->start_ns, memory_order_relaxed),
                                                granules(held_bytes(region)), granules(bytes), room);
    if (answer != ACCOUNT_LOST) return answer;
  }
}

/* Whether it is this process's turn to look whether somebody has died. Among few it is always; among many
   refusals would hold up everybody if each of them did. */
static bool may_find_dead(struct tessera_usage *usage) {
  uint64_t now = clock_coarse(), swept = load_relaxed(&usage->swept_ns);
  if (usage_slots_high(usage) <= FEW_SLOTS) return true;
  return (now < swept || now - swept > SWEEP_NS) && swap_if(&usage->swept_ns, &swept, now);
}

static bool reserve(struct region *region, enum region_part part, uint64_t bytes, uint64_t limit,
                    uint64_t cap) {
  struct tessera_usage *usage = region->usage;
  const struct account_room room = {.limit = limit / TESSERA_GRANULE,
                                    .cap = cap == REGION_NO_CAP ? ACCOUNT_NO_CAP : cap / TESSERA_GRANULE,
                                    .container = region->container};
  bool possible = bytes <= limit && bytes <= cap && granules(bytes) <= ACCOUNT_MOST;
  enum account_answer answer = possible ? change(region, held_bytes(region) + bytes, &room) : ACCOUNT_REFUSED;
  if (possible && answer == ACCOUNT_REFUSED && may_find_dead(usage)) {
    sweep(region, atomic_load_explicit(&region->owner, memory_order_relaxed) - 1);
    answer = change(region, held_bytes(region) + bytes, &room);
  }
  if (answer == ACCOUNT_DONE) {
    note_held(region, part, held_for(region, part) + bytes);
    return true;
  }
  struct tessera_process *slot = answer == ACCOUNT_REFUSED ? own_slot(region) : NULL;
  if (slot != NULL) store_relaxed(&slot->refused, load_relaxed(&slot->refused) + 1);
  return false;
}

bool region_reserve(struct region *region, enum region_part part, uint64_t bytes, uint64_t limit,
                    uint64_t cap) {
  lock_take(&region->lock);
  bool fits = reserve(region, part, bytes, limit, cap);
  lock_leave(&region->lock);
  return fits;
}

void region_release(struct region *region, enum region_part part, uint64_t bytes) {
  lock_take(&region->lock);
  uint64_t held = held_for(region, part);
  if (bytes > held) bytes = held;
  if (change(region, held_bytes(region) - bytes, NULL) == ACCOUNT_DONE) note_held(region, part, held - bytes);
  lock_leave(&region->lock);
}

/* Whether it is time to look for the dead again. For each slot the kernel goes through the locks of all, so
   among a thousand processes it takes milliseconds: then it is done so seldom that it stays a hundredth of
   the time. */
static bool sweep_is_due(const struct tessera_usage *usage, uint64_t now) {
  uint64_t high = usage_slots_high(usage), swept = load_relaxed(&usage->swept_ns);
  return (now > swept ? now - swept : swept - now) > SWEEP_NS + high * high * SWEEP_SLOT_NS;
}

/* Of one container, or of all. Without a slot nobody takes anything from the dead; they are then only left out of
   the sum. */
static uint64_t sum_of_living(struct region *region, const uint64_t *container) {
  uint32_t high = usage_slots_high(region->usage);
  int file = region_file(region), pid;
  uint64_t total = 0;
  for (uint32_t i = 0; i < high; i++) {
    const struct tessera_process *slot = &region->usage->process[i];
    if (container != NULL && load_relaxed(&slot->container) != *container) continue;
    if (slot_taken(slot) && slot_alive(file, i, &pid)) total += usage_held(region->usage, i);
  }
  return total;
}

uint64_t region_used(struct region *region) {
  struct tessera_usage *usage = region->usage;
  if (!owns_slot(region)) return sum_of_living(region, NULL);
  /* Alone in the first slot, there is nobody to die. */
  if (usage_slots_high(usage) <= 1) return usage_total(usage);
  uint64_t swept = load_relaxed(&usage->swept_ns), now = clock_coarse();
  if (sweep_is_due(usage, now) && swap_if(&usage->swept_ns, &swept, now)) {
    lock_take(&region->lock);
    const struct tessera_process *slot = own_slot(region);
    if (slot != NULL) sweep(region, (uint32_t)(slot - usage->process));
    lock_leave(&region->lock);
  }
  return usage_total(usage);
}

uint64_t region_used_by_container(struct region *region) {
  if (!owns_slot(region)) return sum_of_living(region, &region->container);
  region_used(region); /* sweeps, at times */
  return account_sum(region->usage, region->container) * TESSERA_GRANULE;
}

uint32_t region_processes(struct region *region, struct region_process *processes, uint32_t capacity) {
  struct tessera_usage *usage = region->usage;
  uint32_t high = usage_slots_high(usage), count = 0,
           mine = owns_slot(region) ? region->owner - 1 : TESSERA_SLOTS;
  int file = region_file(region), pid;
  for (uint32_t i = 0; i < high && count < capacity; i++) {
    const struct tessera_process *slot = &usage->process[i];
    if (!slot_taken(slot)) continue;
    if (region->container != 0 && load_relaxed(&slot->container) != region->container) continue;
    pid = (int)getpid();
    if (i != mine && !slot_alive(file, i, &pid)) continue;
    processes[count].pid = (unsigned int)pid;
    processes[count].bytes = usage_held(usage, i);
    count++;
  }
  return count;
}

void region_after_fork(struct region *region) {
  /* The child's copy of the descriptor carries no lock; closing it takes none from the parent. */
  region_close(region);
  region->owner = 0;
  region->start_ns = 0;
  for (int part = 0; part < REGION_PARTS; part++) region->held[part] = 0;
  region->lock.word = 0;
}
