/* SPDX-License-Identifier: Apache-2.0
 *
 * Events between processes: a page that both map says which kernel of which process was recorded last; how
 * far that process is, the state knows.
 */
#define _GNU_SOURCE
#include "shared_file.h"

#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MAGIC_IPC_EVENT 0x45435049u
#define PAGE 4096u
#define LOOK_AGAIN_NS 100000

/* Under the lock of the state. */
struct shared_event {
  uint64_t sequence; /* 0: nothing to wait for */
  uint64_t tag;      /* of the slot, that it is still the same process */
  uint32_t slot;
  uint32_t card;
};

static uint64_t shared_made;

void event_share_record(CUevent event) {
  struct shared_event *shared = event->shared;
  if (shared == NULL) return;
  state_lock();
  *shared = (struct shared_event){.sequence = event->sequence,
                                  .tag = atomic_load(&member_slot()->tag),
                                  .slot = member_index(),
                                  .card = event->context->card};
  state_unlock();
}

bool event_share_reached(CUevent event) {
  struct state *state = member_state();
  const struct shared_event *shared = event->shared;
  bool done = true;
  state_lock();
  reap_dead_sometimes();
  if (shared->sequence != 0 && shared->slot < FAKEGPU_SLOTS && shared->card < FAKEGPU_UNITS) {
    const struct slot *slot = &state->slots[shared->slot];
    uint32_t queue = slot->queue[shared->card];
    timeline_advance(state, shared->card, clock_now());
    if (atomic_load(&slot->tag) == shared->tag && queue != 0)
      done = state->queues[queue - 1u].finished >= shared->sequence;
  }
  state_unlock();
  return done;
}

void event_share_wait(CUevent event) {
  while (!event_share_reached(event))
    nanosleep(&(struct timespec){.tv_sec = 0, .tv_nsec = LOOK_AGAIN_NS}, NULL);
}

static bool attach(CUevent event, int file) {
  void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (page == MAP_FAILED) return false;
  event->shared = page;
  event->file = file;
  return true;
}

void event_share_end(CUevent event) {
  if (event->shared == NULL) return;
  munmap(event->shared, PAGE);
  close(event->file);
  event->shared = NULL;
}

CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (handle == NULL || !event_alive(event)) return CUDA_ERROR_INVALID_VALUE;
  if ((event->flags & CU_EVENT_INTERPROCESS) == 0) return CUDA_ERROR_INVALID_HANDLE;
  driver_lock();
  if (event->shared == NULL) {
    int file = shared_make(++shared_made, PAGE);
    event->share_id = shared_made;
    if (file >= 0 && !attach(event, file)) close(file);
  }
  bool good = event->shared != NULL;
  if (good) {
    struct shared_handle made;
    if (event->recorded) event_share_record(event);
    shared_describe(&made, MAGIC_IPC_EVENT, event->file, event->share_id);
    memcpy(handle, &made, sizeof *handle);
  }
  driver_unlock();
  return good ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle) {
  struct shared_handle known;
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  memcpy(&known, &handle, sizeof known);
  if (event == NULL || known.magic != MAGIC_IPC_EVENT) return CUDA_ERROR_INVALID_VALUE;
  int file = shared_open(&known);
  if (file < 0) return CUDA_ERROR_MAP_FAILED;
  CUevent made = NULL;
  CUresult result = cuEventCreate(&made, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
  if (result == CUDA_SUCCESS && !attach(made, file)) {
    cuEventDestroy_v2(made);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result != CUDA_SUCCESS) {
    close(file);
    return result;
  }
  made->share_id = known.id;
  *event = made;
  return CUDA_SUCCESS;
}
