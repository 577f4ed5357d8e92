/* SPDX-License-Identifier: Apache-2.0
 *
 * Temperature, power and clocks (made up from how busy the card is) and events (`fakegpu-ctl xid` makes
 * some).
 */
#define _GNU_SOURCE
#include "nvml.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define UNSUPPORTED(symbol, parameters)                                \
  nvmlReturn_t symbol parameters {                                     \
    const struct card_config *found = NULL;                            \
    nvmlReturn_t result = nvml_card(device, &found);                   \
    return result == NVML_SUCCESS ? NVML_ERROR_NOT_SUPPORTED : result; \
  }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
NVML_UNSUPPORTED(UNSUPPORTED)
#pragma GCC diagnostic pop

enum clock_type { CLOCK_GRAPHICS, CLOCK_SM, CLOCK_MEMORY, CLOCK_VIDEO, CLOCKS };
enum { PSTATE_BUSY = 0, PSTATE_IDLE = 8 };

static nvmlReturn_t number(nvmlDevice_t device, unsigned *target, const struct card_config **card) {
  nvmlReturn_t result = nvml_card(device, card);
  return result == NVML_SUCCESS && target == NULL ? NVML_ERROR_INVALID_ARGUMENT : result;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned sensor, unsigned *celsius) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = number(device, celsius, &card);
  if (result != NVML_SUCCESS) return result;
  if (sensor != 0) return NVML_ERROR_INVALID_ARGUMENT;
  *celsius = 32u + nvml_busy_percent(device->card) / 3u;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *milliwatts) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = number(device, milliwatts, &card);
  if (result != NVML_SUCCESS) return result;
  unsigned limit = card->power_limit_watts * 1000u;
  *milliwatts = limit / 8u + limit / 100u * nvml_busy_percent(device->card) * 3u / 4u;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned *milliwatts) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = number(device, milliwatts, &card);
  if (result == NVML_SUCCESS) *milliwatts = card->power_limit_watts * 1000u;
  return result;
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned *milliwatts) {
  return nvmlDeviceGetPowerManagementLimit(device, milliwatts);
}

nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, unsigned *state) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = number(device, state, &card);
  if (result == NVML_SUCCESS) *state = nvml_busy_percent(device->card) > 0 ? PSTATE_BUSY : PSTATE_IDLE;
  return result;
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned type, unsigned *mhz) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = number(device, mhz, &card);
  if (result != NVML_SUCCESS) return result;
  if (type >= CLOCKS) return NVML_ERROR_INVALID_ARGUMENT;
  *mhz = type == CLOCK_MEMORY ? card->memory_clock_mhz : card->clock_mhz;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned type, unsigned *mhz) {
  nvmlReturn_t result = nvmlDeviceGetMaxClockInfo(device, type, mhz);
  if (result == NVML_SUCCESS && nvml_busy_percent(device->card) == 0) *mhz = 210;
  return result;
}

/* --- events
 * ------------------------------------------------------------------------------------------------------ */

struct nvml_event_set {
  nvml_u64 types[FAKEGPU_CARDS]; /* by NVML index */
  uint64_t seen[FAKEGPU_CARDS];  /* the card's count of errors when it was last looked at */
};

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
  nvmlReturn_t ready = nvml_ready();
  if (ready != NVML_SUCCESS) return ready;
  if (set == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  *set = calloc(1, sizeof **set);
  return *set == NULL ? NVML_ERROR_MEMORY : NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
  nvmlReturn_t ready = nvml_ready();
  if (ready != NVML_SUCCESS) return ready;
  if (set == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  free(set);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, nvml_u64 *types) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = nvml_card(device, &card);
  if (result != NVML_SUCCESS) return result;
  if (types == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  *types = NVML_EVENT_XID_CRITICAL | 0x1ull | 0x2ull | 0x4ull | 0x10ull;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, nvml_u64 types, nvmlEventSet_t set) {
  nvml_u64 supported = 0;
  nvmlReturn_t result = nvmlDeviceGetSupportedEventTypes(device, &supported);
  if (result != NVML_SUCCESS) return result;
  if (set == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  if ((types & ~supported) != 0) return NVML_ERROR_NOT_SUPPORTED;
  state_lock();
  set->types[device->index] |= types;
  set->seen[device->index] = member_state()->dynamic[device->card].xid_count;
  state_unlock();
  return NVML_SUCCESS;
}

static bool next_event(nvmlEventSet_t set, nvmlEventData_t *data, bool with_instances) {
  bool found = false;
  state_lock();
  for (unsigned index = 0; index < nvml_count() && !found; index++) {
    const struct card_state *dynamic = &member_state()->dynamic[nvml_device(index)->card];
    if ((set->types[index] & NVML_EVENT_XID_CRITICAL) == 0 || dynamic->xid_count <= set->seen[index])
      continue;
    set->seen[index]++;
    data->device = nvml_device(index);
    data->type = NVML_EVENT_XID_CRITICAL;
    data->data = dynamic->xid;
    if (with_instances) data->gpu_instance = data->compute_instance = NVML_NO_INSTANCE;
    found = true;
  }
  state_unlock();
  return found;
}

static nvmlReturn_t wait_for(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms,
                             bool with_instances) {
  nvmlReturn_t ready = nvml_ready();
  if (ready != NVML_SUCCESS) return ready;
  if (set == NULL || data == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  const uint64_t step_ns = 20000000;
  uint64_t end = clock_now() + (uint64_t)timeout_ms * 1000000u;
  for (;;) {
    if (next_event(set, data, with_instances)) return NVML_SUCCESS;
    uint64_t now = clock_now();
    if (now >= end) return NVML_ERROR_TIMEOUT;
    struct timespec pause = {.tv_sec = 0, .tv_nsec = (long)(end - now < step_ns ? end - now : step_ns)};
    nanosleep(&pause, NULL);
  }
}

nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms) {
  return wait_for(set, data, timeout_ms, false);
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms) {
  return wait_for(set, data, timeout_ms, true);
}
