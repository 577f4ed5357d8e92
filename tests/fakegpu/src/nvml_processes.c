/* SPDX-License-Identifier: Apache-2.0
 *
 * The lists of processes that have a version in their struct; what is in them is as in the older ones.
 */
#include "nvml.h"

#include <stdlib.h>

enum { MODE_COMPUTE = 0, MODES = 3 };

#define VERSION_1(type) (1u << 24 | (unsigned)sizeof(type))

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_v1_t *list) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = nvml_unit(device, &card);
  if (result != NVML_SUCCESS) return result;
  if (list == NULL || list->mode >= MODES) return NVML_ERROR_INVALID_ARGUMENT;
  if (list->version != VERSION_1(*list)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  unsigned room = list->processes == NULL ? 0 : list->count;
  list->count = 0;
  if (list->mode != MODE_COMPUTE) return NVML_SUCCESS;
  nvmlProcessInfo_v2_t *infos = room == 0 ? NULL : calloc(room, sizeof *infos);
  if (room != 0 && infos == NULL) return NVML_ERROR_MEMORY;
  unsigned count = room;
  result = nvml_list_processes(device, &count, NULL, infos);
  for (unsigned index = 0; infos != NULL && result == NVML_SUCCESS && index < count; index++)
    list->processes[index] = (nvmlProcessDetail_v1_t){.pid = infos[index].pid,
                                                      .used_bytes = infos[index].used_bytes,
                                                      .gpu_instance = infos[index].gpu_instance,
                                                      .compute_instance = infos[index].compute_instance};
  free(infos);
  list->count = count;
  return result;
}

/* What it answers where there is no room, and where there is nothing to tell, is as in
   nvmlDeviceGetProcessUtilization (a guess). */
nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                   nvmlProcessesUtilizationInfo_v1_t *list) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = nvml_card(device, &card);
  if (result != NVML_SUCCESS) return result;
  if (list == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  if (list->version != VERSION_1(*list)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  unsigned count = list->samples == NULL ? 0 : list->count;
  nvmlProcessUtilizationSample_t *samples = count == 0 ? NULL : calloc(count, sizeof *samples);
  if (count != 0 && samples == NULL) return NVML_ERROR_MEMORY;
  result = nvml_sample_processes(device, samples, &count, list->since_us);
  for (unsigned index = 0; samples != NULL && result == NVML_SUCCESS && index < count; index++)
    list->samples[index] = (nvmlProcessUtilizationInfo_v1_t){.pid = samples[index].pid,
                                                             .time_us = samples[index].time_us,
                                                             .sm = samples[index].sm,
                                                             .memory = samples[index].memory,
                                                             .encoder = samples[index].encoder,
                                                             .decoder = samples[index].decoder};
  free(samples);
  list->count = count;
  return result;
}
