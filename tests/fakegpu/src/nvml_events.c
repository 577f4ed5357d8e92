/* SPDX-License-Identifier: Apache-2.0
 *
 * Event sets: waiting for what `fakegpu-ctl xid`, `ecc` and `lose` report. A set hears what happens after a
 * card was registered; each set, each process hears all of it, in order.
 */
#include "nvml.h"

#include <stdlib.h>

struct nvml_event_set {
  nvml_u64 types[FAKEGPU_CARDS]; /* by card; 0: not registered */
  uint64_t since[FAKEGPU_CARDS]; /* the newest event when it was registered */
  uint64_t heard;                /* all up to here */
};

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
  nvmlReturn_t ready = nvml_ready();
  if (ready != NVML_SUCCESS) return ready;
  if (set == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  *set = calloc(1, sizeof **set);
  if (*set == NULL) return NVML_ERROR_MEMORY;
  state_lock();
  (*set)->heard = member_state()->events.newest;
  state_unlock();
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
  nvmlReturn_t ready = nvml_ready();
  if (ready != NVML_SUCCESS) return ready;
  if (set == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  free(set);
  return NVML_SUCCESS;
}

static nvml_u64 supported_by(const struct card_config *card) {
  if (card->no_events != 0) return 0;
  nvml_u64 always = NVML_EVENT_XID_CRITICAL | NVML_EVENT_PSTATE | NVML_EVENT_CLOCK;
  return card->ecc == 0 ? always : always | NVML_EVENT_SINGLE_BIT_ECC | NVML_EVENT_DOUBLE_BIT_ECC;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, nvml_u64 *types) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = nvml_card(device, &card);
  if (result != NVML_SUCCESS) return result;
  if (types == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  if (card->no_events != 0) return NVML_ERROR_NOT_SUPPORTED;
  *types = supported_by(card);
  return NVML_SUCCESS;
}

/* The manual: one set of types for the card; where any of them is not supported, none is registered. */
nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, nvml_u64 types, nvmlEventSet_t set) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = nvml_card(device, &card);
  if (result != NVML_SUCCESS) return result;
  if (set == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  if ((types & ~supported_by(card)) != 0) return NVML_ERROR_NOT_SUPPORTED;
  state_lock();
  set->types[device->unit] |= types;
  set->since[device->unit] = member_state()->events.newest;
  state_unlock();
  return NVML_SUCCESS;
}

static bool wants(const struct nvml_event_set *set, uint64_t number, const struct card_event *event) {
  return (set->types[event->card] & event->type) != 0 && number > set->since[event->card] &&
         nvml_of_unit(event->card) != NULL;
}

/* The oldest event that the set has not heard; under the lock. */
static bool next_event(nvmlEventSet_t set, struct card_event *found) {
  const struct events *events = &member_state()->events;
  if (events->newest - set->heard > FAKEGPU_EVENTS) set->heard = events->newest - FAKEGPU_EVENTS;
  while (set->heard < events->newest) {
    *found = events->ring[++set->heard % FAKEGPU_EVENTS];
    if (wants(set, set->heard, found)) return true;
  }
  return false;
}

static bool any_lost(const struct nvml_event_set *set) {
  for (uint32_t card = 0; card < FAKEGPU_CARDS; card++)
    if (set->types[card] != 0 && unit_is_lost(member_state(), card)) return true;
  return false;
}

static void fill(nvmlEventData_t *data, const struct card_event *event, bool with_instances) {
  data->device = nvml_of_unit(event->card);
  data->type = event->type;
  data->data = event->data;
  if (!with_instances) return;
  data->gpu_instance = event->gpu_instance;
  data->compute_instance = event->compute_instance;
}

/* GPU_IS_LOST where a registered card is lost and there is no event left to tell: the manual lists the error;
 * that it comes at once and each time is a guess. A driver that hangs keeps the waiting thread too. */
static nvmlReturn_t wait_for(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms,
                             bool with_instances) {
  nvmlReturn_t ready = nvml_ready();
  if (ready != NVML_SUCCESS) return ready;
  if (set == NULL || data == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  struct state *state = member_state();
  uint64_t end = clock_now() + (uint64_t)timeout_ms * 1000000u;
  nvmlReturn_t result = NVML_ERROR_TIMEOUT;
  for (;;) {
    struct card_event event;
    uint32_t seen = atomic_load(&state->news);
    state_lock();
    bool found = next_event(set, &event);
    state_unlock();
    if (found) {
      fill(data, &event, with_instances);
      return NVML_SUCCESS;
    }
    if (any_lost(set)) result = NVML_ERROR_GPU_IS_LOST;
    if (result == NVML_ERROR_GPU_IS_LOST || clock_now() >= end) break;
    news_wait(state, seen, end);
    if ((ready = nvml_ready()) != NVML_SUCCESS) return ready;
  }
  return result;
}

nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms) {
  return wait_for(set, data, timeout_ms, false);
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms) {
  return wait_for(set, data, timeout_ms, true);
}
