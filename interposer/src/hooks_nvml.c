/* SPDX-License-Identifier: Apache-2.0
 *
 * What NVML shows of a card with a grant: the share's memory, and of its processes only those of the grant.
 * NVML is always asked first, so its errors are its own; handles, indices, UUIDs and everything else pass. */
#include <stdlib.h>

#include "grants.h"
#include "hooks.h"
#include "hooks_nvml.h"
#include "pools.h"

struct card *nvml_card(nvmlDevice_t device) {
  char uuid[NVML_UUID_SIZE] = {0};
  if (grants_load() != GRANTS_READY) return NULL;
  if (NVML(nvmlDeviceGetUUID)(device, uuid, sizeof uuid) != NVML_SUCCESS) return NULL;
  return card_of_uuid(uuid);
}

/* So that this process shows no more than it has; not while it is asked on a pool's behalf. */
static void settle_pools(const struct card *card) {
  if (!inside_driver) pools_settle(card);
}

/* A card without a memory of its own but the host's has no figure for it, its share has. */
static struct card *card_to_show(nvmlReturn_t result, nvmlDevice_t device) {
  bool shown = result == NVML_SUCCESS || result == NVML_ERROR_NOT_SUPPORTED;
  struct card *card = shown ? nvml_card(device) : NULL;
  if (card != NULL) settle_pools(card);
  return card;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, struct nvml_memory *memory) {
  nvmlReturn_t result = REAL_NVML(nvmlDeviceGetMemoryInfo)(device, memory);
  struct card *card = memory != NULL ? card_to_show(result, device) : NULL;
  if (card == NULL) return result;
  struct card_view view = card_view(card, result == NVML_SUCCESS ? memory->free : UINT64_MAX);
  *memory = (struct nvml_memory){.total = view.total, .free = view.available, .used = view.used};
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, struct nvml_memory_v2 *memory) {
  nvmlReturn_t result = REAL_NVML(nvmlDeviceGetMemoryInfo_v2)(device, memory);
  bool known = memory != NULL && memory->version == NVML_VERSION(*memory, 2);
  struct card *card = known ? card_to_show(result, device) : NULL;
  if (card == NULL) return result;
  struct card_view view = card_view(card, result == NVML_SUCCESS ? memory->free : UINT64_MAX);
  memory->total = view.total;
  memory->reserved = 0; /* the driver's own part of the card is no part of the share */
  memory->used = view.used;
  memory->free = view.available;
  return NVML_SUCCESS;
}

/* --- processes ---------------------------------------------------------------------------------------- */

/* One process may hold memory by several grants: of those `more` behind the others who is already there is
   there once. */
static uint32_t merged(struct region_process *processes, uint32_t count, uint32_t more) {
  uint32_t all = count;
  for (uint32_t i = count; i < count + more; i++) {
    uint32_t same = 0;
    while (same < count && (processes[i].pid == 0 || processes[same].pid != processes[i].pid)) same++;
    if (same < count)
      processes[same].bytes += processes[i].bytes;
    else
      processes[all++] = processes[i];
  }
  return all;
}

struct region_process *nvml_living(const struct card *card, uint32_t *count) {
  uint32_t capacity = card->count * TESSERA_SLOTS;
  struct region_process *processes = malloc(capacity * sizeof *processes);
  *count = 0;
  settle_pools(card);
  for (uint32_t i = 0; processes != NULL && i < card->count; i++) {
    uint32_t more = region_processes(&card->grants[i]->region, processes + *count, capacity - *count);
    *count = i == 0 ? more : merged(processes, *count, more);
  }
  return processes;
}

nvmlReturn_t nvml_fits(unsigned int *count, unsigned int needed) {
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

static void fill_detail(void *list, unsigned int index, const struct region_process *process) {
  struct nvml_process_detail *entry = (struct nvml_process_detail *)list + index;
  *entry = (struct nvml_process_detail){.pid = process->pid,
                                        .memory = process->bytes,
                                        .gpu_instance = NVML_NO_INSTANCE,
                                        .compute_instance = NVML_NO_INSTANCE};
}

static nvmlReturn_t list_processes(const struct card *card, unsigned int *count, void *list,
                                   fill_process *fill) {
  uint32_t found;
  struct region_process *processes = nvml_living(card, &found);
  if (processes == NULL) return NVML_ERROR_MEMORY;
  nvmlReturn_t result = nvml_fits(count, found);
  if (result == NVML_SUCCESS && found != 0 && list == NULL) result = NVML_ERROR_INVALID_ARGUMENT;
  for (uint32_t i = 0; result == NVML_SUCCESS && i < found; i++) fill(list, i, &processes[i]);
  free(processes);
  return result;
}

/* Whether the card answers the question at all, and has a grant: asked with no room for an answer. */
#define ASK(symbol)                                                      \
  if (count == NULL) return REAL_NVML(symbol)(device, count, processes); \
  struct card *card = nvml_card(device);                            \
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

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, struct nvml_process_details *list) {
  function_nvmlDeviceGetRunningProcessDetailList *ask = REAL_NVML(nvmlDeviceGetRunningProcessDetailList);
  bool known = list != NULL && list->version == NVML_VERSION(*list, 1);
  struct card *card = known ? nvml_card(device) : NULL;
  if (card == NULL) return ask(device, list);
  struct nvml_process_details none = {.version = list->version, .mode = list->mode};
  nvmlReturn_t asked = ask(device, &none);
  if (asked != NVML_SUCCESS && asked != NVML_ERROR_INSUFFICIENT_SIZE) return asked;
  if (list->mode == NVML_PROCESS_MODE_COMPUTE)
    return list_processes(card, &list->count, list->processes, fill_detail);
  list->count = 0; /* as below */
  return NVML_SUCCESS;
}

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
