/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of cuda_table.h: functions of the public headers (CUDA 12.9 and 13.5) that are found by every road
 * and answer NOT_SUPPORTED. Their parameters don't matter, so only names and versions are here. Spellings
 * with 32-bit device addresses (2000) are among them: the addresses here have more bits.
 */
#ifndef FAKEGPU_CUDA_TABLE_REST_H
#define FAKEGPU_CUDA_TABLE_REST_H

/* clang-format off */
#define CUDA_REST(PLAIN, STREAM)                                                                             \
  PLAIN(cuCheckpointOperationComplete, 13040, cuCheckpointOperationComplete)                                 \
  PLAIN(cuCheckpointProcessCheckpoint, 12080, cuCheckpointProcessCheckpoint)                                 \
  PLAIN(cuCheckpointProcessGetRestoreThreadId, 12080, cuCheckpointProcessGetRestoreThreadId)                 \
  PLAIN(cuCheckpointProcessGetState, 12080, cuCheckpointProcessGetState)                                     \
  PLAIN(cuCheckpointProcessLock, 12080, cuCheckpointProcessLock)                                             \
  PLAIN(cuCheckpointProcessRestore, 12080, cuCheckpointProcessRestore)                                       \
  PLAIN(cuCheckpointProcessUnlock, 12080, cuCheckpointProcessUnlock)                                         \
  PLAIN(cuCoredumpDeregisterCompleteCallback, 13020, cuCoredumpDeregisterCompleteCallback)                   \
  PLAIN(cuCoredumpDeregisterStartCallback, 13020, cuCoredumpDeregisterStartCallback)                         \
  PLAIN(cuCoredumpRegisterCompleteCallback, 13020, cuCoredumpRegisterCompleteCallback)                       \
  PLAIN(cuCoredumpRegisterStartCallback, 13020, cuCoredumpRegisterStartCallback)                             \
  PLAIN(cuDeviceGetCliqueCount, 13040, cuDeviceGetCliqueCount)                                               \
  PLAIN(cuDeviceGetCliqueInfo, 13040, cuDeviceGetCliqueInfo)                                                 \
  PLAIN(cuDeviceGetFabricClusterUuid, 13040, cuDeviceGetFabricClusterUuid)                                   \
  PLAIN(cuDeviceGetNvSciSyncAttributes, 10020, cuDeviceGetNvSciSyncAttributes)                               \
  PLAIN(cuDeviceRegisterAsyncNotification, 12040, cuDeviceRegisterAsyncNotification)                         \
  PLAIN(cuDeviceUnregisterAsyncNotification, 12040, cuDeviceUnregisterAsyncNotification)                     \
  PLAIN(cuExternalMemoryGetMappedMipmappedArray, 10000, cuExternalMemoryGetMappedMipmappedArray)             \
  STREAM(cuFabricCpyBatchAsync, 13050, cuFabricCpyBatchAsync, 13050, _ptsz)                                  \
  STREAM(cuGraphicsMapResources, 3000, cuGraphicsMapResources, 7000, _ptsz)                                  \
  PLAIN(cuGraphicsResourceGetMappedMipmappedArray, 5000, cuGraphicsResourceGetMappedMipmappedArray)          \
  PLAIN(cuGraphicsResourceGetMappedPointer, 3000, cuGraphicsResourceGetMappedPointer)                        \
  PLAIN(cuGraphicsResourceGetMappedPointer, 3020, cuGraphicsResourceGetMappedPointer_v2)                     \
  PLAIN(cuGraphicsResourceSetMapFlags, 3000, cuGraphicsResourceSetMapFlags)                                  \
  PLAIN(cuGraphicsResourceSetMapFlags, 6050, cuGraphicsResourceSetMapFlags_v2)                               \
  PLAIN(cuGraphicsSubResourceGetMappedArray, 3000, cuGraphicsSubResourceGetMappedArray)                      \
  STREAM(cuGraphicsUnmapResources, 3000, cuGraphicsUnmapResources, 7000, _ptsz)                              \
  PLAIN(cuGraphicsUnregisterResource, 3000, cuGraphicsUnregisterResource)                                    \
  PLAIN(cuLogicalEndpointAddDevice, 13030, cuLogicalEndpointAddDevice)                                       \
  PLAIN(cuLogicalEndpointBindAddr, 13030, cuLogicalEndpointBindAddr)                                         \
  PLAIN(cuLogicalEndpointBindMem, 13030, cuLogicalEndpointBindMem)                                           \
  PLAIN(cuLogicalEndpointCreate, 13030, cuLogicalEndpointCreate)                                             \
  PLAIN(cuLogicalEndpointDestroy, 13030, cuLogicalEndpointDestroy)                                           \
  PLAIN(cuLogicalEndpointExport, 13030, cuLogicalEndpointExport)                                             \
  PLAIN(cuLogicalEndpointGetLimits, 13030, cuLogicalEndpointGetLimits)                                       \
  PLAIN(cuLogicalEndpointIdRelease, 13030, cuLogicalEndpointIdRelease)                                       \
  PLAIN(cuLogicalEndpointIdReserve, 13030, cuLogicalEndpointIdReserve)                                       \
  PLAIN(cuLogicalEndpointImport, 13030, cuLogicalEndpointImport)                                             \
  PLAIN(cuLogicalEndpointQuery, 13030, cuLogicalEndpointQuery)                                               \
  PLAIN(cuLogicalEndpointUnbind, 13030, cuLogicalEndpointUnbind)                                             \
  STREAM(cuMemBatchDecompressAsync, 12060, cuMemBatchDecompressAsync, 12060, _ptsz)                          \
  PLAIN(cuMemGetHandleForAddressRange, 11070, cuMemGetHandleForAddressRange)                                 \
  PLAIN(cuMemGetLocationInfo, 13040, cuMemGetLocationInfo)                                                   \
  STREAM(cuStreamBeginCaptureToCig, 13010, cuStreamBeginCaptureToCig, 13010, _ptsz)                          \
  STREAM(cuStreamBeginRecaptureToGraph, 13030, cuStreamBeginRecaptureToGraph, 13030, _ptsz)                  \
  STREAM(cuStreamEndCaptureToCig, 13010, cuStreamEndCaptureToCig, 13010, _ptsz)                              \
  PLAIN(cuTensorMapSetAllocationClass, 13050, cuTensorMapSetAllocationClass)
/* clang-format on */

#endif
