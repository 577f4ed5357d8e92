/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions that are there and do nothing (cuda_table_rest.h). Called with whatever parameters.
 */
#include "driver.h"

static CUresult refuse(void) {
  CUresult ready = driver_ready();
  return ready == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : ready;
}

#define REFUSE_PLAIN(name, version, symbol) \
  CUresult symbol(void) { return refuse(); }
#define REFUSE_STREAM(name, version, symbol, per_thread_version, suffix) \
  CUresult symbol(void) { return refuse(); }                             \
  CUresult symbol##suffix(void) { return refuse(); }
CUDA_REST(REFUSE_PLAIN, REFUSE_STREAM)
