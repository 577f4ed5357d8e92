/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of cuda_table.h: graphs, stream capture, host functions.
 */
#ifndef FAKEGPU_CUDA_TABLE_GRAPHS_H
#define FAKEGPU_CUDA_TABLE_GRAPHS_H

/* clang-format off */
#define CUDA_GRAPHS(PLAIN, STREAM)                                                                           \
  PLAIN(cuGraphCreate, 10000, cuGraphCreate, (CUgraph *made, unsigned flags))                                \
  PLAIN(cuGraphDestroy, 10000, cuGraphDestroy, (CUgraph graph))                                              \
  PLAIN(cuGraphClone, 10000, cuGraphClone, (CUgraph *clone, CUgraph original))                               \
  PLAIN(cuGraphNodeFindInClone, 10000, cuGraphNodeFindInClone, (CUgraphNode *node, CUgraphNode original,     \
      CUgraph clone))                                                                                        \
  PLAIN(cuGraphGetNodes, 10000, cuGraphGetNodes, (CUgraph graph, CUgraphNode *nodes, size_t *count))         \
  PLAIN(cuGraphGetRootNodes, 10000, cuGraphGetRootNodes, (CUgraph graph, CUgraphNode *nodes, size_t          \
      *count))                                                                                               \
  PLAIN(cuGraphGetEdges, 12030, cuGraphGetEdges_v2, (CUgraph graph, CUgraphNode *from, CUgraphNode *to,      \
      CUgraphEdgeData *data, size_t *count))                                                                 \
  PLAIN(cuGraphGetEdges, 10000, cuGraphGetEdges, (CUgraph graph, CUgraphNode *from, CUgraphNode *to,         \
      size_t *count))                                                                                        \
  PLAIN(cuGraphNodeGetDependencies, 12030, cuGraphNodeGetDependencies_v2, (CUgraphNode node, CUgraphNode     \
      *nodes, CUgraphEdgeData *data, size_t *count))                                                         \
  PLAIN(cuGraphNodeGetDependencies, 10000, cuGraphNodeGetDependencies, (CUgraphNode node, CUgraphNode        \
      *nodes, size_t *count))                                                                                \
  PLAIN(cuGraphNodeGetDependentNodes, 12030, cuGraphNodeGetDependentNodes_v2, (CUgraphNode node,             \
      CUgraphNode *nodes, CUgraphEdgeData *data, size_t *count))                                             \
  PLAIN(cuGraphNodeGetDependentNodes, 10000, cuGraphNodeGetDependentNodes, (CUgraphNode node, CUgraphNode    \
      *nodes, size_t *count))                                                                                \
  PLAIN(cuGraphAddDependencies, 12030, cuGraphAddDependencies_v2, (CUgraph graph, const CUgraphNode          \
      *from, const CUgraphNode *to, const CUgraphEdgeData *data, size_t count))                              \
  PLAIN(cuGraphAddDependencies, 10000, cuGraphAddDependencies, (CUgraph graph, const CUgraphNode *from,      \
      const CUgraphNode *to, size_t count))                                                                  \
  PLAIN(cuGraphRemoveDependencies, 12030, cuGraphRemoveDependencies_v2, (CUgraph graph, const CUgraphNode    \
      *from, const CUgraphNode *to, const CUgraphEdgeData *data, size_t count))                              \
  PLAIN(cuGraphRemoveDependencies, 10000, cuGraphRemoveDependencies, (CUgraph graph, const CUgraphNode       \
      *from, const CUgraphNode *to, size_t count))                                                           \
  PLAIN(cuGraphDestroyNode, 10000, cuGraphDestroyNode, (CUgraphNode node))                                   \
  PLAIN(cuGraphNodeGetType, 10000, cuGraphNodeGetType, (CUgraphNode node, CUgraphNodeType *type))            \
  PLAIN(cuGraphChildGraphNodeGetGraph, 10000, cuGraphChildGraphNodeGetGraph, (CUgraphNode node, CUgraph      \
      *graph))                                                                                               \
  PLAIN(cuGraphGetId, 13010, cuGraphGetId, (CUgraph graph, unsigned *id))                                    \
  PLAIN(cuGraphNodeGetContainingGraph, 13010, cuGraphNodeGetContainingGraph, (CUgraphNode node, CUgraph      \
      *graph))                                                                                               \
  PLAIN(cuGraphNodeGetLocalId, 13010, cuGraphNodeGetLocalId, (CUgraphNode node, unsigned *id))               \
  PLAIN(cuGraphNodeGetToolsId, 13010, cuGraphNodeGetToolsId, (CUgraphNode node, unsigned long long *id))     \
  PLAIN(cuGraphAddKernelNode, 12000, cuGraphAddKernelNode_v2, (CUgraphNode *node, CUgraph graph, const       \
      CUgraphNode *needs, size_t need_count, const CUDA_KERNEL_NODE_PARAMS_v2 *params))                      \
  PLAIN(cuGraphAddKernelNode, 10000, cuGraphAddKernelNode, (CUgraphNode *node, CUgraph graph, const          \
      CUgraphNode *needs, size_t need_count, const CUDA_KERNEL_NODE_PARAMS_v1 *params))                      \
  PLAIN(cuGraphAddMemcpyNode, 10000, cuGraphAddMemcpyNode, (CUgraphNode *node, CUgraph graph, const          \
      CUgraphNode *needs, size_t need_count, const CUDA_MEMCPY3D_v2 *copy, CUcontext context))               \
  PLAIN(cuGraphAddMemsetNode, 10000, cuGraphAddMemsetNode, (CUgraphNode *node, CUgraph graph, const          \
      CUgraphNode *needs, size_t need_count, const CUDA_MEMSET_NODE_PARAMS_v1 *fill, CUcontext context))     \
  PLAIN(cuGraphAddHostNode, 10000, cuGraphAddHostNode, (CUgraphNode *node, CUgraph graph, const              \
      CUgraphNode *needs, size_t need_count, const CUDA_HOST_NODE_PARAMS_v1 *params))                        \
  PLAIN(cuGraphAddChildGraphNode, 10000, cuGraphAddChildGraphNode, (CUgraphNode *node, CUgraph graph,        \
      const CUgraphNode *needs, size_t need_count, CUgraph child))                                           \
  PLAIN(cuGraphAddEmptyNode, 10000, cuGraphAddEmptyNode, (CUgraphNode *node, CUgraph graph, const            \
      CUgraphNode *needs, size_t need_count))                                                                \
  PLAIN(cuGraphAddEventRecordNode, 11010, cuGraphAddEventRecordNode, (CUgraphNode *node, CUgraph graph,      \
      const CUgraphNode *needs, size_t need_count, CUevent event))                                           \
  PLAIN(cuGraphAddEventWaitNode, 11010, cuGraphAddEventWaitNode, (CUgraphNode *node, CUgraph graph, const    \
      CUgraphNode *needs, size_t need_count, CUevent event))                                                 \
  PLAIN(cuGraphAddMemFreeNode, 11040, cuGraphAddMemFreeNode, (CUgraphNode *node, CUgraph graph, const        \
      CUgraphNode *needs, size_t need_count, CUdeviceptr address))                                           \
  PLAIN(cuGraphAddMemAllocNode, 11040, cuGraphAddMemAllocNode, (CUgraphNode *node, CUgraph graph, const      \
      CUgraphNode *needs, size_t need_count, CUDA_MEM_ALLOC_NODE_PARAMS *params))                            \
  PLAIN(cuGraphAddNode, 12030, cuGraphAddNode_v2, (CUgraphNode *node, CUgraph graph, const CUgraphNode       \
      *needs, const CUgraphEdgeData *data, size_t need_count, CUgraphNodeParams *params))                    \
  PLAIN(cuGraphAddNode, 12020, cuGraphAddNode, (CUgraphNode *node, CUgraph graph, const CUgraphNode          \
      *needs, size_t need_count, CUgraphNodeParams *params))                                                 \
  PLAIN(cuGraphNodeSetParams, 12020, cuGraphNodeSetParams, (CUgraphNode node, CUgraphNodeParams *params))    \
  PLAIN(cuGraphNodeGetParams, 13020, cuGraphNodeGetParams, (CUgraphNode node, CUgraphNodeParams *params))    \
  PLAIN(cuGraphExecNodeSetParams, 12020, cuGraphExecNodeSetParams, (CUgraphExec exec, CUgraphNode node,      \
      CUgraphNodeParams *params))                                                                            \
  PLAIN(cuGraphNodeSetEnabled, 11060, cuGraphNodeSetEnabled, (CUgraphExec exec, CUgraphNode node,            \
      unsigned enabled))                                                                                     \
  PLAIN(cuGraphNodeGetEnabled, 11060, cuGraphNodeGetEnabled, (CUgraphExec exec, CUgraphNode node,            \
      unsigned *enabled))                                                                                    \
  PLAIN(cuGraphMemAllocNodeGetParams, 11040, cuGraphMemAllocNodeGetParams, (CUgraphNode node,                \
      CUDA_MEM_ALLOC_NODE_PARAMS *params))                                                                   \
  PLAIN(cuGraphMemFreeNodeGetParams, 11040, cuGraphMemFreeNodeGetParams, (CUgraphNode node, CUdeviceptr      \
      *address))                                                                                             \
  PLAIN(cuDeviceGraphMemTrim, 11040, cuDeviceGraphMemTrim, (CUdevice device))                                \
  PLAIN(cuDeviceGetGraphMemAttribute, 11040, cuDeviceGetGraphMemAttribute, (CUdevice device,                 \
      CUgraphMem_attribute attribute, void *value))                                                          \
  PLAIN(cuDeviceSetGraphMemAttribute, 11040, cuDeviceSetGraphMemAttribute, (CUdevice device,                 \
      CUgraphMem_attribute attribute, void *value))                                                          \
  PLAIN(cuGraphInstantiateWithFlags, 11040, cuGraphInstantiateWithFlags, (CUgraphExec *made, CUgraph         \
      graph, uint64_t flags))                                                                                \
  PLAIN(cuGraphInstantiate, 11000, cuGraphInstantiate_v2, (CUgraphExec *made, CUgraph graph, CUgraphNode     \
      *error_node, char *log, size_t size))                                                                  \
  PLAIN(cuGraphInstantiate, 10000, cuGraphInstantiate, (CUgraphExec *made, CUgraph graph, CUgraphNode        \
      *error_node, char *log, size_t size))                                                                  \
  STREAM(cuGraphInstantiateWithParams, 12000, cuGraphInstantiateWithParams, 12000, _ptsz, (CUgraphExec       \
         *made, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params), (made, graph, params))                \
  PLAIN(cuGraphExecDestroy, 10000, cuGraphExecDestroy, (CUgraphExec exec))                                   \
  PLAIN(cuGraphExecGetFlags, 12000, cuGraphExecGetFlags, (CUgraphExec exec, uint64_t *flags))                \
  PLAIN(cuGraphExecGetId, 13010, cuGraphExecGetId, (CUgraphExec exec, unsigned *id))                         \
  STREAM(cuGraphUpload, 11010, cuGraphUpload, 11010, _ptsz, (CUgraphExec exec, CUstream handle), (exec,      \
         handle))                                                                                            \
  STREAM(cuGraphLaunch, 10000, cuGraphLaunch, 10000, _ptsz, (CUgraphExec exec, CUstream handle), (exec,      \
         handle))                                                                                            \
  PLAIN(cuGraphExecUpdate, 12000, cuGraphExecUpdate_v2, (CUgraphExec exec, CUgraph graph,                    \
      CUgraphExecUpdateResultInfo *info))                                                                    \
  PLAIN(cuGraphExecUpdate, 10020, cuGraphExecUpdate, (CUgraphExec exec, CUgraph graph, CUgraphNode           \
      *error_node, CUgraphExecUpdateResult *result_out))                                                     \
  STREAM(cuStreamBeginCapture, 10010, cuStreamBeginCapture_v2, 10010, _ptsz, (CUstream stream,               \
         CUstreamCaptureMode mode), (stream, mode))                                                          \
  STREAM(cuStreamBeginCapture, 10000, cuStreamBeginCapture, 10000, _ptsz, (CUstream stream), (stream))       \
  STREAM(cuStreamBeginCaptureToGraph, 12030, cuStreamBeginCaptureToGraph, 12030, _ptsz, (CUstream stream,    \
         CUgraph graph, const CUgraphNode *needs, const CUgraphEdgeData *data, size_t need_count,            \
         CUstreamCaptureMode mode), (stream, graph, needs, data, need_count, mode))                          \
  STREAM(cuStreamEndCapture, 10000, cuStreamEndCapture, 10000, _ptsz, (CUstream handle, CUgraph *graph),     \
         (handle, graph))                                                                                    \
  STREAM(cuStreamIsCapturing, 10000, cuStreamIsCapturing, 10000, _ptsz, (CUstream handle,                    \
         CUstreamCaptureStatus *status), (handle, status))                                                   \
  STREAM(cuStreamGetCaptureInfo, 12030, cuStreamGetCaptureInfo_v3, 12030, _ptsz, (CUstream handle,           \
         CUstreamCaptureStatus *status, uint64_t *id, CUgraph *graph, const CUgraphNode **needs, const       \
         CUgraphEdgeData **data, size_t *need_count), (handle, status, id, graph, needs, data,               \
         need_count))                                                                                        \
  STREAM(cuStreamGetCaptureInfo, 11030, cuStreamGetCaptureInfo_v2, 11030, _ptsz, (CUstream stream,           \
         CUstreamCaptureStatus *status, uint64_t *id, CUgraph *graph, const CUgraphNode **needs, size_t      \
         *need_count), (stream, status, id, graph, needs, need_count))                                       \
  STREAM(cuStreamGetCaptureInfo, 10010, cuStreamGetCaptureInfo, 10010, _ptsz, (CUstream stream,              \
         CUstreamCaptureStatus *status, uint64_t *id), (stream, status, id))                                 \
  STREAM(cuStreamUpdateCaptureDependencies, 12030, cuStreamUpdateCaptureDependencies_v2, 12030, _ptsz,       \
         (CUstream handle, CUgraphNode *needs, const CUgraphEdgeData *data, size_t need_count, unsigned      \
         flags), (handle, needs, data, need_count, flags))                                                   \
  STREAM(cuStreamUpdateCaptureDependencies, 11030, cuStreamUpdateCaptureDependencies, 11030, _ptsz,          \
         (CUstream stream, CUgraphNode *needs, size_t need_count, unsigned flags), (stream, needs,           \
         need_count, flags))                                                                                 \
  PLAIN(cuThreadExchangeStreamCaptureMode, 10010, cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode    \
      *mode))                                                                                                \
  STREAM(cuLaunchHostFunc, 10000, cuLaunchHostFunc, 10000, _ptsz, (CUstream stream, CUhostFn function,       \
         void *data), (stream, function, data))                                                              \
  STREAM(cuLaunchHostFunc, 13010, cuLaunchHostFunc_v2, 13010, _ptsz, (CUstream stream, CUhostFn function,    \
         void *data, unsigned mode), (stream, function, data, mode))                                         \
  STREAM(cuStreamAddCallback, 5000, cuStreamAddCallback, 7000, _ptsz, (CUstream handle, CUstreamCallback     \
         callback, void *data, unsigned flags), (handle, callback, data, flags))                             \
  PLAIN(cuUserObjectCreate, 11030, cuUserObjectCreate, (CUuserObject *made, void *data, CUhostFn destroy,    \
      unsigned references, unsigned flags))                                                                  \
  PLAIN(cuUserObjectRetain, 11030, cuUserObjectRetain, (CUuserObject object, unsigned count))                \
  PLAIN(cuUserObjectRelease, 11030, cuUserObjectRelease, (CUuserObject object, unsigned count))              \
  PLAIN(cuGraphRetainUserObject, 11030, cuGraphRetainUserObject, (CUgraph graph, CUuserObject object,        \
      unsigned count, unsigned flags))                                                                       \
  PLAIN(cuGraphReleaseUserObject, 11030, cuGraphReleaseUserObject, (CUgraph graph, CUuserObject object,      \
      unsigned count))                                                                                       \
  PLAIN(cuGraphKernelNodeGetParams, 10000, cuGraphKernelNodeGetParams, (CUgraphNode node,                    \
      CUDA_KERNEL_NODE_PARAMS_v1 *params))                                                                   \
  PLAIN(cuGraphKernelNodeSetParams, 10000, cuGraphKernelNodeSetParams, (CUgraphNode node, const              \
      CUDA_KERNEL_NODE_PARAMS_v1 *params))                                                                   \
  PLAIN(cuGraphExecKernelNodeSetParams, 10010, cuGraphExecKernelNodeSetParams, (CUgraphExec exec,            \
      CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params))                                           \
  PLAIN(cuGraphKernelNodeGetParams, 12000, cuGraphKernelNodeGetParams_v2, (CUgraphNode node,                 \
      CUDA_KERNEL_NODE_PARAMS_v2 *params))                                                                   \
  PLAIN(cuGraphKernelNodeSetParams, 12000, cuGraphKernelNodeSetParams_v2, (CUgraphNode node, const           \
      CUDA_KERNEL_NODE_PARAMS_v2 *params))                                                                   \
  PLAIN(cuGraphExecKernelNodeSetParams, 12000, cuGraphExecKernelNodeSetParams_v2, (CUgraphExec exec,         \
      CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2 *params))                                           \
  PLAIN(cuGraphHostNodeGetParams, 10000, cuGraphHostNodeGetParams, (CUgraphNode node,                        \
      CUDA_HOST_NODE_PARAMS_v1 *params))                                                                     \
  PLAIN(cuGraphHostNodeSetParams, 10000, cuGraphHostNodeSetParams, (CUgraphNode node, const                  \
      CUDA_HOST_NODE_PARAMS_v1 *params))                                                                     \
  PLAIN(cuGraphExecHostNodeSetParams, 10020, cuGraphExecHostNodeSetParams, (CUgraphExec exec, CUgraphNode    \
      node, const CUDA_HOST_NODE_PARAMS_v1 *params))                                                         \
  PLAIN(cuGraphMemcpyNodeGetParams, 10000, cuGraphMemcpyNodeGetParams, (CUgraphNode node,                    \
      CUDA_MEMCPY3D_v2 *params))                                                                             \
  PLAIN(cuGraphMemcpyNodeSetParams, 10000, cuGraphMemcpyNodeSetParams, (CUgraphNode node, const              \
      CUDA_MEMCPY3D_v2 *params))                                                                             \
  PLAIN(cuGraphExecMemcpyNodeSetParams, 10020, cuGraphExecMemcpyNodeSetParams, (CUgraphExec exec,            \
      CUgraphNode node, const CUDA_MEMCPY3D_v2 *params, CUcontext context))                                  \
  PLAIN(cuGraphMemsetNodeGetParams, 10000, cuGraphMemsetNodeGetParams, (CUgraphNode node,                    \
      CUDA_MEMSET_NODE_PARAMS_v1 *params))                                                                   \
  PLAIN(cuGraphMemsetNodeSetParams, 10000, cuGraphMemsetNodeSetParams, (CUgraphNode node, const              \
      CUDA_MEMSET_NODE_PARAMS_v1 *params))                                                                   \
  PLAIN(cuGraphExecMemsetNodeSetParams, 10020, cuGraphExecMemsetNodeSetParams, (CUgraphExec exec,            \
      CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS_v1 *params, CUcontext context))                        \
  PLAIN(cuGraphEventRecordNodeGetEvent, 11010, cuGraphEventRecordNodeGetEvent, (CUgraphNode node, CUevent    \
      *event))                                                                                               \
  PLAIN(cuGraphEventRecordNodeSetEvent, 11010, cuGraphEventRecordNodeSetEvent, (CUgraphNode node, CUevent    \
      event))                                                                                                \
  PLAIN(cuGraphExecEventRecordNodeSetEvent, 11010, cuGraphExecEventRecordNodeSetEvent, (CUgraphExec exec,    \
      CUgraphNode node, CUevent event))                                                                      \
  PLAIN(cuGraphEventWaitNodeGetEvent, 11010, cuGraphEventWaitNodeGetEvent, (CUgraphNode node, CUevent        \
      *event))                                                                                               \
  PLAIN(cuGraphEventWaitNodeSetEvent, 11010, cuGraphEventWaitNodeSetEvent, (CUgraphNode node, CUevent        \
      event))                                                                                                \
  PLAIN(cuGraphExecEventWaitNodeSetEvent, 11010, cuGraphExecEventWaitNodeSetEvent, (CUgraphExec exec,        \
      CUgraphNode node, CUevent event))
/* clang-format on */

#endif
