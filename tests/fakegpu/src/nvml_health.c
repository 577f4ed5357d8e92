/* SPDX-License-Identifier: Apache-2.0
 *
 * Temperature, power and clocks (made up from how busy the card is) and memory errors (`fakegpu-ctl ecc`
 * makes some).
 */
#include "nvml.h"

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
  *celsius = 32u + nvml_busy_percent(device->unit) / 3u;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *milliwatts) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = number(device, milliwatts, &card);
  if (result != NVML_SUCCESS) return result;
  unsigned limit = card->power_limit_watts * 1000u;
  *milliwatts = limit / 8u + limit / 100u * nvml_busy_percent(device->unit) * 3u / 4u;
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
  if (result == NVML_SUCCESS) *state = nvml_busy_percent(device->unit) > 0 ? PSTATE_BUSY : PSTATE_IDLE;
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
  if (result == NVML_SUCCESS && nvml_busy_percent(device->unit) == 0) *mhz = 210;
  return result;
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = nvml_card(device, &card);
  if (result != NVML_SUCCESS) return result;
  if (current == NULL || pending == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  if (card->ecc == 0) return NVML_ERROR_NOT_SUPPORTED;
  *current = *pending = 1;
  return NVML_SUCCESS;
}

/* Type 0: corrected, 1: uncorrected. Volatile (0) and aggregate (1) counters are the same here: nothing
 * reboots. */
nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned type, unsigned counter,
                                         nvml_u64 *errors) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = nvml_card(device, &card);
  if (result != NVML_SUCCESS) return result;
  if (errors == NULL || type > 1 || counter > 1) return NVML_ERROR_INVALID_ARGUMENT;
  if (card->ecc == 0) return NVML_ERROR_NOT_SUPPORTED;
  state_lock();
  *errors = member_state()->dynamic[device->unit].ecc_errors[type];
  state_unlock();
  return NVML_SUCCESS;
}

/* Each value has an answer of its own: a field that is not known is no failure of the call. */
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = nvml_card(device, &card);
  if (result != NVML_SUCCESS) return result;
  if (count <= 0 || values == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  state_lock();
  uint32_t action = member_state()->dynamic[device->unit].action;
  state_unlock();
  for (int index = 0; index < count; index++) {
    nvmlFieldValue_t *value = &values[index];
    bool known = value->field == NVML_FIELD_RECOVERY_ACTION && action != 0;
    value->result = known ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
    value->type = NVML_VALUE_UNSIGNED_INT;
    value->value = known ? action - 1 : 0;
    value->timestamp_us = (long long)(clock_now() / 1000u);
    value->latency_us = 0;
  }
  return NVML_SUCCESS;
}
