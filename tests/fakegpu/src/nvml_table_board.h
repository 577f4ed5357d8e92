/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of nvml_table.h: figures of the board, its links and its clocks, as tools and libraries ask for them.
 */
#ifndef FAKEGPU_NVML_TABLE_BOARD_H
#define FAKEGPU_NVML_TABLE_BOARD_H

/* clang-format off */
#define NVML_BOARD(FUNCTION)                                                                                 \
  FUNCTION(nvmlDeviceGetNvLinkCapability, (nvmlDevice_t device, unsigned link, unsigned capability,          \
           unsigned *value))                                                                                 \
  FUNCTION(nvmlDeviceGetNvLinkErrorCounter, (nvmlDevice_t device, unsigned link, unsigned counter,           \
           nvml_u64 *value))                                                                                 \
  FUNCTION(nvmlDeviceGetTopologyNearestGpus, (nvmlDevice_t device, unsigned level, unsigned *count,          \
           nvmlDevice_t *devices))                                                                           \
  FUNCTION(nvmlDeviceGetCpuAffinity, (nvmlDevice_t device, unsigned size, unsigned long *set))               \
  FUNCTION(nvmlDeviceGetCpuAffinityWithinScope, (nvmlDevice_t device, unsigned size, unsigned long *set,     \
           unsigned scope))                                                                                  \
  FUNCTION(nvmlDeviceGetMemoryAffinity, (nvmlDevice_t device, unsigned size, unsigned long *set, unsigned    \
           scope))                                                                                           \
  FUNCTION(nvmlDeviceGetBAR1MemoryInfo, (nvmlDevice_t device, nvmlMemory_t *memory))                         \
  FUNCTION(nvmlDeviceGetCurrPcieLinkGeneration, (nvmlDevice_t device, unsigned *generation))                 \
  FUNCTION(nvmlDeviceGetMaxPcieLinkGeneration, (nvmlDevice_t device, unsigned *generation))                  \
  FUNCTION(nvmlDeviceGetGpuMaxPcieLinkGeneration, (nvmlDevice_t device, unsigned *generation))               \
  FUNCTION(nvmlDeviceGetCurrPcieLinkWidth, (nvmlDevice_t device, unsigned *width))                           \
  FUNCTION(nvmlDeviceGetMaxPcieLinkWidth, (nvmlDevice_t device, unsigned *width))                            \
  FUNCTION(nvmlDeviceGetPcieThroughput, (nvmlDevice_t device, unsigned counter, unsigned *kib_s))            \
  FUNCTION(nvmlDeviceGetPcieReplayCounter, (nvmlDevice_t device, unsigned *count))                           \
  FUNCTION(nvmlDeviceGetBusType, (nvmlDevice_t device, unsigned *type))                                      \
  FUNCTION(nvmlDeviceGetBoardId, (nvmlDevice_t device, unsigned *board))                                     \
  FUNCTION(nvmlDeviceGetMultiGpuBoard, (nvmlDevice_t device, unsigned *multiple))                            \
  FUNCTION(nvmlDeviceGetModuleId, (nvmlDevice_t device, unsigned *module))                                   \
  FUNCTION(nvmlDeviceGetClock, (nvmlDevice_t device, unsigned type, unsigned which, unsigned *mhz))          \
  FUNCTION(nvmlDeviceGetApplicationsClock, (nvmlDevice_t device, unsigned type, unsigned *mhz))              \
  FUNCTION(nvmlDeviceGetDefaultApplicationsClock, (nvmlDevice_t device, unsigned type, unsigned *mhz))       \
  FUNCTION(nvmlDeviceGetMaxCustomerBoostClock, (nvmlDevice_t device, unsigned type, unsigned *mhz))          \
  FUNCTION(nvmlDeviceGetCurrentClocksEventReasons, (nvmlDevice_t device, nvml_u64 *reasons))                 \
  FUNCTION(nvmlDeviceGetCurrentClocksThrottleReasons, (nvmlDevice_t device, nvml_u64 *reasons))              \
  FUNCTION(nvmlDeviceGetSupportedClocksEventReasons, (nvmlDevice_t device, nvml_u64 *reasons))               \
  FUNCTION(nvmlDeviceGetSupportedClocksThrottleReasons, (nvmlDevice_t device, nvml_u64 *reasons))            \
  FUNCTION(nvmlDeviceGetPowerState, (nvmlDevice_t device, unsigned *state))                                  \
  FUNCTION(nvmlDeviceGetPowerManagementMode, (nvmlDevice_t device, unsigned *mode))                          \
  FUNCTION(nvmlDeviceGetPowerManagementDefaultLimit, (nvmlDevice_t device, unsigned *milliwatts))            \
  FUNCTION(nvmlDeviceGetPowerManagementLimitConstraints, (nvmlDevice_t device, unsigned *least, unsigned     \
           *most))                                                                                           \
  FUNCTION(nvmlDeviceGetTotalEnergyConsumption, (nvmlDevice_t device, nvml_u64 *millijoules))                \
  FUNCTION(nvmlDeviceGetTemperatureThreshold, (nvmlDevice_t device, unsigned threshold, unsigned             \
           *celsius))                                                                                        \
  FUNCTION(nvmlDeviceGetEncoderUtilization, (nvmlDevice_t device, unsigned *percent, unsigned *period_us))   \
  FUNCTION(nvmlDeviceGetDecoderUtilization, (nvmlDevice_t device, unsigned *percent, unsigned *period_us))   \
  FUNCTION(nvmlDeviceGetDisplayMode, (nvmlDevice_t device, unsigned *mode))                                  \
  FUNCTION(nvmlDeviceGetDisplayActive, (nvmlDevice_t device, unsigned *active))                              \
  FUNCTION(nvmlDeviceGetDefaultEccMode, (nvmlDevice_t device, unsigned *mode))                               \
  FUNCTION(nvmlDeviceGetRetiredPagesPendingStatus, (nvmlDevice_t device, unsigned *pending))                 \
  FUNCTION(nvmlDeviceGetRemappedRows, (nvmlDevice_t device, unsigned *corrected, unsigned *uncorrected,      \
           unsigned *pending, unsigned *failed))                                                             \
  FUNCTION(nvmlUnitGetCount, (unsigned *count))                                                              \
  FUNCTION(nvmlGetExcludedDeviceCount, (unsigned *count))
/* clang-format on */

#endif
