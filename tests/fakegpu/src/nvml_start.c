/* SPDX-License-Identifier: Apache-2.0
 *
 * nvmlInit and shutdown, the cards that are visible from here, and questions about the system.
 */
#define _GNU_SOURCE
#include "device_nodes.h"
#include "nvml.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned references;
static struct nvml_card cards[FAKEGPU_CARDS], instances[FAKEGPU_INSTANCES];
static unsigned cards_found, instances_found;

#define NO_CARD FAKEGPU_CARDS

/* What `fakegpu-ctl nvml` asked for: wait, hang, fail. Never under the lock. */
static nvmlReturn_t fault(uint32_t card) {
  struct state *state = member_state();
  uint32_t only = atomic_load(&state->fault.cards);
  if (only != 0 && (card == NO_CARD || (only >> card & 1u) == 0)) return NVML_SUCCESS;
  uint32_t delay = atomic_load(&state->fault.delay_ms);
  clock_sleep((uint64_t)delay * 1000000u);
  for (;;) {
    uint32_t seen = atomic_load(&state->news);
    if (atomic_load(&state->fault.hang) == 0) break;
    news_wait(state, seen, UINT64_MAX);
  }
  return (nvmlReturn_t)atomic_load(&state->fault.fail);
}

static nvmlReturn_t joined(void) {
  if (references == 0) return NVML_ERROR_UNINITIALIZED;
  return member_slot() != NULL || member_join(SLOT_NVML) == 0 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

nvmlReturn_t nvml_ready(void) {
  nvmlReturn_t ready = joined();
  return ready == NVML_SUCCESS ? fault(NO_CARD) : ready;
}

unsigned nvml_count(void) { return cards_found; }
nvmlDevice_t nvml_device(unsigned index) { return index < cards_found ? &cards[index] : NULL; }

bool nvml_is_instance(nvmlDevice_t device) { return device->unit >= FAKEGPU_CARDS; }

nvmlDevice_t nvml_instance(nvmlDevice_t card, unsigned index) {
  for (unsigned found = 0; found < instances_found; found++)
    if (instances[found].index == index && unit_card(member_state(), instances[found].unit) == card->unit)
      return &instances[found];
  return NULL;
}

nvmlDevice_t nvml_of_unit(uint32_t unit) {
  for (unsigned index = 0; index < cards_found; index++)
    if (cards[index].unit == unit) return &cards[index];
  for (unsigned index = 0; index < instances_found; index++)
    if (instances[index].unit == unit) return &instances[index];
  return NULL;
}

static bool is_handle(nvmlDevice_t device) {
  return (device >= cards && device < cards + cards_found) ||
         (device >= instances && device < instances + instances_found);
}

nvmlReturn_t nvml_known(nvmlDevice_t device, const struct card_config **config) {
  nvmlReturn_t ready = joined();
  if (ready != NVML_SUCCESS) return ready;
  if (!is_handle(device)) return NVML_ERROR_INVALID_ARGUMENT;
  if (unit_is_lost(member_state(), device->unit)) return NVML_ERROR_GPU_IS_LOST;
  *config = &member_state()->cards[device->unit];
  return NVML_SUCCESS;
}

nvmlReturn_t nvml_unit(nvmlDevice_t device, const struct card_config **config) {
  nvmlReturn_t ready = joined();
  if (ready == NVML_SUCCESS && is_handle(device)) ready = fault(unit_card(member_state(), device->unit));
  return ready == NVML_SUCCESS ? nvml_known(device, config) : ready;
}

nvmlReturn_t nvml_card(nvmlDevice_t device, const struct card_config **config) {
  nvmlReturn_t result = nvml_unit(device, config);
  return result == NVML_SUCCESS && nvml_is_instance(device) ? NVML_ERROR_NOT_SUPPORTED : result;
}

nvmlReturn_t nvml_handle(nvmlDevice_t device, nvmlDevice_t *answer) {
  const struct card_config *config = NULL;
  nvmlReturn_t result = nvml_unit(device, &config);
  if (result == NVML_SUCCESS) *answer = device;
  return result;
}

nvmlReturn_t nvml_text(char *target, unsigned length, const char *text) {
  if (target == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  if (strlen(text) >= length) return NVML_ERROR_INSUFFICIENT_SIZE;
  memcpy(target, text, strlen(text) + 1);
  return NVML_SUCCESS;
}

/* Those whose capability nodes open, as in a container that was given some of them. */
static void find_instances(uint32_t card) {
  const struct state *state = member_state();
  uint32_t index = 0;
  for (uint32_t instance = 0; instance < state->driver.instance_count; instance++) {
    uint32_t unit = unit_of_instance(instance);
    const struct card_config *config = &state->cards[unit];
    if (unit_card(state, unit) != card ||
        !instance_nodes_open(config->minor, config->gpu_instance, config->compute_instance))
      continue;
    instances[instances_found++] = (struct nvml_card){.unit = unit, .index = index++};
  }
}

static void find_cards(void) {
  const struct state *state = member_state();
  cards_found = instances_found = 0;
  for (uint32_t card = 0; card < state->driver.card_count; card++)
    if (state->dynamic[card].lost != LOSS_GONE && card_node_opens(state->cards[card].minor)) {
      cards[cards_found] = (struct nvml_card){.unit = card, .index = cards_found};
      cards_found++;
      find_instances(card);
    }
}

static void reset_after_fork(void) { pthread_mutex_init(&mutex, NULL); }

nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
  static bool registered;
  (void)flags; /* NO_GPUS and NO_ATTACH change nothing here */
  nvmlReturn_t result = NVML_SUCCESS;
  pthread_mutex_lock(&mutex);
  if (!registered) registered = pthread_atfork(NULL, NULL, reset_after_fork) == 0;
  if (references == 0) {
    int error = control_node_opens() ? member_join(SLOT_NVML) : ENODEV;
    if (error == EPROTO)
      result = NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    else if (error == EACCES || error == EPERM)
      result = NVML_ERROR_NO_PERMISSION;
    else if (error != 0)
      result = NVML_ERROR_DRIVER_NOT_LOADED;
    else
      find_cards();
  }
  if (result == NVML_SUCCESS) references++;
  pthread_mutex_unlock(&mutex);
  if (result != NVML_SUCCESS) return result;
  result = fault(NO_CARD);
  if (result == NVML_SUCCESS) return result;
  pthread_mutex_lock(&mutex);
  references--;
  pthread_mutex_unlock(&mutex);
  return result;
}

nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
nvmlReturn_t nvmlInit(void) { return nvmlInitWithFlags(0); }

/* The slot is kept to the end of the process: closing the state file would drop libcuda's record lock too. */
nvmlReturn_t nvmlShutdown(void) {
  nvmlReturn_t result = NVML_SUCCESS;
  if (joined() == NVML_SUCCESS)
    fault(NO_CARD); /* waits and hangs with the others; its answer stays its own */
  pthread_mutex_lock(&mutex);
  if (references == 0)
    result = NVML_ERROR_UNINITIALIZED;
  else
    references--;
  pthread_mutex_unlock(&mutex);
  return result;
}

const char *nvmlErrorString(nvmlReturn_t result) {
#define NVML_ERROR_TEXT(name, value, text) \
  case name:                               \
    return text;
  switch (result) { NVML_ERRORS(NVML_ERROR_TEXT) }
  return "Unknown Error";
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length) {
  nvmlReturn_t ready = nvml_ready();
  return ready == NVML_SUCCESS ? nvml_text(version, length, member_state()->driver.version) : ready;
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length) {
  char text[64];
  nvmlReturn_t ready = nvml_ready();
  if (ready != NVML_SUCCESS) return ready;
  const struct driver_config *driver = &member_state()->driver;
  snprintf(text, sizeof text, "%u.%s", driver->cuda_version / 1000u, driver->version);
  return nvml_text(version, length, text);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
  nvmlReturn_t ready = nvml_ready();
  if (ready != NVML_SUCCESS) return ready;
  if (version == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  *version = (int)member_state()->driver.cuda_version;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
  return nvmlSystemGetCudaDriverVersion_v2(version);
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length) {
  char path[64], text[1024] = "";
  nvmlReturn_t ready = nvml_ready();
  if (ready != NVML_SUCCESS) return ready;
  snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
  FILE *file = fopen(path, "re");
  if (file == NULL) return NVML_ERROR_NOT_FOUND;
  size_t got = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  if (got == 0) return NVML_ERROR_NOT_FOUND;
  if (name == NULL || length == 0) return NVML_ERROR_INVALID_ARGUMENT;
  snprintf(name, length, "%s", text); /* cut where it is too long, as the real one does */
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
  nvmlReturn_t ready = nvml_ready();
  if (ready != NVML_SUCCESS) return ready;
  if (count == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  *count = cards_found;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }
