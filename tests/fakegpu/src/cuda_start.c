/* SPDX-License-Identifier: Apache-2.0
 *
 * cuInit, the devices that this process may use, and the objects' common ground.
 */
#define _GNU_SOURCE
#include "device_nodes.h"
#include "driver.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static struct device devices[FAKEGPU_CARDS];
static int devices_found;
static bool started;
static pthread_mutex_t driver_mutex = PTHREAD_MUTEX_INITIALIZER;

void driver_lock(void) { pthread_mutex_lock(&driver_mutex); }
void driver_unlock(void) { pthread_mutex_unlock(&driver_mutex); }

/* A forked child can't go on with its parent's driver: every call answers NOT_INITIALIZED, cuInit too. */
CUresult driver_ready(void) {
  return started && member_slot() != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

int device_count(void) { return devices_found; }

struct device *device_at(CUdevice device) {
  return device >= 0 && device < devices_found ? &devices[device] : NULL;
}

const struct card_config *device_config(CUdevice device) {
  struct device *found = device_at(device);
  return found == NULL ? NULL : &member_state()->cards[found->card];
}

void *object_new(struct object **spare, size_t size, uint32_t magic) {
  struct object *object = *spare;
  if (object != NULL) {
    *spare = object->next;
    memset(object, 0, size);
  } else {
    object = calloc(1, size);
  }
  if (object != NULL) object->magic = magic;
  return object;
}

void object_drop(struct object **spare, void *dropped) {
  struct object *object = dropped;
  object->magic = 0;
  object->next = *spare;
  *spare = object;
}

/* One entry of CUDA_VISIBLE_DEVICES: an index among the cards that open, or the beginning of a UUID; -1:
 * neither. */
static int entry_device(const struct device *all, int count, const char *entry, size_t length) {
  if (length == 0) return -1;
  char *rest = NULL;
  long index = strtol(entry, &rest, 10);
  if (rest == entry + length) return index >= 0 && index < count ? (int)index : -1;
  int match = -1;
  for (int device = 0; device < count; device++) {
    if (strncasecmp(member_state()->cards[all[device].card].uuid, entry, length) != 0) continue;
    if (match >= 0) return -1; /* ambiguous */
    match = device;
  }
  return match;
}

/* The driver stops at the first entry that names no device, and at one that was named before. */
static void choose_visible(const struct device *all, int count) {
  const char *list = getenv("CUDA_VISIBLE_DEVICES");
  devices_found = 0;
  if (list == NULL) {
    memcpy(devices, all, sizeof devices);
    devices_found = count;
    return;
  }
  bool taken[FAKEGPU_CARDS] = {false};
  for (;;) {
    const char *comma = strchr(list, ',');
    int device = entry_device(all, count, list, comma == NULL ? strlen(list) : (size_t)(comma - list));
    if (device < 0 || taken[device]) return;
    taken[device] = true;
    devices[devices_found++] = all[device];
    if (comma == NULL) return;
    list = comma + 1;
  }
}

static CUresult start(void) {
  if (!control_node_opens()) return CUDA_ERROR_NO_DEVICE;
  if (!uvm_node_opens()) return CUDA_ERROR_UNKNOWN; /* as seen where nvidia-uvm is not loaded */
  if (member_join(SLOT_CUDA) != 0) return CUDA_ERROR_NO_DEVICE;
  struct device all[FAKEGPU_CARDS] = {{0}};
  int count = 0;
  /* In the inventory's order, that is by PCI address, whatever CUDA_DEVICE_ORDER says: its default, the
   * fastest first, is the driver's own judgement. */
  for (uint32_t card = 0; card < member_state()->driver.card_count; card++)
    if (card_node_opens(member_state()->cards[card].minor)) all[count++].card = card;
  choose_visible(all, count);
  return devices_found > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

static void reset_after_fork(void) { pthread_mutex_init(&driver_mutex, NULL); }

CUresult cuInit(unsigned flags) {
  static bool registered;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (member_forked()) return CUDA_ERROR_NOT_INITIALIZED;
  driver_lock();
  if (!registered) registered = pthread_atfork(NULL, NULL, reset_after_fork) == 0;
  CUresult result = started ? CUDA_SUCCESS : start();
  started = result == CUDA_SUCCESS;
  driver_unlock();
  return result;
}

/* Answers before cuInit, as the real one does, and where no card is. */
CUresult cuDriverGetVersion(int *version) {
  if (version == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (member_state() == NULL && member_join(SLOT_CUDA) != 0) return CUDA_ERROR_NOT_INITIALIZED;
  *version = (int)member_state()->driver.cuda_version;
  return CUDA_SUCCESS;
}
