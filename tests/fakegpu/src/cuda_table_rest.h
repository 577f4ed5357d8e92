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
  PLAIN(cuArray3DCreate, 2000, cuArray3DCreate)                                                              \
  PLAIN(cuArray3DGetDescriptor, 2000, cuArray3DGetDescriptor)                                                \
  PLAIN(cuArrayCreate, 2000, cuArrayCreate)                                                                  \
  PLAIN(cuArrayGetDescriptor, 2000, cuArrayGetDescriptor)                                                    \
  PLAIN(cuArrayGetPlane, 11020, cuArrayGetPlane)                                                             \
  PLAIN(cuArrayGetSparseProperties, 11010, cuArrayGetSparseProperties)                                       \
  PLAIN(cuCheckpointOperationComplete, 13040, cuCheckpointOperationComplete)                                 \
  PLAIN(cuCheckpointProcessCheckpoint, 12080, cuCheckpointProcessCheckpoint)                                 \
  PLAIN(cuCheckpointProcessGetRestoreThreadId, 12080, cuCheckpointProcessGetRestoreThreadId)                 \
  PLAIN(cuCheckpointProcessGetState, 12080, cuCheckpointProcessGetState)                                     \
  PLAIN(cuCheckpointProcessLock, 12080, cuCheckpointProcessLock)                                             \
  PLAIN(cuCheckpointProcessRestore, 12080, cuCheckpointProcessRestore)                                       \
  PLAIN(cuCheckpointProcessUnlock, 12080, cuCheckpointProcessUnlock)                                         \
  PLAIN(cuCoredumpDeregisterCompleteCallback, 13020, cuCoredumpDeregisterCompleteCallback)                   \
  PLAIN(cuCoredumpDeregisterStartCallback, 13020, cuCoredumpDeregisterStartCallback)                         \
  PLAIN(cuCoredumpGetAttribute, 12010, cuCoredumpGetAttribute)                                               \
  PLAIN(cuCoredumpGetAttributeGlobal, 12010, cuCoredumpGetAttributeGlobal)                                   \
  PLAIN(cuCoredumpRegisterCompleteCallback, 13020, cuCoredumpRegisterCompleteCallback)                       \
  PLAIN(cuCoredumpRegisterStartCallback, 13020, cuCoredumpRegisterStartCallback)                             \
  PLAIN(cuCoredumpSetAttribute, 12010, cuCoredumpSetAttribute)                                               \
  PLAIN(cuCoredumpSetAttributeGlobal, 12010, cuCoredumpSetAttributeGlobal)                                   \
  PLAIN(cuCtxFromGreenCtx, 12040, cuCtxFromGreenCtx)                                                         \
  PLAIN(cuCtxGetDevResource, 12040, cuCtxGetDevResource)                                                     \
  PLAIN(cuCtxRecordEvent, 12050, cuCtxRecordEvent)                                                           \
  PLAIN(cuCtxWaitEvent, 12050, cuCtxWaitEvent)                                                               \
  PLAIN(cuDevResourceGenerateDesc, 12040, cuDevResourceGenerateDesc)                                         \
  PLAIN(cuDevSmResourceSplit, 13010, cuDevSmResourceSplit)                                                   \
  PLAIN(cuDevSmResourceSplitByCount, 12040, cuDevSmResourceSplitByCount)                                     \
  PLAIN(cuDeviceGetCliqueCount, 13040, cuDeviceGetCliqueCount)                                               \
  PLAIN(cuDeviceGetCliqueInfo, 13040, cuDeviceGetCliqueInfo)                                                 \
  PLAIN(cuDeviceGetDevResource, 12040, cuDeviceGetDevResource)                                               \
  PLAIN(cuDeviceGetFabricClusterUuid, 13040, cuDeviceGetFabricClusterUuid)                                   \
  PLAIN(cuDeviceGetHostAtomicCapabilities, 13000, cuDeviceGetHostAtomicCapabilities)                         \
  PLAIN(cuDeviceGetNvSciSyncAttributes, 10020, cuDeviceGetNvSciSyncAttributes)                               \
  PLAIN(cuDeviceGetP2PAtomicCapabilities, 13000, cuDeviceGetP2PAtomicCapabilities)                           \
  PLAIN(cuDeviceGetProperties, 2000, cuDeviceGetProperties)                                                  \
  PLAIN(cuDeviceRegisterAsyncNotification, 12040, cuDeviceRegisterAsyncNotification)                         \
  PLAIN(cuDeviceTotalMem, 2000, cuDeviceTotalMem)                                                            \
  PLAIN(cuDeviceUnregisterAsyncNotification, 12040, cuDeviceUnregisterAsyncNotification)                     \
  PLAIN(cuExternalMemoryGetMappedMipmappedArray, 10000, cuExternalMemoryGetMappedMipmappedArray)             \
  STREAM(cuFabricCpyBatchAsync, 13050, cuFabricCpyBatchAsync, 13050, _ptsz)                                  \
  PLAIN(cuGraphAddBatchMemOpNode, 11070, cuGraphAddBatchMemOpNode)                                           \
  PLAIN(cuGraphAddExternalSemaphoresSignalNode, 11020, cuGraphAddExternalSemaphoresSignalNode)               \
  PLAIN(cuGraphAddExternalSemaphoresWaitNode, 11020, cuGraphAddExternalSemaphoresWaitNode)                   \
  PLAIN(cuGraphAddNode, 13040, cuGraphAddNode_v3)                                                            \
  PLAIN(cuGraphBatchMemOpNodeGetParams, 11070, cuGraphBatchMemOpNodeGetParams)                               \
  PLAIN(cuGraphBatchMemOpNodeSetParams, 11070, cuGraphBatchMemOpNodeSetParams)                               \
  PLAIN(cuGraphConditionalHandleCreate, 12030, cuGraphConditionalHandleCreate)                               \
  PLAIN(cuGraphDebugDotPrint, 11030, cuGraphDebugDotPrint)                                                   \
  PLAIN(cuGraphExecBatchMemOpNodeSetParams, 11070, cuGraphExecBatchMemOpNodeSetParams)                       \
  PLAIN(cuGraphExecChildGraphNodeSetParams, 11010, cuGraphExecChildGraphNodeSetParams)                       \
  PLAIN(cuGraphExecExternalSemaphoresSignalNodeSetParams, 11020,                                             \
      cuGraphExecExternalSemaphoresSignalNodeSetParams)                                                      \
  PLAIN(cuGraphExecExternalSemaphoresWaitNodeSetParams, 11020,                                               \
      cuGraphExecExternalSemaphoresWaitNodeSetParams)                                                        \
  PLAIN(cuGraphExternalSemaphoresSignalNodeGetParams, 11020, cuGraphExternalSemaphoresSignalNodeGetParams)   \
  PLAIN(cuGraphExternalSemaphoresSignalNodeSetParams, 11020, cuGraphExternalSemaphoresSignalNodeSetParams)   \
  PLAIN(cuGraphExternalSemaphoresWaitNodeGetParams, 11020, cuGraphExternalSemaphoresWaitNodeGetParams)       \
  PLAIN(cuGraphExternalSemaphoresWaitNodeSetParams, 11020, cuGraphExternalSemaphoresWaitNodeSetParams)       \
  PLAIN(cuGraphKernelNodeCopyAttributes, 11000, cuGraphKernelNodeCopyAttributes)                             \
  PLAIN(cuGraphKernelNodeGetAttribute, 11000, cuGraphKernelNodeGetAttribute)                                 \
  PLAIN(cuGraphKernelNodeSetAttribute, 11000, cuGraphKernelNodeSetAttribute)                                 \
  PLAIN(cuGraphNodeSetParams, 13040, cuGraphNodeSetParams_v2)                                                \
  STREAM(cuGraphicsMapResources, 3000, cuGraphicsMapResources, 7000, _ptsz)                                  \
  PLAIN(cuGraphicsResourceGetMappedMipmappedArray, 5000, cuGraphicsResourceGetMappedMipmappedArray)          \
  PLAIN(cuGraphicsResourceGetMappedPointer, 3000, cuGraphicsResourceGetMappedPointer)                        \
  PLAIN(cuGraphicsResourceGetMappedPointer, 3020, cuGraphicsResourceGetMappedPointer_v2)                     \
  PLAIN(cuGraphicsResourceSetMapFlags, 3000, cuGraphicsResourceSetMapFlags)                                  \
  PLAIN(cuGraphicsResourceSetMapFlags, 6050, cuGraphicsResourceSetMapFlags_v2)                               \
  PLAIN(cuGraphicsSubResourceGetMappedArray, 3000, cuGraphicsSubResourceGetMappedArray)                      \
  STREAM(cuGraphicsUnmapResources, 3000, cuGraphicsUnmapResources, 7000, _ptsz)                              \
  PLAIN(cuGraphicsUnregisterResource, 3000, cuGraphicsUnregisterResource)                                    \
  PLAIN(cuGreenCtxCreate, 12040, cuGreenCtxCreate)                                                           \
  PLAIN(cuGreenCtxDestroy, 12040, cuGreenCtxDestroy)                                                         \
  PLAIN(cuGreenCtxGetDevResource, 12040, cuGreenCtxGetDevResource)                                           \
  PLAIN(cuGreenCtxGetId, 12090, cuGreenCtxGetId)                                                             \
  PLAIN(cuGreenCtxRecordEvent, 12040, cuGreenCtxRecordEvent)                                                 \
  PLAIN(cuGreenCtxStreamCreate, 12050, cuGreenCtxStreamCreate)                                               \
  PLAIN(cuGreenCtxWaitEvent, 12040, cuGreenCtxWaitEvent)                                                     \
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
  PLAIN(cuLogsCurrent, 12090, cuLogsCurrent)                                                                 \
  PLAIN(cuLogsDumpToFile, 12090, cuLogsDumpToFile)                                                           \
  PLAIN(cuLogsDumpToMemory, 12090, cuLogsDumpToMemory)                                                       \
  PLAIN(cuLogsRegisterCallback, 12090, cuLogsRegisterCallback)                                               \
  PLAIN(cuLogsUnregisterCallback, 12090, cuLogsUnregisterCallback)                                           \
  PLAIN(cuMemAlloc, 2000, cuMemAlloc)                                                                        \
  PLAIN(cuMemAllocHost, 2000, cuMemAllocHost)                                                                \
  PLAIN(cuMemAllocPitch, 2000, cuMemAllocPitch)                                                              \
  STREAM(cuMemBatchDecompressAsync, 12060, cuMemBatchDecompressAsync, 12060, _ptsz)                          \
  PLAIN(cuMemFree, 2000, cuMemFree)                                                                          \
  PLAIN(cuMemGetAddressRange, 2000, cuMemGetAddressRange)                                                    \
  PLAIN(cuMemGetHandleForAddressRange, 11070, cuMemGetHandleForAddressRange)                                 \
  PLAIN(cuMemGetInfo, 2000, cuMemGetInfo)                                                                    \
  PLAIN(cuMemGetLocationInfo, 13040, cuMemGetLocationInfo)                                                   \
  PLAIN(cuMemHostGetDevicePointer, 2020, cuMemHostGetDevicePointer)                                          \
  STREAM(cuMemMapArrayAsync, 11010, cuMemMapArrayAsync, 11010, _ptsz)                                        \
  PLAIN(cuMemcpy2D, 2000, cuMemcpy2D)                                                                        \
  PLAIN(cuMemcpy2DAsync, 2000, cuMemcpy2DAsync)                                                              \
  PLAIN(cuMemcpy2DUnaligned, 2000, cuMemcpy2DUnaligned)                                                      \
  PLAIN(cuMemcpy3D, 2000, cuMemcpy3D)                                                                        \
  PLAIN(cuMemcpy3DAsync, 2000, cuMemcpy3DAsync)                                                              \
  STREAM(cuMemcpy3DBatchAsync, 12080, cuMemcpy3DBatchAsync, 12080, _ptsz)                                    \
  STREAM(cuMemcpy3DBatchAsync, 13000, cuMemcpy3DBatchAsync_v2, 13000, _ptsz)                                 \
  STREAM(cuMemcpy3DWithAttributesAsync, 13020, cuMemcpy3DWithAttributesAsync, 13020, _ptsz)                  \
  PLAIN(cuMemcpyAtoA, 2000, cuMemcpyAtoA)                                                                    \
  PLAIN(cuMemcpyAtoD, 2000, cuMemcpyAtoD)                                                                    \
  PLAIN(cuMemcpyAtoH, 2000, cuMemcpyAtoH)                                                                    \
  PLAIN(cuMemcpyAtoHAsync, 2000, cuMemcpyAtoHAsync)                                                          \
  PLAIN(cuMemcpyDtoA, 2000, cuMemcpyDtoA)                                                                    \
  PLAIN(cuMemcpyDtoD, 2000, cuMemcpyDtoD)                                                                    \
  PLAIN(cuMemcpyDtoDAsync, 3000, cuMemcpyDtoDAsync)                                                          \
  PLAIN(cuMemcpyDtoH, 2000, cuMemcpyDtoH)                                                                    \
  PLAIN(cuMemcpyDtoHAsync, 2000, cuMemcpyDtoHAsync)                                                          \
  PLAIN(cuMemcpyHtoA, 2000, cuMemcpyHtoA)                                                                    \
  PLAIN(cuMemcpyHtoAAsync, 2000, cuMemcpyHtoAAsync)                                                          \
  PLAIN(cuMemcpyHtoD, 2000, cuMemcpyHtoD)                                                                    \
  PLAIN(cuMemcpyHtoDAsync, 2000, cuMemcpyHtoDAsync)                                                          \
  STREAM(cuMemcpyWithAttributesAsync, 13020, cuMemcpyWithAttributesAsync, 13020, _ptsz)                      \
  PLAIN(cuMemsetD16, 2000, cuMemsetD16)                                                                      \
  PLAIN(cuMemsetD2D16, 2000, cuMemsetD2D16)                                                                  \
  PLAIN(cuMemsetD2D32, 2000, cuMemsetD2D32)                                                                  \
  PLAIN(cuMemsetD2D8, 2000, cuMemsetD2D8)                                                                    \
  PLAIN(cuMemsetD32, 2000, cuMemsetD32)                                                                      \
  PLAIN(cuMemsetD8, 2000, cuMemsetD8)                                                                        \
  PLAIN(cuMipmappedArrayGetSparseProperties, 11010, cuMipmappedArrayGetSparseProperties)                     \
  PLAIN(cuModuleGetGlobal, 2000, cuModuleGetGlobal)                                                          \
  PLAIN(cuModuleGetSurfRef, 3000, cuModuleGetSurfRef)                                                        \
  PLAIN(cuModuleGetTexRef, 2000, cuModuleGetTexRef)                                                          \
  PLAIN(cuMulticastAddDevice, 12010, cuMulticastAddDevice)                                                   \
  PLAIN(cuMulticastBindAddr, 12010, cuMulticastBindAddr)                                                     \
  PLAIN(cuMulticastBindAddr, 13010, cuMulticastBindAddr_v2)                                                  \
  PLAIN(cuMulticastBindMem, 12010, cuMulticastBindMem)                                                       \
  PLAIN(cuMulticastBindMem, 13010, cuMulticastBindMem_v2)                                                    \
  PLAIN(cuMulticastCreate, 12010, cuMulticastCreate)                                                         \
  PLAIN(cuMulticastGetGranularity, 12010, cuMulticastGetGranularity)                                         \
  PLAIN(cuMulticastUnbind, 12010, cuMulticastUnbind)                                                         \
  PLAIN(cuParamSetTexRef, 2000, cuParamSetTexRef)                                                            \
  STREAM(cuStreamBatchMemOp, 8000, cuStreamBatchMemOp, 8000, _ptsz)                                          \
  STREAM(cuStreamBatchMemOp, 11070, cuStreamBatchMemOp_v2, 11070, _ptsz)                                     \
  STREAM(cuStreamBeginCaptureToCig, 13010, cuStreamBeginCaptureToCig, 13010, _ptsz)                          \
  STREAM(cuStreamBeginRecaptureToGraph, 13030, cuStreamBeginRecaptureToGraph, 13030, _ptsz)                  \
  STREAM(cuStreamEndCaptureToCig, 13010, cuStreamEndCaptureToCig, 13010, _ptsz)                              \
  STREAM(cuStreamGetDevResource, 13010, cuStreamGetDevResource, 13010, _ptsz)                                \
  PLAIN(cuStreamGetGreenCtx, 12040, cuStreamGetGreenCtx)                                                     \
  PLAIN(cuSurfObjectCreate, 5000, cuSurfObjectCreate)                                                        \
  PLAIN(cuSurfObjectDestroy, 5000, cuSurfObjectDestroy)                                                      \
  PLAIN(cuSurfObjectGetResourceDesc, 5000, cuSurfObjectGetResourceDesc)                                      \
  PLAIN(cuSurfRefGetArray, 3000, cuSurfRefGetArray)                                                          \
  PLAIN(cuSurfRefSetArray, 3000, cuSurfRefSetArray)                                                          \
  PLAIN(cuTensorMapEncodeIm2col, 12000, cuTensorMapEncodeIm2col)                                             \
  PLAIN(cuTensorMapEncodeIm2colWide, 12080, cuTensorMapEncodeIm2colWide)                                     \
  PLAIN(cuTensorMapEncodeTiled, 12000, cuTensorMapEncodeTiled)                                               \
  PLAIN(cuTensorMapReplaceAddress, 12000, cuTensorMapReplaceAddress)                                         \
  PLAIN(cuTensorMapSetAllocationClass, 13050, cuTensorMapSetAllocationClass)                                 \
  PLAIN(cuTexObjectCreate, 5000, cuTexObjectCreate)                                                          \
  PLAIN(cuTexObjectDestroy, 5000, cuTexObjectDestroy)                                                        \
  PLAIN(cuTexObjectGetResourceDesc, 5000, cuTexObjectGetResourceDesc)                                        \
  PLAIN(cuTexObjectGetResourceViewDesc, 5000, cuTexObjectGetResourceViewDesc)                                \
  PLAIN(cuTexObjectGetTextureDesc, 5000, cuTexObjectGetTextureDesc)                                          \
  PLAIN(cuTexRefCreate, 2000, cuTexRefCreate)                                                                \
  PLAIN(cuTexRefDestroy, 2000, cuTexRefDestroy)                                                              \
  PLAIN(cuTexRefGetAddress, 2000, cuTexRefGetAddress)                                                        \
  PLAIN(cuTexRefGetAddress, 3020, cuTexRefGetAddress_v2)                                                     \
  PLAIN(cuTexRefGetAddressMode, 2000, cuTexRefGetAddressMode)                                                \
  PLAIN(cuTexRefGetArray, 2000, cuTexRefGetArray)                                                            \
  PLAIN(cuTexRefGetBorderColor, 8000, cuTexRefGetBorderColor)                                                \
  PLAIN(cuTexRefGetFilterMode, 2000, cuTexRefGetFilterMode)                                                  \
  PLAIN(cuTexRefGetFlags, 2000, cuTexRefGetFlags)                                                            \
  PLAIN(cuTexRefGetFormat, 2000, cuTexRefGetFormat)                                                          \
  PLAIN(cuTexRefGetMaxAnisotropy, 5000, cuTexRefGetMaxAnisotropy)                                            \
  PLAIN(cuTexRefGetMipmapFilterMode, 5000, cuTexRefGetMipmapFilterMode)                                      \
  PLAIN(cuTexRefGetMipmapLevelBias, 5000, cuTexRefGetMipmapLevelBias)                                        \
  PLAIN(cuTexRefGetMipmapLevelClamp, 5000, cuTexRefGetMipmapLevelClamp)                                      \
  PLAIN(cuTexRefGetMipmappedArray, 5000, cuTexRefGetMipmappedArray)                                          \
  PLAIN(cuTexRefSetAddress, 2000, cuTexRefSetAddress)                                                        \
  PLAIN(cuTexRefSetAddress, 3020, cuTexRefSetAddress_v2)                                                     \
  PLAIN(cuTexRefSetAddress2D, 2020, cuTexRefSetAddress2D)                                                    \
  PLAIN(cuTexRefSetAddress2D, 3020, cuTexRefSetAddress2D_v2)                                                 \
  PLAIN(cuTexRefSetAddress2D, 4010, cuTexRefSetAddress2D_v3)                                                 \
  PLAIN(cuTexRefSetAddressMode, 2000, cuTexRefSetAddressMode)                                                \
  PLAIN(cuTexRefSetArray, 2000, cuTexRefSetArray)                                                            \
  PLAIN(cuTexRefSetBorderColor, 8000, cuTexRefSetBorderColor)                                                \
  PLAIN(cuTexRefSetFilterMode, 2000, cuTexRefSetFilterMode)                                                  \
  PLAIN(cuTexRefSetFlags, 2000, cuTexRefSetFlags)                                                            \
  PLAIN(cuTexRefSetFormat, 2000, cuTexRefSetFormat)                                                          \
  PLAIN(cuTexRefSetMaxAnisotropy, 5000, cuTexRefSetMaxAnisotropy)                                            \
  PLAIN(cuTexRefSetMipmapFilterMode, 5000, cuTexRefSetMipmapFilterMode)                                      \
  PLAIN(cuTexRefSetMipmapLevelBias, 5000, cuTexRefSetMipmapLevelBias)                                        \
  PLAIN(cuTexRefSetMipmapLevelClamp, 5000, cuTexRefSetMipmapLevelClamp)                                      \
  PLAIN(cuTexRefSetMipmappedArray, 5000, cuTexRefSetMipmappedArray)
/* clang-format on */

#endif
