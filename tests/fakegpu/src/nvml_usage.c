/* SPDX-License-Identifier: Apache-2.0
 *
 * What a card is doing: memory, processes, utilization.
 */
#include "nvml.h"
#include "timeline.h"

#include <stdlib.h>

struct usage {
  uint64_t total, reserved, used;
};

/* A card's figures count those of its instances in. */
static struct usage usage_of(uint32_t unit) {
  const struct state *state = member_state();
  state_lock();
  reap_dead_of_few();
  struct usage usage = {.total = state->cards[unit].memory_bytes,
                        .reserved = state->cards[unit].reserved_bytes};
  for (uint32_t part = 0; part < FAKEGPU_UNITS; part++)
    if (part == unit || (part >= FAKEGPU_CARDS && state->cards[part].parent == unit + 1u))
      usage.used += state->dynamic[part].used_bytes + state->dynamic[part].stranger_bytes;
  state_unlock();
  return usage;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = nvml_unit(device, &card);
  if (result != NVML_SUCCESS) return result;
  if (memory == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  if (card->no_memory_info != 0) return NVML_ERROR_NOT_SUPPORTED;
  struct usage usage = usage_of(device->unit);
  uint64_t used = usage.used + usage.reserved; /* this version counts the driver's own as used */
  *memory = (nvmlMemory_t){.total = usage.total, .free = usage.total - used, .used = used};
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = nvml_unit(device, &card);
  if (result != NVML_SUCCESS) return result;
  if (memory == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  if (card->no_memory_info != 0) return NVML_ERROR_NOT_SUPPORTED;
  if (memory->version != (2u << 24 | (unsigned)sizeof *memory)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  struct usage usage = usage_of(device->unit);
  memory->total = usage.total;
  memory->reserved = usage.reserved;
  memory->used = usage.used;
  memory->free = usage.total - usage.reserved - usage.used;
  return NVML_SUCCESS;
}

/* The last complete sampling window. */
static unsigned percent(const struct window *windows, uint64_t now) {
  uint64_t busy = timeline_busy(windows, now, 1) * 100u + FAKEGPU_WINDOW_NS / 2u;
  uint64_t share = busy / FAKEGPU_WINDOW_NS;
  return share > 100 ? 100u : (unsigned)share;
}

unsigned nvml_busy_percent(uint32_t card) {
  struct state *state = member_state();
  state_lock();
  reap_dead_of_few();
  uint64_t now = clock_now();
  timeline_advance(state, card, now);
  unsigned busy = percent(state->dynamic[card].windows, now);
  state_unlock();
  return busy;
}

/* The memory figure is the share of time in which memory was accessed; here: half of the busy time (a guess).
 */
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = nvml_card(device, &card);
  if (result != NVML_SUCCESS) return result;
  if (utilization == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  if (card->mig != 0) return NVML_ERROR_NOT_SUPPORTED; /* so the manual: not for MIG-enabled cards */
  utilization->gpu = nvml_busy_percent(device->unit);
  utilization->memory = utilization->gpu / 2;
  return NVML_SUCCESS;
}

/* Calls visit for each process with a context on the card whose pid has a meaning in our PID namespace. */
static void each_process(uint32_t card, void (*visit)(int pid, const struct slot *slot, void *argument),
                         void *argument) {
  struct state *state = member_state();
  uint32_t end = atomic_load(&state->slot_end);
  for (uint32_t index = 0; index < end; index++) {
    const struct slot *slot = &state->slots[index];
    int pid = 0;
    if (slot->kind != SLOT_CUDA || (slot->contexts[card] == 0 && slot->used_bytes[card] == 0)) continue;
    if (slot_owner(index, &pid) == 1 && pid > 0) visit(pid, slot, argument);
  }
}

struct listing {
  uint32_t card;
  unsigned found, room;
  nvmlProcessInfo_v1_t *first;
  nvmlProcessInfo_v2_t *second;
};

static void list_process(int pid, const struct slot *slot, void *argument) {
  struct listing *list = argument;
  uint64_t used = slot->used_bytes[list->card];
  const struct card_config *unit = &member_state()->cards[list->card];
  bool whole = unit->parent == 0;
  if (list->found < list->room && list->first != NULL)
    list->first[list->found] = (nvmlProcessInfo_v1_t){.pid = (unsigned)pid, .used_bytes = used};
  if (list->found < list->room && list->second != NULL)
    list->second[list->found] =
        (nvmlProcessInfo_v2_t){.pid = (unsigned)pid,
                               .used_bytes = used,
                               .gpu_instance = whole ? NVML_NO_INSTANCE : unit->gpu_instance,
                               .compute_instance = whole ? NVML_NO_INSTANCE : unit->compute_instance};
  list->found++;
}

/* A card's list has those of its instances too. */
nvmlReturn_t nvml_list_processes(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_v1_t *first,
                                 nvmlProcessInfo_v2_t *second) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = nvml_unit(device, &card);
  if (result != NVML_SUCCESS) return result;
  if (count == NULL || (*count != 0 && first == NULL && second == NULL)) return NVML_ERROR_INVALID_ARGUMENT;
  if (getenv("FAKEGPU_HIDES_PROCESSES") != NULL) {
    *count = 0; /* as in a container whose processes the driver knows by other pids (a guess) */
    return NVML_SUCCESS;
  }
  struct listing list = {.room = *count, .first = first, .second = second};
  const struct state *state = member_state();
  state_lock();
  reap_dead_of_few();
  for (uint32_t unit = 0; unit < FAKEGPU_UNITS; unit++) {
    if (unit != device->unit && (unit < FAKEGPU_CARDS || state->cards[unit].parent != device->unit + 1u))
      continue;
    list.card = unit;
    each_process(unit, list_process, &list);
  }
  state_unlock();
  *count = list.found;
  return list.found > list.room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

static nvmlReturn_t list_none(nvmlDevice_t device, unsigned *count) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = nvml_unit(device, &card);
  if (result != NVML_SUCCESS) return result;
  if (count == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  *count = 0;
  return NVML_SUCCESS;
}

#define LIST(symbol, version, body)                                                                 \
  nvmlReturn_t symbol(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_##version##_t *infos) { \
    (void)infos;                                                                                    \
    return body;                                                                                    \
  }
LIST(nvmlDeviceGetComputeRunningProcesses, v1, nvml_list_processes(device, count, infos, NULL))
LIST(nvmlDeviceGetComputeRunningProcesses_v2, v2, nvml_list_processes(device, count, NULL, infos))
LIST(nvmlDeviceGetComputeRunningProcesses_v3, v2, nvml_list_processes(device, count, NULL, infos))
LIST(nvmlDeviceGetGraphicsRunningProcesses, v1, list_none(device, count))
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, v2, list_none(device, count))
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, v2, list_none(device, count))
LIST(nvmlDeviceGetMPSComputeRunningProcesses, v1, list_none(device, count))
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, v2, list_none(device, count))
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, v2, list_none(device, count))

