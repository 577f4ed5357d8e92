/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FAKEGPU_NVML_H
#define FAKEGPU_NVML_H

#include "nvml_table.h"
#include "nvml_table_board.h"
#include "nvml_table_rest.h"
#include "nvml_types.h"
#include "state.h"

#include <stddef.h>

#define EXPORTED __attribute__((visibility("default")))
#define DECLARE_NVML(symbol, parameters) EXPORTED nvmlReturn_t symbol parameters;
NVML_FUNCTIONS(DECLARE_NVML)
NVML_BOARD(DECLARE_NVML)
NVML_UNSUPPORTED(DECLARE_NVML)
#define DECLARE_NVML_REST(symbol) EXPORTED nvmlReturn_t symbol(void);
NVML_REST(DECLARE_NVML_REST)
EXPORTED const char *nvmlErrorString(nvmlReturn_t result);

/* A card or a MIG instance that this process may see. */
struct nvml_card {
  uint32_t unit;  /* in the state */
  uint32_t index; /* NVML's: among the cards, or among the instances of the card */
};

/* The card behind a handle, after the checks with which every call begins: initialised, a handle of ours, the
 * card not lost; and after the faults that `fakegpu-ctl nvml` asked for. Handles of MIG instances are
 * NOT_SUPPORTED (which error the real one gives is a guess); nvml_unit takes both kinds. */
nvmlReturn_t nvml_card(nvmlDevice_t device, const struct card_config **config);
nvmlReturn_t nvml_unit(nvmlDevice_t device, const struct card_config **config);
nvmlReturn_t nvml_known(nvmlDevice_t device,
                        const struct card_config **config); /* the checks without the faults */
nvmlReturn_t nvml_ready(void); /* for calls about no card; also joins again after a fork */
nvmlReturn_t nvml_handle(nvmlDevice_t device, nvmlDevice_t *answer); /* hands one out, unless it is lost */
bool nvml_is_instance(nvmlDevice_t device);
unsigned nvml_count(void);
nvmlDevice_t nvml_device(unsigned index);
nvmlDevice_t nvml_instance(nvmlDevice_t card, unsigned index); /* of those visible here; NULL: no such one */
nvmlDevice_t nvml_of_unit(uint32_t unit);                      /* NULL: not visible here */
nvmlReturn_t nvml_text(char *target, unsigned length,
                       const char *text); /* INSUFFICIENT_SIZE if it doesn't fit */
void nvml_pci(const struct card_config *card, nvmlPciInfo_t *pci, int version);
unsigned nvml_busy_percent(uint32_t card);

/* nvml_usage.c: what several functions answer with. They don't call each other by their exported names, which a
 * library in front of this one would see. */
nvmlReturn_t nvml_list_processes(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_v1_t *first,
                                 nvmlProcessInfo_v2_t *second);
nvmlReturn_t nvml_sample_processes(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                   unsigned *count, nvml_u64 since_us);

#endif
