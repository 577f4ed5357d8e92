/* SPDX-License-Identifier: Apache-2.0
 *
 * Figures of the board, its links and its clocks, as tools and communication libraries ask for them. What the
 * inventory doesn't say is that of a common server card (guesses); all of them stand still.
 */
#include "nvml.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

#define BITS (sizeof(unsigned long) * CHAR_BIT)
enum { GENERATION = 4, WIDTH = 16, BUS_PCIE = 2, IDLE_REASON = 1, SUPPORTED_REASONS = 0x1ff };
enum { CLOCK_MEMORY = 2, CLOCK_TYPES = 4, CLOCK_WHICH = 4 };
enum { BAR_BYTES = 256 << 20 };
enum { CAPABILITY_SLI = 4, CAPABILITIES = 6 };
enum { SCOPE_NODE = 0, SCOPE_SOCKET = 1 };
enum { LEVEL_INTERNAL = 0, LEVEL_SYSTEM = 50 };

/* A card's constant; `value` may use `card`. */
#define FIGURE(symbol, type, name, value)                                             \
  nvmlReturn_t symbol(nvmlDevice_t device, type *name) {                              \
    const struct card_config *card = NULL;                                            \
    nvmlReturn_t result = nvml_card(device, &card);                                   \
    if (result == NVML_SUCCESS && name == NULL) result = NVML_ERROR_INVALID_ARGUMENT; \
    if (result == NVML_SUCCESS) *name = (value);                                      \
    return result;                                                                    \
  }
FIGURE(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, generation, GENERATION)
FIGURE(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, generation, GENERATION)
FIGURE(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned, generation, GENERATION)
FIGURE(nvmlDeviceGetCurrPcieLinkWidth, unsigned, width, WIDTH)
FIGURE(nvmlDeviceGetMaxPcieLinkWidth, unsigned, width, WIDTH)
FIGURE(nvmlDeviceGetPcieReplayCounter, unsigned, count, 0)
FIGURE(nvmlDeviceGetBusType, unsigned, type, BUS_PCIE)
FIGURE(nvmlDeviceGetBoardId, unsigned, board, card->pci_bus << 8 | card->pci_domain << 16)
FIGURE(nvmlDeviceGetMultiGpuBoard, unsigned, multiple, 0)
FIGURE(nvmlDeviceGetModuleId, unsigned, module, card->minor + 1)
FIGURE(nvmlDeviceGetCurrentClocksEventReasons, nvml_u64, reasons,
       nvml_busy_percent(device->unit) == 0 ? IDLE_REASON : 0)
FIGURE(nvmlDeviceGetSupportedClocksEventReasons, nvml_u64, reasons, SUPPORTED_REASONS)
FIGURE(nvmlDeviceGetPowerState, unsigned, state, 0)
FIGURE(nvmlDeviceGetPowerManagementMode, unsigned, mode, 1)
FIGURE(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, milliwatts, card->power_limit_watts * 1000u)
FIGURE(nvmlDeviceGetDisplayMode, unsigned, mode, 0)
FIGURE(nvmlDeviceGetDisplayActive, unsigned, active, 0)

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, nvml_u64 *reasons) {
  return nvmlDeviceGetCurrentClocksEventReasons(device, reasons);
}

nvmlReturn_t nvmlDeviceGetSupportedClocksThrottleReasons(nvmlDevice_t device, nvml_u64 *reasons) {
  return nvmlDeviceGetSupportedClocksEventReasons(device, reasons);
}

static nvmlReturn_t ecc_only(nvmlDevice_t device, bool good) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = nvml_card(device, &card);
  if (result == NVML_SUCCESS && !good) return NVML_ERROR_INVALID_ARGUMENT;
  return result == NVML_SUCCESS && card->ecc == 0 ? NVML_ERROR_NOT_SUPPORTED : result;
}

nvmlReturn_t nvmlDeviceGetDefaultEccMode(nvmlDevice_t device, unsigned *mode) {
  nvmlReturn_t result = ecc_only(device, mode != NULL);
  if (result == NVML_SUCCESS) *mode = 1;
  return result;
}

nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, unsigned *pending) {
  nvmlReturn_t result = ecc_only(device, pending != NULL);
  if (result == NVML_SUCCESS) *pending = 0;
  return result;
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *corrected, unsigned *uncorrected,
                                       unsigned *pending, unsigned *failed) {
  bool good = corrected != NULL && uncorrected != NULL && pending != NULL && failed != NULL;
  nvmlReturn_t result = ecc_only(device, good);
  if (result == NVML_SUCCESS) *corrected = *uncorrected = *pending = *failed = 0;
  return result;
}

nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, unsigned type, unsigned which, unsigned *mhz) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = nvml_card(device, &card);
  if (result != NVML_SUCCESS) return result;
  if (mhz == NULL || type >= CLOCK_TYPES || which >= CLOCK_WHICH) return NVML_ERROR_INVALID_ARGUMENT;
  *mhz = type == CLOCK_MEMORY ? card->memory_clock_mhz : card->clock_mhz;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t device, unsigned type, unsigned *mhz) {
  return nvmlDeviceGetClock(device, type, 0, mhz);
}
nvmlReturn_t nvmlDeviceGetDefaultApplicationsClock(nvmlDevice_t device, unsigned type, unsigned *mhz) {
  return nvmlDeviceGetClock(device, type, 0, mhz);
}
nvmlReturn_t nvmlDeviceGetMaxCustomerBoostClock(nvmlDevice_t device, unsigned type, unsigned *mhz) {
  return nvmlDeviceGetClock(device, type, 0, mhz);
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned *least,
                                                          unsigned *most) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = nvml_card(device, &card);
  if (result != NVML_SUCCESS) return result;
  if (least == NULL || most == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  *most = card->power_limit_watts * 1000u;
  *least = *most / 4u;
  return NVML_SUCCESS;
}

