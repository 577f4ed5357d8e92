/* SPDX-License-Identifier: Apache-2.0
 *
 * A grant's usage file as one process sees it: its slot, the lock over the totals, and exact accounting.
 *
 * Invariants: memory_bytes is the sum over the used slots, under the lock; it never passes the limit by a
 * reservation. A process owns its slot while it holds the record lock on the slot's byte, which the kernel
 * takes from it at its end, so nothing here depends on a pid. Whoever holds the totals' lock and dies is
 * replaced: the totals are added up again from the slots of the living. Record locks go when the process
 * closes any descriptor of the file, so exactly one is open, and it is checked before use (a program may
 * close what isn't its own). */
#ifndef TESSERA_REGION_H
#define TESSERA_REGION_H

#include <stdbool.h>
#include <sys/types.h>

#include "lock.h"
#include "tessera_abi.h"

#define REGION_PATH 256

struct region {
  char path[REGION_PATH];
  struct tessera_usage *usage; /* mapped shared */
  int file;                    /* -1: not open */
  dev_t device;                /* whose descriptor `file` must be */
  ino_t inode;
  _Atomic uint32_t owner;    /* the lock word of this process: slot and tag; 0: no slot yet */
  _Atomic uint64_t start_ns; /* tells this process's slot from one that was swept and taken by another */
  _Atomic uint64_t held;     /* bytes that this process has reserved, should the slot be lost */
  struct lock registering;
};

/* 0, or an errno: no file, not writable, not a usage file. */
int region_open(struct region *region, const char *path);

/* Takes a slot, where this process has none. false: none to be had (logged). */
bool region_register(struct region *region);

/* This process's slot, or NULL. Counters of it may be added to atomically without the lock. */
struct tessera_process *region_slot(struct region *region);

/* Reserves so many bytes if the total stays within the limit; dead processes are swept first where it would
 * not. */
bool region_reserve(struct region *region, uint64_t bytes, uint64_t limit);
void region_release(struct region *region, uint64_t bytes);

/* The total, at most 5 ms behind the death of a process. No slot needed. */
uint64_t region_used(struct region *region);

/* The living processes, this one's own slot included: what they hold, and their pids as seen from here. */
struct region_process {
  unsigned int pid; /* 0: not to be seen from this PID namespace */
  uint64_t bytes;
};
uint32_t region_processes(struct region *region, struct region_process *processes, uint32_t capacity);

/* In a forked child: no slot, no descriptor, no lock held. */
void region_after_fork(struct region *region);

#endif
