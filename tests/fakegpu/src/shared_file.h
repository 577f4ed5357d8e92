/* SPDX-License-Identifier: Apache-2.0
 *
 * What passes between processes for IPC: a memory file of the exporter, opened by others through its /proc.
 * So both must see each other's processes and be of one user, as a shared IPC namespace demands of the real
 * thing.
 */
#ifndef FAKEGPU_SHARED_FILE_H
#define FAKEGPU_SHARED_FILE_H

#include "driver.h"

/* The 64 bytes of all handles. */
struct shared_handle {
  uint32_t magic; /* which kind */
  int32_t pid;
  int32_t file;
  uint32_t card;
  uint64_t id; /* unique in the exporter: a number of a file may be used again */
  uint64_t bytes;
  uint64_t offset;
  uint64_t reserved[3];
};

int shared_make(uint64_t id, uint64_t bytes);        /* a file; -1 with errno */
int shared_open(const struct shared_handle *handle); /* -1: it is gone, or not to be opened */
void shared_describe(struct shared_handle *handle, uint32_t magic, int file, uint64_t id);
bool shared_is_own(const struct shared_handle *handle);

#endif
