/* SPDX-License-Identifier: Apache-2.0 */
#include "region.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "atomics.h"
#include "clock.h"
#include "log.h"
#include "region_file.h"
#include "usage.h"

#define SWEEP_NS 5000000u     /* views and newcomers look for the dead at most this often */
#define WAIT_NS 1000000       /* a waiter looks whether the lock's owner lives this often, */
#define WAIT_MOST_NS 16000000 /* the longer he waits, the less often: where there are many, it costs much */
#define SWEEP_SLOT_NS 500u    /* and the later, the more slots there are: times their square */
#define FEW_SLOTS 64u
#define SPINS 64

#if defined(__x86_64__)
#define pause_processor() __builtin_ia32_pause()
#else
#define pause_processor() __asm__ __volatile__("yield")
#endif

/* The slot's figure for a part. */
static inline uint64_t *part_of(struct tessera_process *slot, enum region_part part) {
  return part == REGION_CONTEXTS  ? &slot->context_bytes
         : part == REGION_MODULES ? &slot->module_bytes
                                  : &slot->memory_bytes;
}

/* --- the lock over the totals ------------------------------------------------------------------------- */

/* Frees the slots of the dead and adds up the totals. With the lock, by the owner of slot `mine`. */
static void sweep_locked(struct region *region, uint32_t mine) {
  struct tessera_usage *usage = region->usage;
  uint32_t high = usage_slots_high(usage);
  int file = region_file(region), pid;
  uint32_t top = 0;
  uint64_t total = 0;
  bool found = false;
  for (uint32_t i = 0; i < high; i++) {
    struct tessera_process *slot = &usage->process[i];
    if (load_acquire(&slot->state) != TESSERA_SLOT_USED) continue;
    if (i != mine && !slot_alive(file, i, &pid)) {
      memset(slot, 0, sizeof *slot); /* state becomes FREE; nobody owns what is cleared */
      found = true;
      continue;
    }
    total += slot_bytes(slot);
    top = i + 1;
  }
  if (top < high) store_release(&usage->slots_high, top); /* who has claimed one behind it raises it again */
  if (found)
    store_relaxed(&usage->waiters, 0u); /* the dead among them; the living wake up by their time-out */
  store_relaxed(&usage->memory_bytes, total);
  store_relaxed(&usage->swept_ns, clock_coarse());
}

static void region_lock_contended(struct region *region, uint32_t mine) {
  struct timespec timeout = {0, WAIT_NS};
  struct tessera_usage *usage = region->usage;
  int pid;
  for (;;) {
    uint32_t seen = 0;
    for (int i = 0; i < SPINS; i++) {
      seen = 0;
      if (load_relaxed(&usage->lock) == 0 && swap_if(&usage->lock, &seen, mine)) return;
      pause_processor();
    }
    seen = load_acquire(&usage->lock);
    if (seen == 0) continue;
    add_relaxed(&usage->waiters, 1u);
    futex_wait(&usage->lock, seen, &timeout, 0);
    if (load_relaxed(&usage->waiters) != 0) sub_relaxed(&usage->waiters, 1u);
    uint32_t now = load_acquire(&usage->lock);
    if (now != seen || now == mine) continue;
    if (slot_alive(region_file(region), slot_of(now), &pid)) {
      if (timeout.tv_nsec < WAIT_MOST_NS) timeout.tv_nsec *= 2;
      continue;
    }
    if (swap_if(&usage->lock, &now, mine)) {
      sweep_locked(region, slot_of(mine));
      return;
    }
  }
}

static inline void region_lock(struct region *region, uint32_t mine) {
  uint32_t seen = 0;
  if (!swap_if(&region->usage->lock, &seen, mine)) region_lock_contended(region, mine);
}

/* The look at the waiters may come before the store: who is missed wakes up by its time-out. */
static inline void region_unlock(struct region *region) {
  struct tessera_usage *usage = region->usage;
  store_release(&usage->lock, 0u);
  if (load_relaxed(&usage->waiters) != 0) futex_wake(&usage->lock, 1, 0);
}

/* --- the slot ----------------------------------------------------------------------------------------- */

