/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FAKEGPU_NVML_H
#define FAKEGPU_NVML_H

#include "nvml_table.h"
#include "nvml_types.h"
#include "state.h"

#include <stddef.h>

#define EXPORTED __attribute__((visibility("default")))
#define DECLARE_NVML(symbol, parameters) EXPORTED nvmlReturn_t symbol parameters;
NVML_FUNCTIONS(DECLARE_NVML)
NVML_UNSUPPORTED(DECLARE_NVML)
EXPORTED const char *nvmlErrorString(nvmlReturn_t result);

/* A card that this process may see; its index here is NVML's. */
struct nvml_card {
  uint32_t card; /* in the inventory */
  uint32_t index;
};

/* The card behind a handle, after the checks with which every call begins: initialised, a handle of ours. */
nvmlReturn_t nvml_card(nvmlDevice_t device, const struct card_config **config);
nvmlReturn_t nvml_ready(void); /* also joins again after a fork */
unsigned nvml_count(void);
nvmlDevice_t nvml_device(unsigned index);
nvmlReturn_t nvml_text(char *target, unsigned length,
                       const char *text); /* INSUFFICIENT_SIZE if it doesn't fit */
void nvml_pci(const struct card_config *card, nvmlPciInfo_t *pci, int version);
unsigned nvml_busy_percent(uint32_t card);

#endif
