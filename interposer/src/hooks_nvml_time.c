/* SPDX-License-Identifier: Apache-2.0
 *
 * What NVML shows of a card's time: of its processes only those of the grant, as NVML knows them by their
 * pids in this PID namespace. */
#include <stdlib.h>
#include <string.h>

#include "grants.h"
#include "hooks.h"
#include "hooks_nvml.h"

#define RECENT_US 1000000u

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

/* Moves the grant's samples to the front; their number. */
static unsigned int keep_own(const struct card *card, struct nvml_utilization_sample *all,
                             unsigned int count) {
  unsigned int own = 0;
  uint32_t found;
  struct region_process *processes = nvml_living(card, &found);
  for (unsigned int i = 0; all != NULL && processes != NULL && i < count; i++)
    if (is_living(processes, found, all[i].pid)) all[own++] = all[i];
  free(processes);
  return own;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, struct nvml_utilization_sample *samples,
                                             unsigned int *count, unsigned long long since_us) {
  const struct card *card = count != NULL ? nvml_card(device) : NULL;
  if (card == NULL) return REAL_NVML(nvmlDeviceGetProcessUtilization)(device, samples, count, since_us);
  struct nvml_utilization_sample *all;
  unsigned int seen;
  nvmlReturn_t result = all_samples(device, &all, &seen, since_us);
  if (result == NVML_SUCCESS) {
    unsigned int own = keep_own(card, all, seen);
    result = own == 0 ? NVML_ERROR_NOT_FOUND : nvml_fits(count, own);
    if (result == NVML_SUCCESS && samples != NULL && all != NULL) memcpy(samples, all, own * sizeof *all);
  }
  free(all);
  return result;
}

/* The driver's own list, of which what belongs to others is taken out. */
static nvmlReturn_t own_infos(const struct card *card, nvmlDevice_t device,
                              struct nvml_utilization_infos *list) {
  function_nvmlDeviceGetProcessesUtilizationInfo *ask = REAL_NVML(nvmlDeviceGetProcessesUtilizationInfo);
  struct nvml_utilization_infos all = {.version = list->version, .since_us = list->since_us};
  nvmlReturn_t result = ask(device, &all);
  for (int try = 0; try < 3 && result == NVML_ERROR_INSUFFICIENT_SIZE; try++) {
    all.count += 16;
    free(all.samples);
    all.samples = calloc(all.count, sizeof *all.samples);
    if (all.samples == NULL) return NVML_ERROR_MEMORY;
    result = ask(device, &all);
  }
  unsigned int own = 0;
  uint32_t found;
  struct region_process *processes = nvml_living(card, &found);
  for (unsigned int i = 0; all.samples != NULL && processes != NULL && i < all.count; i++)
    if (is_living(processes, found, all.samples[i].pid)) all.samples[own++] = all.samples[i];
  if (result == NVML_SUCCESS) result = own == 0 ? NVML_ERROR_NOT_FOUND : nvml_fits(&list->count, own);
  if (result == NVML_SUCCESS && list->samples != NULL)
    memcpy(list->samples, all.samples, own * sizeof *all.samples);
  free(processes);
  free(all.samples);
  return result;
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, struct nvml_utilization_infos *list) {
  bool known = list != NULL && list->version == NVML_VERSION(*list, 1);
  const struct card *card = known ? nvml_card(device) : NULL;
  if (card == NULL) return REAL_NVML(nvmlDeviceGetProcessesUtilizationInfo)(device, list);
  return own_infos(card, device, list);
}

/* Whether a sample is its process's last, and not much older than the last of all. */
static bool counts(const struct nvml_utilization_sample *samples, unsigned int count, unsigned int at,
                   unsigned long long last) {
  for (unsigned int i = 0; i < count; i++)
    if (samples[i].pid == samples[at].pid && samples[i].time_us > samples[at].time_us) return false;
  return last - samples[at].time_us < RECENT_US;
}

static unsigned int percent(unsigned int value) { return value < 100 ? value : 100; }

/* The card's figure is of everybody on it; the grant's is the sum over its processes. Where NVML shows no
   process at all, as in PID namespaces that it doesn't know, the card's is all there is. */
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, struct nvml_utilization *rates) {
  nvmlReturn_t result = REAL_NVML(nvmlDeviceGetUtilizationRates)(device, rates);
  const struct card *card = result == NVML_SUCCESS && rates != NULL ? nvml_card(device) : NULL;
  if (card == NULL) return result;
  struct nvml_utilization_sample *all;
  unsigned int seen;
  if (all_samples(device, &all, &seen, 0) == NVML_SUCCESS && all != NULL && seen != 0) {
    struct nvml_utilization sum = {0, 0};
    unsigned long long last = 0;
    for (unsigned int i = 0; i < seen; i++) last = all[i].time_us > last ? all[i].time_us : last;
    unsigned int own = keep_own(card, all, seen);
    for (unsigned int i = 0; i < own; i++) {
      if (!counts(all, own, i, last)) continue;
      sum.gpu += all[i].sm;
      sum.memory += all[i].memory;
    }
    *rates = (struct nvml_utilization){percent(sum.gpu), percent(sum.memory)};
  }
  free(all);
  return result;
}