/* Locks the byte of a slot that nobody else has; -1: there is none. Where somebody has it, the kernel has gone
   through the locks of all to find that out: slots that look used are tried last. */
static int claim_slot(const struct tessera_usage *usage, int file) {
  uint32_t high = usage_slots_high(usage);
  struct flock lock;
  for (int used = 0; used <= 1; used++)
    for (uint32_t slot = 0; slot < (used ? high : TESSERA_SLOTS); slot++) {
      if (slot < high && (load_acquire(&usage->process[slot].state) == TESSERA_SLOT_USED) != used) continue;
      if (record_lock(file, F_SETLK, slot, &lock) == 0) return (int)slot;
      if (errno != EAGAIN && errno != EACCES && errno != EINTR) return -1;
    }
  return -1;
}

/* The lock word for a slot. If its former owner died with the lock, the tag is another, so that this process
   is not taken for the holder, not by itself either; the lock is then taken over like any other dead's. */
static uint32_t owner_word(const struct tessera_usage *usage, uint32_t slot, uint64_t start_ns) {
  uint32_t tag = (uint32_t)(start_ns >> 10) & 0xFFFFu, held = load_acquire(&usage->lock);
  if ((held & 0xFFFFu) == slot + 1 && held >> 16 == tag) tag ^= 1u;
  return tag << 16 | (slot + 1);
}

/* The lock, for a process that has just claimed a slot. A holder with this slot's number is dead, since the
   slot's byte is ours; unless he is a thread of our own, from before this process lost the slot. */
static void lock_new_slot(struct region *region, uint32_t owner) {
  uint32_t held = load_acquire(&region->usage->lock);
  uint32_t former = atomic_load_explicit(&region->owner, memory_order_relaxed);
  if (held != former && slot_of(held) == slot_of(owner) && swap_if(&region->usage->lock, &held, owner))
    sweep_locked(region, slot_of(owner));
  else
    region_lock(region, owner);
}

/* The total without what the slot's former owner held, with what this process does. With the lock. */
static void settle_total(struct tessera_usage *usage, uint64_t former, uint64_t held) {
  uint64_t total = load_relaxed(&usage->memory_bytes);
  store_relaxed(&usage->memory_bytes, (total > former ? total - former : 0) + held);
}

static bool take_slot(struct region *region) {
  struct tessera_usage *usage = region->usage;
  int file = region_file(region);
  int claimed = file < 0 ? -1 : claim_slot(usage, file);
  if (claimed < 0 || region_slot_room(file, (uint32_t)claimed) != 0) {
    log_error("no slot in %s: %s", region->path,
              claimed < 0 ? "too many processes, or no record locks here" : "its file system is full");
    return false;
  }
  uint32_t slot = (uint32_t)claimed;
  uint64_t start = clock_now();
  uint32_t owner = owner_word(usage, slot, start);
  lock_new_slot(region, owner);
  struct tessera_process *process = &usage->process[slot];
  uint64_t former = load_relaxed(&process->state) == TESSERA_SLOT_USED ? slot_bytes(process) : 0;
  memset(process, 0, sizeof *process);
  store_relaxed(&process->pid, (uint32_t)getpid());
  store_relaxed(&process->start_ns, start);
  store_relaxed(&process->container, region->container);
  for (int part = 0; part < REGION_PARTS; part++)
    store_relaxed(part_of(process, (enum region_part)part),
                  atomic_load_explicit(&region->held[part], memory_order_relaxed));
  store_release(&process->state, (uint32_t)TESSERA_SLOT_USED);
  if (usage_slots_high(usage) <= slot) store_release(&usage->slots_high, slot + 1);
  /* Where many start at once, one of them looks for the dead. */
  if (start > load_relaxed(&usage->swept_ns) + SWEEP_NS)
    sweep_locked(region, slot);
  else
    settle_total(usage, former, slot_bytes(process));
  /* Only now may other threads of this process use the slot. */
  atomic_store_explicit(&region->start_ns, start, memory_order_relaxed);
  atomic_store_explicit(&region->owner, owner, memory_order_release);
  region_unlock(region);
  return true;
}

