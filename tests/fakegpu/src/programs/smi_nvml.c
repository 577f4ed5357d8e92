/* SPDX-License-Identifier: Apache-2.0
 *
 * Every function is looked up by dlsym, as in the real program, so that a preloaded library can show its own
 * view.
 */
#include "smi.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SMI_FUNCTIONS(FUNCTION)                                                                           \
  FUNCTION(nvmlInit_v2, (void))                                                                           \
  FUNCTION(nvmlSystemGetDriverVersion, (char *text, unsigned length))                                     \
  FUNCTION(nvmlSystemGetNVMLVersion, (char *text, unsigned length))                                       \
  FUNCTION(nvmlSystemGetCudaDriverVersion_v2, (int *version))                                             \
  FUNCTION(nvmlSystemGetProcessName, (unsigned pid, char *name, unsigned length))                         \
  FUNCTION(nvmlDeviceGetCount_v2, (unsigned *count))                                                      \
  FUNCTION(nvmlDeviceGetHandleByIndex_v2, (unsigned index, nvmlDevice_t *device))                         \
  FUNCTION(nvmlDeviceGetName, (nvmlDevice_t device, char *text, unsigned length))                         \
  FUNCTION(nvmlDeviceGetUUID, (nvmlDevice_t device, char *text, unsigned length))                         \
  FUNCTION(nvmlDeviceGetSerial, (nvmlDevice_t device, char *text, unsigned length))                       \
  FUNCTION(nvmlDeviceGetPciInfo_v3, (nvmlDevice_t device, nvmlPciInfo_t * pci))                           \
  FUNCTION(nvmlDeviceGetMemoryInfo, (nvmlDevice_t device, nvmlMemory_t * memory))                         \
  FUNCTION(nvmlDeviceGetUtilizationRates, (nvmlDevice_t device, nvmlUtilization_t * utilization))         \
  FUNCTION(nvmlDeviceGetCudaComputeCapability, (nvmlDevice_t device, int *major, int *minor))             \
  FUNCTION(nvmlDeviceGetTemperature, (nvmlDevice_t device, unsigned sensor, unsigned *celsius))           \
  FUNCTION(nvmlDeviceGetPowerUsage, (nvmlDevice_t device, unsigned *milliwatts))                          \
  FUNCTION(nvmlDeviceGetEnforcedPowerLimit, (nvmlDevice_t device, unsigned *milliwatts))                  \
  FUNCTION(nvmlDeviceGetPerformanceState, (nvmlDevice_t device, unsigned *state))                         \
  FUNCTION(nvmlDeviceGetMigMode, (nvmlDevice_t device, unsigned *current, unsigned *pending))             \
  FUNCTION(nvmlDeviceGetMaxMigDeviceCount, (nvmlDevice_t device, unsigned *count))                        \
  FUNCTION(nvmlDeviceGetMigDeviceHandleByIndex, (nvmlDevice_t device, unsigned index, nvmlDevice_t *mig)) \
  FUNCTION(nvmlDeviceGetComputeRunningProcesses_v3,                                                       \
           (nvmlDevice_t device, unsigned *count, nvmlProcessInfo_v2_t *infos))

enum { STATUS_NO_DEVICES = 6, STATUS_NO_DRIVER = 9, STATUS_NO_LIBRARY = 12 };

#define SMI_MEMBER(name, parameters) nvmlReturn_t(*name) parameters;
static struct {
  SMI_FUNCTIONS(SMI_MEMBER)
} nvml;

