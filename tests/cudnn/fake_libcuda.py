"""Write the C source of a stand-in for libcuda.so.1, with which cuDNN builds runtime-compiled plans
on a machine without a driver.  The stand-in can run no kernel.

    fake_libcuda.py STUB_LIBCUDA OUT.c      exports every function that the toolkit's stub exports

Never install the stand-in, and never let a program load it on a machine with a GPU."""
import subprocess
import sys

HANDLE = '*(void **)a = &fake; return 0;'
NUMBER = '*(int *)a = %d; return 0;'
TEXT = '*(const char **)b = "stand-in for libcuda"; return 0;'

BODY = {
    **dict.fromkeys(['cuLibraryLoadData', 'cuLibraryGetKernel', 'cuKernelGetFunction',
                     'cuLibraryGetModule', 'cuModuleLoadData', 'cuModuleLoadDataEx',
                     'cuModuleGetFunction', 'cuCtxGetCurrent'], HANDLE),
    'cuDriverGetVersion': NUMBER % 13000,
    'cuDeviceGetCount': NUMBER % 1,
    'cuDeviceGet': NUMBER % 0,
    'cuFuncGetAttribute': NUMBER % 0,
    'cuKernelGetAttribute': NUMBER % 0,
    'cuOccupancyMaxActiveBlocksPerMultiprocessor': NUMBER % 1,
    'cuOccupancyMaxActiveClusters': NUMBER % 66,
    'cuGetErrorString': TEXT,
    'cuGetErrorName': TEXT,
    **dict.fromkeys(['cuFuncSetAttribute', 'cuKernelSetAttribute', 'cuLibraryUnload',
                     'cuModuleUnload'], 'return 0;'),
}
STUB = 'return 34;'  # CUDA_ERROR_STUB_LIBRARY


def functions(stub):
    """The names of the functions that the stub defines."""
    out = subprocess.run(['nm', '-D', '--defined-only', stub], check=True, text=True,
                         capture_output=True).stdout
    rows = [line.split() for line in out.splitlines()]
    return sorted({row[2].split('@')[0] for row in rows if len(row) == 3 and row[1] == 'T'})


def main(stub, path):
    """Write the source."""
    with open(path, 'w', encoding='ascii') as f:
        f.write('static int fake;\n')
        for name in functions(stub):
            f.write(f'__attribute__((visibility("default"))) int {name}(void *a, void *b, void *c, '
                    'void *d, void *e, void *f);\n'
                    f'int {name}(void *a, void *b, void *c, void *d, void *e, void *f)\n'
                    '{ (void)fake; (void)a; (void)b; (void)c; (void)d; (void)e; (void)f; '
                    f'{BODY.get(name, STUB)} }}\n')


main(sys.argv[1], sys.argv[2])