static bool owns_slot(const struct region *region) {
  uint32_t owner = atomic_load_explicit(&region->owner, memory_order_acquire);
  if (owner == 0) return false;
  const struct tessera_process *slot = &region->usage->process[slot_of(owner)];
  return load_relaxed(&slot->start_ns) == atomic_load_explicit(&region->start_ns, memory_order_relaxed);
}

bool region_register(struct region *region) {
  if (owns_slot(region)) return true;
  lock_take(&region->registering);
  bool registered = owns_slot(region) || take_slot(region);
  lock_leave(&region->registering);
  return registered;
}

struct tessera_process *region_slot(struct region *region) {
  return owns_slot(region) || region_register(region)
             ? &region->usage->process[slot_of(atomic_load_explicit(&region->owner, memory_order_relaxed))]
             : NULL;
}

/* --- accounting --------------------------------------------------------------------------------------- */

/* Takes the lock with a slot of our own; NULL: there is none. A slot that was swept away while we waited for
   the lock is no longer ours to write to. */
static struct tessera_process *lock_own_slot(struct region *region) {
  for (;;) {
    if (!region_register(region)) return NULL;
    uint32_t owner = atomic_load_explicit(&region->owner, memory_order_acquire);
    region_lock(region, owner);
    if (owns_slot(region)) return &region->usage->process[slot_of(owner)];
    region_unlock(region);
  }
}

/* Over the used slots of this container; the dead among them count until the next sweep. */
static uint64_t container_bytes(const struct region *region) {
  uint32_t high = usage_slots_high(region->usage);
  uint64_t sum = 0;
  for (uint32_t i = 0; i < high; i++) {
    const struct tessera_process *slot = &region->usage->process[i];
    if (load_acquire(&slot->state) == TESSERA_SLOT_USED &&
        load_relaxed(&slot->container) == region->container)
      sum += slot_bytes(slot);
  }
  return sum;
}

/* Whether so many bytes more are within the limit and the cap. With the lock. */
static bool fits_locked(const struct region *region, uint64_t bytes, uint64_t limit, uint64_t cap) {
  uint64_t used = load_relaxed(&region->usage->memory_bytes);
  if (bytes > limit || used > limit - bytes) return false;
  /* The container holds no more than all of them do. */
  if (cap == REGION_NO_CAP || (bytes <= cap && used <= cap - bytes)) return true;
  return bytes <= cap && container_bytes(region) <= cap - bytes;
}

bool region_reserve(struct region *region, uint64_t bytes, uint64_t limit) {
  return region_reserve_part(region, REGION_MEMORY, bytes, limit, REGION_NO_CAP);
}

/* Whether somebody may have died since the last sweep. Among few it is always looked; among many refusals would
   hold up everybody if each of them did. */
static bool may_find_dead(const struct tessera_usage *usage) {
  uint64_t now = clock_coarse(), swept = load_relaxed(&usage->swept_ns);
  return usage_slots_high(usage) <= FEW_SLOTS || now < swept || now - swept > SWEEP_NS;
}

bool region_reserve_part(struct region *region, enum region_part part, uint64_t bytes, uint64_t limit,
                         uint64_t cap) {
  struct tessera_usage *usage = region->usage;
  struct tessera_process *slot = lock_own_slot(region);
  if (slot == NULL) return false;
  bool fits = fits_locked(region, bytes, limit, cap);
  if (!fits && bytes <= limit && bytes <= cap && may_find_dead(usage)) {
    sweep_locked(region, (uint32_t)(slot - usage->process));
    fits = fits_locked(region, bytes, limit, cap);
  }
  if (fits) {
    uint64_t total = load_relaxed(&usage->memory_bytes) + bytes, *shown = part_of(slot, part);
    store_relaxed(shown, load_relaxed(shown) + bytes);
    store_relaxed(&usage->memory_bytes, total);
    if (total > load_relaxed(&usage->peak_memory_bytes)) store_relaxed(&usage->peak_memory_bytes, total);
    atomic_store_explicit(&region->held[part],
                          atomic_load_explicit(&region->held[part], memory_order_relaxed) + bytes,
                          memory_order_relaxed);
  } else {
    store_relaxed(&slot->refused, load_relaxed(&slot->refused) + 1);
  }
  region_unlock(region);
  return fits;
}

