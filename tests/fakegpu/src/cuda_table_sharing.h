/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of cuda_table.h: memory and events shared with other processes and interfaces.
 */
#ifndef FAKEGPU_CUDA_TABLE_SHARING_H
#define FAKEGPU_CUDA_TABLE_SHARING_H

/* clang-format off */
#define CUDA_SHARING(PLAIN, STREAM)                                                                          \
  PLAIN(cuIpcGetMemHandle, 4010, cuIpcGetMemHandle, (CUipcMemHandle *handle, CUdeviceptr address))           \
  PLAIN(cuIpcOpenMemHandle, 11000, cuIpcOpenMemHandle_v2, (CUdeviceptr *address, CUipcMemHandle handle,      \
      unsigned flags))                                                                                       \
  PLAIN(cuIpcOpenMemHandle, 4010, cuIpcOpenMemHandle, (CUdeviceptr *address, CUipcMemHandle handle,          \
      unsigned flags))                                                                                       \
  PLAIN(cuIpcCloseMemHandle, 4010, cuIpcCloseMemHandle, (CUdeviceptr address))                               \
  PLAIN(cuMemPoolExportPointer, 11020, cuMemPoolExportPointer, (CUmemPoolPtrExportData *data, CUdeviceptr    \
      address))                                                                                              \
  PLAIN(cuMemPoolImportPointer, 11020, cuMemPoolImportPointer, (CUdeviceptr *address, CUmemoryPool pool,     \
      CUmemPoolPtrExportData *data))                                                                         \
  PLAIN(cuIpcGetEventHandle, 4010, cuIpcGetEventHandle, (CUipcEventHandle *handle, CUevent event))           \
  PLAIN(cuIpcOpenEventHandle, 4010, cuIpcOpenEventHandle, (CUevent *event, CUipcEventHandle handle))         \
  PLAIN(cuImportExternalMemory, 10000, cuImportExternalMemory, (CUexternalMemory *made, const                \
      CUDA_EXTERNAL_MEMORY_HANDLE_DESC_v1 *description))                                                     \
  PLAIN(cuDestroyExternalMemory, 10000, cuDestroyExternalMemory, (CUexternalMemory memory))                  \
  PLAIN(cuExternalMemoryGetMappedBuffer, 10000, cuExternalMemoryGetMappedBuffer, (CUdeviceptr *address,      \
      CUexternalMemory memory, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC_v1 *description))                      \
  PLAIN(cuImportExternalSemaphore, 10000, cuImportExternalSemaphore, (CUexternalSemaphore *made, const       \
      CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_v1 *description))                                                  \
  PLAIN(cuDestroyExternalSemaphore, 10000, cuDestroyExternalSemaphore, (CUexternalSemaphore semaphore))      \
  STREAM(cuSignalExternalSemaphoresAsync, 10000, cuSignalExternalSemaphoresAsync, 10000, _ptsz, (const       \
         CUexternalSemaphore *semaphores, const void *params, unsigned count, CUstream stream),              \
         (semaphores, params, count, stream))                                                                \
  STREAM(cuWaitExternalSemaphoresAsync, 10000, cuWaitExternalSemaphoresAsync, 10000, _ptsz, (const           \
         CUexternalSemaphore *semaphores, const void *params, unsigned count, CUstream stream),              \
         (semaphores, params, count, stream))                                                                \
  PLAIN(cuMemPoolExportToShareableHandle, 11020, cuMemPoolExportToShareableHandle, (void *shareable,         \
      CUmemoryPool pool, CUmemAllocationHandleType type, uint64_t flags))                                    \
  PLAIN(cuMemPoolImportFromShareableHandle, 11020, cuMemPoolImportFromShareableHandle, (CUmemoryPool         \
      *pool, void *shareable, CUmemAllocationHandleType type, uint64_t flags))
/* clang-format on */

#endif
