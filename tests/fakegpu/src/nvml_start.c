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

enum { XID_OFF_THE_BUS = 79 }; /* NVIDIA's number for a card that answers no more */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned references;
static struct nvml_card cards[FAKEGPU_CARDS];
static unsigned cards_found;

nvmlReturn_t nvml_ready(void) {
  if (references == 0) return NVML_ERROR_UNINITIALIZED;
  return member_slot() != NULL || member_join(SLOT_NVML) == 0 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

unsigned nvml_count(void) { return cards_found; }
nvmlDevice_t nvml_device(unsigned index) { return index < cards_found ? &cards[index] : NULL; }

nvmlReturn_t nvml_card(nvmlDevice_t device, const struct card_config **config) {
  nvmlReturn_t ready = nvml_ready();
  if (ready != NVML_SUCCESS) return ready;
  if (device < cards || device >= cards + cards_found) return NVML_ERROR_INVALID_ARGUMENT;
  const struct state *state = member_state();
  /* Without the lock, which some callers hold. */
  if (__atomic_load_n(&state->dynamic[device->card].xid, __ATOMIC_RELAXED) == XID_OFF_THE_BUS)
    return NVML_ERROR_GPU_IS_LOST;
  *config = &state->cards[device->card];
  return NVML_SUCCESS;
}

nvmlReturn_t nvml_text(char *target, unsigned length, const char *text) {
  if (target == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  if (strlen(text) >= length) return NVML_ERROR_INSUFFICIENT_SIZE;
  memcpy(target, text, strlen(text) + 1);
  return NVML_SUCCESS;
}

static void find_cards(void) {
  const struct state *state = member_state();
  cards_found = 0;
  for (uint32_t card = 0; card < state->driver.card_count; card++)
    if (card_node_opens(state->cards[card].minor)) {
      cards[cards_found] = (struct nvml_card){.card = card, .index = cards_found};
      cards_found++;
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
  return result;
}

nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
nvmlReturn_t nvmlInit(void) { return nvmlInitWithFlags(0); }

/* The slot is kept to the end of the process: closing the state file would drop libcuda's record lock too. */
nvmlReturn_t nvmlShutdown(void) {
  nvmlReturn_t result = NVML_SUCCESS;
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