void region_release(struct region *region, uint64_t bytes) {
  region_release_part(region, REGION_MEMORY, bytes);
}

void region_release_part(struct region *region, enum region_part part, uint64_t bytes) {
  struct tessera_usage *usage = region->usage;
  struct tessera_process *slot = lock_own_slot(region);
  if (slot == NULL) return;
  uint64_t *shown = part_of(slot, part);
  uint64_t held = load_relaxed(shown), total = load_relaxed(&usage->memory_bytes);
  if (bytes > held) bytes = held; /* only where the tenant has written to the file: never below zero */
  store_relaxed(shown, held - bytes);
  store_relaxed(&usage->memory_bytes, total > bytes ? total - bytes : 0);
  uint64_t private = atomic_load_explicit(&region->held[part], memory_order_relaxed);
  atomic_store_explicit(&region->held[part], private > bytes ? private - bytes : 0, memory_order_relaxed);
  region_unlock(region);
}

/* Whether it is time to look for the dead again. For each slot the kernel goes through the locks of all, so
   among a thousand processes it takes milliseconds: then it is done so seldom that it stays a hundredth of the
   time. */
static bool sweep_is_due(const struct tessera_usage *usage, uint64_t now) {
  uint64_t high = usage_slots_high(usage), swept = load_relaxed(&usage->swept_ns);
  return (now > swept ? now - swept : swept - now) > SWEEP_NS + high * high * SWEEP_SLOT_NS;
}

/* Without a slot nobody may take the lock; the dead are then only left out of the sum. */
static uint64_t sum_of_living(struct region *region) {
  uint32_t high = usage_slots_high(region->usage);
  int file = region_file(region), pid;
  uint64_t total = 0;
  for (uint32_t i = 0; i < high; i++) {
    const struct tessera_process *slot = &region->usage->process[i];
    if (load_acquire(&slot->state) == TESSERA_SLOT_USED && slot_alive(file, i, &pid))
      total += slot_bytes(slot);
  }
  return total;
}

uint64_t region_used(struct region *region) {
  struct tessera_usage *usage = region->usage;
  bool registered = owns_slot(region);
  if (!registered) return sum_of_living(region);
  /* Alone in the first slot, there is nobody to die. */
  if (usage_slots_high(usage) <= 1) return load_relaxed(&usage->memory_bytes);
  uint64_t swept = load_relaxed(&usage->swept_ns), now = clock_coarse();
  if (sweep_is_due(usage, now) && swap_if(&usage->swept_ns, &swept, now)) {
    const struct tessera_process *slot = lock_own_slot(region);
    if (slot != NULL) {
      sweep_locked(region, (uint32_t)(slot - usage->process));
      region_unlock(region);
    }
  }
  return load_relaxed(&usage->memory_bytes);
}

uint64_t region_used_by_container(struct region *region) {
  region_used(region); /* sweeps, at times */
  return container_bytes(region);
}

uint32_t region_processes(struct region *region, struct region_process *processes, uint32_t capacity) {
  struct tessera_usage *usage = region->usage;
  uint32_t high = usage_slots_high(usage), count = 0,
           mine = owns_slot(region) ? slot_of(region->owner) : TESSERA_SLOTS;
  int file = region_file(region), pid;
  for (uint32_t i = 0; i < high && count < capacity; i++) {
    const struct tessera_process *slot = &usage->process[i];
    if (load_acquire(&slot->state) != TESSERA_SLOT_USED) continue;
    if (region->container != 0 && load_relaxed(&slot->container) != region->container) continue;
    pid = (int)getpid();
    if (i != mine && !slot_alive(file, i, &pid)) continue;
    processes[count].pid = (unsigned int)pid;
    processes[count].bytes = slot_bytes(slot);
    count++;
  }
  return count;
}

void region_after_fork(struct region *region) {
  /* The child's copy of the descriptor carries no lock; closing it takes none from the parent. */
  if (region->file >= 0) close(region->file);
  region->file = -1;
  region->owner = 0;
  region->start_ns = 0;
  for (int part = 0; part < REGION_PARTS; part++) region->held[part] = 0;
  region->registering.word = 0;
}
