/* SPDX-License-Identifier: Apache-2.0
 *
 * Words of memory that streams write and wait for, and attributes of streams. The caller waits in the
 * stream's place; so a value that only the caller itself would write later is waited for in vain.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <string.h>
#include <time.h>

enum { WAIT_GREATER_OR_EQUAL, WAIT_EQUAL, WAIT_AND, WAIT_NOR, WAIT_KINDS };
#define FLUSH_FLAG (1u << 30)
#define NO_BARRIER_FLAG 1u
#define LOOK_AGAIN_NS 50000

static CUresult find_word(CUdeviceptr address, size_t width, void **word) {
  if (address == 0 || address % width != 0) return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  *word = memory_reach(address, width, false);
  driver_unlock();
  return *word == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult write_value(CUstream stream, CUdeviceptr address, uint64_t value, size_t width,
                            unsigned flags) {
  void *word = NULL;
  if ((flags & ~NO_BARRIER_FLAG) != 0) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = capture_forbids(stream, NULL);
  if (result == CUDA_SUCCESS) result = stream_wait(stream);
  if (result == CUDA_SUCCESS) result = find_word(address, width, &word);
  if (result != CUDA_SUCCESS) return result;
  if (width == 4)
    __atomic_store_n((uint32_t *)word, (uint32_t)value, __ATOMIC_SEQ_CST);
  else
    __atomic_store_n((uint64_t *)word, value, __ATOMIC_SEQ_CST);
  return CUDA_SUCCESS;
}

static bool holds(uint64_t found, uint64_t value, unsigned kind, size_t width) {
  uint64_t mask = width == 4 ? UINT32_MAX : UINT64_MAX;
  switch (kind) {
    case WAIT_GREATER_OR_EQUAL: /* as a difference that may wrap round */
      return width == 4 ? (int32_t)((uint32_t)found - (uint32_t)value) >= 0 : (int64_t)(found - value) >= 0;
    case WAIT_EQUAL:
      return found == value;
    case WAIT_AND:
      return (found & value) != 0;
    default:
      return (~(found | value) & mask) != 0;
  }
}

static CUresult wait_value(CUstream stream, CUdeviceptr address, uint64_t value, size_t width,
                           unsigned flags) {
  void *word = NULL;
  unsigned kind = flags & ~FLUSH_FLAG;
  if (kind >= WAIT_KINDS) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = capture_forbids(stream, NULL);
  if (result == CUDA_SUCCESS) result = stream_wait(stream);
  if (result == CUDA_SUCCESS) result = find_word(address, width, &word);
  if (result != CUDA_SUCCESS) return result;
  for (;;) {
    uint64_t found = width == 4 ? __atomic_load_n((uint32_t *)word, __ATOMIC_SEQ_CST)
                                : __atomic_load_n((uint64_t *)word, __ATOMIC_SEQ_CST);
    if (holds(found, value, kind, width)) return CUDA_SUCCESS;
    nanosleep(&(struct timespec){.tv_sec = 0, .tv_nsec = LOOK_AGAIN_NS}, NULL);
  }
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags) {
  return write_value(stream, address, value, sizeof value, flags);
}
CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags) {
  return write_value(stream, address, value, sizeof value, flags);
}
CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags) {
  return write_value(stream, address, value, sizeof value, flags);
}
CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags) {
  return write_value(stream, address, value, sizeof value, flags);
}
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags) {
  return wait_value(stream, address, value, sizeof value, flags);
}
CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags) {
  return wait_value(stream, address, value, sizeof value, flags);
}
CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags) {
  return wait_value(stream, address, value, sizeof value, flags);
}
CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags) {
  return wait_value(stream, address, value, sizeof value, flags);
}

enum {
  OPERATION_WAIT_32 = 1,
  OPERATION_WRITE_32,
  OPERATION_FLUSH,
  OPERATION_WAIT_64,
  OPERATION_WRITE_64,
  OPERATION_BARRIER,
  OPERATION_REDUCTION = 8
};
enum { REDUCE_ADD = 0, REDUCE_AND = 5, REDUCE_OR = 6, REDUCE_64_BITS = 1 << 4 };

static uint64_t reduced(uint64_t found, uint64_t value, unsigned operation) {
  return operation == REDUCE_ADD ? found + value : operation == REDUCE_AND ? found & value : found | value;
}