static void load(void) {
  void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  void *found = library;
#define SMI_LOAD(name, parameters)                \
  if (found != NULL) {                            \
    found = dlsym(library, #name);                \
    memcpy(&nvml.name, &found, sizeof nvml.name); \
  }
  SMI_FUNCTIONS(SMI_LOAD)
  if (found != NULL) return;
  puts(
      "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA "
      "Display "
      "Driver is properly installed and present in your system.");
  exit(STATUS_NO_LIBRARY);
}

static void read_processes(nvmlDevice_t device, struct smi_card *card) {
  static nvmlProcessInfo_v2_t infos[SMI_PROCESSES];
  unsigned count = SMI_PROCESSES;
  if (nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, &count, infos) != NVML_SUCCESS) return;
  card->process_count = count;
  for (unsigned index = 0; index < count; index++) {
    struct smi_process *process = &card->processes[index];
    process->pid = infos[index].pid;
    process->used_bytes = infos[index].used_bytes;
    if (nvml.nvmlSystemGetProcessName(process->pid, process->name, sizeof process->name) != NVML_SUCCESS)
      memcpy(process->name, "[Not Found]", sizeof "[Not Found]");
  }
}

static void read_instances(nvmlDevice_t device, struct smi_card *card) {
  unsigned most = 0;
  nvml.nvmlDeviceGetMaxMigDeviceCount(device, &most);
  for (unsigned index = 0; index < most && card->instance_count < SMI_INSTANCES; index++) {
    struct smi_instance *instance = &card->instances[card->instance_count];
    nvmlDevice_t mig = NULL;
    if (nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, index, &mig) != NVML_SUCCESS) continue;
    nvml.nvmlDeviceGetName(mig, instance->name, sizeof instance->name);
    nvml.nvmlDeviceGetUUID(mig, instance->uuid, sizeof instance->uuid);
    card->instance_count++;
  }
}

static void read_card(nvmlDevice_t device, struct smi_card *card) {
  unsigned current = 0, pending = 0;
  nvml.nvmlDeviceGetName(device, card->name, sizeof card->name);
  nvml.nvmlDeviceGetUUID(device, card->uuid, sizeof card->uuid);
  if (nvml.nvmlDeviceGetSerial(device, card->serial, sizeof card->serial) != NVML_SUCCESS)
    memcpy(card->serial, "[N/A]", sizeof "[N/A]");
  nvml.nvmlDeviceGetPciInfo_v3(device, &card->pci);
  nvml.nvmlDeviceGetMemoryInfo(device, &card->memory);
  nvml.nvmlDeviceGetUtilizationRates(device, &card->utilization);
  nvml.nvmlDeviceGetCudaComputeCapability(device, &card->compute_major, &card->compute_minor);
  nvml.nvmlDeviceGetTemperature(device, 0, &card->celsius);
  nvml.nvmlDeviceGetPowerUsage(device, &card->milliwatts);
  nvml.nvmlDeviceGetEnforcedPowerLimit(device, &card->limit_milliwatts);
  nvml.nvmlDeviceGetPerformanceState(device, &card->performance_state);
  card->has_mig = nvml.nvmlDeviceGetMigMode(device, &current, &pending) == NVML_SUCCESS;
  card->in_mig_mode = card->has_mig && current != 0;
  if (card->in_mig_mode) read_instances(device, card);
  read_processes(device, card);
}

void smi_read(struct smi *smi) {
  load();
  if (nvml.nvmlInit_v2() != NVML_SUCCESS) {
    puts(
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the "
        "latest "
        "NVIDIA driver is installed and running.\n");
    exit(STATUS_NO_DRIVER);
  }
  nvml.nvmlSystemGetDriverVersion(smi->driver_version, sizeof smi->driver_version);
  nvml.nvmlSystemGetNVMLVersion(smi->nvml_version, sizeof smi->nvml_version);
  nvml.nvmlSystemGetCudaDriverVersion_v2(&smi->cuda_version);
  nvml.nvmlDeviceGetCount_v2(&smi->card_count);
  if (smi->card_count == 0) {
    puts("No devices were found");
    exit(STATUS_NO_DEVICES);
  }
  if (smi->card_count > SMI_CARDS) smi->card_count = SMI_CARDS;
  for (unsigned index = 0; index < smi->card_count; index++) {
    nvmlDevice_t device = NULL;
    smi->cards[index].index = index;
    if (nvml.nvmlDeviceGetHandleByIndex_v2(index, &device) == NVML_SUCCESS)
      read_card(device, &smi->cards[index]);
  }
}
