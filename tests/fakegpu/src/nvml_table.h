/* SPDX-License-Identifier: Apache-2.0
 *
 * Every NVML function that does something, once: FUNCTION(symbol, (parameters)). Prototypes and exports are
 * made from these rows. UNSUPPORTED rows are functions of the real library that answer NOT_SUPPORTED here, as
 * they do on cards without the feature, once the handle is found good; nvml_table_rest.h has the others of
 * that kind.
 */
#ifndef FAKEGPU_NVML_TABLE_H
#define FAKEGPU_NVML_TABLE_H

/* clang-format off */
#define NVML_FUNCTIONS(FUNCTION)                                                                             \
  /* start */                                                                                                \
  FUNCTION(nvmlInit, (void))                                                                                 \
  FUNCTION(nvmlInit_v2, (void))                                                                              \
  FUNCTION(nvmlInitWithFlags, (unsigned flags))                                                              \
  FUNCTION(nvmlShutdown, (void))                                                                             \
  FUNCTION(nvmlSystemGetDriverVersion, (char *version, unsigned length))                                     \
  FUNCTION(nvmlSystemGetNVMLVersion, (char *version, unsigned length))                                       \
  FUNCTION(nvmlSystemGetCudaDriverVersion, (int *version))                                                   \
  FUNCTION(nvmlSystemGetCudaDriverVersion_v2, (int *version))                                                \
  FUNCTION(nvmlSystemGetProcessName, (unsigned pid, char *name, unsigned length))                            \
  /* which device */                                                                                         \
  FUNCTION(nvmlDeviceGetCount, (unsigned *count))                                                            \
  FUNCTION(nvmlDeviceGetCount_v2, (unsigned *count))                                                         \
  FUNCTION(nvmlDeviceGetHandleByIndex, (unsigned index, nvmlDevice_t *device))                               \
  FUNCTION(nvmlDeviceGetHandleByIndex_v2, (unsigned index, nvmlDevice_t *device))                            \
  FUNCTION(nvmlDeviceGetHandleByUUID, (const char *uuid, nvmlDevice_t *device))                              \
  FUNCTION(nvmlDeviceGetHandleByPciBusId, (const char *bus_id, nvmlDevice_t *device))                        \
  FUNCTION(nvmlDeviceGetHandleByPciBusId_v2, (const char *bus_id, nvmlDevice_t *device))                     \
  FUNCTION(nvmlDeviceGetHandleBySerial, (const char *serial, nvmlDevice_t *device))                          \
  /* what it is */                                                                                           \
  FUNCTION(nvmlDeviceGetName, (nvmlDevice_t device, char *name, unsigned length))                            \
  FUNCTION(nvmlDeviceGetUUID, (nvmlDevice_t device, char *uuid, unsigned length))                            \
  FUNCTION(nvmlDeviceGetSerial, (nvmlDevice_t device, char *serial, unsigned length))                        \
  FUNCTION(nvmlDeviceGetVbiosVersion, (nvmlDevice_t device, char *version, unsigned length))                 \
  FUNCTION(nvmlDeviceGetMinorNumber, (nvmlDevice_t device, unsigned *minor))                                 \
  FUNCTION(nvmlDeviceGetIndex, (nvmlDevice_t device, unsigned *index))                                       \
  FUNCTION(nvmlDeviceGetBrand, (nvmlDevice_t device, unsigned *brand))                                       \
  FUNCTION(nvmlDeviceGetArchitecture, (nvmlDevice_t device, unsigned *architecture))                         \
  FUNCTION(nvmlDeviceGetCudaComputeCapability, (nvmlDevice_t device, int *major, int *minor))                \
  FUNCTION(nvmlDeviceGetNumGpuCores, (nvmlDevice_t device, unsigned *cores))                                 \
  FUNCTION(nvmlDeviceGetMemoryBusWidth, (nvmlDevice_t device, unsigned *bits))                               \
  FUNCTION(nvmlDeviceGetPciInfo, (nvmlDevice_t device, nvmlPciInfo_t *pci))                                  \
  FUNCTION(nvmlDeviceGetPciInfo_v2, (nvmlDevice_t device, nvmlPciInfo_t *pci))                               \
  FUNCTION(nvmlDeviceGetPciInfo_v3, (nvmlDevice_t device, nvmlPciInfo_t *pci))                               \
  FUNCTION(nvmlDeviceGetMigMode, (nvmlDevice_t device, unsigned *current, unsigned *pending))                \
  FUNCTION(nvmlDeviceGetMaxMigDeviceCount, (nvmlDevice_t device, unsigned *count))                           \
  FUNCTION(nvmlDeviceIsMigDeviceHandle, (nvmlDevice_t device, unsigned *is_mig))                             \
  FUNCTION(nvmlDeviceGetMigDeviceHandleByIndex, (nvmlDevice_t device, unsigned index, nvmlDevice_t *mig))    \
  FUNCTION(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, (nvmlDevice_t mig, nvmlDevice_t *device))           \
  FUNCTION(nvmlDeviceGetGpuInstanceId, (nvmlDevice_t device, unsigned *id))                                  \
  FUNCTION(nvmlDeviceGetComputeInstanceId, (nvmlDevice_t device, unsigned *id))                              \
  FUNCTION(nvmlDeviceGetAttributes_v2, (nvmlDevice_t device, nvmlDeviceAttributes_t *attributes))            \
  FUNCTION(nvmlDeviceGetComputeMode, (nvmlDevice_t device, unsigned *mode))                                  \
  FUNCTION(nvmlDeviceGetPersistenceMode, (nvmlDevice_t device, unsigned *mode))                              \
  FUNCTION(nvmlDeviceGetVirtualizationMode, (nvmlDevice_t device, unsigned *mode))                           \
  /* what it is doing */                                                                                     \
  FUNCTION(nvmlDeviceGetMemoryInfo, (nvmlDevice_t device, nvmlMemory_t *memory))                             \
  FUNCTION(nvmlDeviceGetMemoryInfo_v2, (nvmlDevice_t device, nvmlMemory_v2_t *memory))                       \
  FUNCTION(nvmlDeviceGetUtilizationRates, (nvmlDevice_t device, nvmlUtilization_t *utilization))             \
  FUNCTION(nvmlDeviceGetComputeRunningProcesses, (nvmlDevice_t device, unsigned *count,                      \
           nvmlProcessInfo_v1_t *infos))                                                                     \
  FUNCTION(nvmlDeviceGetComputeRunningProcesses_v2, (nvmlDevice_t device, unsigned *count,                   \
           nvmlProcessInfo_v2_t *infos))                                                                     \
  FUNCTION(nvmlDeviceGetComputeRunningProcesses_v3, (nvmlDevice_t device, unsigned *count,                   \
           nvmlProcessInfo_v2_t *infos))                                                                     \
  FUNCTION(nvmlDeviceGetGraphicsRunningProcesses, (nvmlDevice_t device, unsigned *count,                     \
           nvmlProcessInfo_v1_t *infos))                                                                     \
  FUNCTION(nvmlDeviceGetGraphicsRunningProcesses_v2, (nvmlDevice_t device, unsigned *count,                  \
           nvmlProcessInfo_v2_t *infos))                                                                     \
  FUNCTION(nvmlDeviceGetGraphicsRunningProcesses_v3, (nvmlDevice_t device, unsigned *count,                  \
           nvmlProcessInfo_v2_t *infos))                                                                     \
  FUNCTION(nvmlDeviceGetMPSComputeRunningProcesses, (nvmlDevice_t device, unsigned *count,                   \
           nvmlProcessInfo_v1_t *infos))                                                                     \
  FUNCTION(nvmlDeviceGetMPSComputeRunningProcesses_v2, (nvmlDevice_t device, unsigned *count,                \
           nvmlProcessInfo_v2_t *infos))                                                                     \
  FUNCTION(nvmlDeviceGetMPSComputeRunningProcesses_v3, (nvmlDevice_t device, unsigned *count,                \
           nvmlProcessInfo_v2_t *infos))                                                                     \
  FUNCTION(nvmlDeviceGetProcessUtilization, (nvmlDevice_t device, nvmlProcessUtilizationSample_t             \
           *samples, unsigned *count, nvml_u64 since_us))                                                    \
  FUNCTION(nvmlDeviceGetRunningProcessDetailList, (nvmlDevice_t device, nvmlProcessDetailList_v1_t *list))   \
  FUNCTION(nvmlDeviceGetProcessesUtilizationInfo, (nvmlDevice_t device, nvmlProcessesUtilizationInfo_v1_t    \
           *list))                                                                                           \
  FUNCTION(nvmlDeviceGetTemperature, (nvmlDevice_t device, unsigned sensor, unsigned *celsius))              \
  FUNCTION(nvmlDeviceGetPowerUsage, (nvmlDevice_t device, unsigned *milliwatts))                             \
  FUNCTION(nvmlDeviceGetPowerManagementLimit, (nvmlDevice_t device, unsigned *milliwatts))                   \
  FUNCTION(nvmlDeviceGetEnforcedPowerLimit, (nvmlDevice_t device, unsigned *milliwatts))                     \
  FUNCTION(nvmlDeviceGetPerformanceState, (nvmlDevice_t device, unsigned *state))                            \
  FUNCTION(nvmlDeviceGetEccMode, (nvmlDevice_t device, unsigned *current, unsigned *pending))                \
  FUNCTION(nvmlDeviceGetTotalEccErrors, (nvmlDevice_t device, unsigned type, unsigned counter,               \
           nvml_u64 *errors))                                                                                \
  FUNCTION(nvmlDeviceGetFieldValues, (nvmlDevice_t device, int count, nvmlFieldValue_t *values))             \
  FUNCTION(nvmlDeviceGetClockInfo, (nvmlDevice_t device, unsigned type, unsigned *mhz))                      \
  FUNCTION(nvmlDeviceGetMaxClockInfo, (nvmlDevice_t device, unsigned type, unsigned *mhz))                   \
  /* how cards are joined */                                                                                 \
  FUNCTION(nvmlDeviceGetTopologyCommonAncestor, (nvmlDevice_t device, nvmlDevice_t other, unsigned           \
           *level))                                                                                          \
  FUNCTION(nvmlDeviceGetP2PStatus, (nvmlDevice_t device, nvmlDevice_t other, unsigned capability,            \
           unsigned *status))                                                                                \
  FUNCTION(nvmlDeviceOnSameBoard, (nvmlDevice_t device, nvmlDevice_t other, int *same))                      \
  FUNCTION(nvmlDeviceGetNvLinkState, (nvmlDevice_t device, unsigned link, unsigned *active))                 \
  FUNCTION(nvmlDeviceGetNvLinkVersion, (nvmlDevice_t device, unsigned link, unsigned *version))              \
  FUNCTION(nvmlDeviceGetNvLinkRemotePciInfo, (nvmlDevice_t device, unsigned link, nvmlPciInfo_t *pci))       \
  FUNCTION(nvmlDeviceGetNvLinkRemotePciInfo_v2, (nvmlDevice_t device, unsigned link, nvmlPciInfo_t *pci))    \
  FUNCTION(nvmlDeviceGetNvLinkRemoteDeviceType, (nvmlDevice_t device, unsigned link, unsigned *type))        \
  /* events */                                                                                               \
  FUNCTION(nvmlEventSetCreate, (nvmlEventSet_t *set))                                                        \
  FUNCTION(nvmlEventSetFree, (nvmlEventSet_t set))                                                           \
  FUNCTION(nvmlDeviceGetSupportedEventTypes, (nvmlDevice_t device, nvml_u64 *types))                         \
  FUNCTION(nvmlDeviceRegisterEvents, (nvmlDevice_t device, nvml_u64 types, nvmlEventSet_t set))              \
  FUNCTION(nvmlEventSetWait, (nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms))               \
  FUNCTION(nvmlEventSetWait_v2, (nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms))

#define NVML_UNSUPPORTED(FUNCTION)                                                                           \
  FUNCTION(nvmlDeviceGetNumaNodeId, (nvmlDevice_t device, unsigned *node)) /* only where cards are           \
           NUMA nodes */                                                                                     \
  FUNCTION(nvmlDeviceGetAddressingMode, (nvmlDevice_t device, void *mode))                                   \
  FUNCTION(nvmlDeviceGetFanSpeed, (nvmlDevice_t device, unsigned *speed))                                    \
  FUNCTION(nvmlDeviceGetAccountingMode, (nvmlDevice_t device, unsigned *mode))                               \
  FUNCTION(nvmlDeviceGetGpuFabricInfoV, (nvmlDevice_t device, void *info))
/* clang-format on */

#endif
