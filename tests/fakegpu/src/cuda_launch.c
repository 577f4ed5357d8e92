/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches. A kernel computes nothing; it takes device time. An entry point whose name begins with "spin_ns"
 * takes the nanoseconds in its first parameter (a 64-bit number), every other one what the inventory says
 * (kernel_us). The size of the grid is checked but costs nothing.
 */
#include "driver.h"

#include <string.h>

#define THREADS_PER_BLOCK 1024u
#define BLOCKS_PER_SM 16u
#define SETTLE_EVERY (FAKEGPU_PENDING / 2u)

struct grid {
  unsigned x, y, z;
};

/* The first parameter's bytes, from either way of passing them; NULL: none is passed. */
static const void *first_parameter(void **params, void **extra) {
  if (params != NULL) return params[0];
  for (; extra != NULL && extra[0] != CU_LAUNCH_PARAM_END; extra += 2)
    if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) return extra[1];
  return NULL;
}

static uint64_t duration_of(CUfunction function, void **params, void **extra) {
  uint64_t nanoseconds = member_state()->driver.kernel_ns;
  if (strncmp(function->name, "spin_ns", 7) != 0) return nanoseconds;
  const void *parameter = first_parameter(params, extra);
  if (parameter != NULL) memcpy(&nanoseconds, parameter, sizeof nanoseconds);
  return nanoseconds;
}

static CUresult check_shape(struct grid grid, struct grid block, unsigned shared_bytes) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || block.x == 0 || block.y == 0 || block.z == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (grid.x > 0x7fffffffu || grid.y > 65535u || grid.z > 65535u) return CUDA_ERROR_INVALID_VALUE;
  if (block.x > 1024u || block.y > 1024u || block.z > 64u) return CUDA_ERROR_INVALID_VALUE;
  if ((uint64_t)block.x * block.y * block.z > THREADS_PER_BLOCK) return CUDA_ERROR_INVALID_VALUE;
  return shared_bytes > 227u << 10 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult launch(CUfunction function, struct grid grid, struct grid block, unsigned shared_bytes,
                       CUstream handle, void **params, void **extra, bool cooperative) {
  CUcontext context = NULL;
  CUstream stream = NULL;
  CUresult result = stream_resolve(handle, &context, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (!function_valid(function)) return CUDA_ERROR_INVALID_HANDLE;
  result = check_shape(grid, block, shared_bytes);
  if (result != CUDA_SUCCESS) return result;
  if (params != NULL && extra != NULL) return CUDA_ERROR_INVALID_VALUE;
  uint64_t resident = (uint64_t)member_state()->cards[context->card].sms * BLOCKS_PER_SM;
  if (cooperative && (uint64_t)grid.x * grid.y * grid.z > resident)
    return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  uint64_t sequence = timeline_launch(context->card, duration_of(function, params, extra));
  if (sequence == 0) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  stream_append(context, stream, sequence);
  if (sequence % SETTLE_EVERY == 0) {
    driver_lock();
    events_settle(context->card);
    driver_unlock();
  }
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void **params, void **extra) {
  return launch(function, (struct grid){grid_x, grid_y, grid_z}, (struct grid){block_x, block_y, block_z},
                shared_bytes, stream, params, extra, false);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                   unsigned block_x, unsigned block_y, unsigned block_z,
                                   unsigned shared_bytes, CUstream stream, void **params) {
  return launch(function, (struct grid){grid_x, grid_y, grid_z}, (struct grid){block_x, block_y, block_z},
                shared_bytes, stream, params, NULL, true);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra) {
  if (config == NULL || (config->attribute_count != 0 && config->attributes == NULL))
    return CUDA_ERROR_INVALID_VALUE;
  bool cooperative = false;
  for (unsigned index = 0; index < config->attribute_count; index++)
    if (config->attributes[index].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
      cooperative = config->attributes[index].value.cooperative != 0;
  return launch(function, (struct grid){config->grid_x, config->grid_y, config->grid_z},
                (struct grid){config->block_x, config->block_y, config->block_z}, config->shared_bytes,
                config->stream, params, extra, cooperative);
}
