/* SPDX-License-Identifier: Apache-2.0
 *
 * MIG: which cards have it, and their instances. A MIG device, as NVML calls it, is a compute instance.
 * Errors as the NVML manual lists them under "Multi Instance GPU Management"; where it lists several, which
 * of them is a guess.
 */
#include "nvml.h"

/* Data-centre cards from Ampere on have it, mostly switched off. */
static bool has_mig(const struct card_config *card) {
  return card->mig != 0 || (card->compute_minor == 0 && card->compute_major >= 8);
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = nvml_card(device, &card);
  if (result != NVML_SUCCESS) return result;
  if (current == NULL || pending == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  if (!has_mig(card)) return NVML_ERROR_NOT_SUPPORTED;
  *current = *pending = card->mig;
  return NVML_SUCCESS;
}

/* 0 where the card can't do it; also answered while MIG mode is off. */
nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = nvml_card(device, &card);
  if (result != NVML_SUCCESS) return result;
  if (count == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  *count = has_mig(card) ? 7u : 0u;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *mig) {
  const struct card_config *card = NULL;
  nvmlReturn_t result = nvml_card(device, &card);
  if (result != NVML_SUCCESS) return result;
  if (mig == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  if (!has_mig(card)) return NVML_ERROR_NOT_SUPPORTED;
  nvmlDevice_t found = nvml_instance(device, index);
  if (found == NULL) return NVML_ERROR_NOT_FOUND;
  *mig = found;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is_mig) {
  const struct card_config *unit = NULL;
  nvmlReturn_t result = nvml_unit(device, &unit);
  if (result != NVML_SUCCESS) return result;
  if (is_mig == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  *is_mig = nvml_is_instance(device);
  return NVML_SUCCESS;
}

/* The instance behind a handle; a handle of a card is refused. */
static nvmlReturn_t instance_of(nvmlDevice_t device, const void *answer,
                                const struct card_config **instance) {
  nvmlReturn_t result = nvml_unit(device, instance);
  if (result != NVML_SUCCESS) return result;
  if (answer == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  if (nvml_is_instance(device)) return NVML_SUCCESS;
  return has_mig(*instance) ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device) {
  const struct card_config *instance = NULL;
  nvmlReturn_t result = instance_of(mig, device, &instance);
  if (result == NVML_SUCCESS) *device = nvml_of_unit(instance->parent - 1u);
  return result;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *id) {
  const struct card_config *instance = NULL;
  nvmlReturn_t result = instance_of(device, id, &instance);
  if (result == NVML_SUCCESS) *id = instance->gpu_instance;
  return result;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned *id) {
  const struct card_config *instance = NULL;
  nvmlReturn_t result = instance_of(device, id, &instance);
  if (result == NVML_SUCCESS) *id = instance->compute_instance;
  return result;
}

/* Engines as an A100's profiles have them: a copy engine a slice, a decoder for every other one. */
nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes) {
  const struct card_config *instance = NULL;
  nvmlReturn_t result = instance_of(device, attributes, &instance);
  if (result != NVML_SUCCESS) return result;
  *attributes = (nvmlDeviceAttributes_t){.multiprocessors = instance->sms,
                                         .copy_engines = instance->slices,
                                         .decoders = instance->slices / 2u,
                                         .gpu_instance_slices = instance->slices,
                                         .compute_instance_slices = instance->compute_slices,
                                         .memory_mib = instance->memory_bytes >> 20};
  return NVML_SUCCESS;
}
