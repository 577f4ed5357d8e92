/* SPDX-License-Identifier: Apache-2.0
 *
 * How a library becomes a member of the shared state: it locks the byte of a free slot, then puts its tag
 * there.
 *
 * Record locks belong to the process, and a process never conflicts with itself. libcuda and libnvidia-ml of
 * one process would therefore each take the other's slot for free; the tag prevents it. Its upper half is the
 * same for all libraries of a process (the kernel's random bytes for the program, mixed with the pid), and a
 * claim is a compare-and-swap on it.
 */
#define _GNU_SOURCE
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

static struct {
  struct state *state;
  struct slot *slot;
  int descriptor;
  uint32_t index;
  uint32_t token;
  bool forked;
} member;

static pthread_mutex_t join_mutex = PTHREAD_MUTEX_INITIALIZER;

struct state *member_state(void) { return member.state; }
struct slot *member_slot(void) { return member.slot; }
uint32_t member_index(void) { return member.index; }
bool member_forked(void) { return member.forked; }

static uint32_t process_token(void) {
  uint64_t random = 0;
  unsigned long address = getauxval(AT_RANDOM);
  if (address != 0)
    memcpy(&random, (const void *)address, sizeof random);  // NOLINT(performance-no-int-to-ptr)
  uint64_t mixed = (random ^ (uint64_t)getpid() * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
  return (uint32_t)(mixed >> 32) | 1u; /* never 0: that is a slot nobody ever claimed */
}

static void forget_after_fork(void) {
  /* The parent's slot stays the parent's. Mapping and descriptor are inherited and stay good. */
  member.forked = member.slot != NULL || member.forked;
  member.slot = NULL;
  member.token = 0;
  pthread_mutex_init(&join_mutex, NULL);
}

static bool is_ours(uint64_t tag) { return (uint32_t)(tag >> 32) == member.token; }

int slot_owner(uint32_t index, int *pid) {
  if (is_ours(atomic_load(&member.state->slots[index].tag))) {
    if (pid != NULL) *pid = getpid();
    return 1;
  }
  struct flock asked = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)index, .l_len = 1};
  if (fcntl(member.descriptor, F_GETLK, &asked) != 0) return 1; /* unknown is not dead */
  if (asked.l_type == F_UNLCK) return 0;
  if (pid != NULL) *pid = asked.l_pid > 0 ? asked.l_pid : 0;
  return 1;
}

/* True where slot i is now ours alone: its byte is locked and its tag is our new one. */
static bool claim(uint32_t index, uint64_t *tag) {
  struct slot *slot = &member.state->slots[index];
  uint64_t before = atomic_load(&slot->tag);
  if (is_ours(before)) return false;
  struct flock wanted = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)index, .l_len = 1};
  if (fcntl(member.descriptor, F_SETLK, &wanted) != 0) return false;
  *tag = (uint64_t)member.token << 32 | (uint32_t)((uint32_t)before + 1u);
  /* Fails where another thread of ours was faster. Unlocking would take its lock away: leave it. */
  return atomic_compare_exchange_strong(&slot->tag, &before, *tag);
}

static void read_program_name(char *name, size_t size) {
  memset(name, 0, size);
  FILE *file = fopen("/proc/self/cmdline", "re");
  if (file == NULL) return;
  if (fread(name, 1, size - 1, file) == 0) name[0] = '\0';
  fclose(file);
  memset(name + strlen(name), 0, size - strlen(name));
}

static void settle(uint32_t index, uint64_t tag, enum slot_kind kind) {
  struct state *state = member.state;
  struct slot *slot = &state->slots[index];
  char name[sizeof slot->name];
  read_program_name(name, sizeof name);
  uint32_t end = atomic_load(&state->slot_end);
  while (end <= index && !atomic_compare_exchange_weak(&state->slot_end, &end, index + 1u)) {
  }
  lock_take_as(state, index, tag);
  slot_clear(state, index); /* what a dead predecessor left */
  slot->pid = (int32_t)getpid();
  memcpy(slot->name, name, sizeof name);
  slot->kind = (uint32_t)kind;
  member.index = index;
  member.slot = slot;
  member.forked = false;
  state_unlock();
}

static int join(enum slot_kind kind) {
  char directory[4096];
  if (member.state == NULL) {
    int error = state_directory(directory, sizeof directory);
    if (error == 0) error = state_map(directory, &member.state, &member.descriptor);
    if (error != 0) return error;
    pthread_atfork(NULL, NULL, forget_after_fork);
  }
  member.token = process_token();
  /* Slots that look used last: to find that somebody has one, the kernel goes through the locks of all. */
  for (int used = 0; used <= 1; used++)
    for (uint32_t index = 0; index < FAKEGPU_SLOTS; index++) {
      uint64_t tag = 0;
      if ((member.state->slots[index].kind != SLOT_FREE) == (used != 0) && claim(index, &tag)) {
        settle(index, tag, kind);
        return 0;
      }
    }
  return EUSERS;
}

int member_join(enum slot_kind kind) {
  pthread_mutex_lock(&join_mutex);
  int error = member.slot != NULL ? 0 : join(kind);
  pthread_mutex_unlock(&join_mutex);
  return error;
}
