/* SPDX-License-Identifier: Apache-2.0
 *
 * What the hooks of NVML's lists have in common. */
#ifndef TESSERA_HOOKS_NVML_H
#define TESSERA_HOOKS_NVML_H

#include "grants.h"
#include "nvml_types.h"

/* The card behind a handle; NULL: it has no grant, or is none. */
struct card *nvml_card(nvmlDevice_t device);

/* All living processes of the card's grants; malloc'd, count in *count. NULL: none, or no memory. */
struct region_process *nvml_living(const struct card *card, uint32_t *count);

/* NVML's way with counts: too small a buffer is told the size that would do. */
nvmlReturn_t nvml_fits(unsigned int *count, unsigned int needed);

#endif
