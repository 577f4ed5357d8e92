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

/* The first parameter's bytes, from either way of passing them; NULL: none is passed. */
static const void *first_parameter(void **params, void **extra) {
  if (params != NULL) return params[0];
  for (; extra != NULL && extra[0] != CU_LAUNCH_PARAM_END; extra += 2)
    if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) return extra[1];
  return NULL;
}

uint64_t kernel_duration(CUfunction function, void **params, void **extra) {
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

CUresult kernel_check(CUcontext context, CUfunction function, const struct launch_shape *shape) {
  if (!function_valid(function)) return CUDA_ERROR_INVALID_HANDLE;
  struct grid grid = shape->grid;
  CUresult result = check_shape(grid, shape->block, shape->shared_bytes);
  if (result != CUDA_SUCCESS) return result;
  uint64_t resident = (uint64_t)member_state()->cards[context->card].sms * BLOCKS_PER_SM;
  if (shape->cooperative && (uint64_t)grid.x * grid.y * grid.z > resident)
    return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  return CUDA_SUCCESS;
}

CUresult kernel_run(CUcontext context, CUstream stream, uint64_t duration_ns) {
  uint64_t sequence = timeline_launch(context->card, duration_ns);
  if (sequence == 0) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  stream_append(context, stream, sequence);
  if (sequence % EVENTS_SETTLE_EVERY == 0) {
    driver_lock();
    events_settle(context->card);
    driver_unlock();
  }
  return CUDA_SUCCESS;
}

static CUresult capture(CUcontext context, CUstream stream, CUfunction function,
                        const struct launch_shape *shape, void **params, void **extra, bool *captured) {
  CUgraphNodeParams node = {.type = NODE_KERNEL};
  node.kernel = (CUDA_KERNEL_NODE_PARAMS_v2){
      function,       shape->grid.x,       shape->grid.y, shape->grid.z, shape->block.x, shape->block.y,
      shape->block.z, shape->shared_bytes, params,        extra,         NULL,           context};
  return capture_work(context, stream, &node, shape->cooperative, captured);
}

static CUresult launch(CUfunction function, struct launch_shape shape, CUstream handle, void **params,
                       void **extra) {
  CUcontext context = NULL;
  CUstream stream = NULL;
  bool captured = false;
  CUresult result = stream_resolve(handle, &context, &stream);
  if (result == CUDA_SUCCESS) result = kernel_check(context, function, &shape);
  if (result != CUDA_SUCCESS) return result;
  if (params != NULL && extra != NULL) return CUDA_ERROR_INVALID_VALUE;
  if (capture_any()) {
    result = capture(context, stream, function, &shape, params, extra, &captured);
    if (result != CUDA_SUCCESS || captured) return result;
  }
  return kernel_run(context, stream, kernel_duration(function, params, extra));
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void **params, void **extra) {
  struct launch_shape shape = {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, false};
  return launch(function, shape, stream, params, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                   unsigned block_x, unsigned block_y, unsigned block_z,
                                   unsigned shared_bytes, CUstream stream, void **params) {
  struct launch_shape shape = {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, true};
  return launch(function, shape, stream, params, NULL);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra) {
  if (config == NULL || (config->attribute_count != 0 && config->attributes == NULL))
    return CUDA_ERROR_INVALID_VALUE;
  bool cooperative = false;
  for (unsigned index = 0; index < config->attribute_count; index++)
    if (config->attributes[index].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
      cooperative = config->attributes[index].value.cooperative != 0;
  struct launch_shape shape = {{config->grid_x, config->grid_y, config->grid_z},
                               {config->block_x, config->block_y, config->block_z},
                               config->shared_bytes,
                               cooperative};
  return launch(function, shape, config->stream, params, extra);
}