struct sampling {
  uint32_t card;
  uint64_t now;
  uint64_t since_us;
  unsigned found, room;
  nvmlProcessUtilizationSample_t *samples;
};

static void sample_process(int pid, const struct slot *slot, void *argument) {
  struct sampling *sampling = argument;
  uint64_t time_us = (sampling->now - sampling->now % FAKEGPU_WINDOW_NS) / 1000u;
  if (slot->queue[sampling->card] == 0 || time_us <= sampling->since_us) return;
  const struct queue *queue = &member_state()->queues[slot->queue[sampling->card] - 1u];
  unsigned sm = percent(queue->windows, sampling->now);
  if (sampling->found < sampling->room && sampling->samples != NULL)
    sampling->samples[sampling->found] = (nvmlProcessUtilizationSample_t){
        .pid = (unsigned)pid, .time_us = time_us, .sm = sm, .memory = sm / 2};
  sampling->found++;
}

/* One sample per process that has launched anything, of the last window. Times are CLOCK_MONOTONIC in
 * microseconds (the real ones are since the epoch; callers only hand them back). */
nvmlReturn_t nvml_sample_processes(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                   unsigned *count, nvml_u64 since_us) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = nvml_card(device, &card);
  if (result != NVML_SUCCESS) return result;
  if (count == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  struct sampling sampling = {.card = device->unit,
                              .now = clock_now(),
                              .since_us = since_us,
                              .room = samples == NULL ? 0 : *count,
                              .samples = samples};
  state_lock();
  reap_dead_of_few();
  timeline_advance(member_state(), device->unit, sampling.now);
  each_process(device->unit, sample_process, &sampling);
  state_unlock();
  *count = sampling.found;
  if (sampling.found == 0) return NVML_ERROR_NOT_FOUND;
  return sampling.found > sampling.room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                             unsigned *count, nvml_u64 since_us) {
  return nvml_sample_processes(device, samples, count, since_us);
}
