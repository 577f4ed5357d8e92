/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of NVML's ABI that the library speaks. */
#ifndef TESSERA_NVML_TYPES_H
#define TESSERA_NVML_TYPES_H

typedef int nvmlReturn_t;
typedef struct nvmlDevice_st *nvmlDevice_t;

struct nvml_memory {
  unsigned long long total, free, used;
};

struct nvml_memory_v2 {
  unsigned int version;
  unsigned long long total, reserved, free, used;
};

struct nvml_process_v1 {
  unsigned int pid;
  unsigned long long memory;
};

/* Also the struct of the _v3 calls. */
struct nvml_process_v2 {
  unsigned int pid;
  unsigned long long memory;
  unsigned int gpu_instance;
  unsigned int compute_instance;
};

struct nvml_utilization_sample {
  unsigned int pid;
  unsigned long long time_us;
  unsigned int sm, memory, encoder, decoder;
};

/* nvmlProcessDetailList_v1_t and its entries */
struct nvml_process_detail {
  unsigned int pid;
  unsigned long long memory;
  unsigned int gpu_instance, compute_instance;
  unsigned long long protected_memory;
};
struct nvml_process_details {
  unsigned int version, mode, count;
  struct nvml_process_detail *processes;
};

/* nvmlProcessesUtilizationInfo_v1_t and its entries */
struct nvml_utilization_info {
  unsigned long long time_us;
  unsigned int pid, sm, memory, encoder, decoder, jpeg, optical_flow;
};
struct nvml_utilization_infos {
  unsigned int version, count;
  unsigned long long since_us;
  struct nvml_utilization_info *samples;
};

struct nvml_utilization {
  unsigned int gpu, memory; /* percent */
};

#define NVML_VERSION(type, number) ((unsigned int)sizeof(type) | (number) << 24)
enum { NVML_PROCESS_MODE_COMPUTE = 0 };

enum {
  NVML_SUCCESS = 0,
  NVML_ERROR_INVALID_ARGUMENT = 2,
  NVML_ERROR_NOT_SUPPORTED = 3,
  NVML_ERROR_NOT_FOUND = 6,
  NVML_ERROR_INSUFFICIENT_SIZE = 7,
  NVML_ERROR_FUNCTION_NOT_FOUND = 13,
  NVML_ERROR_MEMORY = 20
};

/* What NVML writes for an instance where there is none. */
#define NVML_NO_INSTANCE 0xFFFFFFFFu
#define NVML_UUID_SIZE 96

#endif
