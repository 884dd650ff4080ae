/* plans - an H200 as cuDNN wants it described, for plans that are built on a machine without that
 * GPU. */
#ifndef TESTS_CUDNN_PLANS_H
#define TESTS_CUDNN_PLANS_H

/* Guesses, until the "cudnn_device" of a real card's gpu_properties replaces them. */
static const char h200[] =
    "{\"deviceName\":\"NVIDIA H200\",\"deviceVer\":900,\"driverVer\":13000,\"cudaDeviceId\":0,"
    "\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1,\"warpSize\":32,"
    "\"multiProcessorCount\":132,\"maxCtasPerSM\":32,\"maxThreadsPerSM\":2048,"
    "\"maxThreadsPerBlock\":1024,\"maxGridSize\":[2147483647,65535,65535],"
    "\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,\"maxRegistersPerSM\":65536,"
    "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":232448,"
    "\"reservedSharedMemoryPerBlock\":1024,\"l2CacheSize\":62914560,\"smClockRateKHz\":1980000,"
    "\"memClockRateKHz\":3201000,\"totalGlobalMem\":150754820096}";

#endif
