/* SPDX-License-Identifier: Apache-2.0
 *
 * Access to the shared structs from other languages, with the atomics that a plain field read has not:
 * libtessera-access. All pointers are to mappings or copies of at least the struct's size; nothing is
 * allocated and nothing is kept. */
#ifndef TESSERA_ACCESS_H
#define TESSERA_ACCESS_H

#include "tessera_abi.h"

/* cffi: begin */
/* One living process of a usage file. */
struct tessera_living {
  uint32_t slot;
  uint32_t pid; /* in the caller's PID namespace; 0: not to be seen from there */
  struct tessera_process process;
};

/* Fills the constant fields and clears all others: the file is new, or its content can't be trusted. */
void tessera_usage_init(struct tessera_usage *usage);

/* 1: the `bytes` bytes at `usage` (or `limits`) are a struct that this code may read; else 0. */
int tessera_usage_valid(const void *usage, uint64_t bytes);
int tessera_limits_valid(const void *limits, uint64_t bytes);

/* 1: it is a usage file of another version, whose processes count in another way; else 0. */
int tessera_usage_foreign(const void *usage);

/* 1: somebody has a slot of the usage file whose descriptor it is, or nobody can tell; else 0. */
int tessera_usage_in_use(int file);

/* A consistent copy of the limits. 0: done; -1: still being written after a thousand tries. */
int tessera_limits_read(const void *limits, struct tessera_limits *copy);

/* Replaces all but magic, version and size, under the sequence lock. One writer at a time. */
void tessera_limits_write(void *limits, const struct tessera_limits *value);

/* Replaces effective_cores, both stretches and lease_until_ns, of a file that has them. One writer at a time. */
void tessera_limits_lend(void *limits, uint32_t cores, uint32_t stretch, uint32_t stretch_unlent,
                         uint64_t until_ns);

/* The living processes of a usage file, in the order of their slots, at most `capacity`; returns how many.
   Living is who holds the record lock on the slot's byte of `file`, a descriptor of the mapped file. */
uint32_t tessera_usage_living(const void *usage, int file, struct tessera_living *living, uint32_t capacity);

/* At most `capacity` spans of a usage file of `bytes` bytes, that end after `since_ns`; returns how many. */
uint32_t tessera_usage_spans(const void *usage, uint64_t bytes, uint64_t since_ns, struct tessera_span *spans,
                             uint32_t capacity);

/* High-water mark of the grant, in bytes. */
uint64_t tessera_usage_peak(const void *usage);
/* cffi: end */

#endif
