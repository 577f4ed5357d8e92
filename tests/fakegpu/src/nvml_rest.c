/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions that are there and do nothing (nvml_table_rest.h). Called with whatever parameters.
 */
#include "nvml.h"

#define REFUSE(symbol)                                               \
  nvmlReturn_t symbol(void) {                                        \
    nvmlReturn_t ready = nvml_ready();                               \
    return ready == NVML_SUCCESS ? NVML_ERROR_NOT_SUPPORTED : ready; \
  }
NVML_REST(REFUSE)
