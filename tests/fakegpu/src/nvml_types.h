/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of NVML's interface that the fake serves, declared by ourselves: values and layouts are those of
 * the public header.
 */
#ifndef FAKEGPU_NVML_TYPES_H
#define FAKEGPU_NVML_TYPES_H

typedef struct nvml_card *nvmlDevice_t;
typedef struct nvml_event_set *nvmlEventSet_t;
typedef unsigned long long nvml_u64;

#define NVML_ERRORS(ERROR)                                                                      \
  ERROR(NVML_SUCCESS, 0, "Success")                                                             \
  ERROR(NVML_ERROR_UNINITIALIZED, 1, "Uninitialized")                                           \
  ERROR(NVML_ERROR_INVALID_ARGUMENT, 2, "Invalid Argument")                                     \
  ERROR(NVML_ERROR_NOT_SUPPORTED, 3, "Not Supported")                                           \
  ERROR(NVML_ERROR_NO_PERMISSION, 4, "Insufficient Permissions")                                \
  ERROR(NVML_ERROR_ALREADY_INITIALIZED, 5, "Already Initialized")                               \
  ERROR(NVML_ERROR_NOT_FOUND, 6, "Not Found")                                                   \
  ERROR(NVML_ERROR_INSUFFICIENT_SIZE, 7, "Insufficient Size")                                   \
  ERROR(NVML_ERROR_INSUFFICIENT_POWER, 8, "Insufficient External Power")                        \
  ERROR(NVML_ERROR_DRIVER_NOT_LOADED, 9, "Driver Not Loaded")                                   \
  ERROR(NVML_ERROR_TIMEOUT, 10, "Timeout")                                                      \
  ERROR(NVML_ERROR_LIBRARY_NOT_FOUND, 12, "NVML Shared Library Not Found")                      \
  ERROR(NVML_ERROR_FUNCTION_NOT_FOUND, 13, "Function Not Found")                                \
  ERROR(NVML_ERROR_GPU_IS_LOST, 15, "GPU is lost")                                              \
  ERROR(NVML_ERROR_OPERATING_SYSTEM, 17, "The operating system has blocked the request")        \
  ERROR(NVML_ERROR_LIB_RM_VERSION_MISMATCH, 18, "RM has detected an NVML/RM version mismatch.") \
  ERROR(NVML_ERROR_IN_USE, 19, "GPU is already in use")                                         \
  ERROR(NVML_ERROR_MEMORY, 20, "Insufficient Memory")                                           \
  ERROR(NVML_ERROR_NO_DATA, 21, "No data")                                                      \
  ERROR(NVML_ERROR_ARGUMENT_VERSION_MISMATCH, 25, "Argument version mismatch")                  \
  ERROR(NVML_ERROR_UNKNOWN, 999, "Unknown Error")

#define FAKEGPU_NVML_ENUMERATOR(name, value, text) name = (value),
typedef enum { NVML_ERRORS(FAKEGPU_NVML_ENUMERATOR) } nvmlReturn_t;

typedef struct {
  nvml_u64 total, free, used;
} nvmlMemory_t;

typedef struct {
  unsigned version;
  nvml_u64 total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct {
  unsigned gpu, memory;
} nvmlUtilization_t;

typedef struct {
  unsigned pid;
  nvml_u64 used_bytes;
} nvmlProcessInfo_v1_t;

typedef struct {
  unsigned pid;
  nvml_u64 used_bytes;
  unsigned gpu_instance, compute_instance;
} nvmlProcessInfo_v2_t;

typedef struct {
  unsigned pid;
  nvml_u64 time_us;
  unsigned sm, memory, encoder, decoder;
} nvmlProcessUtilizationSample_t;

typedef struct {
  unsigned pid;
  nvml_u64 used_bytes;
  unsigned gpu_instance, compute_instance;
  nvml_u64 protected_bytes;
} nvmlProcessDetail_v1_t;

typedef struct {
  unsigned version, mode, count;
  nvmlProcessDetail_v1_t *processes;
} nvmlProcessDetailList_v1_t;

typedef struct {
  nvml_u64 time_us;
  unsigned pid;
  unsigned sm, memory, encoder, decoder, jpeg, optical_flow;
} nvmlProcessUtilizationInfo_v1_t;

typedef struct {
  unsigned version, count;
  nvml_u64 since_us;
  nvmlProcessUtilizationInfo_v1_t *samples;
} nvmlProcessesUtilizationInfo_v1_t;

typedef struct {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id;
  unsigned pci_subsystem_id; /* from _v2 on */
  char bus_id[32];           /* from _v3 on */
} nvmlPciInfo_t;

typedef struct {
  unsigned multiprocessors;
  unsigned copy_engines, decoders, encoders, jpegs, ofas; /* shared among the compute instances */
  unsigned gpu_instance_slices, compute_instance_slices;
  nvml_u64 memory_mib;
} nvmlDeviceAttributes_t;

typedef struct {
  nvmlDevice_t device;
  nvml_u64 type, data;
  unsigned gpu_instance, compute_instance; /* from _v2 on */
} nvmlEventData_t;

/* Only the member that whole numbers need. */
typedef struct {
  unsigned field, scope;
  long long timestamp_us, latency_us;
  unsigned type;
  nvmlReturn_t result;
  nvml_u64 value;
} nvmlFieldValue_t;

enum { NVML_FIELD_RECOVERY_ACTION = 230, NVML_VALUE_UNSIGNED_INT = 1 };

#define NVML_EVENT_SINGLE_BIT_ECC 0x1ull
#define NVML_EVENT_DOUBLE_BIT_ECC 0x2ull
#define NVML_EVENT_PSTATE 0x4ull
#define NVML_EVENT_XID_CRITICAL 0x8ull
#define NVML_EVENT_CLOCK 0x10ull
#define NVML_NO_INSTANCE 0xffffffffu

#endif
