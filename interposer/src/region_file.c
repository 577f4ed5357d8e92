/* SPDX-License-Identifier: Apache-2.0 */
#include "region_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "usage.h"

#define HIGH_DESCRIPTOR 200 /* out of the way of programs that count on small numbers */

static int open_high(const char *path) {
  int low = open(path, O_RDWR | O_CLOEXEC);
  if (low < 0) return -1;
  /* Nothing is locked yet, so closing the first descriptor loses nothing. */
  int high = fcntl(low, F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR);
  if (high < 0) return low;
  close(low);
  return high;
}

/* The file is a hole at first: where its file system is full, a write through the mapping would end the
   program. So what is going to be written has its place before. */
static int make_room(int file, size_t start, size_t bytes) {
  while (fallocate(file, 0, (off_t)start, (off_t)bytes) != 0) {
    if (errno == EOPNOTSUPP || errno == ENOSYS) return 0;
    if (errno != EINTR) return errno;
  }
  return 0;
}

static int make_common_room(int file, bool spans) {
  uint32_t magic = 0; /* where it stands, the header has its place */
  int error = 0;
  if (pread(file, &magic, sizeof magic, 0) != sizeof magic || magic != TESSERA_USAGE_MAGIC)
    error = make_room(file, 0, offsetof(struct tessera_usage, process));
  if (error != 0 || !spans) return error;
  return make_room(file, offsetof(struct tessera_usage, spans),
                   sizeof(struct tessera_usage) - offsetof(struct tessera_usage, spans));
}

int region_slot_room(int file, uint32_t slot) {
  size_t one = sizeof(struct tessera_process);
  return make_room(file, offsetof(struct tessera_usage, process) + slot * one, one);
}

int region_open(struct region *region, const char *path) {
  struct stat status;
  if (strlen(path) >= sizeof region->path) return ENAMETOOLONG;
  int file = open_high(path);
  if (file < 0) return errno;
  int error = fstat(file, &status) != 0 ? errno : 0;
  void *mapped = MAP_FAILED;
  size_t bytes = sizeof(struct tessera_usage);
  if (error == 0 && (uint64_t)status.st_size < bytes) bytes = TESSERA_USAGE_SIZE_0; /* one without spans */
  if (error == 0 && (uint64_t)status.st_size < bytes) error = EINVAL;
  if (error == 0) error = make_common_room(file, bytes == sizeof(struct tessera_usage));
  if (error == 0) {
    mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) error = errno;
  }
  if (error == 0 && !usage_valid(mapped, (uint64_t)status.st_size)) {
    error = usage_foreign(mapped) ? EPROTO : EINVAL;
    munmap(mapped, bytes);
  }
  if (error != 0) {
    close(file);
    return error;
  }
  memcpy(region->path, path, strlen(path) + 1);
  region->usage = mapped;
  region->has_spans = bytes == sizeof(struct tessera_usage);
  region->device = status.st_dev;
  region->inode = status.st_ino;
  region->file = file;
  return 0;
}

/* The program may have closed it, and opened something else under its number. */
static bool has_descriptor(const struct region *region) {
  struct stat status;
  return region->file >= 0 && fstat(region->file, &status) == 0 && status.st_dev == region->device &&
         status.st_ino == region->inode;
}

void region_close(struct region *region) {
  if (has_descriptor(region)) close(region->file);
  region->file = -1;
}

int region_file(struct region *region) {
  struct flock lock;
  if (has_descriptor(region)) return region->file;
  region->file = open_high(region->path);
  if (region->file >= 0 && region->owner != 0) record_lock(region->file, F_SETLK, region->owner - 1, &lock);
  return region->file;
}