static CUresult reduce(CUstream stream, const CUstreamBatchMemOpParams *wish) {
  void *word = NULL;
  unsigned operation = wish->reduction.operation;
  size_t width = (wish->reduction.type & REDUCE_64_BITS) != 0 ? 8 : 4;
  if (operation != REDUCE_ADD && operation != REDUCE_AND && operation != REDUCE_OR)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = stream_wait(stream);
  if (result == CUDA_SUCCESS) result = find_word(wish->reduction.address, width, &word);
  if (result != CUDA_SUCCESS) return result;
  if (width == 4) {
    uint32_t *cell = word, found = __atomic_load_n(cell, __ATOMIC_SEQ_CST);
    while (!__atomic_compare_exchange_n(cell, &found,
                                        (uint32_t)reduced(found, wish->reduction.value, operation), false,
                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
  } else {
    uint64_t *cell = word, found = __atomic_load_n(cell, __ATOMIC_SEQ_CST);
    while (!__atomic_compare_exchange_n(cell, &found, reduced(found, wish->reduction.value, operation), false,
                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
  }
  return CUDA_SUCCESS;
}

static CUresult operate(CUstream stream, const CUstreamBatchMemOpParams *wish) {
  switch (wish->kind) {
    case OPERATION_WAIT_32:
      return wait_value(stream, wish->word.address, wish->word.value & UINT32_MAX, 4, wish->word.flags);
    case OPERATION_WAIT_64:
      return wait_value(stream, wish->word.address, wish->word.value, 8, wish->word.flags);
    case OPERATION_WRITE_32:
      return write_value(stream, wish->word.address, wish->word.value & UINT32_MAX, 4, wish->word.flags);
    case OPERATION_WRITE_64:
      return write_value(stream, wish->word.address, wish->word.value, 8, wish->word.flags);
    case OPERATION_REDUCTION:
      return reduce(stream, wish);
    case OPERATION_FLUSH:
    case OPERATION_BARRIER:
      return CUDA_SUCCESS; /* nothing is out of order here */
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

/* The manual: at most 256 operations. */
CUresult cuStreamBatchMemOp_v2(CUstream handle, unsigned count, CUstreamBatchMemOpParams *operations,
                               unsigned flags) {
  enum { MOST = 256 };
  CUcontext context = NULL;
  CUstream stream = NULL;
  CUresult result = stream_resolve(handle, &context, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (count > MOST || (count != 0 && operations == NULL) || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned index = 0; index < count && result == CUDA_SUCCESS; index++)
    result = operate(handle, &operations[index]);
  return result;
}

CUresult cuStreamBatchMemOp(CUstream stream, unsigned count, CUstreamBatchMemOpParams *operations,
                            unsigned flags) {
  return cuStreamBatchMemOp_v2(stream, count, operations, flags);
}

/* Managed memory is where it is: attaching it to a stream changes nothing. */
CUresult cuStreamAttachMemAsync(CUstream handle, CUdeviceptr address, size_t bytes, unsigned flags) {
  CUcontext context = NULL;
  CUstream stream = NULL;
  CUresult result = stream_resolve(handle, &context, &stream);
  if (result != CUDA_SUCCESS) return result;
  if ((flags != 1 && flags != 2 && flags != 4) || bytes != 0) return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  const struct block *block = address_find(address);
  if (block == NULL || block->kind != BLOCK_MANAGED) result = CUDA_ERROR_INVALID_VALUE;
  driver_unlock();
  return result;
}

/* Attributes are remembered for no stream: what can be set has no effect here, what is asked is the default.
 */
CUresult cuStreamSetAttribute(CUstream handle, unsigned attribute, const CUlaunchAttributeValue *value) {
  CUcontext context = NULL;
  CUstream stream = NULL;
  CUresult result = stream_resolve(handle, &context, &stream);
  if (result != CUDA_SUCCESS) return result;
  return value == NULL || attribute == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuStreamGetAttribute(CUstream handle, unsigned attribute, CUlaunchAttributeValue *value) {
  enum { PRIORITY = 8 };
  CUcontext context = NULL;
  CUstream stream = NULL;
  CUresult result = stream_resolve(handle, &context, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (value == NULL || attribute == 0) return CUDA_ERROR_INVALID_VALUE;
  memset(value, 0, sizeof *value);
  if (attribute == PRIORITY && stream != NULL) value->priority = stream->priority;
  return CUDA_SUCCESS;
}

CUresult cuStreamCopyAttributes(CUstream target, CUstream source) {
  CUcontext context = NULL;
  CUstream stream = NULL;
  CUresult result = stream_resolve(target, &context, &stream);
  return result == CUDA_SUCCESS ? stream_resolve(source, &context, &stream) : result;
}
