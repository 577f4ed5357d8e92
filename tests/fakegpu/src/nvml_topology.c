/* SPDX-License-Identifier: Apache-2.0
 *
 * How cards are joined. Cards of one nvlink_domain have one link to each other member, in the inventory's
 * order; without a domain, cards of one NUMA node meet at the host bridge.
 */
#include "nvml.h"

#define LINKS 18u
enum { TOPOLOGY_HOSTBRIDGE = 30, TOPOLOGY_SYSTEM = 50 };
enum { P2P_OK = 0, P2P_NOT_SUPPORTED = 5, P2P_NVLINK = 2, P2P_CAPABILITIES = 5 };

static nvmlReturn_t pair(nvmlDevice_t device, nvmlDevice_t other, const struct card_config **card,
                         const struct card_config **peer) {
  nvmlReturn_t result = nvml_card(device, card);
  return result == NVML_SUCCESS ? nvml_known(other, peer) : result;
}

static bool joined(const struct card_config *card, const struct card_config *peer) {
  return card != peer && card->nvlink_domain != 0 && card->nvlink_domain == peer->nvlink_domain;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device, nvmlDevice_t other, unsigned *level) {
  const struct card_config *card = NULL, *peer = NULL;
  nvmlReturn_t result = pair(device, other, &card, &peer);
  if (result != NVML_SUCCESS) return result;
  if (level == NULL || device == other) return NVML_ERROR_INVALID_ARGUMENT;
  *level = card->numa_node == peer->numa_node ? TOPOLOGY_HOSTBRIDGE : TOPOLOGY_SYSTEM;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t other, unsigned capability,
                                    unsigned *status) {
  const struct card_config *card = NULL, *peer = NULL;
  nvmlReturn_t result = pair(device, other, &card, &peer);
  if (result != NVML_SUCCESS) return result;
  if (status == NULL || device == other || capability >= P2P_CAPABILITIES) return NVML_ERROR_INVALID_ARGUMENT;
  *status = joined(card, peer) ? P2P_OK : P2P_NOT_SUPPORTED;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t device, nvmlDevice_t other, int *same) {
  const struct card_config *card = NULL, *peer = NULL;
  nvmlReturn_t result = pair(device, other, &card, &peer);
  if (result != NVML_SUCCESS) return result;
  if (same == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  *same = device == other;
  return NVML_SUCCESS;
}

/* The card at the other end of a link. NULL: the link is not in use. */
static const struct card_config *remote(const struct card_config *card, unsigned link) {
  const struct state *state = member_state();
  for (uint32_t index = 0; index < state->driver.card_count; index++)
    if (joined(card, &state->cards[index]) && link-- == 0) return &state->cards[index];
  return NULL;
}

static nvmlReturn_t link_of(nvmlDevice_t device, unsigned link, const void *answer,
                            const struct card_config **peer) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = nvml_card(device, &card);
  if (result != NVML_SUCCESS) return result;
  if (link >= LINKS || answer == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  if (card->nvlink_domain == 0) return NVML_ERROR_NOT_SUPPORTED;
  *peer = remote(card, link);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, unsigned *active) {
  const struct card_config *peer = NULL;
  nvmlReturn_t result = link_of(device, link, active, &peer);
  if (result == NVML_SUCCESS) *active = peer != NULL;
  return result;
}

nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned link, unsigned *version) {
  const struct card_config *peer = NULL;
  nvmlReturn_t result = link_of(device, link, version, &peer);
  if (result == NVML_SUCCESS) *version = 3;
  return result;
}

static nvmlReturn_t remote_pci(nvmlDevice_t device, unsigned link, nvmlPciInfo_t *pci, int version) {
  const struct card_config *peer = NULL;
  nvmlReturn_t result = link_of(device, link, pci, &peer);
  if (result != NVML_SUCCESS) return result;
  if (peer == NULL)
    return NVML_ERROR_INVALID_ARGUMENT; /* what the real one says of an inactive link is a guess */
  nvml_pci(peer, pci, version);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned link, nvmlPciInfo_t *pci) {
  return remote_pci(device, link, pci, 2);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned link, nvmlPciInfo_t *pci) {
  return remote_pci(device, link, pci, 3);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned link, unsigned *type) {
  const struct card_config *peer = NULL;
  nvmlReturn_t result = link_of(device, link, type, &peer);
  if (result == NVML_SUCCESS) *type = 0; /* a GPU, no switch */
  return result;
}
