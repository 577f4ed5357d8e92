/* SPDX-License-Identifier: Apache-2.0
 *
 * The state file on disk: where it is, how it is made, how it is mapped.
 */
#define _GNU_SOURCE
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

uint64_t clock_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void clock_sleep(uint64_t ns) {
  struct timespec span = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
  if (ns != 0) nanosleep(&span, NULL);
}

int state_directory(char *path, unsigned long size) {
  const char *chosen = getenv("FAKEGPU_DIR");
  if (chosen == NULL || chosen[0] == '\0') chosen = "/run/fakegpu";
  int length = snprintf(path, size, "%s", chosen);
  return length < 0 || (unsigned long)length >= size ? ENAMETOOLONG : 0;
}

/* The descriptor of a complete, world-writable temporary file, or -1 with errno. */
static int write_image(const char *temporary, const struct state *image) {
  int descriptor = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) return -1;
  /* Only what comes before the slots differs from zero; the rest stays a hole. */
  size_t head = offsetof(struct state, slots);
  if (fchmod(descriptor, 0666) != 0 || ftruncate(descriptor, (off_t)sizeof *image) != 0 ||
      pwrite(descriptor, image, head, 0) != (ssize_t)head) {
    int saved = errno != 0 ? errno : EIO;
    close(descriptor);
    unlink(temporary);
    errno = saved;
    return -1;
  }
  return descriptor;
}

int state_create(const char *directory, const struct state *image) {
  char path[4096], temporary[4096];
  if (mkdir(directory, 0755) != 0 && errno != EEXIST) return errno;
  if (snprintf(path, sizeof path, "%s/state", directory) >= (int)sizeof path) return ENAMETOOLONG;
  if (snprintf(temporary, sizeof temporary, "%s/.state.%ld", directory, (long)getpid()) >=
      (int)sizeof temporary)
    return ENAMETOOLONG;
  int descriptor = write_image(temporary, image);
  if (descriptor < 0) return errno;
  int error = rename(temporary, path) == 0 ? 0 : errno;
  if (error != 0) unlink(temporary);
  close(descriptor);
  return error;
}

static bool is_ours(const struct state *state) {
  return state->magic == FAKEGPU_MAGIC && state->version == FAKEGPU_VERSION && state->size == sizeof *state &&
         state->driver.card_count <= FAKEGPU_CARDS && state->driver.instance_count <= FAKEGPU_INSTANCES;
}

/* Closing the file would drop the record locks that another library of this process holds on it. So it is
 * closed only where that library must have refused the file as well. */
int state_map(const char *directory, struct state **mapped, int *descriptor) {
  char path[4096];
  if (snprintf(path, sizeof path, "%s/state", directory) >= (int)sizeof path) return ENAMETOOLONG;
  int opened = open(path, O_RDWR | O_CLOEXEC);
  if (opened < 0) return errno;
  struct stat found;
  if (fstat(opened, &found) != 0 || found.st_size != (off_t)sizeof(struct state)) {
    close(opened);
    return EPROTO;
  }
  void *address = mmap(NULL, sizeof(struct state), PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0);
  if (address == MAP_FAILED) return errno;
  if (!is_ours(address)) {
    munmap(address, sizeof(struct state));
    close(opened);
    return EPROTO;
  }
  *mapped = address;
  *descriptor = opened;
  return 0;
}
