/* SPDX-License-Identifier: Apache-2.0
 *
 * What a device says of itself.
 */
#include "driver.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

CUresult cuDeviceGetCount(int *count) {
  CUresult ready = driver_ready();
  if (ready != CUDA_SUCCESS) return ready;
  if (count == NULL) return CUDA_ERROR_INVALID_VALUE;
  *count = device_count();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  CUresult ready = driver_ready();
  if (ready != CUDA_SUCCESS) return ready;
  if (device == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (device_at(ordinal) == NULL) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

/* The card behind a device, after the checks that every question about one begins with. */
static CUresult card_of(CUdevice device, const struct card_config **card) {
  CUresult ready = driver_ready();
  if (ready != CUDA_SUCCESS) return ready;
  *card = device_config(device);
  return *card == NULL ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
  const struct card_config *card = NULL;
  CUresult result = card_of(device, &card);
  if (result != CUDA_SUCCESS) return result;
  if (name == NULL || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  snprintf(name, (size_t)length, "%s", card->name);
  return CUDA_SUCCESS;
}

static unsigned nibble(char digit) {
  return (unsigned)(isdigit((unsigned char)digit) ? digit - '0' : tolower((unsigned char)digit) - 'a' + 10);
}

/* The 16 bytes of "GPU-…" or "MIG-…". */
static void read_uuid(const char *text, CUuuid *uuid) {
  const char *digits = text + 4;
  for (int index = 0; index < 16; index++) {
    if (*digits == '-') digits++;
    unsigned value = nibble(digits[0]) << 4 | nibble(digits[1]);
    memcpy(&uuid->bytes[index], &(unsigned char){(unsigned char)value}, 1);
    digits += 2;
  }
}

static CUresult get_uuid(CUuuid *uuid, CUdevice device, bool of_instance) {
  const struct card_config *card = NULL;
  CUresult result = card_of(device, &card);
  if (result != CUDA_SUCCESS) return result;
  if (uuid == NULL) return CUDA_ERROR_INVALID_VALUE;
  bool of_card = card->parent != 0 && !of_instance;
  read_uuid(of_card ? member_state()->cards[card->parent - 1u].uuid : card->uuid, uuid);
  return CUDA_SUCCESS;
}

/* The manual: of a MIG instance this tells the card's uuid, _v2 the instance's own. */
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) { return get_uuid(uuid, device, false); }
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) { return get_uuid(uuid, device, true); }

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  const struct card_config *card = NULL;
  CUresult result = card_of(device, &card);
  if (result != CUDA_SUCCESS) return result;
  if (bytes == NULL) return CUDA_ERROR_INVALID_VALUE;
  *bytes = card->memory_bytes;
  return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
  const struct card_config *card = NULL;
  CUresult result = card_of(device, &card);
  if (result != CUDA_SUCCESS) return result;
  if (major == NULL || minor == NULL) return CUDA_ERROR_INVALID_VALUE;
  *major = (int)card->compute_major;
  *minor = (int)card->compute_minor;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device) {
  const struct card_config *card = NULL;
  CUresult result = card_of(device, &card);
  if (result != CUDA_SUCCESS) return result;
  if (text == NULL || length < 13) return CUDA_ERROR_INVALID_VALUE;
  snprintf(text, (size_t)length, "%04X:%02X:%02X.0", card->pci_domain, card->pci_bus, card->pci_device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *text) {
  CUresult ready = driver_ready();
  if (ready != CUDA_SUCCESS) return ready;
  if (device == NULL || text == NULL) return CUDA_ERROR_INVALID_VALUE;
  unsigned domain = 0, bus = 0, slot = 0;
  if (sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3) {
    domain = 0;
    if (sscanf(text, "%x:%x", &bus, &slot) != 2) return CUDA_ERROR_INVALID_VALUE;
  }
  for (CUdevice ordinal = 0; ordinal < device_count(); ordinal++) {
    const struct card_config *card = device_config(ordinal);
    if (card->pci_domain != domain || card->pci_bus != bus || card->pci_device != slot) continue;
    *device = ordinal;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
  const struct card_config *card = NULL, *other = NULL;
  CUresult result = card_of(device, &card);
  if (result == CUDA_SUCCESS) result = card_of(peer, &other);
  if (result != CUDA_SUCCESS) return result;
  if (can == NULL) return CUDA_ERROR_INVALID_VALUE;
  *can = card != other && card->nvlink_domain != 0 && card->nvlink_domain == other->nvlink_domain;
  return CUDA_SUCCESS;
}
