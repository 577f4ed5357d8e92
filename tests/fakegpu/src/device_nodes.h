/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FAKEGPU_DEVICE_NODES_H
#define FAKEGPU_DEVICE_NODES_H

#include <stdbool.h>
#include <stdint.h>

/* Visibility is by device nodes, as with the real driver: what can be opened can be used. */
bool control_node_opens(void); /* nvidiactl */
bool uvm_node_opens(void);     /* nvidia-uvm */
bool card_node_opens(uint32_t minor);
bool instance_nodes_open(uint32_t minor, uint32_t gpu_instance, uint32_t compute_instance); /* MIG */

#endif
