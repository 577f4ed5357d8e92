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

static struct device devices[FAKEGPU_UNITS];
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

/* The units that this process can use: cards that open and are not in MIG mode, instances whose nodes open.
 */
struct units {
  uint32_t units[FAKEGPU_UNITS];
  int count;
  int first_instance; /* place in units; count where there is none */
};

static bool instance_opens(uint32_t unit) {
  const struct card_config *config = &member_state()->cards[unit];
  return card_node_opens(config->minor) &&
         instance_nodes_open(config->minor, config->gpu_instance, config->compute_instance);
}

/* In the inventory's order, that is by PCI address, whatever CUDA_DEVICE_ORDER says: its default, the fastest
 * first, is the driver's own judgement. */
static void find_units(struct units *found) {
  const struct state *state = member_state();
  found->count = 0;
  for (uint32_t card = 0; card < state->driver.card_count; card++)
    if (state->cards[card].mig == 0 && !unit_is_lost(state, card) &&
        card_node_opens(state->cards[card].minor))
      found->units[found->count++] = card;
  found->first_instance = found->count;
  for (uint32_t index = 0; index < state->driver.instance_count; index++) {
    uint32_t unit = unit_of_instance(index);
    if (!unit_is_lost(state, unit) && instance_opens(unit)) found->units[found->count++] = unit;
  }
}

/* One entry of CUDA_VISIBLE_DEVICES: an index among what would be visible without the variable, or the
 * beginning of a UUID; the place in `all`, -1: neither. */
static int entry_unit(const struct units *all, const char *entry, size_t length) {
  if (length == 0) return -1;
  char *rest = NULL;
  long index = strtol(entry, &rest, 10);
  bool instances = all->first_instance < all->count;
  if (rest == entry + length) {
    if (instances) return index == 0 ? all->first_instance : -1;
    return index >= 0 && index < all->count ? (int)index : -1;
  }
  int match = -1;
  for (int place = 0; place < all->count; place++) {
    if (strncasecmp(member_state()->cards[all->units[place]].uuid, entry, length) != 0) continue;
    if (match >= 0) return -1; /* ambiguous */
    match = place;
  }
  return match;
}

static void show(uint32_t unit) { devices[devices_found++] = (struct device){.card = unit}; }

/* The driver stops at the first entry that names no device, and at one that was named before. */
static void show_listed(const struct units *all, const char *list) {
  bool taken[FAKEGPU_UNITS] = {false};
  for (;;) {
    const char *comma = strchr(list, ',');
    int place = entry_unit(all, list, comma == NULL ? strlen(list) : (size_t)(comma - list));
    if (place < 0 || taken[place]) return;
    taken[place] = true;
    show(all->units[place]);
    if (comma == NULL) return;
    list = comma + 1;
  }
}

/* The MIG user guide, "CUDA visible devices": a process sees a single instance, the first one, and no whole
 * card beside it. */
static void keep_one_instance(void) {
  for (int device = 0; device < devices_found; device++)
    if (devices[device].card >= FAKEGPU_CARDS) {
      devices[0] = devices[device];
      devices_found = 1;
      return;
    }
}

static void choose_visible(void) {
  struct units all;
  const char *list = getenv("CUDA_VISIBLE_DEVICES");
  find_units(&all);
  devices_found = 0;
  if (list != NULL)
    show_listed(&all, list);
  else
    for (int place = 0; place < all.count; place++) show(all.units[place]);
  keep_one_instance();
}

static CUresult start(void) {
  if (!control_node_opens()) return CUDA_ERROR_NO_DEVICE;
  if (!uvm_node_opens()) return CUDA_ERROR_UNKNOWN; /* as seen where nvidia-uvm is not loaded */
  if (member_join(SLOT_CUDA) != 0) return CUDA_ERROR_NO_DEVICE;
  choose_visible();
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
