/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of cuda_table.h: further kinds of graph nodes, batches of operations on streams.
 */
#ifndef FAKEGPU_CUDA_TABLE_STEPS_H
#define FAKEGPU_CUDA_TABLE_STEPS_H

/* clang-format off */
#define CUDA_STEPS(PLAIN, STREAM)                                                                            \
  PLAIN(cuGraphAddExternalSemaphoresSignalNode, 11020, cuGraphAddExternalSemaphoresSignalNode,               \
      (CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t need_count, const                  \
      CUDA_EXT_SEM_NODE_PARAMS_v1 *params))                                                                  \
  PLAIN(cuGraphExternalSemaphoresSignalNodeGetParams, 11020, cuGraphExternalSemaphoresSignalNodeGetParams,   \
      (CUgraphNode node, CUDA_EXT_SEM_NODE_PARAMS_v1 *params))                                               \
  PLAIN(cuGraphExternalSemaphoresSignalNodeSetParams, 11020, cuGraphExternalSemaphoresSignalNodeSetParams,   \
      (CUgraphNode node, const CUDA_EXT_SEM_NODE_PARAMS_v1 *params))                                         \
  PLAIN(cuGraphExecExternalSemaphoresSignalNodeSetParams, 11020,                                             \
      cuGraphExecExternalSemaphoresSignalNodeSetParams, (CUgraphExec exec, CUgraphNode node, const           \
      CUDA_EXT_SEM_NODE_PARAMS_v1 *params))                                                                  \
  PLAIN(cuGraphAddExternalSemaphoresWaitNode, 11020, cuGraphAddExternalSemaphoresWaitNode, (CUgraphNode      \
      *node, CUgraph graph, const CUgraphNode *needs, size_t need_count, const CUDA_EXT_SEM_NODE_PARAMS_v1   \
      *params))                                                                                              \
  PLAIN(cuGraphExternalSemaphoresWaitNodeGetParams, 11020, cuGraphExternalSemaphoresWaitNodeGetParams,       \
      (CUgraphNode node, CUDA_EXT_SEM_NODE_PARAMS_v1 *params))                                               \
  PLAIN(cuGraphExternalSemaphoresWaitNodeSetParams, 11020, cuGraphExternalSemaphoresWaitNodeSetParams,       \
      (CUgraphNode node, const CUDA_EXT_SEM_NODE_PARAMS_v1 *params))                                         \
  PLAIN(cuGraphExecExternalSemaphoresWaitNodeSetParams, 11020,                                               \
      cuGraphExecExternalSemaphoresWaitNodeSetParams, (CUgraphExec exec, CUgraphNode node, const             \
      CUDA_EXT_SEM_NODE_PARAMS_v1 *params))                                                                  \
  PLAIN(cuGraphAddBatchMemOpNode, 11070, cuGraphAddBatchMemOpNode, (CUgraphNode *node, CUgraph graph,        \
      const CUgraphNode *needs, size_t need_count, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params))             \
  PLAIN(cuGraphBatchMemOpNodeGetParams, 11070, cuGraphBatchMemOpNodeGetParams, (CUgraphNode node,            \
      CUDA_BATCH_MEM_OP_NODE_PARAMS *params))                                                                \
  PLAIN(cuGraphBatchMemOpNodeSetParams, 11070, cuGraphBatchMemOpNodeSetParams, (CUgraphNode node, const      \
      CUDA_BATCH_MEM_OP_NODE_PARAMS *params))                                                                \
  PLAIN(cuGraphExecBatchMemOpNodeSetParams, 11070, cuGraphExecBatchMemOpNodeSetParams, (CUgraphExec exec,    \
      CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params))                                        \
  PLAIN(cuGraphExecChildGraphNodeSetParams, 11010, cuGraphExecChildGraphNodeSetParams, (CUgraphExec exec,    \
      CUgraphNode node, CUgraph child))                                                                      \
  PLAIN(cuGraphKernelNodeCopyAttributes, 11000, cuGraphKernelNodeCopyAttributes, (CUgraphNode target,        \
      CUgraphNode source))                                                                                   \
  PLAIN(cuGraphKernelNodeGetAttribute, 11000, cuGraphKernelNodeGetAttribute, (CUgraphNode node, unsigned     \
      attribute, CUlaunchAttributeValue *value))                                                             \
  PLAIN(cuGraphKernelNodeSetAttribute, 11000, cuGraphKernelNodeSetAttribute, (CUgraphNode node, unsigned     \
      attribute, const CUlaunchAttributeValue *value))                                                       \
  PLAIN(cuGraphDebugDotPrint, 11030, cuGraphDebugDotPrint, (CUgraph graph, const char *path, unsigned        \
      flags))                                                                                                \
  PLAIN(cuGraphAddNode, 13040, cuGraphAddNode_v3, (CUgraphNode *node, CUgraph graph, const CUgraphNode       \
      *needs, const CUgraphEdgeData *data, size_t need_count, CUgraphNodeParams *params))                    \
  PLAIN(cuGraphNodeSetParams, 13040, cuGraphNodeSetParams_v2, (CUgraphNode node, CUgraphNodeParams           \
      *params))                                                                                              \
  PLAIN(cuGraphConditionalHandleCreate, 12030, cuGraphConditionalHandleCreate, (CUgraphConditionalHandle     \
      *handle, CUgraph graph, CUcontext context, unsigned value, unsigned flags))                            \
  STREAM(cuStreamBatchMemOp, 11070, cuStreamBatchMemOp_v2, 11070, _ptsz, (CUstream stream, unsigned count,   \
      CUstreamBatchMemOpParams *operations, unsigned flags), (stream, count, operations, flags))             \
  STREAM(cuStreamBatchMemOp, 8000, cuStreamBatchMemOp, 8000, _ptsz, (CUstream stream, unsigned count,        \
      CUstreamBatchMemOpParams *operations, unsigned flags), (stream, count, operations, flags))             \
  STREAM(cuMemcpy3DBatchAsync, 13000, cuMemcpy3DBatchAsync_v2, 13000, _ptsz, (size_t count,                  \
      CUDA_MEMCPY3D_BATCH_OP_v1 *copies, unsigned long long flags, CUstream stream), (count, copies,         \
      flags, stream))                                                                                        \
  STREAM(cuMemcpy3DBatchAsync, 12080, cuMemcpy3DBatchAsync, 12080, _ptsz, (size_t count,                     \
      CUDA_MEMCPY3D_BATCH_OP_v1 *copies, size_t *failed, unsigned long long flags, CUstream stream),         \
      (count, copies, failed, flags, stream))                                                                \
  STREAM(cuMemcpy3DWithAttributesAsync, 13020, cuMemcpy3DWithAttributesAsync, 13020, _ptsz,                  \
      (CUDA_MEMCPY3D_BATCH_OP_v1 *copy, unsigned long long flags, CUstream stream), (copy, flags, stream))   \
  STREAM(cuMemcpyWithAttributesAsync, 13020, cuMemcpyWithAttributesAsync, 13020, _ptsz, (CUdeviceptr         \
      target, CUdeviceptr source, size_t bytes, const void *attributes, CUstream stream), (target, source,   \
      bytes, attributes, stream))
/* clang-format on */

#endif
