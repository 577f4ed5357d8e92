/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding a card, and what it is.
 */
#include "nvml.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
  nvmlReturn_t ready = nvml_ready();
  if (ready != NVML_SUCCESS) return ready;
  if (device == NULL || nvml_device(index) == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  return nvml_handle(nvml_device(index), device);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device) {
  return nvmlDeviceGetHandleByIndex_v2(index, device);
}

static nvmlReturn_t find(const char *text, nvmlDevice_t *device,
                         bool (*matches)(const struct card_config *card, const char *text)) {
  nvmlReturn_t ready = nvml_ready();
  if (ready != NVML_SUCCESS) return ready;
  if (text == NULL || device == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  bool any_lost = false;
  for (unsigned index = 0; index < nvml_count(); index++) {
    nvmlDevice_t card = nvml_device(index), instance = NULL;
    if (matches(&member_state()->cards[card->unit], text)) return nvml_handle(card, device);
    for (unsigned next = 0; (instance = nvml_instance(card, next)) != NULL; next++)
      if (matches(&member_state()->cards[instance->unit], text)) return nvml_handle(instance, device);
    any_lost = any_lost || unit_is_lost(member_state(), card->unit);
  }
  return any_lost ? NVML_ERROR_GPU_IS_LOST : NVML_ERROR_NOT_FOUND; /* the lost one might be it */
}

/* An instance has a second name, the one of drivers before 470: MIG-<uuid of the card>/<gi>/<ci>. */
static bool has_uuid(const struct card_config *card, const char *text) {
  char legacy[96];
  if (strcasecmp(card->uuid, text) == 0) return true;
  if (card->parent == 0) return false;
  snprintf(legacy, sizeof legacy, "MIG-%s/%u/%u", member_state()->cards[card->parent - 1u].uuid,
           card->gpu_instance, card->compute_instance);
  return strcasecmp(legacy, text) == 0;
}

static bool has_serial(const struct card_config *card, const char *text) {
  return card->parent == 0 && card->serial[0] != '\0' && strcmp(card->serial, text) == 0;
}

static bool has_address(const struct card_config *card, const char *text) {
  if (card->parent != 0) return false;
  unsigned domain = 0, bus = 0, slot = 0, function = 0;
  if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
    domain = 0;
    if (sscanf(text, "%x:%x.%x", &bus, &slot, &function) < 2) return false;
  }
  return card->pci_domain == domain && card->pci_bus == bus && card->pci_device == slot;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
  return find(uuid, device, has_uuid);
}
nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device) {
  return find(serial, device, has_serial);
}
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device) {
  return find(bus_id, device, has_address);
}
nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device) {
  return find(bus_id, device, has_address);
}

/* The frame of all questions that have one number as answer; `find` says whom they can be asked of. */
#define ANSWER(find, symbol, type, expression)              \
  nvmlReturn_t symbol(nvmlDevice_t device, type *answer) {  \
    const struct card_config *card = NULL;                  \
    nvmlReturn_t result = find(device, &card);              \
    if (result != NVML_SUCCESS) return result;              \
    if (answer == NULL) return NVML_ERROR_INVALID_ARGUMENT; \
    *answer = (expression);                                 \
    return NVML_SUCCESS;                                    \
  }

struct number {
  const char *name;
  unsigned value;
};

static unsigned number_of(const struct number *numbers, const char *name, unsigned other) {
  for (; numbers->name != NULL; numbers++)
    if (strcasecmp(numbers->name, name) == 0) return numbers->value;
  return other;
}

static const struct number brands[] = {{"quadro", 1},      {"tesla", 2},       {"geforce", 5}, {"titan", 6},
                                       {"quadro rtx", 12}, {"nvidia rtx", 13}, {"nvidia", 14}, {NULL, 0}};
static const struct number architectures[] = {{"kepler", 2},     {"maxwell", 3}, {"pascal", 4}, {"volta", 5},
                                              {"turing", 6},     {"ampere", 7},  {"ada", 8},    {"hopper", 9},
                                              {"blackwell", 10}, {NULL, 0}};

/* CUDA cores per multiprocessor. */
static unsigned cores_of(const struct card_config *card) {
  bool wide = (card->compute_major == 8 && card->compute_minor != 0) || card->compute_major >= 9;
  return card->sms * (wide ? 128u : 64u);
}

ANSWER(nvml_card, nvmlDeviceGetMinorNumber, unsigned, card->minor)
ANSWER(nvml_unit, nvmlDeviceGetIndex, unsigned, device->index)
ANSWER(nvml_unit, nvmlDeviceGetBrand, unsigned, number_of(brands, card->brand, 0))
ANSWER(nvml_unit, nvmlDeviceGetArchitecture, unsigned,
       number_of(architectures, card->architecture, 0xffffffffu))
ANSWER(nvml_card, nvmlDeviceGetNumGpuCores, unsigned, cores_of(card))
ANSWER(nvml_card, nvmlDeviceGetMemoryBusWidth, unsigned, card->bus_width_bits)
ANSWER(nvml_card, nvmlDeviceGetComputeMode, unsigned, 0) /* default: any number of processes */
ANSWER(nvml_card, nvmlDeviceGetPersistenceMode, unsigned, 1)
ANSWER(nvml_card, nvmlDeviceGetVirtualizationMode, unsigned, 0)

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = nvml_unit(device, &card);
  return result == NVML_SUCCESS ? nvml_text(name, length, card->name) : result;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = nvml_unit(device, &card);
  return result == NVML_SUCCESS ? nvml_text(uuid, length, card->uuid) : result;
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned length) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = nvml_card(device, &card);
  if (result != NVML_SUCCESS) return result;
  return card->serial[0] == '\0' ? NVML_ERROR_NOT_SUPPORTED : nvml_text(serial, length, card->serial);
}

nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned length) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = nvml_card(device, &card);
  return result == NVML_SUCCESS ? nvml_text(version, length, "92.00.45.00.03") : result;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = nvml_unit(device, &card);
  if (result != NVML_SUCCESS) return result;
  if (major == NULL || minor == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  *major = (int)card->compute_major;
  *minor = (int)card->compute_minor;
  return NVML_SUCCESS;
}

void nvml_pci(const struct card_config *card, nvmlPciInfo_t *pci, int version) {
  char text[32];
  snprintf(text, sizeof text, "%04X:%02X:%02X.0", card->pci_domain, card->pci_bus, card->pci_device);
  memset(pci->bus_id_legacy, 0, sizeof pci->bus_id_legacy);
  memcpy(pci->bus_id_legacy, text, strlen(text));
  pci->domain = card->pci_domain;
  pci->bus = card->pci_bus;
  pci->device = card->pci_device;
  pci->pci_device_id = card->pci_device_id;
  if (version >= 2) pci->pci_subsystem_id = card->pci_subsystem_id;
  if (version >= 3)
    snprintf(pci->bus_id, sizeof pci->bus_id, "%08X:%02X:%02X.0", card->pci_domain, card->pci_bus,
             card->pci_device);
}

static nvmlReturn_t get_pci(nvmlDevice_t device, nvmlPciInfo_t *pci, int version) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = nvml_card(device, &card);
  if (result != NVML_SUCCESS) return result;
  if (pci == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  nvml_pci(card, pci, version);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci) { return get_pci(device, pci, 1); }
nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci) {
  return get_pci(device, pci, 2);
}
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
  return get_pci(device, pci, 3);
}