/* As if the card took its limit while it is busy, and nothing else. */
nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, nvml_u64 *millijoules) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = nvml_card(device, &card);
  if (result != NVML_SUCCESS) return result;
  if (millijoules == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  state_lock();
  *millijoules = member_state()->dynamic[device->unit].busy_ns / 1000000u * card->power_limit_watts;
  state_unlock();
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, unsigned threshold, unsigned *celsius) {
  static const unsigned thresholds[] = {95, 92, 88, 90}; /* shutdown, slowdown, memory, GPU */
  const struct card_config *card = NULL;
  nvmlReturn_t result = nvml_card(device, &card);
  if (result != NVML_SUCCESS) return result;
  if (celsius == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  if (threshold >= sizeof thresholds / sizeof thresholds[0]) return NVML_ERROR_NOT_SUPPORTED;
  *celsius = thresholds[threshold];
  return NVML_SUCCESS;
}

static nvmlReturn_t idle_engine(nvmlDevice_t device, unsigned *percent, unsigned *period_us) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = nvml_card(device, &card);
  if (result != NVML_SUCCESS) return result;
  if (percent == NULL || period_us == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  *percent = 0;
  *period_us = (unsigned)(FAKEGPU_WINDOW_NS / 1000u);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned *percent, unsigned *period_us) {
  return idle_engine(device, percent, period_us);
}
nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned *percent, unsigned *period_us) {
  return idle_engine(device, percent, period_us);
}

nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, unsigned counter, unsigned *kib_s) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = nvml_card(device, &card);
  if (result != NVML_SUCCESS) return result;
  if (kib_s == NULL || counter > 1) return NVML_ERROR_INVALID_ARGUMENT;
  *kib_s = 0;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = nvml_card(device, &card);
  if (result != NVML_SUCCESS) return result;
  if (memory == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  *memory = (nvmlMemory_t){.total = BAR_BYTES, .free = BAR_BYTES, .used = 0};
  return NVML_SUCCESS;
}

/* What an active link can do: all but to join cards for graphics. */
nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned link, unsigned capability,
                                           unsigned *value) {
  unsigned active = 0;
  if (value == NULL || capability >= CAPABILITIES) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlReturn_t result = nvmlDeviceGetNvLinkState(device, link, &active);
  if (result == NVML_SUCCESS) *value = active != 0 && capability != CAPABILITY_SLI;
  return result;
}

nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned link, unsigned counter,
                                             nvml_u64 *value) {
  enum { COUNTERS = 5 };
  unsigned active = 0;
  if (value == NULL || counter >= COUNTERS) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlReturn_t result = nvmlDeviceGetNvLinkState(device, link, &active);
  if (result == NVML_SUCCESS) *value = 0;
  return result;
}

/* Cards that are at most `level` away; the count alone where there is no room for any. */
nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, unsigned level, unsigned *count,
                                              nvmlDevice_t *devices) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = nvml_card(device, &card);
  if (result != NVML_SUCCESS) return result;
  if (count == NULL || level > LEVEL_SYSTEM || (*count != 0 && devices == NULL))
    return NVML_ERROR_INVALID_ARGUMENT;
  unsigned found = 0, room = *count;
  for (unsigned index = 0; index < nvml_count(); index++) {
    nvmlDevice_t other = nvml_device(index);
    unsigned distance = LEVEL_INTERNAL;
    if (other == device || nvmlDeviceGetTopologyCommonAncestor(device, other, &distance) != NVML_SUCCESS ||
        distance > level)
      continue;
    if (found < room) devices[found] = other;
    found++;
  }
  *count = found < room || room == 0 ? found : room;
  return NVML_SUCCESS;
}

static nvmlReturn_t bit_set(nvmlDevice_t device, unsigned size, unsigned long *set, unsigned scope) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = nvml_card(device, &card);
  if (result != NVML_SUCCESS) return result;
  if (set == NULL || size == 0 || (scope != SCOPE_NODE && scope != SCOPE_SOCKET))
    return NVML_ERROR_INVALID_ARGUMENT;
  memset(set, 0, size * sizeof *set);
  return NVML_SUCCESS;
}

/* All CPUs of the machine that the fake runs on: its nodes aren't the inventory's. */
nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned size, unsigned long *set,
                                                 unsigned scope) {
  nvmlReturn_t result = bit_set(device, size, set, scope);
  if (result != NVML_SUCCESS) return result;
  unsigned long cpus = (unsigned long)sysconf(_SC_NPROCESSORS_CONF);
  for (unsigned long cpu = 0; cpu < cpus && cpu / BITS < size; cpu++) set[cpu / BITS] |= 1ul << cpu % BITS;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned size, unsigned long *set) {
  return nvmlDeviceGetCpuAffinityWithinScope(device, size, set, SCOPE_NODE);
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned size, unsigned long *set,
                                         unsigned scope) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = bit_set(device, size, set, scope);
  if (result == NVML_SUCCESS) result = nvml_known(device, &card);
  if (result != NVML_SUCCESS) return result;
  unsigned node = card->numa_node < 0 ? 0 : (unsigned)card->numa_node;
  if (node / BITS < size) set[node / BITS] |= 1ul << node % BITS;
  return NVML_SUCCESS;
}

/* Units are racks of cards; none here, and none is kept from this process. */
nvmlReturn_t nvmlUnitGetCount(unsigned *count) {
  nvmlReturn_t result = nvml_ready();
  if (result == NVML_SUCCESS && count == NULL) result = NVML_ERROR_INVALID_ARGUMENT;
  if (result == NVML_SUCCESS) *count = 0;
  return result;
}

nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned *count) { return nvmlUnitGetCount(count); }
