/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "shared_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int shared_make(uint64_t id, uint64_t bytes) {
  char name[64];
  snprintf(name, sizeof name, "fakegpu-ipc-%llu", (unsigned long long)id);
  int file = (int)syscall(SYS_memfd_create, name, 1u /* close on exec */);
  if (file >= 0 && ftruncate(file, (off_t)bytes) != 0) {
    close(file);
    return -1;
  }
  return file;
}

void shared_describe(struct shared_handle *handle, uint32_t magic, int file, uint64_t id) {
  *handle = (struct shared_handle){.magic = magic, .pid = (int32_t)getpid(), .file = file, .id = id};
}

bool shared_is_own(const struct shared_handle *handle) { return handle->pid == (int32_t)getpid(); }

int shared_open(const struct shared_handle *handle) {
  char path[64], target[128], expected[96];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", handle->pid, handle->file);
  snprintf(expected, sizeof expected, "/memfd:fakegpu-ipc-%llu (deleted)", (unsigned long long)handle->id);
  ssize_t length = readlink(path, target, sizeof target - 1);
  if (length < 0) return -1;
  target[length] = '\0';
  return strcmp(target, expected) == 0 ? open(path, O_RDWR | O_CLOEXEC) : -1;
}
