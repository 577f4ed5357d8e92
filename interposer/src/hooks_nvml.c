/* SPDX-License-Identifier: Apache-2.0
 *
 * What NVML shows of a card with a grant: the share's memory, and of its processes only those of the grant.
 * NVML is always asked first, so its errors are its own; handles, indices, UUIDs and everything else pass. */
#include <stdlib.h>
#include <string.h>

#include "grants.h"
#include "hooks.h"

static struct card *card_of_handle(nvmlDevice_t device) {
  char uuid[NVML_UUID_SIZE] = {0};
  if (grants_load() != GRANTS_READY) return NULL;
  if (NVML(nvmlDeviceGetUUID)(device, uuid, sizeof uuid) != NVML_SUCCESS) return NULL;
  return card_of_uuid(uuid);
}

static uint64_t least(uint64_t left, uint64_t right) { return left < right ? left : right; }

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, struct nvml_memory *memory) {
  nvmlReturn_t result = REAL_NVML(nvmlDeviceGetMemoryInfo)(device, memory);
  struct card *card = result == NVML_SUCCESS && memory != NULL ? card_of_handle(device) : NULL;
  if (card == NULL) return result;
  memory->total = card_limit(card);
  memory->used = least(card_used(card), memory->total);
  memory->free = least(card_left(card), memory->free);
  return result;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, struct nvml_memory_v2 *memory) {
  nvmlReturn_t result = REAL_NVML(nvmlDeviceGetMemoryInfo_v2)(device, memory);
  struct card *card = result == NVML_SUCCESS && memory != NULL ? card_of_handle(device) : NULL;
  if (card == NULL) return result;
  memory->total = card_limit(card);
  memory->reserved = 0; /* the driver's own part of the card is no part of the share */
  memory->used = least(card_used(card), memory->total);
  memory->free = least(card_left(card), memory->free);
  return result;
}

/* --- processes ---------------------------------------------------------------------------------------- */

/* All living processes of the card's grants; malloc'd, count in *count. NULL: none, or no memory. */
static struct region_process *living(const struct card *card, uint32_t *count) {
  uint32_t capacity = card->count * TESSERA_SLOTS;
  struct region_process *processes = malloc(capacity * sizeof *processes);
  *count = 0;
  for (uint32_t i = 0; processes != NULL && i < card->count; i++)
    *count += region_processes(&card->grants[i]->region, processes + *count, capacity - *count);
  return processes;
}

/* NVML's way with counts: too small a buffer is told the size that would do. */
static nvmlReturn_t fits(unsigned int *count, unsigned int needed) {
  unsigned int capacity = *count;
  *count = needed;
  return capacity < needed ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

typedef void fill_process(void *list, unsigned int index, const struct region_process *process);

static void fill_v1(void *list, unsigned int index, const struct region_process *process) {
  struct nvml_process_v1 *entry = (struct nvml_process_v1 *)list + index;
  entry->pid = process->pid;
  entry->memory = process->bytes;
}

static void fill_v2(void *list, unsigned int index, const struct region_process *process) {
  struct nvml_process_v2 *entry = (struct nvml_process_v2 *)list + index;
  entry->pid = process->pid;
  entry->memory = process->bytes;
  entry->gpu_instance = NVML_NO_INSTANCE;
  entry->compute_instance = NVML_NO_INSTANCE;
}

static nvmlReturn_t list_processes(const struct card *card, unsigned int *count, void *list,
                                   fill_process *fill) {
  uint32_t found;
  struct region_process *processes = living(card, &found);
  if (processes == NULL) return NVML_ERROR_MEMORY;
  nvmlReturn_t result = fits(count, found);
  if (result == NVML_SUCCESS && found != 0 && list == NULL) result = NVML_ERROR_INVALID_ARGUMENT;
  for (uint32_t i = 0; result == NVML_SUCCESS && i < found; i++) fill(list, i, &processes[i]);
  free(processes);
  return result;
}

/* Whether the card answers the question at all, and has a grant: asked with no room for an answer. */
#define ASK(symbol)                                                      \
  if (count == NULL) return REAL_NVML(symbol)(device, count, processes); \
  struct card *card = card_of_handle(device);                            \
  if (card == NULL) return REAL_NVML(symbol)(device, count, processes);  \
  unsigned int none = 0;                                                 \
  nvmlReturn_t asked = REAL_NVML(symbol)(device, &none, NULL);           \
  if (asked != NVML_SUCCESS && asked != NVML_ERROR_INSUFFICIENT_SIZE) return asked;

#define COMPUTE_PROCESSES(symbol, type, fill)                                             \
  nvmlReturn_t symbol(nvmlDevice_t device, unsigned int *count, struct type *processes) { \
    ASK(symbol)                                                                           \
    return list_processes(card, count, processes, fill);                                  \
  }
COMPUTE_PROCESSES(nvmlDeviceGetComputeRunningProcesses, nvml_process_v1, fill_v1)
COMPUTE_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, nvml_process_v2, fill_v2)
COMPUTE_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, nvml_process_v2, fill_v2)

/* A grant has no graphics and no MPS processes. */
#define NO_PROCESSES(symbol, type)                                                        \
  nvmlReturn_t symbol(nvmlDevice_t device, unsigned int *count, struct type *processes) { \
    ASK(symbol)                                                                           \
    *count = 0;                                                                           \
    return NVML_SUCCESS;                                                                  \
  }
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, nvml_process_v1)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, nvml_process_v2)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, nvml_process_v2)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, nvml_process_v1)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvml_process_v2)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvml_process_v2)

static bool is_living(const struct region_process *processes, uint32_t count, unsigned int pid) {
  for (uint32_t i = 0; i < count; i++)
    if (pid != 0 && processes[i].pid == pid) return true;
  return false;
}

/* All samples of the card; malloc'd. */
static nvmlReturn_t all_samples(nvmlDevice_t device, struct nvml_utilization_sample **samples,
                                unsigned int *count, unsigned long long since_us) {
  function_nvmlDeviceGetProcessUtilization *ask = REAL_NVML(nvmlDeviceGetProcessUtilization);
  *samples = NULL;
  *count = 0;
  nvmlReturn_t result = ask(device, NULL, count, since_us);
  /* Processes may come between the two questions. */
  for (int try = 0; try < 3 && result == NVML_ERROR_INSUFFICIENT_SIZE; try++) {
    *count += 16;
    free(*samples);
    *samples = calloc(*count, sizeof **samples);
    if (*samples == NULL) return NVML_ERROR_MEMORY;
    result = ask(device, *samples, count, since_us);
  }
  return result;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, struct nvml_utilization_sample *samples,
                                             unsigned int *count, unsigned long long since_us) {
  const struct card *card = count != NULL ? card_of_handle(device) : NULL;
  if (card == NULL) return REAL_NVML(nvmlDeviceGetProcessUtilization)(device, samples, count, since_us);
  struct nvml_utilization_sample *all;
  unsigned int seen, own = 0;
  uint32_t found;
  nvmlReturn_t result = all_samples(device, &all, &seen, since_us);
  struct region_process *processes = living(card, &found);
  if (result == NVML_SUCCESS) {
    for (unsigned int i = 0; all != NULL && processes != NULL && i < seen; i++)
      if (is_living(processes, found, all[i].pid)) all[own++] = all[i];
    result = own == 0 ? NVML_ERROR_NOT_FOUND : fits(count, own);
    if (result == NVML_SUCCESS && samples != NULL && all != NULL) memcpy(samples, all, own * sizeof *all);
  }
  free(all);
  free(processes);
  return result;
}
