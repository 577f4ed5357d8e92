/* SPDX-License-Identifier: Apache-2.0
 *
 * A grant's usage file as one process sees it: its slot, and exact accounting.
 *
 * Invariants: the total is the sum over the slots, at every moment; it never passes the limit by a
 * reservation. A process has its slot while its `start_ns` stands in it, and lives while it holds the record
 * lock on the slot's byte, which the kernel takes from it at its end, so nothing here depends on a pid. No
 * process waits for another, stopped or dead (account.h). Record locks go when the process closes any
 * descriptor of the file, so exactly one is open, and it is checked before use (a program may close what
 * isn't its own). */
#ifndef TESSERA_REGION_H
#define TESSERA_REGION_H

#include <stdbool.h>
#include <sys/types.h>

#include "lock.h"
#include "tessera_abi.h"

#define REGION_PATH 256

/* What memory is held for, as the slot shows it. */
enum region_part { REGION_MEMORY, REGION_CONTEXTS, REGION_MODULES, REGION_PARTS };

#define REGION_NO_CAP UINT64_MAX

struct region {
  char path[REGION_PATH];
  struct tessera_usage *usage; /* mapped shared */
  bool has_spans;              /* the file is long enough for them */
  int file;                    /* -1: not open */
  dev_t device;                /* whose descriptor `file` must be */
  ino_t inode;
  _Atomic uint32_t owner;    /* 1 + this process's slot; 0: none yet */
  _Atomic uint64_t start_ns; /* tells this process's slot from one that was swept and taken by another */
  _Atomic uint64_t held[REGION_PARTS]; /* bytes that this process has reserved, should the slot be lost */
  uint64_t container; /* of the slots that count towards this container's cap; 0: it has none */
  struct lock lock;   /* between this process's threads */
};

/* 0, or an errno: no file, not writable, not a usage file (EINVAL), one of another release's protocol
   (EPROTO). */
int region_open(struct region *region, const char *path);

/* This process's slot, taken where it has none; NULL: none to be had (logged). Counters of it may be added to
   atomically. */
struct tessera_process *region_slot(struct region *region);

/* The same, but NULL also where that takes more than a look. */
static inline struct tessera_process *region_known_slot(struct region *region) {
  uint32_t owner = atomic_load_explicit(&region->owner, memory_order_acquire);
  if (owner == 0) return NULL;
  struct tessera_process *slot = &region->usage->process[owner - 1];
  uint64_t start = __atomic_load_n(&slot->start_ns, __ATOMIC_RELAXED);
  return start == atomic_load_explicit(&region->start_ns, memory_order_relaxed) ? slot : NULL;
}

/* Reserves so many bytes if the total stays within the limit, and what the processes of this container hold
   within the cap; dead processes are swept first where it would not. */
bool region_reserve(struct region *region, enum region_part part, uint64_t bytes, uint64_t limit,
                    uint64_t cap);
void region_release(struct region *region, enum region_part part, uint64_t bytes);

/* The total, at most 5 ms behind the death of a process. No slot needed. */
uint64_t region_used(struct region *region);

/* The living processes of this container. */
uint64_t region_used_by_container(struct region *region);

/* The living processes (where there are caps, of this container), this one's own slot included: what they
 * hold, and their pids as seen from here. */
struct region_process {
  unsigned int pid; /* 0: not to be seen from this PID namespace */
  uint64_t bytes;
};
uint32_t region_processes(struct region *region, struct region_process *processes, uint32_t capacity);

/* In a forked child: no slot, no descriptor, no lock held. */
void region_after_fork(struct region *region);

#endif
